"""The search at every size: never worse than what is simple, planted groups found, constraints kept, in any order."""

import importlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcollab.coalitions import c_path, objective, personal_weights, solve

front_door = importlib.import_module("fedcollab.coalitions.solve")
levels = importlib.import_module("fedcollab.coalitions.solver.levels")
moves = importlib.import_module("fedcollab.coalitions.solver.moves")


@given(st.integers(0, 10_000), st.integers(2, 60), st.sampled_from([0.3, 3.0, 10.0, 40.0]), st.booleans())
@settings(max_examples=40, deadline=None)
def test_never_worse_than_alone_everyone_and_greedy_merging(reference, seed, count, C, symmetric):
    rng = np.random.default_rng(seed)
    D = rng.random((count, count)) ** rng.integers(1, 3)
    D = np.triu(D, 1) + np.triu(D, 1).T if symmetric else D
    np.fill_diagonal(D, 0)
    m = np.exp(rng.uniform(np.log(20), np.log(5000), count)).round()
    simple = [np.arange(count), np.zeros(count), reference.greedy_merging(D, m, C)]
    least = min(objective(D, m, labels, C) for labels in simple)
    for method in ("auto", "local"):
        answer = solve(D, m, C, method=method, restarts=3, prove=False)
        assert answer.objective <= least * (1 + 1e-9)
        assert answer.lower_bound <= answer.objective


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("options", [{}, {"noise": 0.1}, {"noise": 0.05, "unequal": True}, {"symmetric": False}])
def test_planted_groups_are_matched_or_beaten(reference, seed, options):
    D, m, truth = reference.consortium(450, 15, seed, **options)
    answer = solve(D, m, 10.0, prove=False)
    assert answer.objective <= objective(D, m, truth, 10.0) * (1 + 1e-9)
    assert answer.objective <= objective(D, m, reference.greedy_merging(D, m, 10.0), 10.0) * (1 + 1e-9)
    assert personal_weights(D, m, 10.0)[1].sum() <= answer.lower_bound * (1 + 1e-9)


def test_proofs_can_be_switched_off_and_say_when_their_budget_ran_out(reference, monkeypatch):
    monkeypatch.setitem(front_door.BUDGETS, "auto", 50)
    D, m = reference.uniform(30, 0)
    tried, quick = solve(D, m, 5.0), solve(D, m, 5.0, prove=False)
    assert tried.budget_spent
    assert not quick.budget_spent
    assert not quick.optimal
    assert quick.lower_bound <= tried.lower_bound <= tried.objective <= quick.objective * (1 + 1e-12)


class TestBySample:
    """The search for thousands of clients, with limits that a small matrix passes."""

    @pytest.fixture(autouse=True)
    def small_limits(self, monkeypatch):
        monkeypatch.setattr(front_door, "DENSE", 3)
        monkeypatch.setattr(levels, "WHOLE", 100)
        monkeypatch.setattr(levels, "SAMPLE", 80)

    @pytest.mark.parametrize("seed", range(3))
    @pytest.mark.parametrize("options", [{}, {"noise": 0.05, "unequal": True}, {"symmetric": False}])
    def test_planted_groups_are_matched_or_beaten(self, reference, seed, options):
        D, m, truth = reference.consortium(400, 20, seed, **options)
        for matrix in (D, D.astype(np.float64)):
            answer = solve(matrix, m, 10.0)
            assert answer.objective <= objective(D, m, truth, 10.0) * (1 + 1e-6)

    @pytest.mark.parametrize("tables", [True, False])
    @pytest.mark.parametrize(
        "limits",
        [
            {"max_size": 12},
            {"min_size": 6},
            {"must_link": [(0, 1, 2)], "cannot_link": [(3, 4), (5, 6), (3, 7)], "max_size": 30},
        ],
    )
    def test_constraints_hold_and_no_client_gains_alone(self, reference, monkeypatch, limits, tables):
        if not tables:
            monkeypatch.setattr("fedcollab.coalitions.solver.instance.RowInstance.room", 0.0)
        D, m, _ = reference.consortium(200, 12, 1, noise=0.05)
        answer = solve(D, m, 10.0, **limits)
        assert answer.constraints.admits(answer.assignment)
        sizes = np.bincount(answer.assignment)
        assert sizes.min() >= limits.get("min_size", 1)
        assert sizes.max() <= limits.get("max_size", 200)
        if "min_size" in limits or "must_link" in limits:
            return
        for client in range(0, 200, 7):
            story = answer.explain(client)
            for choice in (story.alone, *story.elsewhere):
                if choice.allowed:
                    assert choice.bound - story.now.bound + choice.others >= -1e-9

    def test_reordering_the_clients_reorders_the_answer(self, reference):
        D, m, _ = reference.consortium(300, 15, 2)
        order = np.random.default_rng(0).permutation(300)
        first, second = solve(D, m, 10.0), solve(D[np.ix_(order, order)], m[order], 10.0)
        same = first.assignment[:, None] == first.assignment
        assert np.array_equal(same[np.ix_(order, order)], second.assignment[:, None] == second.assignment)

    @pytest.mark.parametrize("kind", ["alike", "unlike"])
    def test_everyone_and_nobody_are_answers_too(self, kind):
        D = np.where(np.eye(150, dtype=bool), 0.0, 0.001 if kind == "alike" else 0.9)
        answer = solve(D, np.full(150, 400), 10.0 if kind == "alike" else 0.5)
        assert len(answer.coalitions) == (1 if kind == "alike" else 150)


def test_relabelling_a_descent_gives_that_partition(reference):
    D, m = reference.uniform(40, 0)
    problem = front_door.build_problem(*_checked(D, m), 5.0)
    rng = np.random.default_rng(0)
    descent = moves.Descent(problem, rng.integers(0, 5, 40))
    for groups in (3, 12, 40):
        wanted = rng.integers(0, groups, 40)
        descent.relabel(wanted)
        assert ((descent.labels[:, None] == descent.labels) == (wanted[:, None] == wanted)).all()
        assert descent.score == pytest.approx(problem.value(np.unique(wanted, return_inverse=True)[1]))
        assert descent.together() == pytest.approx(problem.value(np.zeros(40, dtype=np.int64)))


@pytest.mark.parametrize("options", [{"noise": 0.05}, {"noise": 0.05, "symmetric": False}])
def test_the_path_is_no_worse_than_a_search_and_its_suggestion_does_not_hang_on_restarts(reference, options):
    D, m, truth = reference.consortium(60, 5, 3, **options)
    paths = [c_path(D, m, seed=seed, restarts=restarts) for seed, restarts in ((0, 20), (1, 5), (2, 40))]
    for path in paths[1:]:
        assert np.array_equal(path.suggested.assignment, paths[0].suggested.assignment)
    chosen = paths[0].suggested
    assert chosen.objective <= solve(D, m, chosen.C, prove=False).objective * (1 + 1e-9)
    assert paths[0].containing(10.0).at(10.0) <= objective(D, m, truth, 10.0) * (1 + 1e-9)
    assert all(left.c_high == right.c_low for left, right in zip(paths[0], paths[0][1:], strict=False))


def _checked(D, m):
    from fedcollab.coalitions.constraints import Constraints
    from fedcollab.coalitions.inputs import read_inputs

    return read_inputs(D, m), Constraints()
