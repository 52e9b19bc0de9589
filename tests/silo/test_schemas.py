"""Which schemas a silo takes over, what its key draws, and how far measures are rounded."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedcollab.data import ClientData
from fedcollab.data.rare import alike_in_sums, squares_about, without_rare
from fedcollab.data.schema import Schema
from fedcollab.distances.methods.few_round_client import parts
from fedcollab.errors import InputError
from fedcollab.federation import federate
from fedcollab.silo.rounding import OF_VALUE, rounded, rounded_shares, summable_rows, with_errors
from fedcollab.silo.schemas import limit_schema
from fedcollab.training.batches import plan
from fedcollab.training.compare_measures import compared
from fedcollab.training.measures import shown_errors
from fedcollab.training.outcomes import Outcome
from fedcollab.wire import Wire
from fedcollab.wire.limits import NO_LIMITS, Limits
from fedcollab.wire.silo import Silo


def wards(name: str, seed: int) -> ClientData:
    rng = np.random.default_rng(seed)
    ward = np.array(["east"] * 30 + ["west"] * 27 + ["cellar"] * 3)
    table = pd.DataFrame({"age": rng.normal(50 + seed, 10, 60), "ward": rng.permutation(ward)})
    return ClientData(name, table, np.arange(60) % 2)


@pytest.fixture
def agreed() -> Any:
    pair = [wards("a", 0), wards("b", 20)]
    return pair[0], federate(Wire(pair)).schema


def refusal(schema: Any, data: ClientData) -> str:
    """Return why a silo with the default limits refuses a schema, or its text; empty if it takes it over."""
    try:
        limit_schema(Schema.from_json(schema) if isinstance(schema, str) else schema, Silo(data), Limits())
    except InputError as refused:
        return str(refused)
    return ""


def test_an_honest_schema_is_taken_over(agreed: Any) -> None:
    data, schema = agreed
    assert refusal(schema, data) == ""


CHANGES: list[tuple[Callable[[dict[str, Any]], None], str]] = [
    (lambda s: s["columns"][0].update(categories=["50"]), "`age` is numbers at this silo"),
    (lambda s: (s["columns"][1].update(categories=None), s.update(shape=[2])), "`ward` is text at this silo"),
    (lambda s: s["columns"][0].update(std=1e-3), "scale of column `age` is not plausible"),
    (lambda s: s["columns"][0].update(mean=1e6), "scale of column `age` is not plausible"),
    (lambda s: s["columns"][0].update(std=float("inf")), "Expected `float`"),
    (lambda s: (s["columns"].pop(), s.update(shape=[1])), "other columns than this silo"),
    (lambda s: (s["columns"][1].update(categories=["east", "east"]), s.update(shape=[3])), "a category twice"),
    (lambda s: s.update(shape=[3]), "`columns` do not make samples of `shape`"),
    (lambda s: s.update(classes=[0, 7]), "other classes than this silo"),
    (lambda s: s.update(columns=None, shape=[2]), "this silo has the other"),
]


@pytest.mark.parametrize(("change", "why"), CHANGES)
def test_a_schema_that_does_not_fit_is_refused(agreed: Any, change: Any, why: str) -> None:
    data, schema = agreed
    content = json.loads(schema.to_json())
    change(content)
    assert why in refusal(json.dumps(content), data)


def test_scales_of_arrays_too() -> None:
    rng = np.random.default_rng(0)
    pair = [ClientData(name, rng.normal(5, 2, (40, 3)), np.arange(40) % 2) for name in "ab"]
    for scale in ("none", "features", "channels"):
        schema = federate(Wire(pair), scale=scale).schema
        assert refusal(schema, pair[0]) == ""
        steep = replace(schema, std=tuple(1e-4 for _ in schema.std))
        assert "not plausible" in refusal(steep, pair[0])


def test_rare_categories_are_missing_and_not_named() -> None:
    data = wards("a", 0)
    assert set(Silo(data, limits=NO_LIMITS).rows.x["ward"]) == {"east", "west", "cellar"}
    common = Silo(data, limits=Limits()).rows.x["ward"]
    assert set(common.dropna()) == {"east", "west"}
    assert int(common.isna().sum()) == 3
    assert without_rare(data, 1) is data
    assert set(data.x["ward"]) == {"east", "west", "cellar"}  # the client's own table stays as it is


def test_draws_follow_the_key() -> None:
    data = wards("a", 0)
    schema = federate(Wire([data, wards("b", 20)])).schema.to_json()
    message = {"seed": 0, "folds": 2, "label_counts": "drawn", "classes": 2}
    silos = [Silo(data, {"prepare": {"schema": schema}}, key=key) for key in (b"", b"one", b"two", b"one")]
    folds = [[part.tolist() for part in parts(message, silo)] for silo in silos]
    splits = [silo.with_test(0.2, 0).x["age"].tolist() for silo in silos]
    for drawn in (folds, splits):
        assert drawn[1] == drawn[3]
        assert len({json.dumps(each) for each in drawn}) == 3
    assert silos[0].lot == "a"  # without a key, what every runtime of one process draws
    assert "a\x1f" in silos[1].lot


def test_rounded_measures_are_unbiased_and_the_same_for_the_same_question() -> None:
    silo = Silo(wards("a", 0), key=b"key", limits=Limits())
    values = np.array([rounded_shares(0.7, 100, silo, "accuracy", np.array([k])) for k in range(2000)])
    error = np.sqrt(0.7 * 0.3 / 100)
    assert abs(values.mean() - 0.7) < 4 * error * 0.58 / np.sqrt(2000)
    assert values.std() == pytest.approx(error / np.sqrt(3), rel=0.1)
    silo.coarseness = 3.0  # after many questions of a plan
    coarse = np.array([rounded_shares(0.7, 100, silo, "accuracy", np.array([k])) for k in range(2000)])
    assert coarse.std() == pytest.approx(3 * error / np.sqrt(3), rel=0.1)
    assert abs(np.corrcoef(values, coarse)[0, 1]) < 4 / np.sqrt(2000), "two answers with one error would give it away"
    silo.coarseness = 1.0
    question = np.array([1.0, 2.0])
    again = [rounded([0.5], [0.1], silo, "loss", question)[0] for _ in range(2)]
    assert again[0] == again[1]
    exact = Silo(wards("a", 0), key=b"key", limits=NO_LIMITS)
    assert rounded_shares(0.7, 100, exact, "accuracy", question) == 0.7
    assert np.isnan(rounded([np.nan], [0.1], silo, "loss", question)[0])
    assert rounded_shares([0.0, 1.0], 10, silo, "accuracy", question).min() >= 0


def test_values_have_errors_that_follow_from_the_rows_alone() -> None:
    """Of a fifth of the column's deviation; a constant has none, and no order of rows or further asking draws anew."""
    silo = Silo(wards("a", 0), key=b"key", limits=Limits())
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(4000, 2)) * [1.0, 50.0]
    moved = (with_errors(rows, silo) - rows) / rows.std(axis=0)
    np.testing.assert_allclose(moved.std(axis=0), OF_VALUE, rtol=4 / np.sqrt(8000))
    assert np.abs(moved.mean(axis=0)).max() < 4 * OF_VALUE / np.sqrt(4000)
    order = rng.permutation(4000)
    np.testing.assert_allclose(with_errors(rows[order], silo), with_errors(rows, silo)[order], atol=1e-12)
    few = rows[:48, 0]
    gaps = [
        with_errors(few[: 48 - k], silo).sum() - with_errors(few[: 47 - k], silo).sum() - few[47 - k] for k in range(30)
    ]
    assert np.std(gaps) == pytest.approx(OF_VALUE * np.sqrt(2 * 33), rel=0.4), "the difference of two sums is no row"
    np.testing.assert_array_equal(with_errors(np.full(20, 3.5), silo), np.full(20, 3.5))
    assert not np.allclose(with_errors(few, silo), with_errors(few, Silo(silo.data, key=b"other", limits=Limits())))
    np.testing.assert_array_equal(with_errors(few, Silo(silo.data, key=b"key", limits=NO_LIMITS)), few)
    np.testing.assert_array_equal(summable_rows(rows, np.arange(48), 1, silo)[:, 0], few)


def test_errors_of_measures_are_of_one_message_and_of_the_data_as_they_are() -> None:
    def answer(silo: Silo, question: str) -> float:
        silo.question = question
        return float(rounded([0.5], [0.1], silo, "loss", np.zeros(3))[0])

    data = wards("a", 0)
    silo = Silo(data, key=b"key", limits=Limits())
    assert answer(silo, "one") == answer(Silo(wards("a", 0), key=b"key", limits=Limits()), "one")
    assert answer(silo, "one") != answer(silo, "another")
    changed = ClientData("a", data.x, 1 - data.y)
    assert answer(silo, "one") != answer(Silo(changed, key=b"key", limits=Limits()), "one")


@pytest.mark.parametrize("least", [1, 4])
def test_one_sample_moves_no_standard_error_by_more_than_its_rounding(least: int) -> None:
    """Whatever the others are: one, or few, that count in full among many that count for nothing, or for as much."""
    silo = Silo(wards("a", 0), key=b"key", limits=Limits())
    count, most = 48, 3.4
    for others in range(count):
        values = np.concatenate([np.full(others, most), np.zeros(count - others)])
        shown = []
        for last in (0.0, most):
            values[-1] = last
            error = values.std(ddof=1) / np.sqrt(count)
            asked = [np.array([others, last, draw]) for draw in range(200)]
            shown.append([float(shown_errors(error, most, count, silo, "error", each, least=least)) for each in asked])
        nobody, one = np.array(shown)
        assert one.min() >= least * most / count * (1 - 1e-9)
        assert abs(one.mean() - nobody.mean()) < 2.5 / least * max(one.std(), nobody.std())


def test_two_models_that_differ_on_one_sample_are_as_far_apart_as_two_that_do_not_differ(agreed: Any) -> None:
    silo = Silo(agreed[0], {"prepare": {"schema": agreed[1].to_json()}}, key=b"key", limits=Limits())
    right = np.ones(48, dtype=bool)
    apart = []
    for other in (0.7, 0.0, 1e9):
        losses = np.full((2, 48), 0.7)
        losses[1, 0] = other
        found = []
        for draw in range(100):
            spread = compared([Outcome(right, each) for each in losses], silo, [f"{draw} a", f"{draw} b"])["spread"]
            own = np.diag(spread) / (1 + 1 / 3)
            found.append(own.sum() - 2 * spread[0, 1])
        apart.append(np.sqrt(np.array(found)))
    for each in apart[1:]:
        assert abs(each.mean() - apart[0].mean()) < 2 * apart[0].std()


def test_a_short_rest_joins_the_batch_before() -> None:
    sizes = [len(step) for step in plan(33, 16, 2, 0, "train", 1, "a", least=8)]
    assert sizes == [16, 17, 16, 17]
    assert [len(step) for step in plan(33, 16, 1, 0, "train", 1, "a")] == [16, 16, 1]
    assert [len(step) for step in plan(5, 16, 1, 0, "train", 1, "a", least=8)] == [5]
    assert sorted(np.concatenate(plan(33, 16, 1, 0, "train", 1, "a", least=8)).tolist()) == list(range(33))


def test_no_column_tells_few_rows_apart() -> None:
    """Whatever a sum of products is made of: a category, none of them, a value that all others share, an outlier."""
    rng = np.random.default_rng(0)
    plain = rng.normal(size=(60, 3))
    ward = np.zeros((60, 3))
    ward[np.arange(60), np.arange(60) % 2] = 1
    ward[:3], ward[:3, 2], ward[3] = 0, 1, 0  # three rows of a third ward, one of none
    flag, bulk, sparse = np.zeros(60), rng.normal(size=60) * 1e-9, np.zeros(60)
    flag[5], bulk[6], sparse[10:25], sparse[7] = 1, 1, rng.normal(size=15), 1e9
    x = np.column_stack([plain, ward, flag, bulk, sparse])
    codes = np.where(ward.any(axis=1), ward.argmax(axis=1), -1)[:, None]
    found = alike_in_sums(x, [(3, 4, 5)], codes, 10)
    np.testing.assert_array_equal(found[:, :3], plain)
    counts = found[:, 3:6].sum(axis=0)
    assert counts[2] == 0
    assert counts.sum() == 60
    assert np.ptp(found[:, 6]) == 0
    for column in (7, 8):  # no row has most of the column's spread
        squares = np.square(found[:, column] - np.median(found[:, column]))
        assert squares.max() < 0.7 * squares.sum()
    np.testing.assert_array_equal(found[8:, 8], x[8:, 8])
    assert alike_in_sums(x, [(3, 4, 5)], codes, 1) is x
    narrower = alike_in_sums(np.delete(x, 4, axis=1), [(3, 4)], codes, 10)  # a schema without the second ward
    np.testing.assert_array_equal(narrower[:, 3], found[:, 3])


def test_a_centre_that_the_server_chooses_comes_in_after_the_sum() -> None:
    """What a far centre rounds away of each value is not told: the answer follows from three sums, whatever it is."""
    rng = np.random.default_rng(0)
    one = rng.normal(size=48)
    for centre in (0.0, 3.5, 2.0**29 + 12345.0, 2.0**53):
        found = squares_about(one, centre)
        exact = sum((Fraction(float(value)) - Fraction(centre)) ** 2 for value in one)
        assert abs(float((Fraction(float(found)) - exact) / exact)) < 1e-12
        same = np.square(one - one.mean()).sum() + 48 * (one.mean() - centre) ** 2
        assert found == same
    with pytest.raises(InputError, match="shape"):
        squares_about(np.zeros((4, 2)), np.zeros(3))
