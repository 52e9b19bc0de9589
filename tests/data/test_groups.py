"""Rows of one person stay together: in the hold-out, in folds, in files, and wherever distances are judged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcollab.data import ClientData, read_clients
from fedcollab.data.split import fold_of, held_out, with_test
from fedcollab.distances import estimate_distances
from fedcollab.distances.methods.few_round_client import parts
from fedcollab.distances.sampling import folds as folding
from fedcollab.distances.sampling.uncertainty import summary
from fedcollab.errors import InputError
from fedcollab.federation import federate
from fedcollab.flower.silo.config import SiloConfig
from fedcollab.scenarios.hospitals import heart_clients
from fedcollab.training.folds import parts_of
from fedcollab.wire import Vectorised, Wire

GROUPS = st.lists(st.integers(0, 9), min_size=6, max_size=60).filter(lambda found: len(set(found)) > 2)


@given(GROUPS, st.integers(2, 5), st.integers(0, 100))
def test_a_group_is_in_one_fold(groups: list[int], k: int, seed: int) -> None:
    own = np.array(groups)
    for y in (np.zeros(len(own)), own % 2):
        fold = fold_of(y, k, np.random.default_rng(seed), own)
        assert all(len(set(fold[own == group])) == 1 for group in set(groups))
        assert set(fold) <= set(range(k))
        assert len(set(fold)) == min(k, len(set(groups)))


@given(st.lists(st.integers(0, 2), min_size=12, max_size=60), st.integers(2, 5), st.integers(0, 100))
def test_without_groups_every_label_is_dealt_evenly(labels: list[int], k: int, seed: int) -> None:
    y = np.array(labels)
    fold = fold_of(y, k, np.random.default_rng(seed))
    for label in set(labels):
        counts = np.bincount(fold[y == label], minlength=k)
        assert counts.max() - counts.min() <= 1


def test_folds_by_hand() -> None:
    """Groups of 4, 2, 2 rows in two folds: the large one alone, the small ones together."""
    groups = np.array([5, 5, 5, 5, 7, 7, 9, 9])
    fold = fold_of(np.zeros(8), 2, np.random.default_rng(0), groups)
    assert fold[0] != fold[4] == fold[6]


@given(GROUPS, st.floats(0.1, 0.5), st.integers(0, 50))
def test_a_hold_out_takes_whole_groups(groups: list[int], share: float, seed: int) -> None:
    own = np.array(groups)
    data = ClientData("a", np.arange(len(own))[:, None], own % 2, groups=groups)
    mask = held_out(data, share, seed)
    assert mask.any()
    assert not set(own[mask]) & set(own[~mask])


def test_a_hold_out_has_the_share_of_every_label_that_whole_groups_allow() -> None:
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(200), 3)
    y = np.repeat(rng.integers(0, 2, 200), 3)
    split = with_test(ClientData("a", rng.normal(size=(600, 2)), y, groups=groups), 0.2, 0)
    assert len(split.y_test) == pytest.approx(120, abs=6)
    assert np.mean(split.y_test) == pytest.approx(np.mean(y), abs=0.03)
    assert split.groups is not None
    assert sorted(np.bincount(split.groups)) == [3] * (len(split.y) // 3)


def test_groups_are_checked_saved_and_read_again(tmp_path: Path) -> None:
    data = ClientData("a", np.zeros((4, 2)), [0, 1, 0, 1], groups=["x", "y", "x", "z"])
    assert data.groups.tolist() == [0, 1, 0, 2]
    data.save(tmp_path / "a.npz")
    assert ClientData.load(tmp_path / "a.npz").groups.tolist() == [0, 1, 0, 2]
    with pytest.raises(InputError, match="`groups` has 3 values and `y` has 4"):
        ClientData("a", np.zeros((4, 2)), [0, 1, 0, 1], groups=[0, 1, 0])
    with pytest.raises(InputError, match="of at least 2 groups"):
        with_test(ClientData("a", np.zeros((40, 2)), [0, 1] * 20, groups=[7] * 40), 0.2, 0)


def test_the_id_column_makes_groups_and_is_no_feature(tmp_path: Path) -> None:
    rows = "".join(f"p{row // 3},{row},{'yes' if row // 3 % 2 else 'no'}\n" for row in range(30))
    (tmp_path / "a.csv").write_text("patient,age,ill\n" + rows)
    (tmp_path / "b.csv").write_text("age,ill\n" + "".join(f"{row},{'yes' if row % 2 else 'no'}\n" for row in range(9)))
    a, b = read_clients(tmp_path, "ill", id_column="patient")
    assert list(a.x.columns) == ["age"]
    assert a.groups.tolist() == [row // 3 for row in range(30)]
    assert b.groups is None
    with pytest.raises(InputError, match="`--id` \\(='person'\\) is not a column of any file"):
        read_clients(tmp_path, "ill", id_column="person")
    with pytest.raises(InputError, match="is the label column"):
        read_clients(tmp_path, "ill", id_column="ill")
    (tmp_path / "silo.toml").write_text('name = "north"\ndata = "a.csv"\nlabel = "ill"\nid = "patient"\n')
    silo = SiloConfig.read(tmp_path / "silo.toml").check_data()
    assert silo.groups.tolist() == a.groups.tolist()
    assert list(silo.x.columns) == ["age"]
    (tmp_path / "a.csv").write_text("patient,age,ill\n" + rows + ",3,yes\n")
    with pytest.raises(InputError, match="column `patient` \\(--id\\) has 1 missing value"):
        read_clients(tmp_path, "ill", id_column="patient")


@pytest.mark.dataset("heart")
def test_patients_with_several_rows_are_on_one_side_wherever_distances_are_judged() -> None:
    """Each patient of four hospitals three times: the same rows would be trained on and judged."""
    clients = []
    for client in heart_clients(test=0.0):
        rows = np.repeat(np.arange(client.quantity), 3)
        clients.append(ClientData(client.name, client.x.iloc[rows], client.y[rows], groups=rows))
    federation = federate(Vectorised(clients))
    for name in federation.names:
        silo = federation.runtime.silos[name]
        groups = silo.arrays.groups
        plan = {"seed": 0, "folds": 5, "label_counts": "drawn"}
        for cut in (parts(plan, silo), folding.cut(0, name, 1, silo.arrays.y, 5, "set", groups)):
            owners = [set(groups[part]) for part in cut]
            assert sum(map(len, owners)) == len(set(groups))
            for fold in range(5):
                train, held = folding.split(cut, fold, len(groups))
                assert not set(groups[train]) & set(groups[held])
                assert len(train) == len(groups)


@pytest.mark.dataset("heart")
@pytest.mark.parametrize("method", ["few-round", "cross", "published"])
def test_runtimes_agree_on_groups_and_copies_are_no_evidence(method: str) -> None:
    """Five copies of every patient: with groups the distance is as sure as with one copy, without it is far surer."""
    options = {"cross": {"rounds": 5, "repeats": 1}, "published": {"rounds": 3, "hidden": 4}}.get(method, {})
    plain = list(heart_clients(test=0.2))[:2]
    copied = []
    for client in plain:
        rows = np.repeat(np.arange(client.quantity), 5)
        tests = (client.x_test, client.y_test)
        copied.append(ClientData(client.name, client.x.iloc[rows], client.y[rows], *tests, groups=rows))
    with_groups = estimate_distances(Vectorised(copied), method=method, **options)
    np.testing.assert_allclose(
        with_groups.raw, estimate_distances(Wire(copied), method=method, **options).raw, atol=2e-3
    )
    if method == "few-round":
        alone = estimate_distances(Vectorised(plain), method=method)
        free = [ClientData(c.name, c.x, c.y, c.x_test, c.y_test) for c in copied]
        without = estimate_distances(Vectorised(free), method=method)
        assert with_groups.stderr[0, 1] == pytest.approx(alone.stderr[0, 1], rel=0.15)
        assert without.stderr[0, 1] < 0.6 * alone.stderr[0, 1]


def test_the_variance_of_groups_by_hand() -> None:
    """Hits 1, 1 | 0, 0 | 1: a = .6, sums of deviations .8, -1.2, .4, and t = 1: 3 / 2 x 2.24 / 25 + 1 / (12 x 16)."""
    data = ClientData("a", np.zeros((5, 1)), [0, 1, 0, 1, 0], [[0.0]], [0], groups=[0, 0, 1, 1, 2])
    silo = federate(Vectorised([data, ClientData("b", np.ones((5, 1)), [0, 1, 0, 1, 0])])).runtime.silos["a"]
    hits = np.array([[[1.0, 1, 0, 0, 1]]])
    found = summary(hits, np.ones(1), 200, 0, silo, hits)
    assert found["variance"][0, 0] == pytest.approx(1.5 * 2.24 / 25 + 1 / (12 * 16))
    assert found["accuracy"][0, 0] == 0.6


def test_folds_that_choose_the_number_of_rounds_keep_groups_together() -> None:
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(20), 4)
    x = np.repeat(rng.normal(size=(20, 2)), 4, axis=0)  # four copies of every row
    clients = [ClientData(name, x, groups % 2, x[:4], groups[:4] % 2, groups) for name in "ab"]
    silo = federate(Vectorised(clients)).runtime.silos["a"]
    for part in parts_of(silo, 2, 0):
        trained, held = ({tuple(row) for row in rows.tolist()} for rows in (part.x, part.x_held))
        assert not trained & held
        assert len(trained) + len(held) == 20


def test_one_group_cannot_be_held_out() -> None:
    with pytest.raises(InputError, match="all samples of a client are of one group"):
        folding.cut(0, "a", 0, np.zeros(9, dtype=np.int64), 3, "drawn", np.zeros(9, dtype=np.int64))
