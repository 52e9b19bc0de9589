import importlib

import numpy as np
import pytest

from fedcollab.coalitions import solve
from fedcollab.coalitions.constraints import Constraints
from fedcollab.coalitions.inputs import read_inputs
from fedcollab.coalitions.objective import own_sums, terms
from fedcollab.coalitions.solver.exact import prove
from fedcollab.coalitions.solver.instance import build_instance
from fedcollab.coalitions.solver.lower_bound import row_bound, shared_bound
from fedcollab.coalitions.solver.subsets import programme, subset_lines
from fedcollab.errors import InputError

exact = importlib.import_module("fedcollab.coalitions.solver.exact")
columns = importlib.import_module("fedcollab.coalitions.solver.columns")
local = importlib.import_module("fedcollab.coalitions.solver.local")
front_door = importlib.import_module("fedcollab.coalitions.solve")


def instance_of(D, m, C, **limits):
    return build_instance(read_inputs(D, m), Constraints(**limits), C)


def asymmetric(reference, count, seed):
    _, m = reference.uniform(count, seed)
    D = np.random.default_rng(seed).random((count, count))
    np.fill_diagonal(D, 0)
    return D, m


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("way", ["programme", "prices", "enumerated"])
def test_every_way_of_proving_equals_the_subset_programme(reference, monkeypatch, seed, way):
    D, m = (asymmetric if seed % 3 == 0 else lambda r, n, s: r.uniform(n, s))(reference, 10, seed)
    C = [1.0, 4.0, 15.0][seed % 3]
    best = reference.subset_programme(reference.subset_costs(D, m, C), 10)
    if way != "programme":
        monkeypatch.setattr(exact, "SMALL", 0)
    if way == "enumerated":
        monkeypatch.setattr(exact, "LISTED", 5)
    proof = prove(instance_of(D, m, C), np.arange(10))
    assert proof.optimal
    assert proof.lower == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_the_enumeration_misses_no_coalition(reference, seed):
    D, m = reference.uniform(9, seed)
    instance = instance_of(D, m, 5.0, apart=((0, 1),), max_size=5)
    y = np.random.default_rng(seed).uniform(0.2, 0.8, 9)
    slope, intercept = subset_lines(instance)
    reduced = 5.0 * slope + intercept - np.array([y[[u for u in range(9) if S >> u & 1]].sum() for S in range(512)])
    for limit in (-0.5, 0.0, 0.7):
        masks, costs = columns.enumerate_below(instance, y, limit, 10**6)
        assert sorted(masks.tolist()) == np.flatnonzero(reduced <= limit).tolist()
        assert np.allclose(costs, (5.0 * slope + intercept)[masks.astype(int)])


HARD = {
    "all equal": (np.full((16, 16), 0.4), np.full(16, 100.0)),
    "all zero": (np.zeros((16, 16)), np.arange(1.0, 17)),
    "one huge client": (np.full((16, 16), 0.4), np.r_[1e6, np.full(15, 20.0)]),
    "all one": (np.ones((16, 16)), np.full(16, 30.0)),
}


@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("limits", [{}, {"max_size": 5}, {"min_size": 3, "cannot_link": [(0, 1), (2, 3)]}])
def test_matrices_without_structure_are_solved_too(name, limits):
    D, m = HARD[name][0].copy(), HARD[name][1]
    np.fill_diagonal(D, 0)
    for C in (0.5, 5.0, 60.0):
        assert solve(D, m, C, method="exact", **limits).optimal


def test_the_programme_with_prices_equals_the_one_without(reference):
    D, m = reference.uniform(9, 4)
    instance = instance_of(D, m, 5.0, max_size=3)
    slope, intercept = subset_lines(instance)
    cost = 5.0 * slope + intercept
    chosen = programme(cost, 9, np.inf)
    assert sum(cost[S] for S in chosen) == pytest.approx(prove(instance, np.arange(9)).lower)
    assert programme(cost, 9, sum(cost[S] for S in chosen) * 0.99) is None


@pytest.mark.parametrize(("groups", "each", "C"), [(3, 10, 5.0), (6, 5, 10.0), (5, 8, 10.0)])
def test_planted_groups_of_thirty_and_forty_clients_are_proven(reference, groups, each, C):
    D, m, truth = reference.planted(groups, each, 7)
    answer = solve(D, m, C, method="exact")
    assert answer.optimal
    assert answer.assignment.tolist() == truth.tolist()


def test_what_cannot_be_proven_is_an_error_that_names_the_limit(reference, monkeypatch):
    monkeypatch.setitem(front_door.BUDGETS, "exact", 200)
    monkeypatch.setitem(front_door.BUDGETS, "auto", 200)
    D, m = reference.uniform(26, 0)
    with pytest.raises(InputError, match=r"met its limit: 26 clients .* within 200 partial coalitions"):
        solve(D, m, 5.0, method="exact")
    answer = solve(D, m, 5.0)
    assert 0 < answer.lower_bound <= answer.objective
    assert not answer.optimal


@pytest.mark.parametrize("seed", range(5))
def test_lower_bounds_are_below_the_optimum(reference, seed):
    D, m = asymmetric(reference, 9, seed) if seed % 2 else reference.uniform(9, seed)
    C = [0.5, 3.0, 20.0][seed % 3]
    optimum = solve(D, m, C, method="exact")
    first = shared_bound(instance_of(D, m, C), optimum.objective, work=1)
    tightened = shared_bound(instance_of(D, m, C), optimum.objective)
    assert first <= tightened <= optimum.objective * (1 + 1e-12)
    labels = np.arange(9)
    known = terms(m, labels, own_sums(D, m, labels), C).sum(axis=1)
    rows = row_bound(D, m, C, known)
    assert rows <= optimum.objective * (1 + 1e-12)
    if seed % 2 == 0:
        assert rows == pytest.approx(first)


def test_levels_only_lower_the_bound(reference, monkeypatch):
    D, m = reference.uniform(40, 1)
    labels = np.arange(40)
    known = terms(m, labels, own_sums(D, m, labels), 9.0).sum(axis=1)
    sorted_bound = row_bound(D, m, 9.0, known)
    monkeypatch.setattr(importlib.import_module("fedcollab.coalitions.solver.lower_bound"), "LEVELS", 8)
    assert row_bound(D, m, 9.0, known) <= sorted_bound


@pytest.mark.parametrize("seed", range(12))
def test_local_search_equals_exact(reference, seed):
    D, m = reference.uniform(12 + seed % 3, seed)
    C = [1.0, 4.0, 15.0][seed % 3]
    assert solve(D, m, C, method="local").objective == pytest.approx(solve(D, m, C, method="exact").objective)


def test_incremental_moves_equal_the_literal_algorithm(reference):
    """From a literal local optimum no single move of the fast search improves, and its value is the same."""
    D, m, _ = reference.planted(3, 3, 5)
    value, p = reference.algorithm_2(D, m, 5.0, np.random.default_rng(1))
    instance = instance_of(D, m, 5.0)
    units = instance.to_units(p)
    moved = local._descend(instance, units[None], np.random.default_rng(0))
    assert np.array_equal(instance.to_clients(moved[0]), instance.to_clients(units))
    assert instance.value(units) == pytest.approx(value)


class TestByRows:
    """The search for thousands of clients, on small matrices."""

    @pytest.fixture(autouse=True)
    def always_by_rows(self, monkeypatch):
        monkeypatch.setattr(front_door, "DENSE", 3)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_planted_groups_are_found(self, reference, dtype):
        D, m, truth = reference.planted(5, 8, 3)
        answer = solve(D.astype(dtype), m, 10.0, method="local", restarts=2)
        assert answer.assignment.tolist() == truth.tolist()
        assert answer.lower_bound <= answer.objective
        assert answer.terms.sum() == pytest.approx(answer.objective)

    @pytest.mark.parametrize("seed", range(6))
    def test_constraints_and_asymmetric_matrices(self, reference, seed):
        D, m = asymmetric(reference, 12, seed)
        limits = [{}, {"must_link": [(0, 1, 2)], "cannot_link": [(3, 4)], "max_size": 6}, {"min_size": 3}][seed % 3]
        answer = solve(D, m, 4.0, method="local", restarts=5, **limits)
        sizes = np.bincount(answer.assignment)
        assert sizes.min() >= limits.get("min_size", 1)
        assert sizes.max() <= limits.get("max_size", 12)
        if "must_link" in limits:
            assert len(set(answer.assignment[:3].tolist())) == 1
            assert answer.assignment[3] != answer.assignment[4]
        # No client gains by moving alone: a local optimum of Algorithm 2.
        for client in range(12):
            story = answer.explain(client)
            for choice in (story.alone, *story.elsewhere):
                if choice.allowed and not (choice is story.alone and len(story.now.members) <= sizes.min()):
                    assert choice.bound - story.now.bound + choice.others >= -1e-9

    def test_unlike_clients_form_coalitions_that_are_no_larger_than_they_must(self, reference):
        D = np.where(np.eye(30, dtype=bool), 0.0, 0.8)
        answer = solve(D, np.arange(300, 330), 3.0, method="local", restarts=2, min_size=3, cannot_link=[(0, 1)])
        sizes = np.bincount(answer.assignment)
        assert sizes.min() >= 3
        assert sizes.max() <= 5

    def test_exact_is_refused(self, reference):
        D, m = reference.uniform(5, 0)
        with pytest.raises(InputError, match="`method`"):
            solve(D, m, method="exact")
