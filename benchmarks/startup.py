"""Start-up CPU of the solver-only path as a ratio to `import numpy`, in the same run.

Bound: 2.5. Each command runs in its own process; the smallest CPU time of `--repeats` counts.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

MATRIX = "0,0.1,0.9\n0.1,0,0.8\n0.9,0.8,0\n"


def cpu(command: list[str], repeats: int) -> float:
    """Smallest user + system time of a command, in seconds."""
    times = []
    for _ in range(repeats):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "D.csv").write_text(MATRIX)
        (Path(folder) / "m.csv").write_text("100\n100\n100\n")
        files = ["--matrix", f"{folder}/D.csv", "--quantities", f"{folder}/m.csv"]
        program = "import sys; from fedcollab.cli import main; sys.argv = ['fedcollab', *sys.argv[1:]]; main()"
        commands = {
            "import numpy": [sys.executable, "-c", "import numpy"],
            "import fedcollab": [sys.executable, "-c", "import fedcollab"],
            "fedcollab solve": [sys.executable, "-c", program, "solve", *files],
            "fedcollab --help": [sys.executable, "-c", program, "--help"],
        }
        seconds = {name: cpu(command, arguments.repeats) for name, command in commands.items()}
    base = seconds["import numpy"]
    if arguments.json:
        print(json.dumps({name: value / base for name, value in seconds.items()}))
        return
    print("| start-up | CPU s | ratio to `import numpy` |\n|---|---|---|")
    for name, value in seconds.items():
        print(f"| {name} | {value:.3f} | {value / base:.2f} |")


if __name__ == "__main__":
    main()
