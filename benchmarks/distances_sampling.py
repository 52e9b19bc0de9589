"""Folds for label counts that were drawn or set: how far off is the mean distance of clients that are alike?

    python benchmarks/distances_sampling.py --seeds 12

10 clients of 40 samples, 8 labels, features that are noise: all distances are 0. Means over pairs and seeds, with the
standard error over seeds; `auto` must choose the column whose mean is 0.
"""

from __future__ import annotations

import argparse

import numpy as np

from fedcollab import ClientData
from fedcollab.distances import estimate_distances

CLIENTS, EACH, LABELS = 10, 5, 8


def clients(kind: str, seed: int, count: int = CLIENTS, each: int = EACH) -> list[ClientData]:
    """Clients that are alike: noise of which the label says nothing; label counts drawn, or the same for all."""
    rng = np.random.default_rng(seed)
    size = each * LABELS
    made = []
    for index in range(count):
        y = np.arange(size) % LABELS if kind == "set" else rng.integers(0, LABELS, size)
        made.append(ClientData(f"c{index}", rng.normal(size=(size, 5)), y, np.zeros((LABELS, 5)), np.arange(LABELS)))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--methods", default="cross,few-round,hypothesis")
    options = parser.parse_args()
    print("| method | label counts | folds for drawn | folds for set | `auto` |\n|---|---|---|---|---|")
    for method in options.methods.split(","):
        for kind in ("drawn", "set"):
            cells = []
            for told in ("drawn", "set", "auto"):
                means = [
                    estimate_distances(clients(kind, seed), method=method, label_counts=told, replicates=0)
                    .raw[np.triu_indices(CLIENTS, 1)]
                    .mean()
                    for seed in range(options.seeds)
                ]
                cells.append(f"{np.mean(means):+.3f} ± {np.std(means) / np.sqrt(len(means)):.3f}")
            print(f"| `{method}` | {kind} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
