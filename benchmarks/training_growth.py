"""Training as it grows: seconds a round with 20, 100 and 500 clients, one core against two, memory over rounds.

    python benchmarks/training_growth.py [--clients 20 100 500] [--rounds 40]

Clients as in the label-shift scenario (half with 2,100 samples, half with 14; for growth 420 and 14, to fit in memory),
MLP 784-200-200-10, batch 32. CPU seconds are what the process used; on a busy machine they tell more than seconds by
the clock. Cores are compared by the clock.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time

import numpy as np
import torch

from fedcollab.data import ClientData
from fedcollab.federation.prepare import federate
from fedcollab.training import train
from fedcollab.wire import Runtime


def federation(count: int, large: int = 2100) -> Runtime:
    """Half large clients, half small; the large ones share one array of features to spare memory."""
    rng = np.random.default_rng(0)
    x = rng.normal(0, 1, (large, 784)).astype(np.float32)
    clients = []
    for index in range(count):
        size = large if index % 2 == 0 else 14
        y = np.arange(size) % 10
        clients.append(ClientData(f"client-{index:03d}", x[:size], y, x[:10], y[:10]))
    return federate(clients, scale="none", device="cpu")


def resident() -> float:
    """MiB of memory in use."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2**20


def timed(runtime: Runtime, rounds: int) -> tuple[float, float]:
    """Seconds and CPU seconds a round."""
    wall, cpu = time.perf_counter(), time.process_time()
    train(runtime, "global", rounds=rounds, lr=0.1, evaluate_every=None)
    return (time.perf_counter() - wall) / rounds, (time.process_time() - cpu) / rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, nargs="*", default=[20, 100, 500])
    parser.add_argument("--rounds", type=int, default=40, help="rounds of the memory measurement")
    arguments = parser.parse_args()
    torch.set_num_threads(1)

    print("growth, one core\n  clients   CPU s a round   a client")
    for count in arguments.clients:
        runtime = federation(count, large=420)
        _, cpu = timed(runtime, 3)
        print(f"  {count:7}{cpu:16.3f}{1e3 * cpu / count:9.2f} ms", flush=True)
        del runtime
        gc.collect()

    runtime = federation(20)
    ratios = []
    for _ in range(4):
        seconds = []
        for cores in (1, 2):
            torch.set_num_threads(cores)
            seconds.append(timed(runtime, 3)[0])
        ratios.append(seconds[0] / seconds[1])
    print(f"\ntwo cores against one: {statistics.median(ratios):.2f} times faster (of {[f'{r:.2f}' for r in ratios]})")

    torch.set_num_threads(1)
    small = federation(20, large=210)
    train(small, "global", rounds=5, lr=0.1)
    before = resident()
    train(small, "global", rounds=arguments.rounds, lr=0.1, evaluate_every=1)
    middle = resident()
    train(small, "global", rounds=4 * arguments.rounds, lr=0.1, evaluate_every=1)
    after = f"after {arguments.rounds} rounds {middle:.0f}, after {4 * arguments.rounds} more {resident():.0f}"
    print(f"memory: {before:.0f} MiB, {after}")


if __name__ == "__main__":
    main()
