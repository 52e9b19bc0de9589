import numpy as np
import pytest

from fedcollab.coalitions import objective, place, rationality, solve, stability
from fedcollab.distances.result import Distances
from fedcollab.errors import InputError


@pytest.fixture
def answer(reference):
    D, m, _ = reference.planted(3, 3, 4)
    return D, m, solve(D, m, C=8, names=[f"c{k}" for k in range(9)])


def _label(choice):
    return 99 if choice.coalition is None else choice.coalition


@pytest.mark.parametrize("group", [0, 1, 2, None])
def test_a_new_client_joins_where_the_objective_rises_least(answer, group):
    D, m, collaboration = answer
    row = np.full(9, 0.7)
    if group is not None:
        row[3 * group : 3 * group + 3] = 0.04
    quantity = 60 if group is not None else 5000
    placement = place(collaboration, row, quantity, name="late")
    larger = np.block([[D, row[:, None]], [row[None], np.zeros((1, 1))]])
    sizes = np.r_[m, quantity]
    values = {
        choice.coalition: objective(larger, sizes, np.r_[collaboration.assignment, _label(choice)], 8)
        for choice in placement.choices
    }
    for choice in placement.choices:
        assert values[choice.coalition] - collaboration.objective == pytest.approx(choice.bound + choice.others)
    assert placement.coalition == min(values, key=values.get)
    assert placement.coalition == (None if group is None else collaboration.assignment[3 * group])
    assert "late" in placement.coalitions[-1 if group is None else placement.coalition]
    assert str(placement).startswith("late should stay alone" if group is None else "late should join c")


def test_by_name_with_missing_pairs_and_limits(answer):
    D, m, collaboration = answer
    near = {f"c{k}": 0.02 if k < 3 else 0.6 for k in range(9)}
    assert place(collaboration, near, 50).coalition == collaboration.assignment[0]
    unmeasured = {name: value for name, value in near.items() if name != "c0"}
    assert place(collaboration, unmeasured, 50).coalition != collaboration.assignment[0]
    assert place(collaboration, near, 50, cannot_link=["c1"]).coalition != collaboration.assignment[0]
    full = solve(D, m, C=8, max_size=3)
    assert place(full, [0.0] * 9, 50).coalition is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([0.1] * 8, 50), "`distances` (shape (8,))"),
        (([0.1] * 8 + [1.2], 50), "`distances` (=1.2 at position 8)"),
        (([0.1] * 9, 0), "`quantity` (=0)"),
        (({"nobody": 0.1}, 50), "`client` (='nobody')"),
    ],
)
def test_bad_input_is_one_line(answer, arguments, words):
    with pytest.raises(InputError) as error:
        place(answer[2], *arguments)
    assert words in str(error.value)


def test_nowhere_to_go_and_a_name_that_is_taken(reference):
    D, m, _ = reference.planted(2, 2, 0)
    full = solve(D, m, names=list("abcd"), min_size=2, max_size=2)
    with pytest.raises(InputError, match="neither join a coalition nor stay alone"):
        place(full, [0.1] * 4, 10)
    with pytest.raises(InputError, match="`name`"):
        place(full, [0.1] * 4, 10, name="a")


def test_replicates_tell_how_sure_each_client_is():
    """Client 4 lies between the two groups: in half of the replicates it is nearer to the other."""
    types = np.array([0, 0, 1, 1, 0])
    base = np.where(types[:, None] == types, 0.02, 0.8)
    np.fill_diagonal(base, 0)
    swapped = base.copy()
    swapped[4, :4] = swapped[:4, 4] = [0.8, 0.8, 0.02, 0.02]
    m = np.full(5, 200)
    distances = Distances(base, tuple("abcde"), m, replicates=np.stack([base, swapped] * 5))
    collaboration = solve(distances, C=5)
    sure = stability(distances, collaboration)
    assert sure.replicates == 10
    assert sure.together[4, 0] == sure.together[0, 4] == 0.5
    assert sure.together[0, 1] == sure.together[2, 3] == 1.0
    assert sure.same[4] == 0.5
    assert sure.agreement[0] == pytest.approx((1 + 1 + 1 + 0.5) / 4)
    assert np.allclose(np.diag(sure.together), 1)
    with pytest.raises(InputError, match="replicates"):
        stability(base, collaboration)
    with pytest.raises(InputError, match="`replicates`"):
        stability(base, collaboration, replicates=base)


def test_a_client_that_pays_for_the_others_is_named():
    """A large client gains nothing from two small ones at a distance; they gain much from it."""
    D = np.array([[0, 0.2, 0.2], [0.2, 0, 0.3], [0.2, 0.3, 0]])
    collaboration = solve(D, [3000, 20, 20], C=5, names=["large", "s1", "s2"])
    assert collaboration.coalitions == [["large", "s1", "s2"]]
    wishes = rationality(collaboration)
    assert [wish.client for wish in wishes] == ["large"]
    story = collaboration.explain("large")
    assert wishes[0].gain == pytest.approx(story.now.bound - story.alone.bound)
    assert wishes[0].gain > 0
    assert rationality(solve(D, [3000, 20, 20], C=0.001)) == []
