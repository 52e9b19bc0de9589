"""How good is the solver at scale, and how long does it take? Objectives beside times.

    python benchmarks/coalitions_scale.py [--most 10000] [--paths 200]

Planted groups (see `reference.consortium`), log-uniform quantities from 20 to 5,000, C = 10, seed 0; CPU time of this
process, ratios within one run.
1. N = 50 to 1,000: the search of `solve` ("auto", no proof) against greedy merging in plain NumPy: at most 5 times its
   time plus .5 s, with an objective at least as good.
2. N = 2,000 to 10,000: the whole of `solve` against one `D.sum()`, with memory beside the matrix: at most 64 MB or 1.2
   times the matrix, whichever is more.
3. `c_path`: against 10 times (its segments) times greedy merging, plus 1 s.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from time import process_time
from typing import Any

import numpy as np

from coalitions_speed import Peak
from fedcollab.coalitions import c_path, objective, personal_weights, solve
from reference import consortium, greedy_merging

C = 10.0
MIDDLE: list[tuple[int, int, dict[str, Any]]] = [
    (50, 4, {}),
    (100, 6, {}),
    (200, 10, {}),
    (500, 20, {}),
    (1000, 30, {}),
    (1000, 100, {}),
    (500, 20, {"noise": 0.1}),
    (500, 20, {"noise": 0.05, "unequal": True}),
    (500, 20, {"noise": 0.05, "symmetric": False}),
]
LARGE: list[tuple[int, int, dict[str, Any]]] = [
    (2000, 40, {}),
    (5000, 100, {}),
    (10_000, 200, {}),
    (10_000, 200, {"noise": 0.1, "unequal": True}),
    (10_000, 200, {"symmetric": False}),
    (10_000, 1000, {}),
]


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of a call, and its result."""
    start = process_time()
    result = call()
    return process_time() - start, result


def words(options: dict[str, Any]) -> str:
    """What is special about an instance."""
    noise = f"noise {options.get('noise', 0.02):g}"
    unequal = ", unequal groups" if options.get("unequal") else ""
    return noise + unequal + ("" if options.get("symmetric", True) else ", asymmetric")


def middle() -> None:
    """Print the table of 50 to 1,000 clients."""
    print("| N, groups | instance | greedy | search | allowed | / planted | / greedy | gap | gap of own weights |")
    print("|---|---|---|---|---|---|---|---|---|")
    for count, groups, options in MIDDLE:
        D, m, truth = consortium(count, groups, 0, **options)
        slow, merged = timed(lambda D=D, m=m: greedy_merging(D, m, C))
        took, answer = timed(lambda D=D, m=m: solve(D, m, C, prove=False))
        planted, greedy = (objective(D, m, labels, C) for labels in (truth, merged))
        own = 1 - personal_weights(D, m, C)[1].sum() / answer.objective
        print(
            f"| {count:,}, {groups} | {words(options)} | {slow:.3f} s | {took:.3f} s | {5 * slow + 0.5:.2f} s "
            f"| {answer.objective / planted:.4f} | {answer.objective / greedy:.4f} | {100 * answer.gap:.1f} % "
            f"| {100 * own:.1f} % |",
            flush=True,
        )


def large(most: int) -> None:
    """Print the table of thousands of clients."""
    print("\n| N, groups | instance | D.sum() | solve | ratio | / planted | coalitions | gap | memory, MB | / matrix |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for count, groups, options in LARGE:
        if count > most:
            continue
        D, m, truth = consortium(count, groups, 0, **options)
        once = min(timed(D.sum)[0] for _ in range(5))
        with Peak() as peak:
            took, answer = timed(lambda D=D, m=m: solve(D, m, C))
        planted = objective(D, m, truth, C)
        print(
            f"| {count:,}, {groups} | {words(options)} | {1000 * once:.1f} ms | {took:.2f} s | {took / once:.0f} "
            f"| {answer.objective / planted:.4f} | {len(answer.coalitions)} | {100 * answer.gap:.1f} % "
            f"| {(peak.most - peak.start) / 1e6:.0f} | {(peak.most - peak.start) / D.nbytes:.2f} |",
            flush=True,
        )


def paths(most: int) -> None:
    """Print the table of paths."""
    print("\n| N, groups | instance | greedy | segments | path | allowed | suggested | other seeds and restarts |")
    print("|---|---|---|---|---|---|---|---|")
    for count, groups in ((40, 4), (60, 5), (100, 6), (200, 10), (500, 20), (1000, 30)):
        if count > most:
            continue
        options = {"noise": 0.05}
        D, m, _ = consortium(count, groups, 0, **options)
        slow = min(timed(lambda D=D, m=m: greedy_merging(D, m, C))[0] for _ in range(3))
        took, path = timed(lambda D=D, m=m: c_path(D, m))
        others = [c_path(D, m, seed=seed, restarts=5 * seed).suggested for seed in (1, 2)] if count <= 200 else []
        same = sum(np.array_equal(part.assignment, path.suggested.assignment) for part in others)
        print(
            f"| {count:,}, {groups} | {words(options)} | {slow:.4f} s | {len(path)} | {took:.2f} s "
            f"| {10 * len(path) * slow + 1:.1f} s | {len(path.suggested.coalitions)} coalitions "
            f"| {f'{same} of {len(others)} the same' if others else ''} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=int, default=10_000, help="clients of the largest instance that is solved")
    parser.add_argument("--paths", type=int, default=200, help="clients of the largest path; 1000 takes minutes")
    arguments = parser.parse_args()
    solve(np.zeros((2, 2)), [5, 5], C)
    middle()
    large(arguments.most)
    paths(arguments.paths)


if __name__ == "__main__":
    main()
