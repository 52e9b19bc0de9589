"""Which columns tell two clients apart: exact distances of normal and categorical columns, and chance left out."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedcollab
from fedcollab.data import ClientData
from fedcollab.inspection.differences import _normal_distance
from fedcollab.report.findings import difference_sentence, separating

from .conftest import Tables, as_clients

MEANS, STDS = st.floats(-5, 5), st.floats(0.2, 5)


@given(MEANS, STDS, MEANS, STDS, st.floats(0.1, 1), st.floats(0.1, 1))
def test_the_distance_of_two_normal_columns_is_the_integral(
    mean_a: float, std_a: float, mean_b: float, std_b: float, v: float, w: float
) -> None:
    x = np.linspace(-60, 60, 240_001)

    def density(mean: float, std: float) -> np.ndarray:
        return np.exp(-(((x - mean) / std) ** 2) / 2) / std / math.sqrt(2 * math.pi)

    by_sum = np.abs(v * density(mean_a, std_a) - w * density(mean_b, std_b)).sum() * (x[1] - x[0]) / 2
    assert _normal_distance(v, mean_a, std_a, w, mean_b, std_b) == pytest.approx(by_sum, abs=1e-4)


def test_distances_by_hand() -> None:
    assert _normal_distance(1, 0.0, 1.0, 1, 0.0, 1.0) == pytest.approx(0, abs=1e-12)
    assert _normal_distance(1, -1.0, 1.0, 1, 1.0, 1.0) == pytest.approx(math.erf(1 / math.sqrt(2)))
    assert _normal_distance(1, 3.0, 0.0, 1, 4.0, 0.0) == pytest.approx(1)  # two constants
    assert _normal_distance(1, 3.0, 0.0, 1, 3.0, 0.0) == pytest.approx(0)


def tables(shift: float, sizes: tuple[int, int] = (2000, 2000), seed: int = 0) -> list[ClientData]:
    rng = np.random.default_rng(seed)
    made = []
    for name, size, moved in zip(("north", "south"), sizes, (0.0, shift), strict=True):
        half = rng.random(size) < 0.5 + moved / 4
        table = pd.DataFrame(
            {
                "humidity": rng.normal(moved, 1, size),
                "scanner": np.where(half, "old", "new"),
                "dose": rng.normal(0, 1, size),
                "blood": np.where(rng.random(size) < moved / 2, np.nan, rng.normal(0, 1, size)),
            }
        )
        made.append(ClientData(name, table, np.arange(size) % 2))
    return made


def test_columns_are_named_with_their_distance() -> None:
    """Means 1 apart: erf(.5 / sqrt 2) = .38; missing in half the rows: .5; old and new at 50 and 75 %: .25."""
    found = fedcollab.inspect(tables(1.0))
    seen = {each.column: each.distance for each in found.differences("north", "south")}
    assert list(seen) == ["blood", "humidity", "scanner"]
    assert seen["blood"] == pytest.approx(0.5, abs=0.03)
    assert seen["humidity"] == pytest.approx(0.383, abs=0.03)
    assert seen["scanner"] == pytest.approx(0.25, abs=0.03)
    sentence = difference_sentence(found, "north", "south")
    assert sentence is not None
    assert sentence.startswith("north and south differ most in blood (0.")
    assert " and scanner (0.2" in sentence
    assert separating(found, ["north", "south", "west"], "north") == [sentence]
    assert separating(found, ["north", "south"]) == [sentence]
    assert separating(None, ["north", "south"]) == []
    assert difference_sentence(found, "north", "west") is None


def test_chance_is_not_named() -> None:
    named = [
        each.column
        for seed in range(20)
        for each in fedcollab.inspect(tables(0.0, (60, 40), seed)).differences("north", "south")
    ]
    assert len(named) <= 5, "of 100 columns without a difference"


@pytest.mark.dataset("heart")
def test_hospitals(heart: Tables) -> None:
    found = fedcollab.inspect(as_clients(heart))
    first = found.differences("cleveland", "switzerland")[0]
    assert (first.column, first.distance) == ("chol", 1.0)
    assert found.differences("cleveland", "switzerland") == found.differences("switzerland", "cleveland")
    assert {each.column for each in found.differences("hungarian", "va")} >= {"age", "label"}
