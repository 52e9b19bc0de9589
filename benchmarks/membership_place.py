"""What it costs to take a client in, and how far one-at-a-time ends from solving from scratch.

First table: `place` at N clients against one pass over the new client's row and the coalition sums (five bincounts: the
least that any placement must read), in the same run. Second table: planted types with noisy distances, 20 clients are
solved, 80 more join one at a time by `place`; the objective at the end against a fresh solve, and what the tool says.

    python benchmarks/membership_place.py [--seeds 5] [--json]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fedcollab.coalitions import Collaboration, place, solve
from fedcollab.coalitions.inputs import read_inputs
from fedcollab.coalitions.objective import coalition_sums
from fedcollab.coalitions.solve import Found, collaboration_of
from fedcollab.distances import Distances
from fedcollab.runs.membership.regroup import THRESHOLD, consider

REPEATS = 40


def best(work: Callable[[], object]) -> float:
    seconds = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def speed(count: int, groups: int) -> dict[str, float]:
    rng = np.random.default_rng(0)
    labels = np.r_[np.arange(groups), rng.integers(0, groups, count - groups)]
    m = rng.integers(50, 2000, count).astype(np.float64)
    row = rng.random(count)
    near = rng.random((count, count), dtype=np.float32)
    np.fill_diagonal(near, 0)
    pull, push = coalition_sums(near, m, labels, False)
    names = tuple(f"client-{k:05d}" for k in range(count))
    answer = Collaboration(labels, m, names, 10.0, 1.0, 1.0, False, "local", pull, push)
    at = np.arange(count)

    def one_pass() -> object:
        own = answer.pull[at, labels]
        return [np.bincount(labels, weights=w) for w in (m, None, own, row * m, row)]

    base, taken = best(one_pass), best(lambda: place(answer, row, 100.0))
    return {
        "clients": count,
        "coalitions": groups,
        "pass_us": 1e6 * base,
        "place_us": 1e6 * taken,
        "ratio": taken / base,
    }


def planted(count: int, types: int, noise: float, seed: int) -> tuple[NDArray, NDArray]:
    rng = np.random.default_rng([seed, types])
    kinds = rng.integers(0, types, count)
    apart = np.triu(rng.uniform(0.2, 0.7, (types, types)), 1)
    apart += apart.T + 0.04 * np.eye(types)
    raw = np.triu(apart[np.ix_(kinds, kinds)] + rng.normal(0, noise, (count, count)), 1)
    return raw + raw.T, np.exp(rng.uniform(np.log(30), np.log(2000), count)).astype(int)


def one_at_a_time(types: int, noise: float, seed: int, first: int = 20, last: int = 100, C: float = 8.0) -> dict:
    raw, m = planted(last, types, noise, seed)

    def part(count: int) -> Distances:
        return Distances(raw[:count, :count], tuple(f"c{k:03d}" for k in range(count)), m[:count])

    answer = solve(part(first), C=C)
    for count in range(first + 1, last + 1):
        now = part(count)
        spot = place(answer, now.matrix[-1, :-1], m[count - 1], name=now.names[-1])
        mine = answer.assignment.max() + 1 if spot.coalition is None else spot.coalition
        found = Found(np.append(answer.assignment, mine), 0.0, False, "placed")
        answer = collaboration_of(read_inputs(now, None), answer.constraints, C, found)
    end = consider(part(last), answer.assignment, C, {})
    return {"types": types, "noise": noise, "seed": seed, "above": end.cost, "advised": end.advised}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    speeds = [speed(count, groups) for count, groups in ((1000, 10), (10_000, 40), (10_000, 400))]
    grown = [
        one_at_a_time(types, noise, seed)
        for types, noise in ((4, 0.02), (4, 0.1), (8, 0.1))
        for seed in range(arguments.seeds)
    ]
    silent = [row for row in grown if row["above"] > THRESHOLD and not row["advised"]]
    if arguments.json:
        print(json.dumps({"place": speeds, "one_at_a_time": grown, "silently_worse": len(silent)}))
        return
    print("| clients | coalitions | one pass (us) | place (us) | ratio |\n|---|---|---|---|---|")
    for row in speeds:
        print(f"| {row['clients']:,} | {row['coalitions']} | {row['pass_us']:.0f} ", end="")
        print(f"| {row['place_us']:.0f} | {row['ratio']:.1f} |")
    print("\n20 to 100 clients, one at a time, against solving from scratch:\n")
    print("| types | noise | above the fresh objective | re-solve advised |\n|---|---|---|---|")
    for row in grown:
        advice = "yes" if row["advised"] else "no"
        print(f"| {row['types']} | {row['noise']} | {100 * row['above']:.2f} % | {advice} |")
    print(f"\nmore than {100 * THRESHOLD:g} % above without advice: {len(silent)} of {len(grown)}")


if __name__ == "__main__":
    main()
