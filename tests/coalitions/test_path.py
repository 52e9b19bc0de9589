from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcollab.coalitions import CPath, c_path, objective, solve
from fedcollab.errors import InputError


def as_sets(coalitions):
    return {frozenset(members) for members in coalitions}


@given(st.integers(0, 1000), st.integers(1, 7), st.booleans())
@settings(max_examples=15, deadline=None)
def test_the_path_is_the_optimum_at_every_c(seed, count, symmetric):
    rng = np.random.default_rng(seed)
    D = rng.random((count, count))
    D = np.triu(D, 1) + np.triu(D, 1).T if symmetric else D
    np.fill_diagonal(D, 0)
    m = rng.integers(5, 2000, count)
    path = c_path(D, m)
    assert path[0].c_low == 0
    assert path[-1].c_high == np.inf
    assert all(left.c_high == right.c_low for left, right in pairwise(path))
    assert all(part.proven for part in path)
    for part in path:
        assert part.c_low < part.C < part.c_high
        assert part.objective == pytest.approx(objective(D, m, part.assignment, part.C))
        assert part.objective == pytest.approx(solve(D, m, part.C, method="exact").objective)
    assert all(left.slope > right.slope for left, right in pairwise(path))


def test_the_ends_are_everyone_alone_and_everyone_together(reference):
    D, m, truth = reference.planted(3, 3, 0)
    path = c_path(D, m)
    assert len(path[0].coalitions) == 9
    assert len(path[-1].coalitions) == 1
    assert path.suggested.assignment.tolist() == truth.tolist()


def test_clients_at_distance_zero_join_before_c_grows():
    D = np.array([[0, 0, 0.5], [0, 0, 0.5], [0.5, 0.5, 0]])
    assert as_sets(c_path(D, [5, 6, 7])[0].coalitions) == {frozenset({0, 1}), frozenset({2})}


def test_constraints_hold_along_the_path(reference):
    D, m, _ = reference.planted(2, 3, 0)
    path = c_path(D, m, cannot_link=[(0, 5)], min_size=2, must_link=[(0, 1)])
    assert all(part.proven for part in path)
    for part in path:
        labels = part.assignment
        assert labels[0] == labels[1] != labels[5]
        assert np.bincount(labels).min() >= 2
        limits = {"cannot_link": [(0, 5)], "min_size": 2, "must_link": [(0, 1)], "method": "exact"}
        assert part.objective == pytest.approx(solve(D, m, part.C, **limits).objective)
    with pytest.raises(InputError, match="`cannot_link`"):
        c_path(np.zeros((4, 4)), [1] * 4, cannot_link=[(0, 1), (0, 2), (1, 2)], min_size=2)


@pytest.mark.parametrize("kind", ["same", "different", "groups"])
def test_the_suggestion_can_say_everyone_nobody_and_groups(kind):
    truth = {"same": [0] * 9, "different": list(range(9)), "groups": [0] * 3 + [1] * 3 + [2] * 3}[kind]
    types = np.array(truth)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        m = rng.integers(200, 800, 9)
        noise = rng.normal(0, np.sqrt((1 / m[:, None] + 1 / m) / 2))
        D = np.clip(np.triu(np.where(types[:, None] == types, 0.0, 0.6) + noise, 1), 0, 1)
        assert c_path(D + D.T, m).suggested.assignment.tolist() == truth


def test_the_given_standard_errors_set_the_lower_limit():
    from fedcollab.distances.result import Distances

    raw = np.full((4, 4), 0.2) - 0.2 * np.eye(4)
    calm, noisy = (
        Distances(raw, tuple("abcd"), np.full(4, 400), stderr=np.full((4, 4), error)) for error in (0.01, 0.3)
    )
    assert c_path(noisy).limits[0] == pytest.approx(30 * c_path(calm).limits[0])
    assert len(c_path(calm).suggested.coalitions) == 4
    assert len(c_path(noisy).suggested.coalitions) == 1


def test_a_path_survives_the_file(reference, tmp_path):
    D, m, _ = reference.planted(2, 3, 1)
    path = c_path(D, m, names=list("abcdef"))
    path.save(tmp_path / "path.json")
    again = CPath.load(tmp_path / "path.json")
    assert again.as_dict() == path.as_dict()
    assert again.suggested.at(3.0) == path.suggested.at(3.0)
    (tmp_path / "path.json").write_text('{"fedcollab": "path", "format": 1}')
    with pytest.raises(InputError, match="not a complete path"):
        CPath.load(tmp_path / "path.json")


def test_containing_and_bad_input(reference):
    D, m = reference.uniform(5, 0)
    path = c_path(D, m)
    for part in path:
        assert path.containing(part.C) is part
    with pytest.raises(InputError, match="`C`"):
        path.containing(0)
    with pytest.raises(InputError, match="at most 1000"):
        c_path(np.zeros((1001, 1001)), np.ones(1001))
    assert c_path([[0.0]], [5]).suggested.coalitions == [[0]]
