"""What `solve` takes: one default C, and pandas objects and mappings read by name."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from fedcollab.cli.coalitions import solve as solve_command
from fedcollab.coalitions import Collaboration, c_path, objective, place, solve
from fedcollab.distances import Distances
from fedcollab.errors import InputError
from fedcollab.runs import FedCollab

NAMES = ["north", "south", "east", "west"]
#: asymmetric, and every client with its own quantity: any mix-up of rows, columns or quantities changes the objective
D = np.array([[0, 0.05, 0.9, 0.8], [0.1, 0, 0.7, 0.85], [0.95, 0.6, 0, 0.15], [0.75, 0.65, 0.2, 0]])
M = np.array([100.0, 300.0, 50.0, 900.0])
ORDER = [2, 0, 3, 1]


def frame(rows: list[int], columns: list[int]) -> pd.DataFrame:
    """The distances as a DataFrame with rows and columns in these orders."""
    names = np.array(NAMES)
    return pd.DataFrame(D[np.ix_(rows, columns)], index=names[rows], columns=names[columns])


def same_groups(first: Collaboration, second: Collaboration) -> bool:
    return {frozenset(group) for group in first.coalitions} == {frozenset(group) for group in second.coalitions}


def test_without_C_solve_takes_the_suggestion_of_the_path() -> None:
    suggested = c_path(D, M, names=NAMES).suggested
    answer = solve(D, M, names=NAMES)
    assert answer.C == suggested.C != 10
    assert np.array_equal(answer.assignment, suggested.assignment)
    apart = {"cannot_link": [("north", "south")], "max_size": 3}
    assert solve(D, M, names=NAMES, **apart).C == c_path(D, M, names=NAMES, **apart).suggested.C
    assert solve(D, M, C=10).C == 10
    assert objective(D, M, [0, 0, 1, 1]) == objective(D, M, [0, 0, 1, 1], C=10)


def test_constraints_given_as_generators_reach_path_and_search() -> None:
    answer = solve(D, M, must_link=(pair for pair in [(0, 2)]), cannot_link=(pair for pair in [(0, 1)]))
    assert answer.assignment[0] == answer.assignment[2] != answer.assignment[1]
    assert solve(D, M, names=(name for name in NAMES)).names == tuple(NAMES)


def test_a_noisy_split_is_not_suggested_where_replicates_tell() -> None:
    """The same matrix, with replicates that show its two groups to be chance: everyone together, also from `solve`."""
    rng = np.random.default_rng(0)
    raw = np.where(np.repeat([0, 1], 2)[:, None] == np.repeat([0, 1], 2), 0.02, 0.4)
    np.fill_diagonal(raw, 0)
    noise = rng.normal(0, 0.4, (50, 4, 4))
    replicates = raw + np.triu(noise, 1) + np.triu(noise, 1).transpose(0, 2, 1)
    noisy = Distances(raw, NAMES, M.astype(int), replicates=replicates)
    assert len(solve(raw, M).coalitions) == 2
    assert len(solve(noisy).coalitions) == 1
    assert solve(noisy).C == c_path(noisy).suggested.C


def test_the_command_and_FedCollab_take_the_same_default(clients, tmp_path) -> None:
    fitted = FedCollab(distance="label", seed=3).fit(clients)
    assert solve(fitted.distances, seed=3).C == fitted.collaboration.C
    fitted.distances.save(tmp_path / "distances.json")
    loaded = Distances.load(tmp_path / "distances.json")
    arguments = [str(tmp_path / "distances.json"), "--seed", "3", "-o", str(tmp_path / "c.json")]
    assert CliRunner().invoke(solve_command, arguments, catch_exceptions=False).exit_code == 0
    assert Collaboration.load(tmp_path / "c.json").C == solve(loaded, seed=3).C


def test_auto_beyond_the_path_asks_for_a_number() -> None:
    count = 1001
    with pytest.raises(InputError, match=r"`C` \(='auto'\).*at most 1,000 clients; there are 1,001: give a number"):
        solve(np.zeros((count, count), dtype=np.float32), np.ones(count))


def test_a_wrong_C_names_both_that_are_right() -> None:
    for wrong in ("ten", 0, None):
        with pytest.raises(InputError, match=r"`C` .* must be a finite number above 0, or 'auto'"):
            solve(D, M, C=wrong)


@pytest.mark.parametrize("columns", [[0, 1, 2, 3], ORDER, [3, 2, 1, 0]])
@pytest.mark.parametrize("kind", ["series", "mapping"])
def test_frames_series_and_mappings_are_read_by_name(columns: list[int], kind: str) -> None:
    shuffled = [3, 1, 0, 2]
    quantities = pd.Series(M[shuffled], index=np.array(NAMES)[shuffled])
    given = quantities if kind == "series" else quantities.to_dict()
    plain = solve(D, M, C=5, names=NAMES)
    answer = solve(frame(ORDER, columns), given, C=5)
    assert answer.names == tuple(np.array(NAMES)[ORDER])
    assert answer.objective == pytest.approx(plain.objective, rel=1e-12)
    assert same_groups(answer, plain)
    assert answer.quantities.tolist() == M[ORDER].tolist()
    assert objective(frame(ORDER, columns), given, [0, 1, 2, 3]) == pytest.approx(objective(D, M, [0, 1, 2, 3]))
    suggested = c_path(frame(ORDER, columns), given).suggested
    assert pytest.approx(c_path(D, M).suggested.C) == suggested.C


def test_names_decide_the_order_of_a_frame() -> None:
    answer = solve(frame(ORDER, [3, 2, 1, 0]), dict(zip(NAMES, M, strict=True)), C=5, names=NAMES)
    plain = solve(D, M, C=5, names=NAMES)
    assert answer.names == tuple(NAMES)
    assert np.array_equal(answer.assignment, plain.assignment)
    assert answer.objective == plain.objective


def test_labels_may_be_on_one_side_only_and_numbers() -> None:
    plain = solve(D, M, C=5)
    only_columns = pd.DataFrame(D, columns=NAMES)
    assert solve(only_columns, M, C=5).names == tuple(NAMES)
    assert np.array_equal(solve(only_columns, M, C=5).assignment, plain.assignment)
    rows_moved = pd.DataFrame(D).loc[ORDER]
    moved = solve(rows_moved, pd.Series(M).loc[[1, 3, 0, 2]], C=5)
    assert moved.names == tuple(str(row) for row in ORDER)
    assert moved.objective == pytest.approx(plain.objective, rel=1e-12)
    assert solve(pd.DataFrame(D), pd.Series(M), C=5).names is None
    assert solve(D, pd.Series(M).loc[ORDER], C=5).quantities.tolist() == M.tolist()


def test_a_distances_object_takes_quantities_by_name() -> None:
    symmetric = np.minimum(D, D.T)
    found = Distances(symmetric, NAMES, np.ones(4, dtype=int))
    answer = solve(found, {"west": 900, "north": 100, "east": 50, "south": 300}, C=5)
    assert answer.quantities.tolist() == M.tolist()


def test_place_reads_a_series_by_name() -> None:
    answer = solve(D, M, C=5, names=NAMES)
    row = pd.Series([0.9, 0.1, 0.8, 0.2], index=["east", "north", "west", "south"])
    assert place(answer, row, 50).best.bound == place(answer, row.to_dict(), 50).best.bound
    assert place(answer, row, 50).best.bound == place(answer, [0.1, 0.2, 0.9, 0.8], 50).best.bound


@pytest.mark.parametrize(
    ("distances", "quantities", "options", "words"),
    [
        (frame([0, 1, 2, 3], ORDER).rename(columns={"east": "coast"}), M, {}, "'coast' is in its columns but not"),
        (frame([0, 1, 2, 3], ORDER).rename(index={"east": "north"}), M, {}, "`distances` has 'north' twice"),
        (frame(ORDER, ORDER), {"north": 1, "south": 2, "east": 3}, {}, "no number for the client 'west'"),
        (frame(ORDER, ORDER), pd.Series(1, index=[*NAMES, "coast"]), {}, "`quantities` names 'coast'"),
        (frame(ORDER, ORDER), pd.Series(1, index=[*NAMES, "west"]), {}, "`quantities` has 'west' twice"),
        (frame(ORDER, ORDER), M, {"names": ["north", "south", "east", "coast"]}, "'coast' is in its names but not"),
        (D, dict(zip(NAMES, M, strict=True)), {}, "'north', which is not a client; the clients have no names: give"),
        (frame(ORDER, ORDER).iloc[:3], M, {}, "`distances` (shape (3, 4)) must be a square matrix"),
    ],
)  # fmt: skip
def test_labels_that_do_not_match_are_named(distances, quantities, options, words: str) -> None:
    with pytest.raises(InputError) as error:
        solve(distances, quantities, C=5, **options)
    assert words in str(error.value)
    assert "\n" not in str(error.value)
