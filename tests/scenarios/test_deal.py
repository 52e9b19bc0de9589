"""Count tables and dealing: counts to the sample, nothing dealt twice, test samples never trained on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcollab.errors import InputError
from fedcollab.scenarios.deal import apportion, count_table, deal, label_distances


@given(
    total=st.integers(0, 5000),
    weights=st.lists(st.integers(0, 9), min_size=1, max_size=12).filter(lambda weights: sum(weights) > 0),
)
def test_apportioned_counts_sum_to_the_total_and_stay_within_one_of_the_share(total: int, weights: list[int]) -> None:
    mix = np.array(weights, dtype=float)
    counts = apportion(total, mix)
    assert counts.sum() == total
    assert (np.abs(counts - total * mix / mix.sum()) < 1).all()
    assert (counts[mix == 0] == 0).all()


@pytest.mark.parametrize(
    ("total", "keep", "each"), [(2100, -5, [2, 4, 4, 4]), (2500, -2, [34] * 10), (2500, -3, [6] * 20)]
)
def test_paper_subsampling_rounds_each_label_by_itself(total: int, keep: int, each: list[int]) -> None:
    """NOTES: 2,100 x e^-5 is 14, 2,500 x e^-2 is 340, 2,500 x e^-3 is 120, rounded per label."""
    mix = np.array([1, 2, 2, 2] if len(each) == 4 else [1] * len(each), dtype=float)
    by_label = np.round(np.exp(keep) * apportion(total, mix)).astype(int).tolist()
    assert by_label == each == apportion(sum(each), mix).tolist()


def test_nothing_is_dealt_twice() -> None:
    labels = np.arange(600) % 3
    train, test = np.full((4, 3), 40), np.full((4, 3), 10)
    hands = deal(labels, train, test, seed=0)
    everything = np.concatenate([np.concatenate(hand) for hand in hands])
    assert len(np.unique(everything)) == len(everything) == 600
    for own, held in hands:
        assert np.bincount(labels[own]).tolist() == [40] * 3
        assert np.bincount(labels[held]).tolist() == [10] * 3


def test_too_small_a_pool_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="need 42 training and 2 test samples of label 1, but the data set has 40"):
        deal(np.repeat([0, 1], 40), np.array([[1, 42]]), np.array([[1, 2]]), seed=0)


def test_reuse_goes_round_the_training_samples_alone() -> None:
    """i.i.d. draws may want more than there is: 3 x 30 of a pool of 80, 15 of which are for testing."""
    labels = np.zeros(80, dtype=np.int64)
    hands = deal(labels, np.full((3, 1), 30), np.full((3, 1), 5), seed=0, reuse=True)
    held = np.concatenate([test for _, test in hands])
    assert len(np.unique(held)) == 15
    for own, _ in hands:
        assert len(np.unique(own)) == 30
        assert not np.isin(own, held).any()


def test_iid_counts_follow_the_mix_and_vary_between_clients() -> None:
    mixes = np.tile([0.1, 0.2, 0.7], (400, 1))
    table = count_table(np.full(400, 50), mixes, iid=True, seed=0, use="train")
    assert (table.sum(axis=1) == 50).all()
    assert np.allclose(table.mean(axis=0), [5, 10, 35], atol=0.5)
    assert table[:, 1].var() == pytest.approx(50 * 0.2 * 0.8, rel=0.2)


def test_label_distances_is_a_metric_on_mixes() -> None:
    mixes = np.random.default_rng(0).dirichlet([0.5] * 6, size=8)
    distances = label_distances(mixes)
    assert (distances == distances.T).all()
    assert (np.diag(distances) == 0).all()
    assert (distances <= 1).all()
    assert (distances[:, None, :] <= distances[:, :, None] + distances[None, :, :] + 1e-12).all()
