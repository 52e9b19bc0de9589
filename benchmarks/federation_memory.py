"""Of what a silo's memory consists: its own (anonymous), and pages of files (libraries), which processes share.

    python benchmarks/federation_memory.py           what imports take, each in a process of its own
    python benchmarks/federation_memory.py PID ...   silos that run: the process that holds the connection, its worker

Anonymous memory is each process's own; pages of files count once on a machine, whatever the number of silos on it.
"""

from __future__ import annotations

import os
import subprocess
import sys

import psutil

LIBRARIES = """
import ctypes, importlib.util, numpy, os
found = importlib.util.find_spec("torch").origin
ctypes.CDLL(os.path.join(os.path.dirname(found), "lib", "libtorch_python.so"), mode=ctypes.RTLD_GLOBAL)
"""
IMPORTS = {
    "Python": "",
    "NumPy": "import numpy",
    "pandas, with pyarrow": "import pandas",
    "NumPy, and PyTorch's libraries without its Python": LIBRARIES,
    "PyTorch": "import torch",
    "Flower's part of the worker": "import fedcollab.flower.silo.messages, fedcollab.flower.silo.received",
    "a silo's connection": "import fedcollab.flower.silo.supernode",
    "a silo's worker, before it reads data": "import fedcollab.flower.silo.worker",
    "a silo's worker with pandas (CSV, Parquet)": "import fedcollab.flower.silo.worker, pandas",
}
WAIT = "\nimport sys\nprint(len(sys.modules), flush=True)\nsys.stdin.read()"


def split(pid: int) -> tuple[float, float]:
    """Megabytes of a process: anonymous, and pages of files."""
    own = mapped = 0
    for part in psutil.Process(pid).memory_maps():
        own, mapped = own + part.anonymous, mapped + part.rss - part.anonymous
    return own / 1e6, mapped / 1e6


def main() -> None:
    print(f"{'':<52}{'anonymous':>10}{'files':>8} MB")
    for pid in map(int, sys.argv[1:]):
        for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
            own, mapped = split(process.pid)
            print(f"{process.pid} {process.cmdline()[2].rpartition('.')[2]:<44}{own:>10.0f}{mapped:>8.0f}")
    if sys.argv[1:]:
        return
    for name, code in IMPORTS.items():
        line, env = [sys.executable, "-c", code + WAIT], {**os.environ, "OMP_NUM_THREADS": "1"}
        with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True) as process:
            assert process.stdout is not None
            modules = int(process.stdout.readline())
            own, mapped = split(process.pid)
            process.kill()
        print(f"{name:<52}{own:>10.0f}{mapped:>8.0f}   {modules} modules")


if __name__ == "__main__":
    main()
