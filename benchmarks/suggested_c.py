"""Which rule finds the right C? Consortia are simulated, distances are measured on them with noise, rules are counted.

A pair's distance is measured as in Algorithm 1: balanced accuracy of a discriminator on the half of each client's
samples that it was not trained on (binomial counts, success (1 + D) / 2), times two, minus one, clipped to [0, 1].
"best of 5" takes the largest of five measurements, as a discriminator that is validated several times does. Learning
curves for the fitted C are a + c / sqrt(m) at m/4, m/2, m with c = 2 and hold-out noise.

    python benchmarks/suggested_c.py [--seeds 20]
"""

from __future__ import annotations

import argparse
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from fedcollab.coalitions import c_path
from fedcollab.coalitions.bound import fit_C
from fedcollab.coalitions.path import CPath, Segment

CLIENTS = 12
CONSORTIA = {
    "IID (everyone)": [0] * CLIENTS,
    "all different (nobody)": list(range(CLIENTS)),
    "three groups of four": [0] * 4 + [1] * 4 + [2] * 4,
    "groups of 6, 4 and 2": [0] * 6 + [1] * 4 + [2] * 2,
}
QUANTITIES = {
    "40 each": lambda rng: np.full(CLIENTS, 40),
    "400 each": lambda rng: np.full(CLIENTS, 400),
    "2,000 each": lambda rng: np.full(CLIENTS, 2000),
    "100 to 1,000": lambda rng: np.exp(rng.uniform(np.log(100), np.log(1000), CLIENTS)).astype(int),
}


def measure(true: NDArray, m: NDArray, looks: int, rng: np.random.Generator) -> NDArray:
    held = np.maximum(m // 2, 1)
    best = np.full(true.shape, -1.0)
    for _ in range(looks):
        right = rng.binomial(held[:, None], (1 + true) / 2) / held[:, None]
        best = np.maximum(best, right + right.T - 1)
    best = np.clip(np.triu(best, 1), 0, 1)
    return best + best.T


def simulate(types: list[int], m: NDArray, looks: int, rng: np.random.Generator) -> NDArray:
    kinds = np.array(types)
    apart = np.triu(rng.uniform(0.4, 0.9, (CLIENTS, CLIENTS)), 1)
    between = (apart + apart.T)[np.ix_(kinds, kinds)]
    return measure(np.where(kinds[:, None] == kinds, 0.0, between), m, looks, rng)


def curves(m: NDArray, rng: np.random.Generator) -> tuple[NDArray, NDArray]:
    sizes = np.stack([m / 4, m / 2, m], axis=1)
    errors = 0.05 + 2 / np.sqrt(sizes)
    return sizes, errors + rng.normal(0, 0.02, errors.shape)


def widest_inner(path: CPath) -> Segment:
    inner = path[1:-1] or path[:]
    return max(inner, key=lambda part: np.log(part.c_high / part.c_low) if part.c_low > 0 else 0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    seeds = parser.parse_args().seeds
    rules = ["suggested", "widest inner", "fitted C", "C = 10"]
    print(f"right answers out of {seeds}, {CLIENTS} clients\n")
    print(f"{'consortium':24}{'quantities':14}{'measured':12}" + "".join(f"{rule:>14}" for rule in rules))
    for consortium, types in CONSORTIA.items():
        for name, draw in QUANTITIES.items():
            for looks in (1, 5):
                right: Counter[str] = Counter()
                for seed in range(seeds):
                    rng = np.random.default_rng([seed, looks, len(name), max(types)])
                    m = draw(rng)
                    D = simulate(types, m, looks, rng)
                    path = c_path(D, m)
                    answers = {
                        "suggested": path.suggested,
                        "widest inner": widest_inner(path),
                        "fitted C": path.containing(max(1e-6, fit_C(*curves(m, rng)))),
                        "C = 10": path.containing(10.0),
                    }
                    right.update(rule for rule, part in answers.items() if part.assignment.tolist() == types)
                row = f"{consortium:24}{name:14}{'once' if looks == 1 else 'best of 5':12}"
                print(row + "".join(f"{right[rule]:>14}" for rule in rules), flush=True)


if __name__ == "__main__":
    main()
