"""One process that works for long: is its memory flat, and does a run directory stay sound?

    python benchmarks/soak_process.py                  200 clients, 1,000 rounds; then 50 cycles of join, leave, check
    python benchmarks/soak_process.py --clients 20 --rounds 50 --cycles 5

The training is one of logistic regression in ten coalitions, in the vectorised runtime; the memory of the process is
read after every tenth of the rounds. A cycle is `join` of a newcomer, `leave` of it, and `check` of all clients, by the
command line's own function in this process, all in one run directory; after every cycle its artefacts are read back
(checksums included), and must name the clients of the start. Exit code 1 if memory grows by more than 5 % and 20 MB
from the second tenth to the last, or if the clients, distances and coalitions after the last cycle are not the first's.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil

from fedcollab.cli import cli
from fedcollab.data import ClientData
from fedcollab.errors import FedcollabWarning
from fedcollab.runs import Run
from fedcollab.training import Callback, train

SHARE, AMOUNT = 0.05, 20.0  # what more is a leak: a share, and megabytes


def megabytes() -> float:
    return psutil.Process().memory_info().rss / 1e6


def make_client(index: int, rows: int = 60) -> ClientData:
    rng = np.random.default_rng(index)
    y = np.arange(rows) % 2
    x = rng.normal(0, 1, (rows, 10)) + np.outer(2 * y - 1, np.eye(10)[index % 10])
    return ClientData(f"client{index:03d}", x[: rows - 20], y[: rows - 20], x[rows - 20 :], y[rows - 20 :])


class Meter(Callback):
    """Reads the process's memory after every tenth of the rounds."""

    def __init__(self, rounds: int) -> None:
        self.every, self.found = max(1, rounds // 10), list[float]()

    def on_round(self, number: int, rows: Any) -> None:
        """Note the memory, if it is time to."""
        if number % self.every == 0:
            self.found.append(megabytes())


def rounds_of(count: int, rounds: int) -> list[float]:
    """Train; return the memory after every tenth of the rounds."""
    clients = [make_client(index) for index in range(count)]
    groups = [[client.name for client in clients[first::10]] for first in range(10)]
    meter, begun = Meter(rounds), time.process_time()
    settings: dict[str, Any] = {"model": "logistic", "rounds": rounds, "lr": 0.05, "stopping": "none", "seed": 0}
    with tempfile.TemporaryDirectory() as folder:
        found = train(clients, groups, run_dir=Path(folder) / "run", callbacks=[meter], **settings)
    assert np.isfinite(found.accuracy).all()
    shown = " ".join(f"{value:.0f}" for value in meter.found)
    print(f"{count} clients, {rounds} rounds: {shown} MB, {time.process_time() - begun:.0f} s of CPU", flush=True)
    return meter.found


def commanded(arguments: Sequence[str], allowed: Sequence[int] = (0,)) -> None:
    """Carry a command out in this process."""
    try:
        code = cli.main(list(arguments), prog_name="fedcollab", standalone_mode=False)
    except SystemExit as end:
        code = end.code
    code = code if isinstance(code, int) else 0
    if code not in allowed:
        raise SystemExit(f"`{' '.join(arguments)}` ended with {code}")


def cycles_of(folder: Path, cycles: int) -> tuple[list[float], list[str]]:
    """Join, leave and check again and again; return the memory after each cycle, and what went wrong."""
    (folder / "clients").mkdir()
    for index in range(5):
        client = make_client(index, rows=100)
        table = pd.DataFrame(client.x, columns=[f"x{column}" for column in range(10)]).round(4)
        table["y"] = client.y if index % 2 else 1 - client.y
        table.to_csv((folder / "clients" if index < 4 else folder) / f"{client.name}.csv", index=False)
    run, new = str(folder / "run"), folder / "client004.csv"
    fast = ["--model", "logistic", "--rounds", "5", "--C", "5", "--quiet"]
    commanded(["run", "--clients", str(folder / "clients"), "--label", "y", "--out", run, *fast])
    first, found, wrong = Run.open(run), list[float](), list[str]()
    distances, coalitions = first.distances(), first.collaboration().coalitions
    begun = time.process_time()
    for cycle in range(1, cycles + 1):
        commanded(["join", run, "--client", str(new), "--quiet"])
        commanded(["leave", run, "--client", new.stem, "--quiet"])
        commanded(["check", run, "--clients", str(folder / "clients"), "--quiet"], allowed=(0, 3))
        now = Run.open(run)
        if now.distances().names != distances.names or set(now.results()) != set(first.results()):
            wrong.append(f"cycle {cycle}: other clients or results than at the start")
        if not np.array_equal(now.distances().raw, distances.raw) or now.collaboration().coalitions != coalitions:
            wrong.append(f"cycle {cycle}: other distances or coalitions than at the start")
        found.append(megabytes())
    files = sum(1 for path in Path(run).rglob("*") if path.is_file())
    size = sum(path.stat().st_size for path in Path(run).rglob("*") if path.is_file()) / 1e6
    tenths = found[:: max(1, cycles // 10)]
    shown = " ".join(f"{value:.0f}" for value in [*tenths, found[-1]])
    spent = time.process_time() - begun
    print(f"{cycles} cycles: {shown} MB, {files} files of {size:.1f} MB, {spent:.0f} s of CPU", flush=True)
    return found, wrong


def grown(what: str, found: list[float]) -> list[str]:
    """Return a line where memory has grown since the second tenth."""
    start, last = found[min(len(found) - 1, max(1, len(found) // 10))], found[-1]
    more = last - start > max(SHARE * start, AMOUNT)
    return [f"{what}: {start:.0f} MB after the second tenth, {last:.0f} MB at the end"] if more else []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--cycles", type=int, default=50)
    given = parser.parse_args()
    warnings.simplefilter("ignore", FedcollabWarning)
    wrong = grown("rounds", rounds_of(given.clients, given.rounds)) if given.rounds else []
    if given.cycles:
        with tempfile.TemporaryDirectory() as folder:
            found, unsound = cycles_of(Path(folder), given.cycles)
        wrong += [*unsound, *grown("cycles", found)]
    print("\n".join(wrong) or "memory is flat, and the run directory is what it was")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
