"""What secure aggregation costs: calls, bytes and CPU of a training, as ratios to the same training without masks.

    python benchmarks/secure_aggregation.py

One coalition of 5, 10 or 20 clients with 500 samples of 64 features and 10 labels each, the default MLP (200, 200),
FedAvg, 20 rounds, everything serialised (`wire`, so that all clients' and the server's CPU time is this process's).
Three repetitions in turn; CPU is the median. Calls and bytes do not depend on the machine. Over Flower a call costs
seconds, so that the first column is what counts there; on one machine it is the last.
"""

from __future__ import annotations

import time

import numpy as np

from fedcollab.data import ClientData
from fedcollab.federation import federate
from fedcollab.training import train
from fedcollab.wire import Wire

SIZES, WAYS, ROUNDS, REPEATS = (5, 10, 20), ("none", "everyone", "dropouts"), 20, 3


def make_clients(count: int) -> list[ClientData]:
    rng = np.random.default_rng(0)
    centres = rng.normal(0, 1, (10, 64))
    clients = []
    for number in range(count):
        y = rng.integers(0, 10, 600)
        x = centres[y] + rng.normal(0, 2, (600, 64))
        clients.append(ClientData(f"client {number:02d}", x[:500], y[:500], x[500:], y[500:]))
    return clients


def measure(clients: list[ClientData], way: str) -> tuple[int, int, float, np.ndarray]:
    """Return calls, bytes, CPU seconds and the model of one training."""
    wire = Wire(clients)
    federation = federate(wire)
    calls, moved, started = wire.cost.rounds, wire.bytes_on_wire, time.process_time()
    result = train(
        federation, "global", rounds=ROUNDS, lr=0.05, stopping="none", evaluate_every=None, secure_aggregation=way
    )
    spent = time.process_time() - started
    return wire.cost.rounds - calls, wire.bytes_on_wire - moved, spent, result.models["last"]


def main() -> None:
    print("| clients | masks | calls | bytes | CPU | CPU a client and round | largest difference of a weight |")
    print("|---|---|---|---|---|---|---|")
    for count in SIZES:
        clients = make_clients(count)
        found = [{way: measure(clients, way) for way in WAYS} for _ in range(REPEATS)]
        cpu = {way: float(np.median([each[way][2] for each in found])) for way in WAYS}
        plain = found[0]["none"]
        for way in WAYS:
            calls, moved, _, model = found[0][way]
            differs = np.abs(model - plain[3]).max()
            each = 1000 * cpu[way] / count / ROUNDS
            ratios = f"{calls} ({calls / plain[0]:.2f}) | {moved / 1e6:.1f} MB ({moved / plain[1]:.3f})"
            print(f"| {count} | {way} | {ratios} | {cpu[way] / cpu['none']:.2f} | {each:.1f} ms | {differs:.1e} |")


if __name__ == "__main__":
    main()
