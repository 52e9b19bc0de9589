"""One FedAvg round of the label-shift scenario, side by side with other ways to compute it, in one run.

    python benchmarks/training_round.py [--cores 1] [--repeats 7] [--peers FOLDER [--install]]
    python benchmarks/training_round.py --model cnn [--cores 2] [--repeats 1]

20 clients (ten with 2,100 samples, ten with 14), MLP 784-200-200-10, batch 32, one local epoch, evaluation off; `cnn`
is the round of the feature-shift scenario (2,500 and 340 samples, the paper's CNN). Figures are seconds a round by the
clock and of CPU, medians of interleaved repeats, and ratios to fedcollab's. Timing does not depend on the values, so
features are random. Peers that are not installed are reported as absent; `--install` puts them into virtual
environments of their own under FOLDER.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import nn

SIZES = [2100] * 10 + [14] * 10
LAYERS = [784, 200, 200, 10]
BATCH, LR = 32, 0.1
HERE = Path(__file__).parent
PEERS = {"pfl": "pfl==0.6.0", "flower": "flwr[simulation]==1.41.0"}

Data = list[tuple[torch.Tensor, torch.Tensor]]


def make_data(sizes: list[int], shape: tuple[int, ...], seed: int = 0) -> Data:
    rng = np.random.default_rng(seed)
    return [
        (torch.from_numpy(rng.normal(0, 1, (n, *shape)).astype(np.float32)), torch.from_numpy(rng.integers(0, 10, n)))
        for n in sizes
    ]


def module() -> nn.Module:
    return nn.Sequential(
        nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10)
    )  # fmt: skip


def cnn_module() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Flatten(), nn.Linear(1024, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def fedcollab_round(data: Data, model: str = "mlp") -> Callable[[], object]:
    """What `fedcollab.train` does in a round: broadcast, local training, aggregation, records."""
    from fedcollab.data import ClientData
    from fedcollab.federation import federate
    from fedcollab.threads import one_core_each
    from fedcollab.training.algorithms import FedAvg
    from fedcollab.training.descend import Setting
    from fedcollab.training.models import Network
    from fedcollab.training.rounds import Grouping, _one_round
    from fedcollab.training.session import Session

    clients = [
        ClientData(f"{i:02d}", x.numpy(), y.numpy(), x[:2].numpy(), y[:2].numpy()) for i, (x, y) in enumerate(data)
    ]
    runtime = federate(clients, scale="none", device="cpu")
    text = Network.describe(model, {}, tuple(data[0][0].shape[1:]), 10)
    setting = Setting("fedavg", {}, text, LR, BATCH, 1, 0)
    quantities = {name: int(runtime.described[name]["quantity"]) for name in runtime.names}
    session = Session(runtime, setting, FedAvg(), Network(text), quantities)
    grouping = Grouping([list(runtime.names)])
    grouping.start(session)
    count = iter(range(1, 10**6))

    def run() -> None:
        with one_core_each():
            _one_round(next(count), session, grouping)

    return run


def functional_round(data: Data) -> Callable[[], object]:
    """A hand-written loop: functional forward, autograd, plain updates, tensors in memory."""
    start = [p.detach().clone() for p in module().parameters()]
    share = [len(y) / sum(SIZES) for _, y in data]
    state = {"w": start}

    def run() -> None:
        total = [torch.zeros_like(p) for p in state["w"]]
        for (x, y), part in zip(data, share, strict=True):
            w = [p.clone().requires_grad_() for p in state["w"]]
            order = torch.randperm(len(y))
            for rows in order.split(BATCH):
                h = torch.relu(nn.functional.linear(x[rows], w[0], w[1]))
                h = torch.relu(nn.functional.linear(h, w[2], w[3]))
                loss = nn.functional.cross_entropy(nn.functional.linear(h, w[4], w[5]), y[rows])
                grads = torch.autograd.grad(loss, w)
                with torch.no_grad():
                    for p, g in zip(w, grads, strict=True):
                        p.sub_(g, alpha=LR)
            with torch.no_grad():
                for t, p in zip(total, w, strict=True):
                    t.add_(p, alpha=part)
        state["w"] = total

    return run


def module_round(data: Data, build: Callable[[], nn.Module] = module) -> Callable[[], object]:
    """The usual loop: nn.Module, optimiser, state dictionaries."""
    shared = build()
    share = [len(y) / sum(len(labels) for _, labels in data) for _, y in data]

    def run() -> None:
        start = {k: v.clone() for k, v in shared.state_dict().items()}
        total = {k: torch.zeros_like(v) for k, v in start.items()}
        for (x, y), part in zip(data, share, strict=True):
            shared.load_state_dict(start)
            optimiser = torch.optim.SGD(shared.parameters(), lr=LR)
            for rows in torch.randperm(len(y)).split(BATCH):
                optimiser.zero_grad()
                nn.functional.cross_entropy(shared(x[rows]), y[rows]).backward()
                optimiser.step()
            for k, v in shared.state_dict().items():
                total[k].add_(v, alpha=part)
        shared.load_state_dict(total)

    return run


def products_round(data: Data) -> Callable[[], object]:
    """The floor: the matrix products of a round and nothing else (three a layer, two in the first)."""
    w = [torch.randn(out, into) * 0.01 for into, out in pairwise(LAYERS)]
    buffers = {
        n: ([torch.randn(n, width) for width in LAYERS], [torch.randn(n, width) * 1e-6 for width in LAYERS[1:]])
        for n in {BATCH, 2100 % BATCH, 14}
    }
    out = {n: [torch.empty(n, width) for width in LAYERS] for n in buffers}
    back = [0.0]

    def step(n: int) -> None:
        inputs, deltas = buffers[n]
        for layer in range(3):
            torch.mm(inputs[layer], w[layer].T, out=out[n][layer + 1])
        for layer in (2, 1):
            torch.mm(deltas[layer], w[layer], out=out[n][layer])
        for layer in range(3):
            w[layer].addmm_(deltas[layer].T, inputs[layer], alpha=-1e-9)

    def run() -> None:
        for size in SIZES:
            for _ in range(size // BATCH):
                step(BATCH)
            if size % BATCH:
                step(size % BATCH)
        back[0] += 1

    return run


def single_core_round(data: Data, model: str = "mlp") -> Callable[[], object]:
    """The same on one core, so that what the other cores gain is seen in the same run."""
    run = fedcollab_round(data, model)

    def alone() -> None:
        cores = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            run()
        finally:
            torch.set_num_threads(cores)

    return alone


OURS = "fedcollab"
Ways = dict[str, Callable[[Data], Callable[[], object]]]
WAYS: dict[str, tuple[list[int], tuple[int, ...], Ways]] = {
    "mlp": (
        SIZES,
        (784,),
        {
            OURS: fedcollab_round,
            "fedcollab, one core": single_core_round,
            "functional autograd loop": functional_round,
            "nn.Module loop": module_round,
            "matrix products alone (floor)": products_round,
        },
    ),
    "cnn": (
        [2500] * 10 + [340] * 10,
        (3, 32, 32),
        {
            OURS: partial(fedcollab_round, model="cnn"),
            "fedcollab, one core": partial(single_core_round, model="cnn"),
            "nn.Module loop": partial(module_round, build=cnn_module),
        },
    ),
}


def measure(model: str, repeats: int) -> dict[str, tuple[float, float]]:
    """Median seconds and CPU seconds a round; interleaved, so that a busy moment of the machine hits all alike."""
    sizes, shape, ways = WAYS[model]
    data = make_data(sizes, shape)
    rounds = {name: make(data) for name, make in ways.items()}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in rounds}
    for repeat in range(repeats + 1):
        for name, run in rounds.items():
            started, cpu = time.perf_counter(), time.process_time()
            run()
            if repeat:
                times[name].append((time.perf_counter() - started, time.process_time() - cpu))
    return {
        name: (statistics.median(wall for wall, _ in values), statistics.median(cpu for _, cpu in values))
        for name, values in times.items()
    }


def peer(name: str, folder: Path, cores: int, install: bool) -> float | None:
    """A peer's seconds a round, measured by its own script in its own virtual environment."""
    python = folder / name / "bin" / "python"
    if install and not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder / name)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", PEERS[name], "torch"], check=True)
    script = HERE / "peers" / f"{name}_round.py"
    if not python.exists() or not script.exists():
        return None
    done = subprocess.run([str(python), str(script), str(cores)], capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{name} failed: {(done.stderr.strip().splitlines() or ['?'])[-1]}", file=sys.stderr)
        return None
    return float(json.loads(done.stdout.strip().splitlines()[-1])["seconds"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=list(WAYS), default="mlp")
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--peers", type=Path, help="folder with the peers' virtual environments")
    parser.add_argument("--install", action="store_true", help="make those environments")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.cores)
    seconds = measure(arguments.model, arguments.repeats)
    wall, cpu = seconds[OURS]
    print(
        f"{'':32}{'s a round':>10}{'to fedcollab':>14}{'CPU s':>10}{'to fedcollab':>14}   ({arguments.cores} core(s))"
    )
    for name, (clock, used) in seconds.items():
        print(f"{name:32}{clock:10.3f}{clock / wall:13.2f}x{used:10.3f}{used / cpu:13.2f}x", flush=True)
    for name in PEERS:
        clock = (
            peer(name, arguments.peers, arguments.cores, arguments.install)
            if arguments.peers and arguments.model == "mlp"
            else None
        )
        print(
            f"{name:32}{'absent':>10}" if clock is None else f"{name:32}{clock:10.3f}{clock / wall:13.2f}x", flush=True
        )


if __name__ == "__main__":
    main()
