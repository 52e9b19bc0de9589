"""What a gain is worth in rows: by hand, on planted losses, and against clients that really get more rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcollab import ClientData, train
from fedcollab.errors import InputError
from fedcollab.federation import Federation, federate
from fedcollab.training import LearningCurve, compare, measure_learning_curve
from fedcollab.training.learning_curve import equivalent, halve, over_clients, times_rows
from fedcollab.uncertainty import Estimate


def sure(value: float, half_width: float = 1e-9) -> Estimate:
    """A figure with this half of an interval."""
    return Estimate(value, half_width / 1.645, value - half_width, value + half_width)


@given(st.floats(0.05, 30), st.floats(0.05, 1), st.floats(0.01, 2))
def test_the_factor_solves_the_curve(factor: float, power: float, scale: float) -> None:
    """With l(m) = b / m^p at m = 1: the gain of `factor` times the rows is worth `factor`."""
    gain, halving = scale * (1 - factor**-power), scale * (2**power - 1)
    assert times_rows(gain / halving, power) == pytest.approx(factor, rel=1e-6)


def test_factors_by_hand() -> None:
    """Twice the rows bring half of what halving costs for p = 1, and as much again for p = 0; halving is halving."""
    assert times_rows(0.5, 1) == 2
    assert times_rows(1.0, 0) == 2
    assert times_rows((1 - 0.5**0.5) / (2**0.5 - 1), 0.5) == pytest.approx(2)
    assert [times_rows(-1, power) for power in (0.0, 0.5, 1.0)] == pytest.approx([0.5] * 3)
    assert times_rows(1.0, 1) == times_rows(2.5, 0.5) == float("inf"), "no number of rows would do"
    assert times_rows(1e9, 0) > 1e300


@given(st.floats(-20, 20))
def test_all_curves_are_between_the_ends(share: float) -> None:
    ends = sorted(times_rows(share, power) for power in (0.0, 1.0))
    assert ends[0] * (1 - 1e-9) <= times_rows(share, 0.5) <= ends[1] * (1 + 1e-9)


def test_the_interval_is_made_of_the_ends_of_both() -> None:
    """g from .03 to .05, d from .07 to .09: from 2^(3/9) to 1 / (1 - 5/7)."""
    found = equivalent(sure(0.04, 0.01), sure(0.08, 0.01))
    assert (found.factor, found.low, found.high) == pytest.approx((2**0.5, 2 ** (1 / 3), 3.5))
    lost = equivalent(sure(-0.04, 0.01), sure(0.08, 0.01))
    assert (lost.low, lost.high) == pytest.approx((1 / (1 + 5 / 7), 2 ** (-1 / 3))), "inside -d, p = 1 is the lower end"
    assert lost.factor == pytest.approx(2**-0.5)
    assert equivalent(sure(0.08), sure(0.08)).high > 1e6
    assert equivalent(sure(0.09), sure(0.08)).high == float("inf"), "by p = 1 no number of rows would do"


@pytest.mark.parametrize(
    ("gain", "halving"),
    [
        (sure(0.04, 0.05), sure(0.08)),
        (sure(0.04), sure(0.08, 0.09)),
        (sure(0.04), sure(-0.08)),
        (sure(0.04), Estimate(0.08, *[float("nan")] * 3)),
        (Estimate(0.04, *[float("nan")] * 3), sure(0.08)),
    ],
    ids=["gain unclear", "curve unclear", "more rows harm", "one client", "gain without interval"],
)
def test_nothing_is_claimed_where_it_is_not_clear(gain: Estimate, halving: Estimate) -> None:
    found = equivalent(gain, halving)
    assert np.isnan([found.factor, found.low, found.high]).all()


def test_the_error_is_that_over_clients() -> None:
    """.1, .2, .3: mean .2, standard error .1 / sqrt(3), t(2) at 95 % is 2.920."""
    found = over_clients(np.array([0.1, 0.2, 0.3]))
    assert (found.mean, found.stderr) == pytest.approx((0.2, 0.1 / 3**0.5))
    assert found.high == pytest.approx(0.2 + 2.920 * 0.1 / 3**0.5, abs=1e-4)
    assert np.isnan(over_clients(np.array([0.1])).low)
    assert np.isnan(over_clients(np.zeros(0)).mean)


def test_halves_hold_every_row_once_and_labels_evenly() -> None:
    y = np.repeat(["a", "b", "c"], [10, 6, 3])
    client = ClientData("n", np.arange(19.0), y, [[0.0]], ["a"])
    first, second = halve(client, 0)
    assert sorted([*first.x[:, 0], *second.x[:, 0]]) == list(range(19))
    for label, count in (("a", 10), ("b", 6), ("c", 3)):
        assert abs((first.y == label).sum() - count / 2) <= 0.5
    assert first.y_test is not None
    np.testing.assert_array_equal(halve(client, 0)[0].x, first.x)
    assert not np.array_equal(halve(client, 1)[0].x, first.x)
    assert halve(ClientData("few", [[1.0], [2.0], [3.0]], [0, 1, 0]), 0) == [], "two rows are the least"


def test_rows_of_a_group_stay_in_one_half() -> None:
    groups = np.repeat(np.arange(20), 3)
    client = ClientData("a", np.arange(60.0)[:, None], np.tile([0, 1, 1], 20), groups=groups)
    first, second = halve(client, 0)
    assert not set((first.x[:, 0] // 3).tolist()) & set((second.x[:, 0] // 3).tolist())  # by their values
    assert len(first.y) == len(second.y) == 30


DIMENSIONS = 10


def gaussian(name: str, rows: int) -> ClientData:
    """Two Gaussian classes that differ a little in every feature; more rows begin with the same ones."""
    rng = np.random.default_rng([1, *name.encode()])
    y = rng.integers(0, 2, 1000)
    x = rng.normal(0, 1, (1000, DIMENSIONS)) + np.outer(2 * y - 1, np.full(DIMENSIONS, 0.3))
    return ClientData(name, x[400 : 400 + rows], y[400 : 400 + rows], x[:400], y[:400])


NAMES = tuple(f"c{number:02d}" for number in range(12))
SETTINGS = {"model": "logistic", "rounds": 40, "lr": 0.3, "seed": 0}


def prepared(rows: int) -> Federation:
    return federate([gaussian(name, rows) for name in NAMES], scale="none")


def test_clients_that_really_get_more_rows() -> None:
    """Pairs of like clients: the factor that is said is within 1.5 times the one that more rows of their own show."""
    few = prepared(60)
    alone, pairs = (
        train(few, groups, **SETTINGS)  # type: ignore[arg-type]
        for groups in ("local", [list(NAMES[start : start + 2]) for start in range(0, 12, 2)])
    )
    curve = measure_learning_curve(few, alone, **SETTINGS)
    assert curve.names == NAMES
    assert curve.rows.tolist() == [60] * 12
    np.testing.assert_array_equal(curve.loss[:, 1], alone.used["loss"])
    assert curve.accuracy_gain.mean > 0
    gain = compare(few, {"local": alone, "pairs": pairs}).loss_gain("pairs", "local").average
    said = equivalent(gain, curve.loss_gain)
    factors = np.array([1.0, 2.0, 4.0])
    losses = [train(prepared(int(60 * each)), "local", **SETTINGS).used["loss"].mean() for each in factors]  # type: ignore[arg-type]
    wanted = float(pairs.used["loss"].mean())
    assert min(losses) < wanted < losses[0]
    true = float(np.interp(-wanted, -np.array(losses), factors))
    assert true / 1.5 < said.factor < true * 1.5
    assert said.low <= true <= said.high


def test_a_curve_reads_back_and_skips_clients_that_cannot_be_halved(tmp_path: Path) -> None:
    federation = federate([gaussian("a", 20), gaussian("b", 20), gaussian("small", 3)], scale="none")
    alone = train(federation, "local", model="logistic", rounds=2)
    curve = measure_learning_curve(federation, alone, model="logistic", rounds=2)
    assert curve.names == ("a", "b")
    curve.save(tmp_path / "curve.json")
    again = LearningCurve.load(tmp_path / "curve.json")
    assert again.names == curve.names
    for key in ("rows", "loss", "accuracy"):
        np.testing.assert_allclose(getattr(again, key), getattr(curve, key), rtol=1e-12)
    alone_again = train(federation, "local", model="logistic", rounds=2)
    np.testing.assert_array_equal(alone_again.used["loss"], alone.used["loss"], "the clients are as they were")
    lines = [line for line in (tmp_path / "curve.json").read_text().splitlines() if "content_sha256" not in line]
    (tmp_path / "broken.json").write_text("\n".join(lines).replace('"loss"', '"los"'))
    with pytest.raises(InputError, match="not a complete learning"):
        LearningCurve.load(tmp_path / "broken.json")
