"""Are the distances good enough to decide on? Coalitions at C = 10 over data seeds, bias and coverage by block.

    python benchmarks/distances_quality.py --seeds 20 --methods auto,published

Label shift and concept shift (permuted labels) on Fashion-MNIST, each as published (exact label counts) and with every
client's labels drawn i.i.d. Right means: label shift exactly [0..4], [5..9], [10..19]; concept shift [0..4] and [5..9]
whole and no coalition across unaligned labels (0-9 with 10-19). Bias and the coverage of 90 % intervals (raw +- 1.645
stderr) against the closed-form truth, for label shift i.i.d.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

from fedcollab import scenarios
from fedcollab.coalitions import solve
from fedcollab.distances import Distances, estimate_distances

LARGE = np.arange(20) < 10
BLOCKS = {"large": LARGE[:, None] & LARGE, "mixed": LARGE[:, None] & ~LARGE, "small": ~LARGE[:, None] & ~LARGE}


def right(kind: str, coalitions: list[list[int]]) -> bool:
    found = {tuple(coalition) for coalition in coalitions}
    if kind == "label-shift":
        return found == {tuple(range(5)), tuple(range(5, 10)), tuple(range(10, 20))}
    whole = tuple(range(5)) in found and tuple(range(5, 10)) in found
    return whole and all(len({client >= 10 for client in coalition}) == 1 for coalition in found)


def blocks(estimates: list[Distances], truth: np.ndarray) -> None:
    raw = np.stack([estimate.raw for estimate in estimates])
    error = np.stack([estimate.stderr for estimate in estimates]) if estimates[0].stderr is not None else None
    print(f"    {'block':<18}{'truth':>7}{'mean':>8}{'bias':>8}{'spread':>8}{'stderr':>8}{'coverage':>10}")
    for value in np.unique(truth.round(6)):
        for name, mask in BLOCKS.items():
            chosen = np.triu(mask & (np.abs(truth - value) < 1e-6), 1)
            if not chosen.any():
                continue
            values = raw[:, chosen]
            line = f"    {name:<18}{value:>7.3f}{values.mean():>8.3f}{values.mean() - value:>+8.3f}{values.std():>8.3f}"
            if error is not None:
                within = np.abs(values - value) <= 1.645 * error[:, chosen]
                line += f"{np.sqrt((error[:, chosen] ** 2).mean()):>8.3f}{within.mean():>10.1%}"
            print(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--methods", default="auto,published")
    parser.add_argument("--scenarios", default="label-shift,concept-shift")
    parser.add_argument("--versions", default="exact,iid")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for kind in options.scenarios.split(","):
        for version in options.versions.split(","):
            for method in options.methods.split(","):
                score, estimates, taken = 0, [], 0.0
                for seed in range(options.first, options.first + options.seeds):
                    made = scenarios.make(kind, seed=seed, iid=version == "iid", dataset="fashion-mnist")
                    started = time.perf_counter()
                    estimate = estimate_distances(made.clients, method=method, seed=seed, scale="none")
                    taken += time.perf_counter() - started
                    coalitions = solve(estimate.matrix, estimate.quantities, C=10.0, seed=seed).coalitions
                    good = right(kind, coalitions)
                    score += good
                    estimates.append(estimate)
                    if not good:
                        print(f"    seed {seed}: {coalitions}", flush=True)
                print(
                    f"{kind} {version} {method}: {score} of {options.seeds} right, {taken / options.seeds:.1f} s each"
                )
                if made.truth is not None:
                    blocks(estimates, made.truth)
                print(flush=True)


if __name__ == "__main__":
    main()
