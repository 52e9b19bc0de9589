import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcollab.coalitions import Collaboration, objective, solve
from fedcollab.errors import InputError


@st.composite
def problems(draw, low=1, high=7):
    count = draw(st.integers(low, high))
    rng = np.random.default_rng(draw(st.integers(0, 100_000)))
    kind = draw(st.sampled_from(["uniform", "asymmetric", "two groups", "equal", "zero", "ties"]))
    D = rng.random((count, count))
    if kind == "two groups":
        side = rng.integers(0, 2, count)
        D = np.where(side[:, None] == side, 0.1, 0.7) * D
    if kind in ("equal", "zero"):
        D = np.full((count, count), 0.3 if kind == "equal" else 0.0)
    if kind == "ties":
        D = rng.integers(0, 3, (count, count)) / 4
    if kind != "asymmetric":
        D = np.triu(D, 1) + np.triu(D, 1).T
    np.fill_diagonal(D, 0)
    m = rng.integers(1, 2000, count).astype(float)
    if draw(st.booleans()):
        m[:] = 50
    return D, m, draw(st.sampled_from([0.1, 1.0, 5.0, 30.0]))


def admissible(labels, together=(), apart=(), min_size=1, max_size=None):
    sizes = np.bincount(labels)
    return (
        all(labels[i] == labels[j] for i, j in together)
        and all(labels[i] != labels[j] for i, j in apart)
        and sizes.min() >= min_size
        and sizes.max() <= (max_size or len(labels))
    )


def test_the_objective_by_hand():
    D = np.array([[0, 0.2, 1], [0.4, 0, 1], [1, 1, 0]])
    # {0, 1}: 2 * 3 / sqrt(25) + (16 * 0.2 + 9 * 0.4) / 25; {2}: 3 / sqrt(36)
    assert objective(D, [9, 16, 36], ["a", "a", "b"], C=3) == pytest.approx(1.2 + 6.8 / 25 + 0.5)


@given(problems())
@settings(max_examples=60)
def test_the_objective_is_the_paper_s_first_line(problem):
    D, m, C = problem
    labels = np.random.default_rng(len(m)).integers(0, 3, len(m))
    A = (labels[:, None] == labels) * m
    A = A / A.sum(axis=1, keepdims=True)
    beta = m / m.sum()
    by_matrix = (C / np.sqrt(m.sum()) * np.sqrt((A**2 / beta).sum(axis=1)) + (A * D).sum(axis=1)).sum()
    assert objective(D, m, labels, C) == pytest.approx(by_matrix)


@given(problems(high=6))
@settings(max_examples=50, deadline=None)
def test_both_methods_find_what_brute_force_finds(problem):
    D, m, C = problem
    labels = [np.array(p) for p in _partitions(len(m))]
    best = min(objective(D, m, p, C) for p in labels)
    for method in ("exact", "local", "auto"):
        answer = solve(D, m, C, method=method, restarts=20)
        assert answer.objective == pytest.approx(best, rel=1e-9)
        assert answer.lower_bound <= best * (1 + 1e-9)
        assert answer.objective == pytest.approx(objective(D, m, answer.assignment, C))
    assert solve(D, m, C, method="exact").optimal


@given(problems(low=4, high=6), st.data())
@settings(max_examples=40, deadline=None)
def test_constraints_are_respected_and_the_rest_is_still_optimal(problem, data):
    D, m, C = problem
    count = len(m)
    pairs = list(itertools.combinations(range(count), 2))
    together = data.draw(st.lists(st.sampled_from(pairs), max_size=1))
    apart = data.draw(st.lists(st.sampled_from([p for p in pairs if p not in together]), max_size=2, unique=True))
    sizes = {"min_size": data.draw(st.integers(1, 3)), "max_size": data.draw(st.sampled_from([None, 3, 4]))}
    fine = [np.array(p) for p in _partitions(count) if admissible(np.array(p), together, apart, **sizes)]
    limits = {"must_link": together, "cannot_link": apart, **sizes}
    for method in ("exact", "local"):
        if not fine:
            with pytest.raises(InputError, match=r"must_link|cannot_link|min_size|max_size"):
                solve(D, m, C, method=method, restarts=20, **limits)
            continue
        answer = solve(D, m, C, method=method, restarts=20, **limits)
        best = min(objective(D, m, p, C) for p in fine)
        assert admissible(answer.assignment, together, apart, **sizes)
        assert answer.lower_bound <= best * (1 + 1e-9)
        if method == "exact":
            assert answer.objective == pytest.approx(best, rel=1e-9)
            assert answer.optimal


@given(problems(low=2, high=10), st.integers(0, 100))
@settings(max_examples=30, deadline=None)
def test_never_worse_than_all_local_or_all_global(problem, seed):
    D, m, C = problem
    answer = solve(D, m, C, method="local", restarts=2, seed=seed)
    ends = objective(D, m, np.arange(len(m)), C), objective(D, m, np.zeros(len(m)), C)
    assert answer.objective <= min(ends) * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("method", ["local", "exact"])
def test_reordering_the_clients_reorders_the_answer(reference, seed, method):
    D, m = reference.uniform(11, seed)
    order = np.random.default_rng(seed).permutation(11)
    first, second = solve(D, m, 5, method=method), solve(D[np.ix_(order, order)], m[order], 5, method=method)
    same = first.assignment[:, None] == first.assignment
    assert np.array_equal(same[np.ix_(order, order)], second.assignment[:, None] == second.assignment)
    assert second.objective == pytest.approx(first.objective, rel=1e-12)


def test_renaming_renames_and_the_seed_repeats(reference):
    D, m = reference.uniform(9, 3)
    names = [f"site {position}" for position in range(9)]
    plain, named = solve(D, m), solve(D, m, names=names)
    assert named.coalitions == [[names[k] for k in members] for members in plain.coalitions]
    first, second = (solve(D, m, method="local", seed=5) for _ in range(2))
    assert np.array_equal(first.assignment, second.assignment)


def test_labels_appear_in_order_and_partition_the_clients(reference):
    D, m, _ = reference.planted(3, 4, 1)
    order = np.random.default_rng(0).permutation(12)
    answer = solve(D[np.ix_(order, order)], m[order])
    seen = list(dict.fromkeys(answer.assignment.tolist()))
    assert seen == list(range(len(seen)))
    assert sorted(client for members in answer.coalitions for client in members) == list(range(12))


def test_the_paper_s_shape_is_found(reference):
    """Four types, ten large and ten small clients: [0..4], [5..9], [10..19]; single runs end in the four types."""
    kind = np.repeat(np.arange(4), 5)
    apart = np.array([[0.02, 0.14, 0.5, 0.5], [0.14, 0.02, 0.5, 0.5], [0.5, 0.5, 0.02, 0.14], [0.5, 0.5, 0.14, 0.02]])
    D = apart[np.ix_(kind, kind)]
    np.fill_diagonal(D, 0)
    m = np.repeat([2500.0, 340.0], 10)
    expected = [list(range(5)), list(range(5, 10)), list(range(10, 20))]
    for method in ("local", "auto"):
        assert solve(D, m, C=10, method=method).coalitions == expected
    single = [reference.algorithm_2(D, m, 10.0, np.random.default_rng(seed))[1] for seed in range(5)]
    assert {len(set(p.tolist())) for p in single} == {4}


def test_one_client_is_a_valid_answer():
    answer = solve([[0.0]], [25], C=10)
    assert answer.coalitions == [[0]]
    assert answer.objective == answer.lower_bound == 2.0
    assert answer.optimal


def test_a_distances_object_brings_names_quantities_and_unmeasured_pairs():
    from fedcollab.distances.result import Distances

    raw = np.array([[0, 0.01, np.nan], [0.01, 0, 0.02], [np.nan, 0.02, 0]])
    measured = Distances(raw, ("a", "b", "c"), np.array([50, 60, 70]))
    answer = solve(measured, C=30)
    assert all(not {"a", "c"} <= set(members) for members in answer.coalitions)
    assert answer.optimal
    with pytest.raises(InputError, match="never measured"):
        solve(measured, must_link=[("a", "c")])


def test_inputs_are_never_modified(reference):
    D, m = reference.uniform(8, 0)
    kept, quantities = D.copy(), m.copy()
    D.flags.writeable = m.flags.writeable = False
    solve(D, m, must_link=[(0, 1)], cannot_link=[(2, 3)], max_size=4)
    assert np.array_equal(D, kept)
    assert np.array_equal(m, quantities)


GOOD = [[0, 0.5], [0.5, 0]]


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        (([[0, 0.5]], [1]), {}, "`distances` (shape (1, 2)) must be a square matrix"),
        (([], []), {}, "`distances`"),
        ((np.zeros((0, 0)), []), {}, "at least one client"),
        (("far", [1]), {}, "`distances`"),
        (([[0, np.nan], [np.nan, 0]], [1, 1]), {}, "`distances` (=nan at row 0, column 1)"),
        (([[0, -0.1], [0.5, 0]], [1, 1]), {}, "`distances` (=-0.1 at row 0, column 1)"),
        (([[0, 0.5], [1.5, 0]], [1, 1]), {}, "`distances` (=1.5 at row 1, column 0)"),
        (([[0, 0.5], [0.5, 0.1]], [1, 1]), {}, "zero diagonal"),
        ((GOOD, [1, 0]), {}, "`quantities` (=0 at position 1)"),
        ((GOOD, [1, np.inf]), {}, "`quantities` (=inf at position 1)"),
        ((GOOD, [1, 1, 1]), {}, "`quantities` (shape (3,))"),
        ((GOOD, None), {}, "`quantities` (=None)"),
        ((GOOD, ["many", 1]), {}, "`quantities`"),
        ((GOOD, [1, 1]), {"C": 0}, "`C` (=0)"),
        ((GOOD, [1, 1]), {"C": np.inf}, "`C` (=inf)"),
        ((GOOD, [1, 1]), {"C": "ten"}, "`C` (='ten')"),
        ((GOOD, [1, 1]), {"method": "magic"}, "`method` (='magic') must be one of: auto, exact, local"),
        ((GOOD, [1, 1]), {"restarts": 0}, "`restarts` (=0)"),
        ((GOOD, [1, 1]), {"names": ["a"]}, "`names` (length 1)"),
        ((GOOD, [1, 1]), {"names": ["a", "a"]}, "`names` (='a' twice)"),
        ((GOOD, [1, 1]), {"names": "ab"}, "`names` (='ab')"),
        ((GOOD, [1, 1]), {"min_size": 3}, "`min_size` (=3) must be at most the number of clients (2)"),
        ((GOOD, [1, 1]), {"min_size": 2, "max_size": 1}, "`min_size` (=2) must be at most `max_size` (=1)"),
        ((GOOD, [1, 1]), {"max_size": 0}, "`max_size` (=0)"),
        ((np.zeros((5, 5)), [1] * 5), {"min_size": 2, "max_size": 2}, "5 clients cannot be divided"),
        ((GOOD, [1, 1]), {"must_link": [(0, 5)]}, "`must_link` (=5) must be a client's position from 0 to 1"),
        ((GOOD, [1, 1]), {"must_link": [(0,)]}, "at least 2 different clients"),
        ((GOOD, [1, 1]), {"cannot_link": "ab"}, "`cannot_link` (='ab')"),
        ((GOOD, [1, 1]), {"cannot_link": [0, 1]}, "`cannot_link` (=0)"),
        ((GOOD, [1, 1]), {"names": ["a", "b"], "cannot_link": [("a", "c")]}, "`cannot_link` (='c')"),
        ((np.zeros((66, 66)), [1] * 66), {"method": "exact"}, "more than 64 clients; there are 66"),
    ],
)
def test_bad_input_is_one_clear_line(arguments, options, words):
    with pytest.raises(InputError) as error:
        solve(*arguments, **options)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"must_link": [("a", "b"), ("b", "c")], "cannot_link": [("a", "c")]}, ["(a, c)", "(a, b) and (b, c)"]),
        ({"must_link": [("a", "b", "c")], "max_size": 2}, ["(a, b, c)", "`max_size` (=2)"]),
        (
            {"cannot_link": [("a", "b"), ("a", "c"), ("a", "d"), ("a", "e"), ("a", "f")], "min_size": 2},
            ["`min_size` (=2)", "a can be with only 0"],
        ),
        (
            {"cannot_link": [("a", "b"), ("a", "c"), ("b", "c"), ("d", "e")], "min_size": 3},
            ["(a, b)", "(a, c)", "(b, c)", "`min_size` (=3)"],
        ),
    ],
)
def test_conflicting_constraints_are_named(limits, words):
    with pytest.raises(InputError) as error:
        solve(np.zeros((6, 6)), [10] * 6, names=list("abcdef"), **limits)
    assert all(word in str(error.value) for word in words)
    assert "(d, e)" not in str(error.value)


def test_explanations_sum_to_the_objective_and_survive_the_file(reference, tmp_path):
    D, m, _ = reference.planted(3, 3, 2)
    answer = solve(D, m, C=5, names=[f"c{k}" for k in range(9)], cannot_link=[("c0", "c8")], max_size=5)
    answer.save(tmp_path / "collaboration.json")
    again = Collaboration.load(tmp_path / "collaboration.json")
    stories = [again.explain(f"c{k}") for k in range(9)]
    assert sum(story.generalisation + story.shift for story in stories) == pytest.approx(answer.objective)
    assert again.coalitions == answer.coalitions
    assert [str(again.explain(name)) for name in again.names] == [str(answer.explain(name)) for name in answer.names]
    assert not next(c for c in stories[0].elsewhere if "c8" in c.members).allowed
    assert json.dumps(stories[0].as_dict())


@given(problems(low=2, high=7))
@settings(max_examples=30, deadline=None)
def test_every_choice_in_an_explanation_is_priced_by_the_objective(problem):
    D, m, C = problem
    answer = solve(D, m, C, method="local", restarts=3)
    for client in range(len(m)):
        story = answer.explain(client)
        for choice in (story.alone, *story.elsewhere):
            moved = answer.assignment.copy()
            moved[client] = 99 if choice.coalition is None else choice.coalition
            change = choice.bound - story.now.bound + choice.others
            assert objective(D, m, moved, C) - answer.objective == pytest.approx(change, abs=1e-9)
        change = story.everyone.bound - story.now.bound + story.everyone.others
        assert objective(D, m, np.zeros(len(m)), C) - answer.objective == pytest.approx(change, abs=1e-9)


def test_an_answer_cannot_be_changed(reference):
    answer = solve(*reference.uniform(4, 0))
    with pytest.raises(ValueError, match="read-only"):
        answer.assignment[0] = 3
    with pytest.raises(InputError, match="`client`"):
        answer.explain("nobody")


def test_broken_files_are_one_line(tmp_path):
    path = tmp_path / "broken.json"
    path.write_text('{"fedcollab": "collaboration", "format": 1, "assignment": [0]}')
    with pytest.raises(InputError, match="not a complete collaboration file"):
        Collaboration.load(path)


def _partitions(count):
    def grow(prefix, top):
        if len(prefix) == count:
            yield list(prefix)
            return
        for label in range(top + 1):
            yield from grow([*prefix, label], max(top, label + 1))

    return grow([], 0)
