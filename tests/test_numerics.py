"""Whatever the numbers are, an answer is finite or refused in one line: sizes, copies, constants, huge losses."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedcollab import c_path, estimate_distances, objective, personal_weights, solve
from fedcollab.data import ClientData
from fedcollab.errors import FedcollabWarning, InputError
from fedcollab.federation import federate
from fedcollab.metrics import ipr, rsd
from fedcollab.training import train
from fedcollab.wire import Wire

CALM = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
FEW = settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
QUANTITIES = st.one_of(st.integers(1, 10), st.integers(1, 10**9), st.sampled_from([1, 10**9]))


@st.composite
def problems(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Distances and quantities of a few clients; copies of clients, clients that differ from none, or from all."""
    kinds = draw(st.integers(1, 4))
    entry = st.one_of(st.sampled_from([0.0, 1.0, 1e-12, 1e-300]), st.floats(0, 1))
    between = np.zeros((kinds, kinds))
    for row in range(kinds):
        for column in range(row):
            between[row, column] = between[column, row] = draw(entry)
    kind = np.array(draw(st.lists(st.integers(0, kinds - 1), min_size=1, max_size=7)))
    distances = between[np.ix_(kind, kind)]
    quantities = np.array(draw(st.lists(QUANTITIES, min_size=len(kind), max_size=len(kind))))
    width = draw(st.sampled_from([np.float32, np.float64]))
    return distances.astype(width), quantities


@CALM
@given(problems(), st.sampled_from([1e-300, 1e-12, 0.1, 10.0, 1e12]))
def test_coalitions_are_finite_and_never_worse_than_all_or_none(
    problem: tuple[np.ndarray, np.ndarray], C: float
) -> None:
    distances, quantities = problem
    count = len(quantities)
    found = solve(distances, quantities, C=C)
    assert np.isfinite([found.objective, found.lower_bound]).all()
    assert sorted(client for members in found.coalitions for client in members) == list(range(count))
    assert set(found.assignment) == set(range(len(found.coalitions)))
    slack = 1e-9 * max(1.0, found.objective)
    assert found.lower_bound <= found.objective + slack
    for other in (np.zeros(count, dtype=int), np.arange(count)):
        assert found.objective <= objective(distances, quantities, other, C=C) + slack


@CALM
@given(problems())
def test_the_path_and_own_weights_are_finite(problem: tuple[np.ndarray, np.ndarray]) -> None:
    distances, quantities = problem
    path = c_path(distances, quantities)
    assert path[0].c_low == 0
    assert all(np.isfinite(segment.objective) and not np.isnan(segment.c_high) for segment in path)
    assert np.isfinite(path.suggested.C)
    for C in (1e-12, path.suggested.C, 1e12):
        weights, bounds = personal_weights(distances, quantities, C)
        assert np.isfinite(weights).all()
        assert np.isfinite(bounds).all()
        assert (weights >= 0).all()
        np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-6)


@CALM
@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.lists(st.floats(0, 1), min_size=6, max_size=6))
def test_measures_of_gain_are_finite_or_refused(accuracy: list[float], local: list[float]) -> None:
    local = local[: len(accuracy)]
    for measure in (ipr, rsd):
        try:
            assert np.isfinite(measure(accuracy, local))
        except InputError as refusal:
            one_line(refusal)


@st.composite
def degenerate(draw: st.DrawFn) -> list[ClientData]:
    """Two to five clients with what real tables have: copies, constants, one row, one class, huge and tiny values."""
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    width = draw(st.sampled_from([np.float32, np.float64]))
    sizes = draw(
        st.sampled_from(
            [[30, 30], [2, 2], [2000, 2, 2, 3, 2], [40, 40, 40], [5, 400], [12, 12, 12, 12]],
        )
    )
    scale = draw(st.sampled_from([1.0, 1e-30, 1e-8, 1e8, 1e15]))
    offset = draw(st.sampled_from([0.0, 1.0, 1e6]))
    constant = draw(st.sampled_from(["none", "one column", "all columns", "one client"]))
    labels = draw(st.sampled_from(["two", "one", "own"]))
    same = draw(st.sampled_from(["different", "identical", "first twice"]))
    made: list[ClientData] = []
    for index, size in enumerate(sizes):
        y = {"two": np.arange(size) % 2, "one": np.zeros(size, dtype=int), "own": np.full(size, index)}[labels]
        x = (rng.normal(0, 1, (size, 3)) + np.asarray(y)[:, None] + offset) * scale
        if constant == "one column":
            x[:, 0] = scale
        if constant == "all columns" or (constant == "one client" and index == 0):
            x[:] = scale
        made.append(
            ClientData(f"c{index}", x.astype(width), y, x[: max(1, size // 4)].astype(width), y[: max(1, size // 4)])
        )
    if same == "identical":
        made = [ClientData(f"c{i}", made[0].x, made[0].y, made[0].x_test, made[0].y_test) for i in range(len(sizes))]
    elif same == "first twice":
        made.append(ClientData("again", made[0].x, made[0].y, made[0].x_test, made[0].y_test))
    return made


def one_line(refusal: InputError) -> None:
    assert str(refusal).strip()
    assert "\n" not in str(refusal)


@pytest.mark.parametrize("method", ["few-round", "label", "prototype", "cross"])
@FEW
@given(made=degenerate())
def test_distances_of_degenerate_clients(method: str, made: list[ClientData]) -> None:
    """Where a pair counts as observed its distance is a number in [0, 1]; else it is refused, or not observed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FedcollabWarning)
            found = estimate_distances(made, method=method, seed=0)
    except InputError as refusal:
        return one_line(refusal)
    seen = found.observed
    assert np.isfinite(found.raw[seen]).all()
    assert ((found.matrix[seen] >= 0) & (found.matrix[seen] <= 1)).all()
    assert found.stderr is None or not np.isinf(found.stderr).any()
    if seen.all():
        assert np.isfinite(solve(found, C=1.0).objective)
    return None


@pytest.mark.parametrize("lr", [0.1, 1e4, 1e30])
@FEW
@given(made=degenerate(), algorithm=st.sampled_from(["fedavg", "fedprox", "scaffold", "fednova", "ditto"]))
def test_training_of_degenerate_clients(lr: float, made: list[ClientData], algorithm: str) -> None:
    """Every measure is finite, or the coalition is listed as failed, or there is one line; with NaN losses too."""
    settings: dict[str, Any] = {"rounds": 2, "lr": lr, "stopping": "none", "seed": 0, "model": "logistic"}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FedcollabWarning)
            found = train(federate(Wire(made)), "global", algorithm, **settings)
    except InputError as refusal:
        return one_line(refusal)
    assert np.isfinite(found.models["last"]).all() or found.failures
    if not found.failures:
        assert np.isfinite(found.accuracy).all()
        assert np.isfinite(found.loss).all()
        assert ((found.accuracy >= 0) & (found.accuracy <= 1)).all()
    for failure in found.failures:
        assert "\n" not in str(failure)
    return None


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("width", [np.float32, np.float64])
def test_numbers_that_are_none(bad: float, width: type) -> None:
    distances = np.array([[0, bad], [bad, 0]], dtype=width)
    for quantities in ([1, 10**9], None):
        with pytest.raises(InputError) as refusal:
            solve(distances, quantities, C=1.0)
        one_line(refusal.value)
    for quantities in ([1, bad], [1, 0], [1, -5]):
        with pytest.raises(InputError) as refusal:
            solve(np.zeros((2, 2), dtype=width), quantities, C=1.0)
        one_line(refusal.value)


def test_widths_agree() -> None:
    """float32 and float64 tables of the same numbers give the same distances, and so the same coalitions."""
    rng = np.random.default_rng(0)
    tables = []
    for index in range(4):
        y = np.arange(80) % 2
        x = (rng.normal(0, 1, (80, 3)) + y[:, None]).astype(np.float32)
        tables.append((x, y if index % 2 else 1 - y))
    found = [
        estimate_distances([ClientData(f"c{i}", x.astype(width), y) for i, (x, y) in enumerate(tables)], seed=0)
        for width in (np.float32, np.float64)
    ]
    np.testing.assert_allclose(found[0].raw, found[1].raw, rtol=0, atol=1e-5)
    assert solve(found[0], C=1.0).coalitions == solve(found[1], C=1.0).coalitions
