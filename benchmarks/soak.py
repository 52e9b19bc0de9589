"""A federation that is disturbed for long: all stages again and again while silos are killed and restarted at random.

    python benchmarks/soak.py --silos 20 --cycles 3 --seed 0

N silos on this machine over the real Flower runtime (TLS, authenticated). In every cycle distances are estimated, the
coalitions are solved for and a few rounds are trained, while silos chosen at random are ended by SIGKILL and started
again some seconds later. A stage that pauses is started again; pairs that were missed are measured later.
After every cycle, all silos being back: distances and models must equal those of an undisturbed run in one process, and
processes, descriptors, memory and disk must not grow from the first cycle to the last. Exit code 1 if they do.

A silo takes some 250 MB while it works (20 silos: 5 GB).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from fedcollab import solve
from fedcollab.data import ClientData
from fedcollab.distances import complete, estimate_distances
from fedcollab.errors import FedcollabWarning, Paused
from fedcollab.federation import federate
from fedcollab.flower import FederationFolder, connect_federation, init_silo, processes
from fedcollab.flower.processes import ProcessHandle
from fedcollab.flower.silo.state_store import StateStore
from fedcollab.training import train
from fedcollab.wire import Wire
from fedcollab.wire.absence import Policy, read

SILO = "from fedcollab.cli import main; main()"
TRIES = 8  # how often a stage is started again
TRAINING: dict[str, Any] = {"rounds": 3, "lr": 0.1, "seed": 3, "evaluate_every": None}
ONE, HALF = Policy(quorum=1.0, retries=0), Policy(quorum=0.5, retries=0)
Row = dict[str, float]


def make_client(index: int) -> ClientData:
    """Two Gaussian classes in four dimensions; every other client has the labels swapped. Folds have enough of both."""
    rng = np.random.default_rng(index)
    y = np.arange(200) % 2
    x = rng.normal(0, 1, (200, 4)) + np.outer(2 * y - 1, [1.5, 0, 0, 0])
    y = y if index % 2 else 1 - y
    return ClientData(f"silo{index:02d}", x[:160], y[:160], x[160:], y[160:])


class Soak:
    """The federation, its silos, and who is killed when."""

    def __init__(self, root: Path, count: int, seed: int, deadline: float) -> None:
        self.root, self.deadline = root, deadline
        self.clients = [make_client(index) for index in range(count)]
        self.federation = FederationFolder.init(root / "federation", "127.0.0.1", processes.free_port())
        self.draw = random.Random(seed)
        self.silos: dict[str, ProcessHandle] = {}
        self.kills = 0
        self.ever: list[int] = []  # every process group that there was

    def start(self) -> None:
        """Coordinator and silos."""
        for client in self.clients:
            own = self.root / client.name
            client.save(own / "data.npz")
            invitation = self.federation.folder / "invitation.toml"
            config, key = init_silo(own, client.name, own / "data.npz", None, invitation, "open")
            assert key is not None
            with config.open("a") as limits:  # so that what arrives can be compared with a runtime that has no limits
                limits.write("round_measures = false\nblur_updates = false\nmin_batch = 1\n")
            self.federation.admit(key, client.name)
        self.federation.start()
        for client in self.clients:
            self.start_silo(client.name)

    def keys(self) -> dict[str, bytes]:
        """Return the silos' secret keys, by which a runtime in this process draws as the silos do."""
        return {client.name: StateStore(self.root / client.name / "state").key() for client in self.clients}

    def start_silo(self, name: str) -> None:
        """As its administrator does."""
        line = [sys.executable, "-c", SILO, "silo", "start", str(self.root / name / "silo.toml")]
        self.silos[name] = processes.start(line, self.root / name / "log", os.environ)

    def kill_silo(self, name: str) -> None:
        """SIGKILL to it and to all that it started."""
        groups = processes.process_groups(self.silos.pop(name).pid)
        self.ever += groups
        for group in groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)

    def stop(self) -> None:
        """End everything."""
        handles = [*self.federation.handles, *self.silos.values()]
        self.ever += [group for handle in handles for group in processes.process_groups(handle.pid)]
        self.federation.stop()
        for handle in self.silos.values():
            processes.stop(handle, grace=3)

    @contextlib.contextmanager
    def disturbed(self, times: int) -> Iterator[None]:
        """Kill and restart so many silos while the block runs; at its end all are back."""
        over = threading.Event()

        def work() -> None:
            for _ in range(times):
                if over.wait(self.draw.uniform(1, 15)):
                    break
                name = self.draw.choice(sorted(self.silos))
                self.kill_silo(name)
                self.kills += 1
                over.wait(self.draw.uniform(0, 10))
                self.start_silo(name)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def again(self, what: str, work: Callable[[Any], Any], run: Path, kills: int) -> Any:
        """A stage, started again as often as it pauses; disturbed the first time."""
        for attempt in range(TRIES):
            with self.disturbed(0 if attempt else kills):
                try:
                    with connect_federation(
                        self.federation.folder, deadline=self.deadline, patience=300, journal=run
                    ) as federation:
                        federation.policy = ONE
                        return work(federation)
                except Paused as pause:
                    print(f"  {what} paused: {pause}", flush=True)
        raise SystemExit(f"{what} did not end in {TRIES} tries")

    def cycle(self, run: Path, kills: int) -> Any:
        """All stages; distances, coalitions, models."""

        def estimate(federation: Any) -> Any:
            prepared = federate(federation, seed=3)
            federation.policy = HALF
            return prepared.schema, estimate_distances(prepared, seed=3)

        def finish(federation: Any) -> Any:
            return complete(distances, federate(federation, schema=schema))

        def training(federation: Any) -> Any:
            return train(
                federate(federation, schema=schema),
                collaboration,
                "ditto",
                "logistic",
                run_dir=run / "training",
                **TRAINING,
            )

        schema, distances = self.again("estimate", estimate, run, kills)
        while not distances.observed.all():
            print(f"  {int((~distances.observed).sum() / 2)} pairs missing", flush=True)
            distances = self.again("the rest", finish, run, 0)
        collaboration = solve(distances, C=10)
        return distances, collaboration.coalitions, self.again("train", training, run, kills)

    def measure(self) -> Row:
        """What is in use, with all silos up, their workers too, and nothing to do."""
        with connect_federation(self.federation.folder, patience=300):
            pass
        link = [handle.pid for handle in self.federation.handles]
        silos = [handle.pid for handle in self.silos.values()]
        wanted, end = 2 * len(silos) + 3, time.monotonic() + 120
        while len(everyone(link + silos)) != wanted and time.monotonic() < end:
            time.sleep(1)
        time.sleep(3)
        of_link, of_silos = everyone(link), everyone(silos)
        folders = [self.root / client.name / "state" for client in self.clients]
        return {
            "processes": len(of_link) + len(of_silos),
            "descriptors of the SuperLink": descriptors(link),
            "descriptors of the silos": descriptors(of_silos),
            "MB of the SuperLink": memory(link),
            "MB a silo": memory(of_silos) / len(silos),
            "MB disk of the coordinator": disk([self.federation.folder]),
            "MB disk of the silos, without logs": disk(folders),
            "temporary folders": len(list(Path(tempfile.gettempdir()).glob("fedcollab-*/call"))),
        }


def everyone(pids: list[int]) -> list[int]:
    """These processes and all their descendants."""
    roots = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    known = {process for root in roots for process in (root, *root.children(recursive=True))}
    return sorted(process.pid for process in known if processes.start_time(process.pid) is not None)


def descriptors(pids: list[int]) -> int:
    return sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in pids)


def memory(pids: list[int]) -> float:
    """Megabytes, what is shared counted once (PSS)."""
    lines = [line for pid in pids for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1e3


def disk(folders: list[Path]) -> float:
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return sum(path.stat().st_size for path in files if path.suffix not in (".jsonl", ".log")) / 1e6


#: how much more than after the first cycle is a leak: a share, and an amount that is none
ALLOWED = {
    "processes": (0, 0),
    "descriptors of the SuperLink": (0.2, 10),
    "descriptors of the silos": (0.1, 10),
    "MB of the SuperLink": (0.25, 20),
    "MB a silo": (0.25, 20),
    "MB disk of the coordinator": (1.0, 20),
    "MB disk of the silos, without logs": (0.1, 1),
    "temporary folders": (0, 0),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--silos", type=int, default=20)
    parser.add_argument("--cycles", type=int, default=3)
    parser.add_argument("--kills", type=int, default=2, help="a stage")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--deadline", type=float, default=60.0, help="seconds for one round")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="work in DIR, and leave it there")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended from outside"))  # not without ending the silos
    warnings.simplefilter("ignore", FedcollabWarning)
    wrong: list[str] = []
    rows: list[Row] = []
    begun = time.monotonic()
    with contextlib.ExitStack() as stack:
        folder = asked.keep or stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-"))
        soak = Soak(Path(folder), asked.silos, asked.seed, asked.deadline)
        try:
            soak.start()
            calm = Wire(soak.clients, keys=soak.keys())
            expected = estimate_distances(federate(calm, seed=3), method="few-round", seed=3, min_samples=10)
            coalitions = solve(expected, C=10).coalitions
            model = train(calm, coalitions, "ditto", "logistic", **TRAINING).models["last"]
            print(f"{asked.silos} silos; undisturbed: {len(coalitions)} coalitions", flush=True)
            for cycle in range(1, asked.cycles + 1):
                started = time.monotonic()
                distances, found, result = soak.cycle(soak.root / f"run{cycle}", asked.kills)
                same = {
                    "distances": np.allclose(distances.raw, expected.raw, rtol=0, atol=1e-5),
                    "coalitions": found == coalitions,
                    "models": found == coalitions and np.allclose(result.models["last"], model, rtol=0, atol=1e-5),
                }
                wrong += [f"cycle {cycle}: other {what} than undisturbed" for what, equal in same.items() if not equal]
                absent = len(read(soak.root / f"run{cycle}"))
                rows.append({**soak.measure(), "absences": absent, "seconds": time.monotonic() - started})
                print(f"cycle {cycle}: {same}, {rows[-1]}", flush=True)
        finally:
            soak.stop()
        left = processes.running_groups(soak.ever)
        wrong += [f"process groups left behind: {left}"] * bool(left)
    for what, (share, amount) in ALLOWED.items():
        first, last = rows[0][what], rows[-1][what]
        if last > first * (1 + share) + amount:
            wrong.append(f"{what}: {first:.1f} after the first cycle, {last:.1f} after the last")
    print(f"\n{asked.silos} silos, {soak.kills} kills, {(time.monotonic() - begun) / 60:.1f} minutes\n")
    print(f"| after cycle | {' | '.join(map(str, range(1, len(rows) + 1)))} |\n|---{'|---' * len(rows)}|")
    for what in rows[0]:
        print(f"| {what} | {' | '.join(f'{row[what]:.0f}' for row in rows)} |")
    print("\n".join(["", *wrong]) if wrong else "\nequal to the undisturbed run, and no leak")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
