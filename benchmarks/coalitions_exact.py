"""Is the proven optimum the optimum, and how often does the local search reach it?

    python benchmarks/coalitions_exact.py [--instances 50] [--local 200]

1. N = 20, random and planted matrices: `method="exact"` against the full dynamic programme over subsets.
2. N = 30 and 40, planted groups: proven or not.
3. N = 12 to 16, random matrices: local search with restarts against exact.
"""

from __future__ import annotations

import argparse
from time import perf_counter

import numpy as np

from fedcollab.coalitions import solve
from fedcollab.coalitions.constraints import Constraints
from fedcollab.coalitions.inputs import read_inputs
from fedcollab.coalitions.solver.instance import build_instance
from fedcollab.coalitions.solver.subsets import programme, subset_lines
from reference import planted, uniform


def by_programme(D: np.ndarray, m: np.ndarray, C: float) -> float:
    """The whole dynamic programme over 3^N / 6 pairs of subsets: no bound, no pruning."""
    slope, intercept = subset_lines(build_instance(read_inputs(D, m), Constraints(), C))
    cost = C * slope + intercept
    return float(sum(cost[S] for S in programme(cost, len(m), np.inf) or []))


def timed(call, *arguments, **options):
    start = perf_counter()
    return call(*arguments, **options), perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instances", type=int, default=50)
    parser.add_argument("--local", type=int, default=200)
    options = parser.parse_args()

    equal, fast, slow = 0, 0.0, 0.0
    worst = 0.0
    for seed in range(options.instances):
        D, m = planted(4, 5, seed)[:2] if seed % 2 else uniform(20, seed)
        C = [1.0, 3.0, 10.0, 30.0][seed // 2 % 4]
        answer, taken = timed(solve, D, m, C, method="exact")
        fast, worst = fast + taken, max(worst, taken)
        value, taken = timed(by_programme, D, m, C)
        slow += taken
        equal += abs(answer.objective - value) <= 1e-9 * value and answer.optimal
    print(f"N = 20: {equal} of {options.instances} equal to the dynamic programme")
    print(f"        {fast / options.instances:.3f} s each (worst {worst:.2f} s), {slow / fast:.1f} times faster\n")

    print(f"{'N':>4} {'groups':>7} {'C':>4} {'proven':>7} {'seconds':>8}")
    for groups, each in ((5, 6), (6, 5), (4, 10), (8, 5)):
        for C in (3.0, 10.0):
            D, m, _ = planted(groups, each, groups)
            answer, taken = timed(solve, D, m, C, method="exact")
            print(f"{groups * each:>4} {groups:>7} {C:>4.0f} {answer.optimal!s:>7} {taken:>8.2f}")

    reached = 0
    for seed in range(options.local):
        D, m = uniform(12 + seed % 5, 1000 + seed)
        C = [1.0, 3.0, 10.0, 30.0][seed // 5 % 4]
        best = solve(D, m, C, method="exact").objective
        reached += solve(D, m, C, method="local").objective <= best * (1 + 1e-9)
    share = 100 * reached / max(1, options.local)
    print(f"\nN = 12 to 16: local search reaches the optimum on {reached} of {options.local} ({share:.1f} %)")


if __name__ == "__main__":
    main()
