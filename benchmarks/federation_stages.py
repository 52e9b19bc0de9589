"""All stages of a real federation, by command: seconds, CPU seconds and the memory of all processes at their peak.

    python benchmarks/federation_stages.py --silos 50

SuperLink, gate and silos as processes of their own on this machine, TLS, authenticated; clients with 120 handwritten
digits each, of which every second silo writes the labels in another order. Memory is PSS (what processes share counts
once) of the SuperLink with what it starts, the gate, the silos with their workers, and the command, looked at every two
seconds. Exit code 1 if a stage fails, or the peak is above `--gigabytes`.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from federation import SILO, Bench, megabytes, tree

SAMPLES = 120
LOOK = 2.0  # seconds between two looks at the memory
TRAINING = ("--quiet", "--model", "logistic", "--rounds", "3", "--lr", "0.1", "--seed", "3")
DEADLINES = {"deadline": 1800.0, "patience": 1200.0}  # seconds: the machine may be busy with other things


class Peak:
    """The most memory that all processes of a federation have had together, in megabytes."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.most, self.command = bench, 0.0, 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def _look(self) -> None:
        while not self._over.wait(LOOK):
            roots = [handle.pid for handle in (*self.bench.federation.handles, *self.bench.silos)]
            roots += [self.command] if self.command else []
            self.most = max(self.most, sum(megabytes(each) for root in roots for each in tree(root)))

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Look while the block runs."""
        self._thread.start()
        try:
            yield
        finally:
            self._over.set()
            self._thread.join()


def other_order(bench: Bench) -> None:
    """Have every second silo write its labels in another order."""
    for number, client in enumerate(bench.clients):
        if number % 2:
            path = bench.root / client.name / "data.npz"
            with np.load(path) as kept:
                arrays = dict(kept)
            for key in ("y", "y_test"):
                arrays[key] = 9 - arrays[key]
            np.savez(path, **arrays)


def children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_stage(bench: Bench, peak: Peak, words: list[str]) -> tuple[float, float]:
    """Run a command to its end; return its seconds, and the CPU seconds of everybody."""
    begun, before, earlier = time.perf_counter(), sum(bench.cpu().values()), children_cpu()
    line = [sys.executable, "-c", SILO, *words]
    with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as command:
        peak.command = command.pid
        assert command.stderr is not None
        errors = command.stderr.read()
    peak.command = 0
    if command.returncode not in (0, 3):  # 3: what the data check found is an objection
        raise SystemExit(f"{words[0]} ended with {command.returncode}: {errors}")
    if errors:
        print(errors.strip(), file=sys.stderr)
    cpu = sum(bench.cpu().values()) - before + children_cpu() - earlier
    return time.perf_counter() - begun, cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--silos", type=int, default=50)
    parser.add_argument("--gigabytes", type=float, default=16.0, help="the most memory that all may have together")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended from outside"))  # not without ending the silos
    rows = []
    with tempfile.TemporaryDirectory(prefix="fedcollab-") as folder:
        bench = Bench(Path(folder), asked.silos, SAMPLES)
        other_order(bench)
        config = bench.federation.folder / "federation.toml"
        text = re.sub(rf"(?m)^#? *({'|'.join(DEADLINES)}) *=.*\n", "", config.read_text())
        config.write_text("".join(f"{key} = {value}\n" for key, value in DEADLINES.items()) + text)
        run, on = str(bench.root / "run"), ["--on", str(bench.federation.folder)]
        peak = Peak(bench)
        try:
            bench.federation.start()
            with peak.watched():
                begun = time.perf_counter()
                bench.start_silos()
                bench.wait()
                print(f"{asked.silos} silos are there after {time.perf_counter() - begun:.0f} s", file=sys.stderr)
                for words in (
                    ["inspect", *on, "-o", f"{run}/inspection.json", "--quiet"],
                    ["estimate", *on, "-o", f"{run}/distances.json", "--seed", "3", "--quiet"],
                    ["solve", run, "-o", run, "--seed", "3"],
                    ["advise", *on, "-o", run, *TRAINING],
                    ["train", *on, "--coalitions", run, "-o", run, *TRAINING],
                    ["report", run],
                ):
                    rows.append((words[0], *run_stage(bench, peak, words), peak.most))
                    print(f"  {rows[-1]}", file=sys.stderr, flush=True)
                silos = bench.memory()
            page = Path(run, "report.html").stat().st_size
        finally:
            bench.stop_silos()
            bench.federation.stop()
    print(f"\n{asked.silos} silos, each {silos['here']:.0f} MB at the end; a report of {page / 1e6:.1f} MB\n")
    print("| stage | seconds | CPU seconds of all | GB of all at their peak so far |\n|---|---|---|---|")
    for name, seconds, cpu, most in rows:
        print(f"| {name} | {seconds:.0f} | {cpu:.0f} | {most / 1e3:.1f} |")
    sys.exit(peak.most > 1000 * asked.gigabytes)


if __name__ == "__main__":
    main()
