"""What a round of a real federation costs, part by part, beside the round of an empty Flower app.

    python benchmarks/federation.py --silos 4 20 --rounds 10

A SuperLink behind its gate and silos as processes of their own on this machine, TLS, authenticated; clients with 60
handwritten digits each. For every number of silos, in one run:

    all stages             query and preprocessing, distances, FedAvg and Ditto (MLP) in two coalitions
    the work itself        the same FedAvg in one process with the `wire` runtime
    an empty Flower app    over the same silos: a ClientApp that returns its message, a ServerApp that sends and waits
    Flower's own nodes     (--own-nodes) the same app where `flower-supernode` runs in place of our silos, same keys

CPU seconds are those of processes and their children (user and system), by part: the SuperLink with what it starts, the
gate, the silos' nodes, their workers, and this process. Memory is the silos', before their first message and after the
last one: as they are here (PSS: what processes share counts once), and as one would have it on a machine of its own,
where it shares no library with others; beside that, what a process has that has imported PyTorch and nothing else.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from sklearn.datasets import load_digits

from fedcollab.data import ClientData
from fedcollab.distances import estimate_distances
from fedcollab.federation import federate
from fedcollab.flower import FederationFolder, connect_federation, init_silo, processes
from fedcollab.flower.processes import ProcessHandle
from fedcollab.training import train
from fedcollab.wire import Wire

SILO = "from fedcollab.cli import main; main()"
SAMPLES, TEST = 60, 20
EMPTY = Path(__file__).parent / "peers" / "empty-flower-app"
HOW: dict[str, Any] = {"lr": 0.1, "model": "mlp", "stopping": "none", "seed": 3}
PARTS = ("SuperLink", "gate", "nodes", "workers", "command")
LIMITS = "[limits]\nmin_batch = 1\nround_measures = false\nblur_updates = false\n"  # the work is that of `wire`
LIMIT = 1800.0  # seconds for the empty app


def make_clients(count: int, samples: int = SAMPLES) -> list[ClientData]:
    digits, rng = load_digits(), np.random.default_rng(0)
    clients = []
    for number in range(count):
        rows = rng.choice(len(digits.target), samples + TEST, replace=False)
        x, y = digits.data[rows] / 16, digits.target[rows]
        clients.append(ClientData(f"silo{number:02d}", x[:samples], y[:samples], x[samples:], y[samples:]))
    return clients


class Bench:
    """A federation on this machine, and what its processes have used."""

    def __init__(self, root: Path, count: int, samples: int = SAMPLES) -> None:
        self.root, self.clients = root, make_clients(count, samples)
        self.federation = FederationFolder.init(root / "federation", "127.0.0.1", processes.free_port())
        self.silos: list[ProcessHandle] = []
        self.rows: list[tuple[str, int, float, float, dict[str, float]]] = []
        for client in self.clients:
            own = root / client.name
            client.save(own / "data.npz")
            config, key = init_silo(
                own, client.name, own / "data.npz", None, self.federation.folder / "invitation.toml"
            )
            with config.open("a") as file:
                file.write(
                    '[app]\nallow = "any"\n[limits]\nmin_batch = 1\nround_measures = false\nblur_updates = false\n'
                )
            assert key is not None
            self.federation.admit(key, client.name)

    def start_silos(self) -> None:
        """Ours."""
        for client in self.clients:
            line = [sys.executable, "-c", SILO, "silo", "start", str(self.root / client.name / "silo.toml")]
            self.silos.append(processes.start(line, self.root / client.name / "log", os.environ))

    def start_own_nodes(self) -> None:
        """Flower's own SuperNodes, with the keys of the silos."""
        certificate = self.federation.folder / "keys" / "ca.crt"
        for client in self.clients:
            own = self.root / client.name
            line = [processes.program("flower-supernode"), "--root-certificates", str(certificate)]
            line += ["--superlink", f"127.0.0.1:{self.federation.port}", "--host", "127.0.0.1"]
            line += [
                "--port",
                str(processes.free_port()),
                "--auth-supernode-private-key",
                str(own / f"{client.name}.key"),
            ]
            self.silos.append(processes.start(line, own / "log", processes.environment(own / "flower")))

    def stop_silos(self) -> None:
        """End them, whoever's they are."""
        for handle in self.silos:
            processes.stop(handle, grace=3)
        self.silos.clear()

    def cpu(self) -> dict[str, float]:
        """CPU seconds so far, by part."""
        link, gate = self.federation.handles
        found = dict.fromkeys(PARTS, 0.0)
        found["command"] = own_cpu(psutil.Process())
        found["SuperLink"], found["gate"] = tree_cpu(link.pid), tree_cpu(gate.pid)
        for handle in self.silos:
            alone = own_cpu(psutil.Process(handle.pid))
            found["nodes"] += alone
            found["workers"] += tree_cpu(handle.pid) - alone
        return found

    @contextlib.contextmanager
    def stage(self, name: str, rounds: Callable[[], int]) -> Iterator[None]:
        """Note what the block takes; `rounds` tells how many rounds there were so far."""
        before, begun, spent = rounds(), time.perf_counter(), self.cpu()
        yield
        seconds, after = time.perf_counter() - begun, self.cpu()
        shares = {part: after[part] - spent[part] for part in PARTS}
        self.rows.append((name, rounds() - before, seconds, sum(shares.values()), shares))
        number, name_, total = self.rows[-1][1], name, sum(shares.values())
        print(f"  {name_}: {number} rounds, {seconds:.1f} s, {total:.1f} CPU s", file=sys.stderr, flush=True)

    def take_off(self) -> None:
        """Replace the last two rows by their difference."""
        (_, few, fast, least, once), (name, many, slow, most, all_of_it) = self.rows[-2:]
        shares = {part: all_of_it[part] - once[part] for part in PARTS}
        self.rows[-2:] = [(name, many - few, slow - fast, most - least, shares)]

    def memory(self) -> dict[str, float]:
        """Megabytes and processes a silo."""
        everyone = [p for handle in self.silos for p in tree(handle.pid)]
        each = {"here": sum(map(megabytes, everyone)), "processes": len(everyone)}
        each["alone"] = sum(alone(tree(handle.pid)) for handle in self.silos)
        return {what: total / len(self.silos) for what, total in each.items()}

    def wait(self) -> None:
        """Wait until all silos are connected, and quiet."""
        end = time.monotonic() + 600
        while set(self.federation.status()["silos"].values()) != {"online"}:
            if time.monotonic() > end:
                raise SystemExit("the silos did not connect")
            time.sleep(2)

    def empty(self, rounds: int) -> None:
        """Run the empty app."""
        done, end = self.root / "empty-app-is-done", time.monotonic() + LIMIT
        done.unlink(missing_ok=True)
        config = f'rounds={rounds} nodes={len(self.clients)} done="{done}"'
        self.federation.flwr(["run", str(EMPTY), "federation", "--run-config", config])
        while not done.exists():
            if time.monotonic() > end:
                raise SystemExit(f"the empty app has not ended in {LIMIT:.0f} s")
            time.sleep(0.2)


def tree(pid: int) -> list[psutil.Process]:
    """A process and all its descendants."""
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    return []


def own_cpu(process: psutil.Process) -> float:
    with contextlib.suppress(psutil.Error):
        times = process.cpu_times()
        return float(times.user + times.system)
    return 0.0


def tree_cpu(pid: int) -> float:
    """CPU seconds of a process, its descendants, and those of its descendants that have ended."""
    total = 0.0
    for process in tree(pid):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def megabytes(process: psutil.Process) -> float:
    """A process's memory in megabytes; what it shares with others counts in parts."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def alone(processes: list[psutil.Process]) -> float:
    """What processes would have in megabytes if no others ran: a file that several have mapped counts once."""
    own, mapped = 0, dict[str, int]()
    for process in processes:
        files = dict[str, int]()
        for part in process.memory_maps():
            own += part.anonymous
            files[part.path] = files.get(part.path, 0) + part.rss - part.anonymous
        mapped |= {path: max(size, mapped.get(path, 0)) for path, size in files.items()}
    return (own + sum(mapped.values())) / 1e6


def torch_alone() -> float:
    """What a process has that has imported PyTorch and nothing else, in megabytes."""
    line = [sys.executable, "-c", "import torch, sys; print(flush=True); sys.stdin.read()"]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = alone([psutil.Process(process.pid)])
        process.kill()
    return found


def measure(count: int, rounds: int, own_nodes: bool) -> tuple[Bench, dict[str, dict[str, float]], float, float]:
    with tempfile.TemporaryDirectory(prefix="fedcollab-") as folder:
        bench = Bench(Path(folder), count)
        try:
            begun = time.perf_counter()
            bench.federation.start()
            started = time.perf_counter() - begun
            bench.start_silos()
            bench.wait()
            memory = {"waiting": bench.memory()}
            with connect_federation(bench.federation.folder, patience=600) as runtime:
                so_far = lambda: runtime.cost.rounds  # noqa: E731
                with bench.stage("query and preprocessing", so_far):
                    there = federate(runtime, seed=3)
                with bench.stage("distances (few-round)", so_far):
                    estimate_distances(there, seed=3)
                pairs = [list(runtime.names[0::2]), list(runtime.names[1::2])]
                for algorithm in ("fedavg", "ditto"):
                    with bench.stage(algorithm, so_far):
                        train(there, pairs, algorithm, rounds=rounds, **HOW)
            memory["working"] = bench.memory()
            here = federate(Wire(bench.clients), seed=3)
            begun = time.process_time()
            train(here, pairs, "fedavg", rounds=rounds, **HOW)
            work = (time.process_time() - begun) / (rounds + 1)
            for kind in ("silos", "Flower's own nodes")[: 1 + own_nodes]:
                if kind != "silos":
                    bench.stop_silos()
                    bench.start_own_nodes()
                    bench.wait()
                bench.empty(1)  # whatever happens once at a silo has happened
                for number in (1, rounds + 1):  # what starting a run takes is the first one's, and is taken off
                    done = iter((0, number))
                    with bench.stage(f"empty Flower app, {kind}", lambda done=done: next(done)):  # type: ignore[misc]
                        bench.empty(number)
                bench.take_off()
        finally:
            bench.stop_silos()
            bench.federation.stop()
    return bench, memory, work, started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--silos", type=int, nargs="+", default=[4])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--own-nodes", action="store_true", help="also with Flower's own nodes (minutes)")
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended from outside"))  # not without ending the silos
    told = {}
    for count in asked.silos:
        bench, memory, work, started = measure(count, asked.rounds, asked.own_nodes)
        print(f"\n{count} silos; the SuperLink started in {started:.0f} s. Each silo:")
        for when, each in memory.items():
            size = f"{each['here']:.0f} MB here, {each['alone']:.0f} MB alone on a machine"
            print(f"  {when}: {size}, {each['processes']:.1f} processes")
        print(f"  (PyTorch alone, imported and not used: {torch_alone():.0f} MB)\n")
        print(f"| stage | rounds | s a round | CPU s a round | {' | '.join(PARTS)} |\n|---{'|---' * (3 + len(PARTS))}|")
        for name, rounds, seconds, total, shares in bench.rows:
            cells = [f"{value / rounds:.2f}" for value in (seconds, total, *shares.values())]
            print(f"| {name} | {rounds} | {' | '.join(cells)} |")
        by_name = {name: total / rounds for name, rounds, _, total, _ in bench.rows}
        for name, empty in by_name.items():
            if name.startswith("empty"):
                most, ours = 1.5 * empty + work, by_name["fedavg"]
                print(f"\n{name}: {empty:.2f} CPU s a round; 1.5 times that and the work ({work:.2f}): {most:.2f}")
                print(f"ours: {ours:.2f}; less the work {(ours - work) / empty:.2f} times the empty round")
        told[count] = {"rows": bench.rows, "memory": memory, "work": work}
    if asked.json:
        asked.json.write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
