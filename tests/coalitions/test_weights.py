"""Weights of one's own: against a convex solver, and as a floor under every partition."""

import importlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

import fedcollab
from fedcollab import objective, personal_weights, solve
from fedcollab.distances.result import Distances
from fedcollab.errors import InputError

weights_module = importlib.import_module("fedcollab.coalitions.weights")


@st.composite
def problems(draw, low=1, high=7):
    count = draw(st.integers(low, high))
    rng = np.random.default_rng(draw(st.integers(0, 100_000)))
    D = rng.integers(0, 4, (count, count)) / 4 if draw(st.booleans()) else rng.random((count, count))
    D = np.triu(D, 1) + np.triu(D, 1).T if draw(st.booleans()) else D
    np.fill_diagonal(D, 0)
    return D, rng.integers(1, 2000, count).astype(float), draw(st.sampled_from([0.1, 1.0, 5.0, 30.0]))


def bound(alpha, row, m, C):
    return C * np.sqrt((alpha**2 / m).sum()) + alpha @ row


def test_two_clients_by_hand():
    # 100 x^2 + 100 (x - 0.08)^2 = 1: a quadratic, 2 x^2 - 0.16 x + 0.0064 - 0.01 = 0
    x = (0.16 + np.sqrt(0.16**2 - 8 * (0.0064 - 0.01))) / 4
    weights, bounds = personal_weights([[0, 0.08], [0.08, 0]], [100, 100], 1)
    assert bounds == pytest.approx([x, x], rel=1e-14)
    assert weights[0] == pytest.approx([x / (2 * x - 0.08), (x - 0.08) / (2 * x - 0.08)], rel=1e-12)
    assert bounds[0] < min(0.1, 1 / np.sqrt(200) + 0.04)  # alone, and in a coalition


def test_far_clients_get_nothing_and_like_clients_share_by_quantity():
    weights, bounds = personal_weights([[0, 1], [1, 0]], [100, 400], 5)
    assert weights.tolist() == [[1, 0], [0, 1]]
    assert bounds == pytest.approx([0.5, 0.25])
    weights, bounds = personal_weights(np.zeros((3, 3)), [100, 200, 100], 5)
    assert weights == pytest.approx(np.tile([0.25, 0.5, 0.25], (3, 1)))
    assert bounds == pytest.approx(np.full(3, 0.25))


@given(problems(low=2))
@settings(max_examples=40, deadline=None)
def test_no_convex_solver_finds_a_lower_bound(problem):
    D, m, C = problem
    weights, bounds = personal_weights(D, m, C)
    simplex = {"type": "eq", "fun": lambda alpha: alpha.sum() - 1, "jac": np.ones_like}
    for row, alpha, least in zip(D, weights, bounds, strict=True):
        assert bound(alpha, row, m, C) == pytest.approx(least, rel=1e-9)
        found = minimize(
            bound, m / m.sum(), (row, m, C), "SLSQP", bounds=[(0, 1)] * len(m), constraints=simplex,
            options={"ftol": 1e-12, "maxiter": 500},
        )  # fmt: skip
        tried = np.clip(found.x, 0, None) / np.clip(found.x, 0, None).sum()
        value = bound(tried, row, m, C)
        assert value >= least * (1 - 1e-9)
        assert value == pytest.approx(least, rel=1e-4)


@given(problems(), st.data())
@settings(max_examples=60, deadline=None)
def test_rows_sum_to_one_and_the_equation_holds_and_the_support_grows_with_c(problem, data):
    D, m, C = problem
    weights, bounds = personal_weights(D, m, C)
    assert (weights >= 0).all()
    assert weights.sum(axis=1) == pytest.approx(np.ones(len(m)), rel=1e-12)
    assert (m * np.maximum(bounds[:, None] - D, 0) ** 2).sum(axis=1) == pytest.approx(np.full(len(m), C * C), rel=1e-9)
    larger, higher = personal_weights(D, m, C * data.draw(st.floats(1.01, 10)))
    assert (higher > bounds).all()
    assert ((weights > 0) <= (larger > 0)).all()


@given(problems(), st.data())
@settings(max_examples=60, deadline=None)
def test_the_sum_is_a_floor_under_every_partition(problem, data):
    D, m, C = problem
    labels = data.draw(st.lists(st.integers(0, len(m)), min_size=len(m), max_size=len(m)))
    floor = personal_weights(D, m, C)[1].sum()
    assert floor <= objective(D, m, labels, C) * (1 + 1e-12)
    assert floor <= solve(D, m, C, prove=False).lower_bound * (1 + 1e-12)


@given(problems(low=2), st.integers(0, 100))
@settings(max_examples=30, deadline=None)
def test_reordering_the_clients_reorders_the_weights(problem, seed):
    D, m, C = problem
    order = np.random.default_rng(seed).permutation(len(m))
    first, second = personal_weights(D, m, C), personal_weights(D[np.ix_(order, order)], m[order], C)
    assert second[0] == pytest.approx(first[0][np.ix_(order, order)], rel=1e-9, abs=1e-12)
    assert second[1] == pytest.approx(first[1][order], rel=1e-12)


def test_blocks_of_rows_and_float32_change_nothing(reference, monkeypatch):
    D, m = reference.uniform(30, 0)
    D = D.astype(np.float32)
    whole = personal_weights(D.astype(float), m, 5.0)
    monkeypatch.setattr(weights_module, "CHUNK", 64)
    parts = personal_weights(D, m, 5.0)
    assert np.allclose(parts[0], whole[0], rtol=1e-12)
    assert np.allclose(parts[1], whole[1], rtol=1e-12)


def test_unmeasured_pairs_get_no_weight_and_distances_bring_quantities():
    raw = np.array([[0, 0.01, np.nan], [0.01, 0, 0.02], [np.nan, 0.02, 0]])
    weights, _ = personal_weights(Distances(raw, ("a", "b", "c"), np.array([50, 60, 70])), None, 30.0)
    assert weights[0, 2] == weights[2, 0] == 0
    assert (weights[1] > 0).all()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([[0, 0.5], [0.5, 0]], [1, 0], 1.0), "`quantities` (=0 at position 1)"),
        (([[0, 0.5], [0.5, 0]], [1, 1], 0.0), "`C` (=0.0)"),
        (([[0, 0.5], [0.5, 0]], None, 1.0), "`quantities` (=None)"),
        (([[0, np.nan], [0.5, 0]], [1, 1], 1.0), "`distances` (=nan at row 0, column 1)"),
    ],
)
def test_bad_input_is_one_clear_line(arguments, words):
    with pytest.raises(InputError) as error:
        fedcollab.personal_weights(*arguments)
    assert words in str(error.value)


def test_where_distances_are_rounded_own_weights_still_bound(reference, monkeypatch):
    lower_bound = importlib.import_module("fedcollab.coalitions.solver.lower_bound")
    monkeypatch.setattr(lower_bound, "LEVELS", 4)
    D = np.where(np.eye(40, dtype=bool), 0.0, 0.3)
    m = np.full(40, 50.0)
    known = np.full(40, 100 / np.sqrt(m.sum()) + 0.3 * 39 / 40)
    found = lower_bound.row_bound(D, m, 100.0, known)
    assert found == pytest.approx(personal_weights(D, m, 100.0)[1].sum(), rel=1e-9)
    assert found <= known.sum()
