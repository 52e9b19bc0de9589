"""How far does a coalition of the paper get under feature shift with more rounds, and does it matter how images turn?

    python benchmarks/feature_shift_rounds.py small --rounds 500
    python benchmarks/feature_shift_rounds.py small --rounds 500 --pixel nearest

FedAvg inside one of FedCollab's three coalitions (0-4, 5-9 and 10-19) does not depend on the others, so that one can be
trained by itself: the ten small clients, or the five large ones of the first type. Images are turned by bilinear
interpolation, or take the nearest pixel as in the published code. Prints the mean test accuracy of the coalition's
clients every 25 rounds (CNN, step .01, seed 0; CIFAR-10).
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray

from fedcollab import train
from fedcollab.scenarios import data, feature
from fedcollab.scenarios.rotate import corners

COALITIONS = {"small": slice(10, 20), "large": slice(0, 5)}


def nearest(images: NDArray[np.float32], degrees: float) -> NDArray[np.float32]:
    """Turn images (n, channels, size, size) counter-clockwise; every pixel is the nearest one of the image."""
    size = images.shape[-1]
    sources, weights = (np.stack(each) for each in zip(*corners(size, degrees), strict=True))
    source = sources[weights.argmax(axis=0), np.arange(size * size)]
    return np.ascontiguousarray(images.reshape(*images.shape[:2], -1)[..., source]).reshape(images.shape)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("coalition", choices=COALITIONS, nargs="?", default="small")
    parser.add_argument("--rounds", type=int, default=100, help="The paper trains 500.")
    parser.add_argument("--pixel", choices=("bilinear", "nearest"), default="bilinear")
    arguments = parser.parse_args()
    if arguments.pixel == "nearest":
        feature.rotate = nearest  # type: ignore[attr-defined]
    clients = feature.feature_shift(data.images("cifar-10")).clients[COALITIONS[arguments.coalition]]
    how = {"rounds": arguments.rounds, "lr": 0.01, "stopping": "none", "evaluate_every": 25, "seed": 0}
    result = train(clients, "global", "fedavg", "cnn", **how)
    measured: dict[int, list[float]] = {}
    for row in result.history:
        if row["accuracy"] is not None:
            measured.setdefault(row["round"], []).append(row["accuracy"])
    print("| round | mean test accuracy |\n|---|---|")
    for number, accuracies in measured.items():
        print(f"| {number} | {100 * np.mean(accuracies):.2f} % |")


if __name__ == "__main__":
    main()
