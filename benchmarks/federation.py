"""What a real federation costs, stage by stage: rounds, messages, bytes and seconds, with four silos on this machine.

A SuperLink and four SuperNodes as processes of their own, TLS, authenticated; four clients of the digits scenario.
Bytes are those of the packed messages, both ways, without what Flower and TLS add.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from fedcollab import scenarios
from fedcollab.distances import estimate_distances
from fedcollab.federation.prepare import prepare
from fedcollab.flower import connect, node, processes
from fedcollab.flower.federation import Federation
from fedcollab.training import train

SILO = "from fedcollab.cli import main; main()"
SILOS = 4
ROUNDS = 10


def main() -> None:
    rows: list[tuple[str, int, int, int, float]] = []
    started = []
    with tempfile.TemporaryDirectory(prefix="fedcollab-") as folder:
        root = Path(folder)
        clients = scenarios.make("digits", clients=SILOS, quantity=100, test=20).clients
        federation = Federation.init(root / "federation", "127.0.0.1", processes.free_port())
        try:
            for client in clients:
                own = root / client.name
                client.save(own / "data.npz")
                _, key = node.init(own, client.name, own / "data.npz", None, federation.folder / "invitation.toml")
                assert key is not None
                federation.admit(key, client.name)
            begun = time.perf_counter()
            federation.start()
            rows.append(("start SuperLink and gate, register silos", 0, 0, 0, time.perf_counter() - begun))
            begun = time.perf_counter()
            for client in clients:
                line = [sys.executable, "-c", SILO, "silo", "start", str(root / client.name / "silo.toml")]
                pid = processes.start(line, root / client.name / "log", os.environ)
                started.append((pid, processes.born(pid)))
            with connect(federation.folder, patience=300) as runtime:
                rows.append(("start silos, start a run", 0, 0, 0, time.perf_counter() - begun))

                def stage(name: str, work: object) -> None:
                    before = runtime.cost.rounds, runtime.messages, runtime.bytes_on_wire, time.perf_counter()
                    work()  # type: ignore[operator]
                    after = runtime.cost.rounds, runtime.messages, runtime.bytes_on_wire, time.perf_counter()
                    rows.append((name, *(late - early for early, late in zip(before, after, strict=True))))

                stage("query and preprocessing", lambda: prepare(runtime, scale="none"))
                stage("distances (few-round, 6 pairs)", lambda: estimate_distances(runtime))
                how = {"rounds": ROUNDS, "lr": 0.1, "model": "mlp"}
                pairs = [list(runtime.names[:2]), list(runtime.names[2:])]
                stage(f"FedAvg, {ROUNDS} rounds, 2 coalitions", lambda: train(runtime, pairs, "fedavg", **how))
                stage(f"Ditto, {ROUNDS} rounds, 2 coalitions", lambda: train(runtime, pairs, "ditto", **how))
            begun = time.perf_counter()
            with connect(federation.folder) as runtime:
                pass
            rows.append(("another run, silos connected", 0, 0, 0, time.perf_counter() - begun))
        finally:
            federation.stop()
            for pid, since in started:
                processes.stop(pid, since, grace=3)
    print(f"{SILOS} silos\n")
    print("| stage | rounds | messages | MB | seconds | seconds a round |\n|---|---|---|---|---|---|")
    for name, rounds, messages, moved, seconds in rows:
        each = f"{seconds / rounds:.1f}" if rounds else ""
        counts = f"{rounds} | {messages} | {moved / 1e6:.2f}" if rounds else " | | "
        print(f"| {name} | {counts} | {seconds:.1f} | {each} |")


if __name__ == "__main__":
    main()
