"""What models are trained on at a silo with limits: samples moved a fixed way, by a quarter of their own spread."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from fedcollab.data import ClientData, Schema
from fedcollab.federation import federate
from fedcollab.training.client_side import data_of
from fedcollab.training.displaced import TAU, displaced
from fedcollab.wire import Wire
from fedcollab.wire.limits import NO_LIMITS, Limits
from fedcollab.wire.silo import Silo

KEY = b"a key that only the silo knows!!"


def table(count: int = 2000, *, numeric: bool = False) -> ClientData:
    """Return rows of two columns that go together and one that does not, with two classes or a numeric target."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(count, 3))
    x[:, 1] = 0.99 * x[:, 0] + 0.14 * x[:, 1]
    y = x[:, 0] + 0.1 * rng.normal(size=count) if numeric else (x[:, 0] > 0).astype(int)
    return ClientData("clinic", pd.DataFrame(x, columns=["a", "b", "c"]), y)


def silo_of(data: ClientData, schema: Schema | None = None, limits: Limits | None = None, key: bytes = KEY) -> Silo:
    """Return a prepared silo."""
    made = federate(Wire([data, replace(data, name="other")])).schema if schema is None else schema
    silo = Silo(data, limits=limits or Limits(), key=key)
    silo.state["prepare"] = {"schema": made.to_json()}
    return silo


def test_displacements_are_a_quarter_of_the_spread_in_every_direction() -> None:
    """Columns that go together are displaced together: else their mean would show what each alone does not."""
    silo = silo_of(table())
    x, (moved, _) = silo.arrays.x.astype(np.float64), displaced(silo)
    shift = (1 + TAU**2) * (moved - x.mean(axis=0)) - (x - x.mean(axis=0))
    for direction in ([1, 0, 0], [0, 0, 1], [1, 1, 0], [1, -1, 0]):
        along, spread = shift @ direction, (x @ direction).std()
        assert 0.8 * TAU < along.std() / spread < 1.2 * TAU
        assert abs(np.corrcoef(along, x @ direction)[0, 1]) < 0.1  # five standard errors are .11


@pytest.mark.parametrize("numeric", [False, True])
def test_a_linear_model_has_the_same_weights(numeric: bool) -> None:
    """A displacement alone would shrink them by 1 / (1 + TAU^2), 6 %; that of two columns alike by much more."""
    silo = silo_of(table(numeric=numeric))
    x, y = silo.arrays.x.astype(np.float64), silo.arrays.y.astype(np.float64)
    moved, target = displaced(silo)
    assert (target == silo.arrays.y).all() == (not numeric)
    exact, found = (np.linalg.lstsq(np.c_[a, np.ones(len(a))], b, rcond=None)[0] for a, b in ((x, y), (moved, target)))
    np.testing.assert_allclose(found[:2].sum(), exact[:2].sum(), rtol=0.03)  # of the two that go together


def test_schemas_splits_and_other_rows_do_not_draw_again() -> None:
    """Displacements that were drawn anew under ten schemas would average out."""
    data = table(200)
    silo = silo_of(data)
    schema = silo.schema
    assert schema.columns is not None
    x, (moved, _) = silo.arrays.x, displaced(silo)
    shift = moved - x

    scaled = tuple(replace(column, std=2 * column.std) for column in schema.columns[::-1])
    other = silo_of(data, replace(schema, columns=scaled))
    np.testing.assert_allclose(2 * (displaced(other)[0] - other.arrays.x)[:, ::-1], shift, atol=1e-5)

    known = {tuple(row): each for row, each in zip(x.tolist(), shift, strict=True)}
    for again in (silo_of(data, replace(schema, seed=1)), silo_of(replace(data, x=data.x[5:], y=data.y[5:]), schema)):
        pairs = [
            (known[tuple(row)], each)
            for row, each in zip(again.arrays.x.tolist(), displaced(again)[0] - again.arrays.x, strict=True)
            if tuple(row) in known
        ]
        assert len(pairs) > 100
        before, after = (np.array(each).ravel() for each in zip(*pairs, strict=True))
        assert np.corrcoef(before, after)[0, 1] > 0.7

    stranger = displaced(silo_of(data, schema, key=KEY[::-1]))[0] - x  # of the same split: that of another key differs
    assert not np.allclose(stranger, shift)


def test_rows_alike_have_one_displacement() -> None:
    """A person whose row is there ten times is not known ten times better."""
    plain = table(100)
    twice = replace(plain, x=pd.concat([plain.x] * 2, ignore_index=True), y=np.tile(plain.y, 2))
    silo = silo_of(twice)
    x, (moved, _) = silo.arrays.x, displaced(silo)
    assert len(np.unique(moved.round(4), axis=0)) == len(np.unique(x.round(4), axis=0)) < len(x)


def test_images_too_and_nothing_without_limits() -> None:
    images = np.random.default_rng(0).random((40, 1, 4, 4)).astype(np.float32)
    data = ClientData("clinic", images, np.arange(40) % 2)
    silo = silo_of(data)
    x, (moved, y) = silo.arrays.x, displaced(silo)
    assert moved.shape == x.shape
    assert (abs(moved - x).max(axis=(1, 2, 3)) > 1e-3).all()
    np.testing.assert_array_equal(y, silo.arrays.y)
    plain = silo_of(data, limits=NO_LIMITS)
    np.testing.assert_array_equal(data_of(plain)["x"].numpy(), plain.arrays.x)
    np.testing.assert_array_equal(data_of(silo)["x_test"].numpy(), silo.arrays.x_test)
