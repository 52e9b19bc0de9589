"""Everyday flaws planted in real data: each is found, at the right client and column, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedcollab
from fedcollab import InputError, Inspection
from fedcollab.data import ClientData
from fedcollab.data.spelling import merging, normal_form
from fedcollab.federation import federate
from fedcollab.inspection import Finding
from fedcollab.inspection.column import profile, skill
from fedcollab.wire.limits import Limits
from fedcollab.wire.silo import Silo

from .conftest import Tables, as_clients, federation_tables

pytestmark = pytest.mark.dataset("heart")

#: what is true of the four hospitals as they are: Switzerland has no cholesterol and few blood sugars
CLEAN = {("switzerland", "chol", "missingness", "warning"), ("switzerland", "fbs", "missingness", "warning")}
HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")


def found(tables: Tables, **options: Any) -> set[tuple[str | None, str | None, str, str]]:
    """What is found beyond what is true of the hospitals anyway, without mentions."""
    findings = fedcollab.inspect(as_clients(tables), **options).findings
    seen = {(each.client, each.column, each.kind, each.severity) for each in findings if each.severity != "info"}
    return seen - CLEAN


def planted(heart: Tables, client: str | None, change: Callable[[pd.DataFrame, int], pd.DataFrame]) -> Tables:
    return {
        name: change(table.copy(), place) if client in (None, name) else table
        for place, (name, table) in enumerate(heart.items())
    }


def assign(name: str, value: Callable[[pd.DataFrame, int], Any]) -> Callable[[pd.DataFrame, int], pd.DataFrame]:
    return lambda table, place: table.assign(**{name: value(table, place)})


def test_the_hospitals_as_they_are(heart: Tables) -> None:
    assert found(heart) == set()


ALL = None


def rng(place: int) -> np.random.Generator:
    return np.random.default_rng(place)


def ill(table: pd.DataFrame) -> pd.Series:
    return (table["label"] == "yes").astype(int)


def days(table: pd.DataFrame) -> pd.DatetimeIndex:
    return pd.date_range("2020-01-01", periods=len(table))


def remarks(table: pd.DataFrame) -> list[str]:
    return [f"seen on ward {row} by doctor number {row * 7}" for row in range(len(table))]


@pytest.mark.parametrize(
    ("where", "change", "expected"),
    [
        ("va", assign("label", lambda t, p: t["label"].str.title()), {("va", "label", "label-spelling", "error")}),
        ("va", assign("label", lambda t, p: t["label"] + "."), {("va", "label", "label-spelling", "error")}),
        ("va", assign("label", lambda t, p: ill(t)), {("va", "label", "label-kind", "error")}),
        ("va", assign("label", lambda t, p: t["label"].map({"yes": "ill", "no": "well"})),
         {("va", "label", "other-labels", "warning")}),
        ("va", assign("label", lambda t, p: "yes"), {("va", "label", "one-class", "warning")}),
        (ALL, assign("label", lambda t, p: "yes"),
         {(None, "label", "one-class", "error"), *((name, "label", "one-class", "warning") for name in HOSPITALS)}),
        ("cleveland", assign("label", lambda t, p: np.where(np.arange(len(t)) < 6, "yes", "no")),
         {("cleveland", "label", "imbalance", "warning")}),
        (ALL, assign("patient_id", lambda t, p: np.arange(len(t))), {(None, "patient_id", "identifier", "error")}),
        (ALL, assign("code", lambda t, p: 10_000 * p + rng(p).permutation(9_000)[: len(t)]),
         {(None, "code", "identifier", "error")}),  # numbers of each hospital's own, in no order and with gaps
        (ALL, assign("nr", lambda t, p: rng(p).permutation(len(t)) + 1), {(None, "nr", "identifier", "error")}),
        (ALL, assign("patientId", lambda t, p: np.arange(len(t)) // 3), {(None, "patientId", "identifier", "error")}),
        (ALL, assign("name", lambda t, p: [f"p{p}-{row}" for row in range(len(t))]),
         {(None, "name", "identifier", "error")}),
        (ALL, assign("clock", lambda t, p: np.cumsum(rng(p).random(len(t)))),
         {(None, "clock", "identifier", "warning")}),
        (ALL, assign("remarks", lambda t, p: remarks(t)),
         {(None, "remarks", "free-text", "error")}),
        (ALL, assign("day", lambda t, p: days(t).strftime("%Y-%m-%d")),
         {(None, "day", "date", "error")}),
        (ALL, assign("day", lambda t, p: days(t)), {(None, "day", "date", "error")}),
        (ALL, assign("day", lambda t, p: days(t).strftime("%Y%m%d").astype(int)),
         {(None, "day", "date", "error")}),
        ("va", lambda t, p: t.drop(columns="thalach"), {("va", "thalach", "column-missing", "error")}),
        ("va", assign("ward", lambda t, p: rng(p).random(len(t))), {("va", "ward", "column-extra", "error")}),
        ("va", lambda t, p: t[sorted(t.columns)], {("va", None, "column-order", "error")}),
        ("va", assign("age", lambda t, p: t["age"].astype(str) + " y"), {("va", "age", "column-kind", "error")}),
        (ALL, assign("site", lambda t, p: f"site {p}"), {(None, "site", "names-client", "error")}),
        (ALL, assign("site", lambda t, p: p), {(None, "site", "names-client", "error")}),
        (ALL, assign("unit", lambda t, p: "mg"), set()),  # the same everywhere: only mentioned
        ("va", assign("chol", lambda t, p: t["chol"] / 38.67), {("va", "chol", "units", "warning")}),
        ("va", assign("thalach", lambda t, p: t["thalach"] / 60), {("va", "thalach", "units", "warning")}),
        ("va", assign("age", lambda t, p: t["age"] * 12), {("va", "age", "units", "warning")}),
        ("va", assign("cp", lambda t, p: "type " + t["cp"]), {("va", "cp", "other-categories", "warning")}),
        ("va", lambda t, p: pd.concat([t, t]), {("va", None, "duplicate-rows", "warning")}),
        ("va", lambda t, p: pd.concat([t, t.iloc[:20]]), {("va", None, "duplicate-rows", "warning")}),
        (ALL, assign("outcome", lambda t, p: ill(t)), {(None, "outcome", "leakage", "warning")}),
        (ALL, assign("risk", lambda t, p: ill(t) + 0.4 * rng(p).random(len(t))),
         {(None, "risk", "leakage", "warning")}),
        ("va", assign("thalach", lambda t, p: t["thalach"].mask(rng(p).random(len(t)) < 0.7)),
         {("va", "thalach", "missingness", "warning")}),
        ("va", lambda t, p: pd.concat([t[t["label"] == label].iloc[:4] for label in ("yes", "no")]),
         {("va", None, "tiny-client", "warning")}),
        ("va", lambda t, p: t.iloc[:3], {("va", None, "tiny-client", "warning")}),
    ],
)  # fmt: skip
def test_every_flaw_is_found(heart: Tables, where: str | None, change: Any, expected: set[Any]) -> None:
    seen = found(planted(heart, where, change))
    assert expected <= seen
    extra = {each for each in seen - expected if each[2] not in ("imbalance", "one-class", "missingness")}
    assert extra == set(), "small parts of a table are unbalanced and lack values, and that is said too"


def test_a_column_in_another_spelling_is_named(heart: Tables) -> None:
    tables = planted(heart, "va", lambda t, p: t.rename(columns={"thalach": "Thalach "}))
    remedies = {each.column: each.remedy for each in fedcollab.inspect(as_clients(tables)).errors}
    assert remedies["thalach"].startswith("write 'thalach' and 'Thalach ' alike in the headers; or --columns common")
    assert remedies["Thalach "].startswith("write 'Thalach ' and 'thalach' alike")


def test_leakage_at_one_client(heart: Tables) -> None:
    """A column that everyone has, and that one client filled in once the diagnosis was known."""
    tables = planted(heart, None, assign("grade", lambda t, p: rng(p).random(len(t))))
    tables["va"]["grade"] = ill(tables["va"]) + 0.4 * rng(9).random(len(tables["va"]))
    assert ("va", "grade", "leakage", "warning") in found(tables)


def test_the_same_table_twice_whatever_the_order_of_rows_and_columns(heart: Tables) -> None:
    again = heart["va"].sample(frac=1, random_state=0)
    assert found({**heart, "west": again}) == {("west", None, "same-table", "warning")}
    changed = again.assign(age=again["age"].where(np.arange(len(again)) > 0, 99))
    assert found({**heart, "west": changed}) == set(), "one value differs: another table"


def test_small_clients_and_test_splits_are_mentioned(heart: Tables) -> None:
    heart["va"] = heart["va"].iloc[:60]
    tiny = [each for each in fedcollab.inspect(as_clients(heart)).findings if each.kind == "tiny-test"]
    assert [(each.client, each.severity) for each in tiny] == [("va", "info")]
    assert tiny[0].message == "12 rows to test on: one row is 8 points of accuracy."


def test_what_a_user_knows_to_be_right_is_only_mentioned(heart: Tables) -> None:
    tables = planted(heart, None, assign("patient_id", lambda t, p: np.arange(len(t))))
    tables["va"]["label"] = tables["va"]["label"].str.title()
    assert found(tables, trust=["patient_id", "label"]) == set()
    tables["va"] = tables["va"].drop(columns="age")
    assert found(tables, trust=["patient_id", "label", "age"]) == {("va", "age", "column-missing", "error")}


@pytest.mark.dataset("federations")
@pytest.mark.parametrize(
    ("name", "client", "column", "change", "kind"),
    [
        ("breast_cohorts", "GBSG_trial", "age", lambda c: c * 365.25, "units"),
        ("weather_cities", "Chicago", "avg_hg", lambda c: c * 33.86, "units"),
        ("support_disease", "Coma", "num_temp", lambda c: c * 1.8 + 32, "units"),
        ("flights_carriers", "UA", "pressure", lambda c: c / 10, "units"),
        ("rodent_plots", "plot03", "hindfoot_length", lambda c: c / 25.4, "units"),
        ("exam_schools", "school5", "label", lambda c: c.str.upper(), "label-spelling"),
        ("loans_states", "TX", "annual_income", lambda c: c / 1000, "units"),
        ("arrests_years", "y1999", "sex", lambda c: c.str.lower(), "category-spelling"),
        ("chile_regions", "N", "label", lambda c: c.str.lower() + " ", "label-spelling"),
        ("hpc_protocols", "protocolF", "day", lambda c: np.nan, "missingness"),
    ],
)
def test_flaws_in_other_federations(name: str, client: str, column: str, change: Any, kind: str) -> None:
    tables = federation_tables(name)
    before = fedcollab.inspect(as_clients(tables))
    tables[client] = tables[client].assign(**{column: change(tables[client][column])})
    after = fedcollab.inspect(as_clients(tables))
    new = {(each.client, each.column, each.kind) for each in (*after.errors, *after.warnings)}
    new -= {(each.client, each.column, each.kind) for each in (*before.errors, *before.warnings)}
    assert new == {(client, column, kind)}


def test_rows_that_repeat_by_chance_are_no_flaw() -> None:
    """Rows of few yes-or-no columns repeat by chance; a whole table that was appended to itself shows all the same."""
    draw, tables = rng(0), {}
    for name in ("one", "two"):
        bits = pd.DataFrame(draw.integers(0, 2, (200, 4)), columns=list("abcd"))
        tables[name] = bits.assign(label=draw.choice(["x", "y"], 200))
    assert found(tables) == set()
    rows = pd.DataFrame(
        [[a, b, c, d] for a in (0, 1) for b in (0, 1) for c in (0, 1) for d in (0, 1)] * 2, columns=list("abcd")
    )
    tables["two"] = pd.concat([rows.assign(label=["x"] * 16 + ["y"] * 16)] * 3)
    assert found(tables) == {("two", None, "duplicate-rows", "warning")}


def test_rows_of_arrays_may_repeat_by_chance_too() -> None:
    draw = rng(0)
    clients = [ClientData(name, draw.integers(0, 2, (200, 4)), draw.integers(0, 2, 200)) for name in "ab"]
    assert fedcollab.inspect(clients).warnings == ()
    x = draw.normal(size=(200, 4))
    clients.append(ClientData("c", np.concatenate([x, x[:20]]), draw.integers(0, 1, 220)))
    assert [(each.client, each.kind) for each in fedcollab.inspect(clients).warnings] == [
        ("c", "one-class"),
        ("c", "duplicate-rows"),
    ]


def test_arrays_are_compared_by_shape_and_labels() -> None:
    draw, y = rng(0), np.arange(40) % 2
    clients = [ClientData(name, draw.normal(size=(40, 3)), y) for name in "abc"]
    clients.append(ClientData("d", draw.normal(size=(40, 4)), y))
    clients.append(ClientData("e", pd.DataFrame({"a": draw.normal(size=40)}), y))
    for given in (clients, {client.name: client for client in clients}):
        seen = {(each.client, each.kind) for each in fedcollab.inspect(given).errors}
        assert seen == {("d", "shape"), ("e", "shape")}


def test_a_result_can_be_saved_and_opened(heart: Tables, tmp_path: Path) -> None:
    result = fedcollab.inspect(as_clients(heart))
    result.save(tmp_path / "inspection.json")
    opened = Inspection.load(tmp_path / "inspection.json")
    assert opened.findings == result.findings
    assert opened.names == HOSPITALS
    assert opened.differences("va", "cleveland") == result.differences("va", "cleveland")
    assert repr(result) == "Inspection(4 clients: 0 error, 2 warning, 0 info)"
    assert "client switzerland, column chol" in str(result)
    with pytest.raises(InputError, match="must be one of: cleveland"):
        result.differences("va", "rome")
    (tmp_path / "other.json").write_text('{"fedcollab": "inspection", "format": 1}')
    with pytest.raises(InputError, match="not a complete inspection file"):
        Inspection.load(tmp_path / "other.json")


def test_clients_that_did_not_answer_are_grouped_by_the_reason() -> None:
    why = {"a": "no plan", "b": "not connected", "c": "no plan"}
    found = Inspection(tuple(Finding(name, None, "no-answer", "warning", text, "") for name, text in why.items()))
    assert [(each.message, names) for each, names in found.grouped()] == [
        ("no plan", ["a", "c"]),
        ("not connected", ["b"]),
    ]


def test_a_federation_is_looked_at_with_its_own_split(heart: Tables) -> None:
    prepared = federate(as_clients(heart), test_share=0.5, seed=3)
    assert fedcollab.inspect(prepared).profiles == fedcollab.inspect(as_clients(heart), test_share=0.5, seed=3).profiles


# Parts by hand.


@pytest.mark.parametrize(
    ("same", "other"),
    [
        (("yes", " Yes", "YES ", "yes."), "yes no"),
        (("1", "1.0", "01", "+1", "1."), "-1"),
        (("grade 2", "Grade_2.0", "grade  02"), "grade 20"),
        (("1.50", "1.5"), "15"),
    ],
)
def test_spellings(same: tuple[str, ...], other: str) -> None:
    assert len({normal_form(text) for text in same}) == 1
    assert normal_form(other) != normal_form(same[0])
    assert merging([{same[0]: 5}, dict.fromkeys(same[1:], 1)]) == dict.fromkeys(same[1:], same[0])


def test_skill_by_hand() -> None:
    """Rows 1 1 2 2 2 with labels a a b b a: three of the five are guessed by the others with the same value."""
    y = np.array([0, 0, 1, 1, 0])
    # value 1: both right. value 2: b is guessed for the last (wrong); for each b the others are a, b: a tie, a guessed
    assert skill(np.array([0, 0, 1, 1, 1]), y, 1, None) == round(1 - 3 / 2, 2)
    # all values different: the nearest value guesses 1 2 | 9 10 | 20 -> neighbours 2, 1, 10, 9, 10
    values = np.array([1.0, 2, 9, 10, 20])
    assert skill(np.arange(5), y, 1, values) == round(1 - 1 / 2, 2)
    assert skill(np.arange(5), np.zeros(5, dtype=np.int64), 1, values) is None


def test_nothing_is_said_about_fewer_rows_than_the_limit() -> None:
    values = pd.Series([1.0, 2.0, 3.0] + [None] * 7)
    silo = Silo(ClientData("north", np.zeros((10, 1)), np.arange(10) % 2), limits=Limits(min_samples=4))
    told = profile("a", values, np.arange(10) % 2, silo, True)
    assert told["present"] == 3
    assert {key for key, value in told.items() if value} == {"name", "kind", "present"}
    categories = profile("b", pd.Series(list("aaaab") * 2), np.arange(10) % 2, silo, True)["categories"]
    assert categories == {"a": 8}


def test_groups_that_are_too_few_are_named() -> None:
    """With `--id`, rows of one person stay together: one person is no one to hold out, three are few."""
    rng = np.random.default_rng(0)
    clients = [
        ClientData(name, rng.normal(size=(60, 2)), np.arange(60) % 2, groups=np.arange(60) % people)
        for name, people in (("one", 2), ("few", 5), ("many", 60))
    ]
    found = {(each.client, each.severity) for each in fedcollab.inspect(clients).findings if each.kind == "few-groups"}
    assert found == {("one", "error"), ("few", "warning")}
