"""The suggested C on estimated distances: does it cut a type of like clients in two, or join types that share nothing?

The digits scenario (42 and 14 images a client; types 0 and 1 share most labels, types 0-1 and 2-3 none), with and
without the evidence rule of `coalitions.evidence`. Right: no type is cut, no coalition joins types without a common
label.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np

from fedcollab import scenarios
from fedcollab.coalitions import CPath, c_path
from fedcollab.distances import estimate_distances


def judge(assignment: np.ndarray, types: np.ndarray) -> tuple[bool, bool]:
    """Whether some type is cut in two, and whether some coalition reaches across the large gap."""
    cut = any(len(set(assignment[types == kind])) > 1 for kind in set(types))
    across = any(len(set(types[assignment == label] // 2)) > 1 for label in set(assignment))
    return cut, across


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    arguments = parser.parse_args()
    counts = {"widest segment": [0, 0, 0], "widest segment with evidence": [0, 0, 0]}
    for seed in range(arguments.seeds):
        scenario = scenarios.make("digits", seed=seed)
        path = c_path(estimate_distances(scenario.clients, scale="none", seed=seed))
        plain = CPath(tuple(replace(part, evidence=None) for part in path), path.limits)
        for name, suggested in zip(counts, (plain.suggested, path.suggested), strict=True):
            cut, across = judge(suggested.assignment, np.array(scenario.types))
            counts[name] = [a + b for a, b in zip(counts[name], (not cut and not across, cut, across), strict=True)]
    print(f"| rule ({arguments.seeds} seeds) | right | cuts a type | joins unlike types |\n|---|---|---|---|")
    for name, (right, cut, across) in counts.items():
        print(f"| {name} | {right} | {cut} | {across} |")


if __name__ == "__main__":
    main()
