"""On seventeen real federations nothing is claimed that is not so: all that is raised is listed, with its reason."""

from __future__ import annotations

import pytest

import fedcollab

from .conftest import as_clients, federation_tables, heart_tables

pytestmark = pytest.mark.dataset("heart", "federations")

#: every warning, and why it is true
RAISED: dict[str, set[tuple[str, str, str]]] = {
    "fries_raters": {("rater79", "label", "imbalance")},  # 42 of 43 fries are not rancid to this rater
    "hpc_protocols": {("protocolD", "label", "imbalance")},  # 118 of 119 jobs are very fast
    "stackoverflow": {("India", "label", "imbalance")},  # 429 of 430 salaries are below the median of all countries
    "heart": {
        ("switzerland", "chol", "missingness"),
        ("switzerland", "fbs", "missingness"),
    },  # hardly measured
}
NAMES = (
    "arrests_years", "baseball_teams", "breast_cohorts", "chile_regions", "epa_makers", "exam_schools",
    "flights_carriers", "fries_raters", "hpc_protocols", "lalonde_cohorts", "leukemia_districts", "loans_states",
    "rodent_plots", "stackoverflow", "support_disease", "weather_cities", "heart",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_nothing_false_is_raised(name: str) -> None:
    tables = heart_tables() if name == "heart" else federation_tables(name)
    found = fedcollab.inspect(as_clients(tables))
    assert found.errors == ()
    assert {(each.client, each.column, each.kind) for each in found.warnings} == RAISED.get(name, set())
    mentioned = {each.kind for each in found.findings if each.severity == "info"}
    assert mentioned <= {"constant", "tiny-test", "identifier"}
    assert "identifier" not in mentioned or name == "loans_states"  # dollars of credit: nearly every amount differs
