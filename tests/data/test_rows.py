"""Rows to predict on follow the rules of training, and what cannot be used is told in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedcollab.data import ClientData, Schema
from fedcollab.data.rows import fit_rows, read_rows
from fedcollab.data.schema import Column
from fedcollab.errors import InputError
from fedcollab.federation import federate
from fedcollab.training import TrainedModel

AGE, SEX, WARD = Column("age", 50.0, 10.0), Column("sex", categories=("f", "m")), Column("ward", categories=("1", "A"))
SCHEMA = Schema(("ill", "well"), (5,), (AGE, SEX, WARD))


def encoded(schema: Schema, table: pd.DataFrame) -> list[list[float]]:
    return schema.features(fit_rows(table, schema).x).tolist()


def test_encoding_by_hand() -> None:
    table = pd.DataFrame(
        {"ward": [1, 2, np.nan], "note": ["a", "b", "c"], "age": [40.0, None, 65.0], "sex": [*list("mx"), None]}
    )
    rows = fit_rows(table, SCHEMA)
    assert SCHEMA.features(rows.x).tolist() == [[-1, 0, 1, 1, 0], [0, 0, 0, 0, 0], [1.5, 0, 0, 0, 0]]
    assert list(rows.unused.columns) == ["note"]
    assert len(rows.notes) == 2
    assert "1 row(s) have a value of `sex` that no client had in training ('x')" in rows.notes[0]
    assert "`ward` that no client had in training ('2')" in rows.notes[1]


def test_missing_and_unknown_are_told_apart_by_indicators_as_in_training() -> None:
    schema = Schema(("ill", "well"), (2,), (AGE,), missing_indicators=True)
    assert encoded(schema, pd.DataFrame({"age": [None, 60.0]})) == [[0, 1], [1, 0]]


cell = st.one_of(st.none(), st.sampled_from(["f", "m", "x", "1"]))
value = st.one_of(st.none(), st.floats(-1e6, 1e6), st.integers(-100, 100))


@given(
    rows=st.lists(st.tuples(value, cell, cell), min_size=1, max_size=8), order=st.permutations(["age", "sex", "ward"])
)
def test_each_row_alone_is_what_it_is_among_others(rows: list[tuple[Any, ...]], order: list[str]) -> None:
    """Brute force: every feature by its definition; order of columns and types do not count."""
    table = pd.DataFrame(rows, columns=["age", "sex", "ward"])[order]
    wanted = [
        [0.0 if age is None else (age - 50) / 10, sex == "f", sex == "m", ward == "1", ward == "A"]
        for age, sex, ward in rows
    ]
    np.testing.assert_array_equal(encoded(SCHEMA, table), np.array(wanted, dtype=np.float32))


def test_clients_own_rows_are_encoded_as_in_training() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({
        "age": np.where(rng.random(60) < 0.3, np.nan, rng.normal(50, 9, 60)),
        "grade": rng.choice(["1", "2", "x", None], 60),
        "smoker": rng.integers(0, 2, 60).astype(bool),
    })  # fmt: skip
    clients = [
        ClientData(name, frame[part], rng.integers(0, 2, 30)) for name, part in (("a", slice(30)), ("b", slice(30, 60)))
    ]
    schema = federate(clients, missing_indicators=True).schema
    np.testing.assert_array_equal(schema.features(frame), schema.features(fit_rows(frame, schema).x))


@pytest.mark.parametrize(
    ("table", "line"),
    [
        ({"age": [1.0], "sex": ["f"]}, r"lacks what the model takes: ward; its columns: age, sex"),
        ({"age": [30, "old"], "sex": ["f", "m"], "ward": [1, 1]}, r"column `age` has 'old' in row 2; .*numbers there"),
        ({"age": [np.inf], "sex": ["f"], "ward": ["A"]}, r"column `age` has infinite values"),
        ({"age": pd.to_datetime(["2020-01-01"]), "sex": ["f"], "ward": ["A"]}, r"column `age` has '2020-01-01"),
        ({}, r"is an empty table"),
    ],
)  # fmt: skip
def test_a_table_that_does_not_fit_is_one_line(table: dict[str, Any], line: str) -> None:
    with pytest.raises(InputError, match=line) as caught:
        fit_rows(pd.DataFrame(table), SCHEMA, "`new.csv`")
    assert str(caught.value).startswith("`new.csv`")
    assert "\n" not in str(caught.value)


def test_arrays_and_tables_are_not_taken_for_each_other() -> None:
    arrays = Schema((0, 1), (3,), None, (1.0,), (2.0,))
    assert arrays.features(fit_rows([[1, 3, 5]], arrays).x).tolist() == [[0, 1, 2]]
    with pytest.raises(InputError, match=r"has a table; the model takes arrays `x` of shape"):
        fit_rows(pd.DataFrame({"age": [1]}), arrays)
    with pytest.raises(InputError, match=r"has features of shape \(2,\)"):
        fit_rows(np.zeros((4, 2)), arrays)
    with pytest.raises(InputError, match=r"is an array; the model takes a table with the columns age, sex, ward"):
        fit_rows(np.zeros((4, 2)), SCHEMA)


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    path.write_text("age, sex,ward \n40,m,1\n?,,A\n")
    read = SCHEMA.features(read_rows(path, SCHEMA).x)
    assert read.tolist() == [[-1, 0, 1, 1, 0], [0, 0, 0, 0, 1]]
    table = pd.DataFrame({"age": [40.0, None], "sex": ["m", None], "ward": ["1", "A"]})
    table.to_parquet(tmp_path / "new.parquet")
    np.testing.assert_array_equal(SCHEMA.features(read_rows(tmp_path / "new.parquet", SCHEMA).x), read)
    ClientData("north", table, ["ill", "well"]).save(tmp_path / "new.npz")
    np.testing.assert_array_equal(SCHEMA.features(read_rows(tmp_path / "new.npz", SCHEMA).x), read)
    np.savez(tmp_path / "other.npz", features=np.zeros((2, 3)))
    path.write_text("age,sex,ward\n")
    (tmp_path / "empty.csv").write_text("")
    for name, line in {
        "other.npz": r"has arrays \['features'\]; expected `x`",
        "new.csv": r"has a header but no rows",
        "empty.csv": r"is empty",
        "none.csv": r"does not exist",
        "rows.txt": r"does not exist",
    }.items():
        with pytest.raises(InputError, match=line):
            read_rows(tmp_path / name, SCHEMA)


def test_a_value_that_overflows_in_the_model_is_refused_with_its_row() -> None:
    model = TrainedModel(torch.nn.Linear(5, 2), SCHEMA)
    table = pd.DataFrame({"age": [50.0, 1e300], "sex": ["f", "m"], "ward": ["1", "A"]})
    with pytest.raises(InputError, match=r"row 2 of `x` has a value that is too large for a model"):
        model.predict(table)
    assert model.predict_proba(table[:1]).shape == (1, 2)
