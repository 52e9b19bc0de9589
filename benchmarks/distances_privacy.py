"""What privacy costs: decisions of `few-round` against epsilon, by client size, on Fashion-MNIST.

    python benchmarks/distances_privacy.py --seeds 5 --sizes 14,70,210,700,2100

Twenty clients of one size, labels drawn i.i.d. Right means the collaboration that the true distances give at C = 10.
Error is the root mean square error of the distances against those of the same clients without privacy (so that it is
the noise's doing), over all pairs. delta = 1e-5; clip and other settings as they are by default.
"""

from __future__ import annotations

import argparse

import numpy as np

from fedcollab import scenarios
from fedcollab.coalitions import solve
from fedcollab.distances import estimate_distances
from fedcollab.federation.prepare import federate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--scenarios", default="label-shift,concept-shift")
    parser.add_argument("--sizes", default="14,70,210,700,2100")
    parser.add_argument("--epsilons", default="none,16,8,4,2,1,0.5")
    parser.add_argument("--width", type=int)
    options = parser.parse_args()
    epsilons = [None if text == "none" else float(text) for text in options.epsilons.split(",")]
    pairs = np.triu_indices(20, 1)
    for kind in options.scenarios.split(","):
        print(f"{kind}\n{'size':>6} {'epsilon':>8} {'right':>8} {'error':>7}")
        for size in (int(text) for text in options.sizes.split(",")):
            right, errors = dict.fromkeys(epsilons, 0), {epsilon: [] for epsilon in epsilons}
            for seed in range(options.seeds):
                made = scenarios.make(
                    kind,
                    seed=seed,
                    iid=True,
                    dataset="fashion-mnist",
                    quantity=[size] * 20,
                    test=350 if size > 700 else 7,
                )
                federation = federate(made.clients, scale="none")
                plain = estimate_distances(federation, method="few-round", seed=seed)
                wanted = groups(made.truth, size, seed)
                for epsilon in epsilons:
                    width = {} if options.width is None else {"width": options.width}
                    found = plain
                    if epsilon is not None:
                        found = estimate_distances(federation, method="few-round", seed=seed, privacy=epsilon, **width)
                    right[epsilon] += groups(found.matrix, size, seed) == wanted
                    errors[epsilon].append(np.square(found.raw[pairs] - plain.raw[pairs]).mean())
            for epsilon in epsilons:
                score = f"{right[epsilon]}/{options.seeds}"
                print(
                    f"{size:>6} {epsilon or 'none':>8} {score:>8} {np.sqrt(np.mean(errors[epsilon])):>7.3f}", flush=True
                )


def groups(matrix: np.ndarray, size: int, seed: int) -> list[list[int]]:
    return sorted(sorted(group) for group in solve(matrix, [size] * 20, C=10.0, seed=seed).coalitions)


if __name__ == "__main__":
    main()
