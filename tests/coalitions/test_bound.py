from itertools import combinations
from math import log, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcollab.coalitions import bound
from fedcollab.errors import InputError


def bound_of(i, members, D, m, C):
    """Client i's bound in a coalition, by Theorem 3.3 with weights proportional to quantity."""
    alpha = np.zeros(len(m))
    alpha[members] = m[members] / m[members].sum()
    return bound.error_bound(bound.phi_empirical(alpha, m, C), alpha, D[i])


@st.composite
def consortia(draw):
    count = draw(st.integers(2, 6))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    D = np.triu(rng.random((count, count)) * draw(st.sampled_from([0.1, 1.0])), 1)
    return D + D.T, np.exp(rng.uniform(0, 7, count)).round(), draw(st.sampled_from([0.1, 1.0, 10.0]))


def test_capacity_is_the_paper_s_constant():
    assert bound.capacity(3, 50, 0.1) == pytest.approx(sqrt(2 * 3 * log(102) + log(40)))


def test_vc_form_is_the_empirical_form_with_that_capacity():
    m = np.array([10.0, 30, 60])
    alpha = np.array([0.2, 0.3, 0.5])
    beta = m / 100
    by_hand = sqrt((alpha**2 / beta).sum() * (2 * 4 * log(202) + log(80)) / 100)
    assert bound.phi_vc(alpha, m, d=4, delta=0.05) == pytest.approx(by_hand)


def test_rademacher_form_by_hand():
    m, alpha, own = np.array([4.0, 16]), np.array([0.5, 0.5]), np.array([0.3, 0.1])
    by_hand = 0.2 + 3 * sqrt(10 * (0.5 / 4) ** 2 * log(2 / 0.1))
    assert bound.phi_rademacher(alpha, m, own, 0.1) == pytest.approx(by_hand)


def test_phi_in_a_coalition_is_c_over_root_of_its_samples():
    assert bound.phi_empirical([0.25, 0.75, 0], [10, 30, 500], C=2) == pytest.approx(2 / sqrt(40))


@given(consortia(), st.integers(0, 1000))
def test_with_zero_distances_everyone_together_is_best_over_all_weights(consortium, seed):
    """Corollary 3.4 (1): it holds over every weight vector."""
    _, m, C = consortium
    together = bound.phi_empirical(m / m.sum(), m, C)
    weights = np.random.default_rng(seed).dirichlet(np.ones(len(m)))
    assert bound.phi_empirical(weights, m, C) >= together * (1 - 1e-12)


@given(consortia())
@settings(max_examples=60)
def test_the_best_coalition_holds_nobody_beyond_the_threshold(consortium):
    """Corollary 3.5 over coalitions, and 3.4 (2): with everyone beyond it, alone is best."""
    D, m, C = consortium
    for i in range(len(m)):
        others = [j for j in range(len(m)) if j != i]
        groups = [[i, *extra] for size in range(len(m)) for extra in combinations(others, size)]
        best = min(groups, key=lambda members: (bound_of(i, members, D, m, C), len(members)))
        threshold = bound.d_threshold(m[i], m.sum(), C)
        assert all(D[i, j] <= threshold * (1 + 1e-9) for j in best if j != i)
        if all(D[i, j] > threshold * (1 + 1e-9) for j in others):
            assert best == [i]


def test_the_threshold_does_not_hold_over_all_weights():
    m, D, C = np.array([100.0, 100]), np.array([[0, 0.08], [0.08, 0]]), 1.0
    assert D[0, 1] > bound.d_threshold(100, 200, C)
    mixed = bound.error_bound(bound.phi_empirical([0.8, 0.2], m, C), [0.8, 0.2], D[0])
    alone = bound.error_bound(bound.phi_empirical([1, 0], m, C), [1, 0], D[0])
    assert mixed / 2 == pytest.approx(0.0985, abs=5e-5)
    assert alone / 2 == pytest.approx(0.1)


def test_clients_with_more_data_are_more_picky():
    assert bound.d_threshold(1000, 2000, 10) < bound.d_threshold(100, 2000, 10)


def test_c_is_recovered_from_learning_curves():
    m = np.array([[25.0, 50, 100], [100, 200, 400]])
    offsets = np.array([[0.1], [0.3]])
    assert bound.fit_C(m, offsets + 1.7 / np.sqrt(m)) == pytest.approx(1.7)
    assert bound.fit_C([10, 20], [0.1, 0.4]) == 0.0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: bound.capacity(0, 10, 0.1), "`d` (=0)"),
        (lambda: bound.capacity(1, 10, 1.0), "`delta` (=1.0)"),
        (lambda: bound.phi_empirical([0.5, 0.6], [1, 1], 1), "sum to 1"),
        (lambda: bound.phi_empirical([1.0], [1, 1], 1), "one weight per quantity"),
        (lambda: bound.phi_empirical([1.0], [0], 1), "`quantities`"),
        (lambda: bound.phi_rademacher([1.0], [5], [-1], 0.1), "`complexities`"),
        (lambda: bound.error_bound(0.1, [1.0], [0.0, 0.1]), "`distances` (length 2)"),
        (lambda: bound.fit_C([10], [0.1]), "at least 2 sizes"),
        (lambda: bound.fit_C([10, 10], [0.1, 0.2]), "different sizes"),
        (lambda: bound.fit_C([10, -10], [0.1, 0.2]), "positive"),
    ],
)
def test_bad_input_is_named(call, words):
    with pytest.raises(InputError) as error:
        call()
    assert words in str(error.value)
    assert "\n" not in str(error.value)
