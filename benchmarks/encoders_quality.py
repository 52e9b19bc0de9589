"""Does the encoder see what matters? Coalitions at the suggested C over data seeds, for feature and concept shift.

    python benchmarks/encoders_quality.py --seeds 20 --encoder efficientnet-lite0

Feature shift: CIFAR-10, rotated by +25, -25, +155, -155 degrees; concept shift: CIFAR-100 with 20 coarse labels,
permuted (6 labels, or all, named otherwise). 20 clients, training samples as in the paper; default estimator; C is
`c_path(distances).suggested.C`, nothing tuned. Right means: [0..4] and [5..9] whole and no coalition across the large
gap (0-9 with 10-19); whether 10-14 and 15-19 stay together is counted. An image is encoded once for each rotation and
kept in `encoders-quality` in the cache folder, so that a run that is stopped goes on, and 20 seeds cost as much as 6.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, field

import numpy as np
import torch

from distances_quality import right
from fedcollab import ClientData, scenarios
from fedcollab.coalitions import c_path
from fedcollab.distances import Distances, estimate_distances
from fedcollab.encoders import find
from fedcollab.files import cache_folder
from fedcollab.scenarios.concept import paper_permutations
from fedcollab.scenarios.data import Images, images
from fedcollab.scenarios.deal import count_table, deal
from fedcollab.scenarios.feature import PAPER_ANGLES
from fedcollab.scenarios.rotate import rotate
from fedcollab.scenarios.scenario import label_shares

TYPES = np.repeat(np.arange(4), 5)
SIZES = {"feature-shift": (2500, 2500, 340, 340), "concept-shift": (2500, 2500, 120, 120)}
DATA = {"feature-shift": "cifar-10", "concept-shift": "cifar-100"}


class Pool:
    """Features of a data set's images as each type sees them; an image is encoded when it is first asked for."""

    def __init__(self, kind: str, encoder: str) -> None:
        self.kind, self.encoder, self.data = kind, find(encoder), images(DATA[kind])
        self.turns = PAPER_ANGLES if kind == "feature-shift" else (0.0,) * 4
        self.width = self.encoder(self.prepared(np.arange(1), 0.0)).shape[1]
        self.stores: dict[float, np.ndarray] = {}

    def rows(self, index: np.ndarray, type_: int) -> np.ndarray:
        """Features of the images at `index`, for a client of this type."""
        turn = self.turns[type_]
        store = self.store(turn)
        new = index[np.isnan(store[index, 0])]
        if len(new):
            store[new] = self.encoder(self.prepared(new, turn))
        return np.array(store[index])

    def prepared(self, index: np.ndarray, turn: float) -> np.ndarray:
        """The images at `index`, turned and normalised as the scenario does."""
        pixels = self.data.pixels[index].astype(np.float32)
        return self.data.normalise(rotate(pixels, turn) if turn else pixels)

    def store(self, turn: float) -> np.ndarray:
        """All features of this rotation, NaN where they are not known yet; a file that is written as they come."""
        if turn not in self.stores:
            text = f"{self.data.name}-{turn:g}-{self.encoder.name}-{self.encoder.checksum}.npy".replace(":", "-")
            path = cache_folder() / "encoders-quality" / text
            path.parent.mkdir(parents=True, exist_ok=True)
            shape = (len(self.data.labels), self.width)
            if not path.exists():
                np.save(path, np.full(shape, np.nan, dtype=np.float32))
            self.stores[turn] = np.load(path, mmap_mode="r+")
        return self.stores[turn]


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


@dataclass
class Score:
    """How often the coalitions were right, and with 10-19 together."""

    right: int = 0
    together: int = 0
    estimates: list[Distances] = field(default_factory=list)

    def add(self, right: bool, together: bool, estimate: Distances) -> None:
        """One more seed."""
        self.right += right
        self.together += together
        self.estimates.append(estimate)

    def __str__(self) -> str:
        return f"{self.right} of {len(self.estimates)} right ({self.together} with 10-19 together)"


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
    parser.add_argument("--emphasis", default="auto", help="of few-round; auto is what it does through an encoder")
    parser.add_argument("--iid", action="store_true")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    pools = [Pool(kind, options.encoder) for kind in options.scenarios.split(",")]
    for pool in pools:
        check(pool)
    asked = [(pool, method) for pool in pools for method in options.methods.split(",")]
    scores = {(pool.kind, method): Score() for pool, method in asked}
    for seed in range(options.first, options.first + options.seeds):
        for pool, method in asked:
            started = time.process_time()
            made = clients(pool, seed, options.iid)
            encoding = time.process_time() - started
            emphasis = options.emphasis if options.emphasis == "auto" else float(options.emphasis)
            more = {"emphasis": emphasis} if method == "few-round" else {}
            estimate = estimate_distances(made, method=method, seed=seed, **more)
            chosen = c_path(estimate).suggested
            named = {name: position for position, name in enumerate(estimate.names)}
            found = [sorted(named[name] for name in coalition) for coalition in chosen.coalitions]
            score = scores[pool.kind, method]
            score.add(right(pool.kind, found), list(range(10, 20)) in found, estimate)
            method_said = f"{method} {estimate.settings.get('emphasis', '')}"
            print(
                f"    seed {seed} {pool.kind} {method_said}: C {chosen.C:.2f} {found}; {score} so far; "
                f"CPU s: {encoding:.0f} encoding, {time.process_time() - started - encoding:.0f} estimating",
                flush=True,
            )
    for (kind, method), score in scores.items():
        print(
            f"{kind}{' iid' if options.iid else ''} {method} {options.encoder}: {score}\n    {blocks(score.estimates)}"
        )


if __name__ == "__main__":
    sys.exit(main())
