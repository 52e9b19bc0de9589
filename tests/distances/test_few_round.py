"""Two rounds: equal over the wire, the ridge problem solved, each sample in one sum, nothing below the floor."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from fedcollab.data import ClientData
from fedcollab.distances import complete, estimate_distances
from fedcollab.distances.methods.few_round import CHOICES, discriminator, shared_ridge, train_moments
from fedcollab.distances.methods.few_round_client import groups
from fedcollab.errors import InputError
from fedcollab.federation import federate
from fedcollab.wire import Wire
from fedcollab.wire.message import unpack


def test_equals_over_the_wire_in_two_rounds_with_one_array_each_way(mixed: list[ClientData]) -> None:
    here = estimate_distances(mixed, method="few-round", width=7)
    crossed: list[tuple[str, bytes, bytes]] = []
    wire = Wire(mixed, spy=lambda action, name, sent, back: crossed.append((action, sent, back)))
    there = estimate_distances(federate(wire), method="few-round", width=7)
    assert_allclose(there.raw, here.raw, atol=1e-12)
    assert_allclose(there.stderr, here.stderr, atol=1e-12)
    assert_allclose(there.replicates, here.replicates, atol=1e-12)
    assert there.cost == here.cost
    assert there.cost["rounds"] == 2
    moved = [(action, sent, back) for action, sent, back in crossed if action.startswith("few-")]
    assert len(moved) == 2 * len(mixed)
    for _, sent, back in moved:
        for content in (sent, back):
            assert sum(isinstance(value, np.ndarray) for value in unpack(content).values()) <= 1


def test_replies_do_not_grow_with_samples_and_grow_at_most_linearly_with_clients() -> None:
    rng = np.random.default_rng(0)

    def most(clients: int, samples: int) -> int:
        made = [
            ClientData(f"{k:02}", rng.normal(size=(samples, 6)), np.arange(samples) % 2, np.zeros((1, 6)), [0])
            for k in range(clients)
        ]
        return max(estimate_distances(made, method="few-round").cost["bytes"].values())

    assert most(4, 20) == most(4, 200)
    assert most(12, 20) <= 3 * most(4, 20)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), st.floats(0.01, 10), st.integers(0, 1000))
def test_ridge_equals_the_problem_written_out(classes: int, features: int, penalty: float, seed: int) -> None:
    """One design row a sample, with x in the shared columns and in the label's own: plain ridge regression."""
    rng = np.random.default_rng(seed)
    x, y, t = rng.normal(size=(12, features)), rng.integers(0, classes, 12), rng.choice([-1.0, 1.0], 12)
    design = np.zeros((12, classes + 1, features))
    design[:, 0] = x
    design[np.arange(12), 1 + y] = x
    flat = design.reshape(12, -1)
    solved = np.linalg.solve(flat.T @ flat + penalty * np.eye(flat.shape[1]), flat.T @ t).reshape(classes + 1, -1)
    moments = np.stack([x[y == k].T @ x[y == k] for k in range(classes)])
    targets = np.stack([t[y == k] @ x[y == k] for k in range(classes)])
    assert_allclose(shared_ridge(moments, targets, penalty), solved[0] + solved[1:], atol=1e-8)


def test_training_moments_leave_the_fold_out() -> None:
    """Folds of 2, 1, 1 samples of one feature and the constant: 1, 2 | 3 | 4; triangles are (x x, x, 1)."""
    triangles = np.array([[[5.0, 3, 2]], [[9, 3, 1]], [[16, 4, 1]]], dtype=np.float32)
    for noisy in (False, True):
        found = train_moments(triangles, 4, noisy)
        assert_allclose(found[:, 0, 0, 0], [25 / 2, 21 / 3, 14 / 3])
        assert_allclose(found[:, 0, 1, 1], 1)


def test_training_moments_of_folds_of_unequal_size() -> None:
    """Groups make folds of 3, 1 and no samples: 1, 2, 3 | 4 | nothing."""
    triangles = np.array([[[14.0, 6, 3]], [[16, 4, 1]], [[0, 0, 0]]], dtype=np.float32)
    found = train_moments(triangles, 4)
    assert_allclose(found[:, 0, 0, 0], [16, 14 / 3, 30 / 4])
    assert_allclose(found[:, 0, 0, 1], [4, 2, 10 / 4])


def test_weights_follow_the_scale_of_the_features() -> None:
    """Features ten times as long, weights ten times as short: the same decisions."""
    rng = np.random.default_rng(0)
    one, two = (rng.normal(size=(30, 4)) + shift for shift in (0, 1))

    def weights(size: float) -> np.ndarray:
        both = [np.concatenate([size * x, np.ones((30, 1))], axis=1) for x in (one, two)]
        return discriminator(*(((z.T @ z) / 30)[None, None] for z in both), penalty=0.1)

    assert_allclose(weights(10.0)[..., :4] * 10, weights(1.0)[..., :4], rtol=1e-8)
    assert_allclose(weights(10.0)[..., 4], weights(1.0)[..., 4], rtol=1e-8)


def test_twins_are_near_disjoint_labels_far_and_swapped_labels_between() -> None:
    rng = np.random.default_rng(0)

    def make(name: str, swap: bool = False, offset: int = 0) -> ClientData:
        y = rng.integers(0, 2, 300)
        x = rng.normal(size=(300, 20)) * 0.3 + 3 * np.eye(20)[y]
        return ClientData(name, x, (1 - y if swap else y) + offset)

    found = estimate_distances([make("a"), make("b"), make("c", swap=True), make("d", offset=2)], method="few-round")
    assert abs(found.raw[0, 1]) < 0.12
    assert found.raw[0, 2] > 0.9
    assert found.raw[0, 3] > 0.95
    blind = estimate_distances([make("a"), make("c", swap=True)], method="few-round", labels=False)
    assert abs(blind.raw[0, 1]) < 0.2


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=8), st.integers(1, 25))
def test_label_groups_reach_the_floor_or_hold_everything(counts: list[int], least: int) -> None:
    found = groups(np.array(counts), least)
    assert sorted(label for group in found for label in group) == [k for k, count in enumerate(counts) if count]
    for group in found:
        assert sum(counts[k] for k in group) >= min(least, sum(counts))


def test_a_client_below_the_floor_is_refused_by_name() -> None:
    rng = np.random.default_rng(0)
    clients = [
        ClientData(name, rng.normal(size=(n, 3)), np.arange(n) % 2, np.zeros((1, 3)), [0])
        for name, n in (("north", 200), ("south", 40))
    ]
    line = r"client `south` would send moments of 5 folds of 40 samples: sums over 8 .*`min_samples` \(=10\)"
    with pytest.raises(InputError, match=line):
        estimate_distances(clients, method="few-round", min_samples=10)
    assert np.isfinite(estimate_distances(clients, method="few-round", min_samples=8).raw).all()


def test_each_reply_is_made_of_at_least_the_floor() -> None:
    """The rare label's moments are those of its pool: its own samples cannot be read from the reply."""
    rng = np.random.default_rng(0)
    y = np.array([0] * 60 + [1] * 35 + [2] * 5)
    x = rng.normal(size=(100, 3)) + 50.0 * (y == 2)[:, None]
    clients = [ClientData(name, x, y, x[:3], [0, 1, 2]) for name in "ab"]
    replies = []
    wire = Wire(clients, spy=lambda action, name, sent, back: replies.append((action, unpack(back))))
    estimate_distances(federate(wire, scale="none"), method="few-round", min_samples=6)
    moments = next(reply["m"] for action, reply in replies if action == "few-moments")
    for fold in moments:
        means = fold[:, [3, 6, 8]] / np.maximum(fold[:, [9]], 1e-9)  # x~ 1 in the triangle's last column
        assert (means[fold[:, 9] > 0].max(axis=1) < 45).all()


@pytest.mark.parametrize("emphasis", [0.5, 1.0])
def test_emphasis_is_a_ridge_on_stretched_features(emphasis: float) -> None:
    """The same decisions as the plain discriminator of features that were multiplied by G^(e/2) beforehand."""
    rng = np.random.default_rng(1)
    both = [rng.normal(size=(30, 4)) * [5, 2, 1, 0.1] + shift for shift in (0, 1)]
    moments = np.mean([x.T @ x / 30 for x in both], axis=0)
    values, vectors = np.linalg.eigh(moments)
    turn = (vectors * values ** (emphasis / 2)) @ vectors.T

    def weights(samples: list[np.ndarray], **options: float) -> np.ndarray:
        lifted = [np.concatenate([x, np.ones((30, 1))], axis=1) for x in samples]
        return discriminator(*((z.T @ z / 30)[None, None] for z in lifted), penalty=0.1, **options)[0, 0]

    stretched = weights([x @ turn for x in both])
    assert_allclose(weights(both, emphasis=emphasis), [*(turn @ stretched[:4]), stretched[4]], rtol=1e-6, atol=1e-9)


def test_the_emphasis_that_finds_more_is_kept_and_gone_on_with() -> None:
    """Labels lie in the direction of the largest variance, and there are few samples: emphasis sees more."""
    rng = np.random.default_rng(0)

    def make(name: str, swap: bool) -> ClientData:
        y = rng.integers(0, 2, 60)
        x = rng.normal(size=(60, 40)) + np.outer(2 * y - 1, 3 * np.eye(40)[0])
        return ClientData(name, x, 1 - y if swap else y)

    clients = [make(name, swap) for name, swap in zip("abcd", (False, False, True, True), strict=True)]
    options = {"method": "few-round", "scale": "none"}
    chosen = estimate_distances(clients, emphasis="auto", **options)
    tried = [estimate_distances(clients, emphasis=a, ridge=b, **options) for a, b in CHOICES]
    best = max(tried, key=lambda found: found.raw.mean())
    assert best is tried[1]
    np.testing.assert_array_equal(chosen.raw, best.raw)
    np.testing.assert_array_equal(chosen.replicates, best.replicates)
    assert chosen.settings == best.settings
    federation = federate(clients[:3], scale="none")
    known = estimate_distances(federation, emphasis="auto", method="few-round")
    grown = complete(known, federate(clients, schema=federation.schema))
    assert grown.settings["emphasis"] == known.settings["emphasis"]
    plain = estimate_distances(clients, **options)
    assert plain.settings["emphasis"] == 0
    for bad, line in (
        ({"emphasis": -1}, "`emphasis`"),
        ({"emphasis": "auto", "ridge": 2.0}, "does not go with a `ridge`"),
    ):
        with pytest.raises(InputError, match=line):
            estimate_distances(clients, **bad, **options)
