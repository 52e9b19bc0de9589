"""What distances cost a client: rounds, bytes and multiply-accumulate operations (MACs), every method, all in all.

    python benchmarks/distances_cost.py

Two settings. Label shift on Fashion-MNIST, as published (20 clients of 2,100 or 14 samples). And that of the paper's
complexity table: 20 clients with 512 features and 10 labels, here of 2,500 or 60 samples drawn from Gaussians, beside
ResNet-18 (its MACs and parameters as in that table). Rounds and bytes are measured (`Distances.cost`); MACs are counted
for the client with the most: forward passes and weight gradients, what a careful implementation cannot avoid.

The paper says 5.3 % and 17.8 %: one forward pass and one exchange of 19 discriminators beside those of one ResNet-18.
The last columns are in the same unit, for the whole estimate: how many forward passes over the client's own samples,
and how many exchanges of the model, it costs. (The paper's own estimate, `published`, in the same unit, is the first.)
"""

from __future__ import annotations

import argparse

import numpy as np

from fedcollab import scenarios
from fedcollab.data import ClientData
from fedcollab.distances import Distances, estimate_distances
from fedcollab.distances.methods.discriminator import macs, parameters
from fedcollab.distances.sampling.folds import largest
from fedcollab.federation.prepare import federate
from fedcollab.wire.runtime import Runtime

RESNET_MACS, RESNET_PARAMETERS = 37_220_352, 11_181_642
METHODS = ("published", "cross", "hypothesis", "few-round", "prototype", "label")


def operations(found: Distances, features: int, classes: int) -> float:
    """MACs of the client with the most, in the whole estimate."""
    return max(operations_of(found, place, features, classes) for place in range(len(found.names)))


def operations_of(found: Distances, place: int, features: int, classes: int) -> float:
    settings, sizes = found.settings, found.quantities
    count, others = int(sizes[place]), np.delete(sizes, place)
    if found.method == "published":
        # bytes tell the rounds: weights both ways each round, one way each validation
        model = 4 * parameters(features, classes, settings["hidden"])
        steps = found.cost["bytes"][found.names[place]] / model / (2 + 1 / settings["every"])
        held = (count - settings["train"]) / settings["every"]
        return (
            steps * macs(features, classes, settings["hidden"]) * (2 * min(settings["batch"], settings["train"]) + held)
        )
    if found.method in ("cross", "hypothesis"):
        rows = 2 if found.method == "cross" else 2 * classes  # a sample's rows; both directions of `hypothesis`
        total = 0.0
        for other in others:
            size = min(largest(count, settings["folds"]), largest(int(other), settings["folds"]), settings["cap"])
            repeats = min(settings["repeats"], -(-256 // size))
            models = repeats * settings["folds"]
            total += models * settings["rounds"] * size * 2 * rows * (features + 1) + repeats * count * rows * (
                features + 1
            )
        return total
    if found.method == "few-round":
        side = min(settings["width"], features) + 1
        lift = features * (side - 1) if features > settings["width"] else 0
        return float(count * (2 * lift + side * (side + 1) // 2 + len(others) * side))
    return float(count * features) if found.method == "prototype" else 0.0


def gaussian(seed: int = 0) -> list[ClientData]:
    """20 clients of four types, 512 features, 10 labels, means moved by type."""
    rng = np.random.default_rng(seed)
    centres, moves = rng.normal(size=(10, 512)), rng.normal(size=(4, 512))
    clients = []
    for number in range(20):
        count = 2500 if number < 10 else 60
        y = rng.integers(0, 10, count + 10)
        x = (centres[y] + 0.3 * moves[number // 5] + 2 * rng.normal(size=(count + 10, 512))).astype(np.float32)
        clients.append(ClientData(f"{number:02}", x[10:], y[10:], x[:10], y[:10]))
    return clients


def table(title: str, federation: Runtime, features: int, methods: list[str], resnet: bool) -> None:
    print(f"{title}\n{'method':<11}{'rounds':>8}{'megabytes':>11}{'of published':>14}{'giga-MACs':>11}", end="")
    print(f"{'passes':>9}{'exchanges':>11}" if resnet else "")
    reference = None
    for method in methods:
        found = estimate_distances(federation, method=method)
        most = max(found.cost["bytes"].values(), default=0)
        reference = most if method == "published" else reference
        share = f"{most / reference:.2%}" if reference else "-"
        work = operations(found, features, 10)
        line = f"{method:<11}{found.cost['rounds']:>8}{most / 1e6:>11.3f}{share:>14}{work / 1e9:>11.3f}"
        if resnet:
            passes = work / RESNET_MACS / found.quantities.max()
            line += f"{passes:>9.2%}{most / (2 * 4 * RESNET_PARAMETERS):>11.2%}"
        print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", default=",".join(METHODS))
    methods = parser.parse_args().methods.split(",")
    made = scenarios.make("label-shift", seed=0)
    table("label shift, 784 features, 10 labels", federate(made.clients, scale="none"), 784, methods, resnet=False)
    table("512 features, 10 labels, beside ResNet-18", federate(gaussian()), 512, methods, resnet=True)


if __name__ == "__main__":
    main()
