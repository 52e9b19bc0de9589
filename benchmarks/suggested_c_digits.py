"""The suggested C on estimated distances: does it cut like clients in two, or join types that share nothing?

    python benchmarks/suggested_c_digits.py --seeds 20

The digits scenario (42 and 14 images a client; types 0 and 1 share most labels, types 0-1 and 2-3 none): no type may be
cut, no coalition may join types without a common label. And the same images dealt at random to 20 like clients: nobody
may be cut off. Three rules: the widest segment of the path; the widest whose splits are more than noise; and the
suggestion, which prefers a finer one of those if it is wide enough. Accuracy of FedAvg in the coalitions, 100
rounds.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np

from fedcollab import ClientData, scenarios, train
from fedcollab.coalitions import CPath, c_path
from fedcollab.coalitions.path import Segment
from fedcollab.distances import estimate_distances

WIDEST, EVIDENT, SUGGESTED = RULES = ("widest segment", "widest segment with evidence", "suggested: also finer ones")


def answers(path: CPath) -> dict[str, Segment]:
    """What each rule suggests."""
    plain = CPath(tuple(replace(part, evidence=None) for part in path), path.limits)
    evident = CPath(tuple(part for part in plain if (path[plain.index(part)].evidence or 1) >= 1), path.limits)
    return {WIDEST: plain.suggested, EVIDENT: evident.suggested, SUGGESTED: path.suggested}


def judge(assignment: np.ndarray, types: np.ndarray) -> tuple[bool, bool]:
    """Whether some type is cut in two, and whether some coalition reaches across the large gap."""
    cut = any(len(set(assignment[types == kind])) > 1 for kind in set(types))
    across = any(len(set(types[assignment == label] // 2)) > 1 for label in set(assignment))
    return cut, across


def alike(clients: list[ClientData], seed: int) -> list[ClientData]:
    """The same images, dealt at random to as many clients of the same sizes."""
    x, y = np.concatenate([client.x for client in clients]), np.concatenate([client.y for client in clients])
    order = np.random.default_rng(seed).permutation(len(y))
    hands = np.split(order, np.cumsum([len(client.y) for client in clients])[:-1])
    return [
        ClientData(client.name, x[hand], y[hand], client.x_test, client.y_test)
        for client, hand in zip(clients, hands, strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    seeds = parser.parse_args().seeds
    right, cuts, joins, everyone = (dict.fromkeys(RULES, 0) for _ in range(4))
    accuracy: dict[str, list[float]] = {rule: [] for rule in RULES}
    for seed in range(seeds):
        scenario = scenarios.make("digits", seed=seed)
        trained: dict[str, float] = {}
        path = c_path(estimate_distances(scenario.clients, scale="none", seed=seed))
        for rule, part in answers(path).items():
            cut, across = judge(part.assignment, np.array(scenario.types))
            right[rule] += not cut and not across
            cuts[rule] += cut
            joins[rule] += across
            if str(part.coalitions) not in trained:
                options = {"rounds": 100, "lr": 0.1, "scale": "none", "seed": seed, "evaluate_every": None}
                result = train(scenario.clients, part.coalitions, **options)
                trained[str(part.coalitions)] = 100 * float(result.accuracy.mean())
            accuracy[rule].append(trained[str(part.coalitions)])
        path = c_path(estimate_distances(alike(scenario.clients, seed), scale="none", seed=seed))
        for rule, part in answers(path).items():
            everyone[rule] += len(part.coalitions) == 1
    print(f"| rule ({seeds} seeds) | right | cuts a type | joins unlike types | trained, % | like clients: everyone |")
    print("|---|---|---|---|---|---|")
    for rule in RULES:
        mean = np.mean(accuracy[rule])
        print(f"| {rule} | {right[rule]} | {cuts[rule]} | {joins[rule]} | {mean:.2f} | {everyone[rule]} |")


if __name__ == "__main__":
    main()
