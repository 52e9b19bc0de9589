"""Does the encoder see what matters? Coalitions at the suggested C over data seeds, for feature and concept shift.

    python benchmarks/encoders_quality.py --seeds 20 --encoder efficientnet-lite0

Feature shift: CIFAR-10, rotated by +25, -25, +155, -155 degrees; concept shift: CIFAR-100 with 20 coarse labels,
permuted (6 labels, or all, named otherwise). 20 clients, training samples as in the paper; default estimator; C is
`c_path(distances).suggested.C`, nothing tuned. Right means: [0..4] and [5..9] whole and no coalition across the large
gap (0-9 with 10-19); whether 10-14 and 15-19 stay together is counted. Every image of the pool is encoded once for each
rotation, in parts that the cache of features keeps; a seed then only chooses rows.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np
import torch

from distances_quality import right
from fedcollab import ClientData, scenarios
from fedcollab.coalitions import c_path
from fedcollab.distances import Distances, estimate_distances
from fedcollab.encoders import find
from fedcollab.encoders.features import encoded
from fedcollab.scenarios.concept import paper_permutations
from fedcollab.scenarios.data import Images, images
from fedcollab.scenarios.deal import count_table, deal
from fedcollab.scenarios.feature import PAPER_ANGLES
from fedcollab.scenarios.rotate import rotate
from fedcollab.scenarios.scenario import label_shares

PART = 10_000
TYPES = np.repeat(np.arange(4), 5)
SIZES = {"feature-shift": (2500, 2500, 340, 340), "concept-shift": (2500, 2500, 120, 120)}
DATA = {"feature-shift": "cifar-10", "concept-shift": "cifar-100"}


class Pool:
    """Features of a data set's images as each type sees them, encoded part by part when they are first asked for."""

    def __init__(self, kind: str, encoder: str) -> None:
        self.kind, self.encoder, self.data = kind, find(encoder), images(DATA[kind])
        self.turns = PAPER_ANGLES if kind == "feature-shift" else (0.0,) * 4
        self.parts: dict[tuple[float, int], np.ndarray] = {}

    def rows(self, index: np.ndarray, type_: int) -> np.ndarray:
        """Features of the images at `index`, for a client of this type."""
        return np.stack([self.part(self.turns[type_], row // PART)[row % PART] for row in index])

    def part(self, turn: float, number: int) -> np.ndarray:
        """Features of a part of the pool, turned."""
        if (turn, number) not in self.parts:
            pixels = self.data.pixels[number * PART : (number + 1) * PART].astype(np.float32)
            self.parts[turn, number] = encoded(
                self.encoder, self.data.normalise(rotate(pixels, turn) if turn else pixels)
            )
        return self.parts[turn, number]


def clients(pool: Pool, seed: int, iid: bool) -> list[ClientData]:
    """The clients of `scenarios.make(kind, seed=seed)`, with features in place of images and no test samples read."""
    data: Images = pool.data
    mixes = np.tile(label_shares(data), (20, 1))
    quantity = np.array(SIZES[pool.kind])[TYPES]
    hands = deal(
        data.labels,
        count_table(quantity, mixes, iid=iid, seed=seed, use="train"),
        count_table(np.full(20, 500), mixes, iid=iid, seed=seed, use="test"),
        seed=seed,
        reuse=iid,
    )
    permuted = paper_permutations(20, 6) if pool.kind == "concept-shift" else np.tile(np.arange(10), (4, 1))
    made = []
    for client, ((own, _), type_) in enumerate(zip(hands, TYPES, strict=True)):
        x, y = pool.rows(own, type_), permuted[type_][data.labels[own]]
        made.append(ClientData(f"client-{client:02d}", x, y, x[:1], y[:1]))
    return made


def check(pool: Pool) -> None:
    """The clients made here have the images of the scenario."""
    scenario = scenarios.make(pool.kind, seed=0)
    made = clients(pool, 0, iid=False)
    for client in (0, 12):
        expected = pool.encoder(scenario.clients[client].x[:4])
        np.testing.assert_allclose(made[client].x[:4], expected, atol=1e-3)
        np.testing.assert_array_equal(made[client].y, scenario.clients[client].y)


def blocks(estimates: list[Distances]) -> str:
    """Mean raw distances between and within types."""
    raw = np.mean([estimate.raw for estimate in estimates], axis=0)
    pairs = {"within 0-9": [(0, 0), (1, 1)], "0/1": [(0, 1)], "far": [(0, 2), (0, 3), (1, 2), (1, 3)]}
    pairs |= {"2/3": [(2, 3)], "within 10-19": [(2, 2), (3, 3)]}
    upper = np.triu(np.ones((20, 20), dtype=bool), 1)

    def mean(kinds: list[tuple[int, int]]) -> float:
        chosen = [upper & (TYPES[:, None] == a) & (b == TYPES) for a, b in kinds]
        return float(raw[np.logical_or.reduce(chosen)].mean())

    return ", ".join(f"{name} {mean(kinds):+.3f}" for name, kinds in pairs.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--encoder", default="efficientnet-lite0")
    parser.add_argument("--scenarios", default="concept-shift,feature-shift")
    parser.add_argument("--methods", default="auto")
    parser.add_argument("--iid", action="store_true")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for kind in options.scenarios.split(","):
        pool = Pool(kind, options.encoder)
        check(pool)
        for method in options.methods.split(","):
            score, together, estimates, started = 0, 0, [], time.process_time()
            for seed in range(options.first, options.first + options.seeds):
                estimate = estimate_distances(clients(pool, seed, options.iid), method=method, seed=seed)
                chosen = c_path(estimate).suggested
                named = {name: position for position, name in enumerate(estimate.names)}
                found = [sorted(named[name] for name in coalition) for coalition in chosen.coalitions]
                good = right(kind, found)
                score += good
                together += list(range(10, 20)) in found
                estimates.append(estimate)
                print(f"    seed {seed}: C {chosen.C:.2f} {'right' if good else f'wrong: {found}'}", flush=True)
            spent = time.process_time() - started
            print(
                f"{kind} {'iid ' if options.iid else ''}{method} {options.encoder}: {score} of {options.seeds} right "
                f"({together} with 10-19 together), {spent / options.seeds:.1f} CPU s a seed\n"
                f"    {blocks(estimates)}\n",
                flush=True,
            )


if __name__ == "__main__":
    sys.exit(main())
