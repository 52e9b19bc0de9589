"""Clients leave, change and regroup; the history keeps it all and nothing is written half-way."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedcollab.coalitions import Collaboration, place, solve
from fedcollab.distances import Distances
from fedcollab.distances.update import removed, renewed
from fedcollab.errors import InputError
from fedcollab.federation import federate
from fedcollab.runs import transaction
from fedcollab.runs.fitted import Fitted
from fedcollab.runs.membership import (
    State,
    Training,
    apply,
    check,
    entries,
    join,
    keep_change,
    keep_joining,
    keep_leaving,
    leave,
    open_state,
)
from fedcollab.runs.membership.regroup import consider, limits_of
from fedcollab.runs.run import Run
from fedcollab.training import TrainingResult

from ...conftest import blobs
from .conftest import SIZES, members


def planted(kinds: list[int], *, near: float = 0.05, far: float = 0.6, noise: float = 0.02, seed: int = 0) -> Distances:
    """Distances of planted types, with noise, and quantities of very different size."""
    rng = np.random.default_rng(seed)
    types = np.array(kinds)
    raw = np.where(types[:, None] == types, near, far) + rng.normal(0, noise, (len(kinds), len(kinds)))
    raw = np.triu(raw, 1)
    quantities = np.exp(rng.uniform(np.log(30), np.log(1000), len(kinds))).astype(int)
    return Distances(raw + raw.T, tuple(f"c{k:03d}" for k in range(len(kinds))), quantities, stderr=0 * raw + noise)


def state_of(distances: Distances, C: float = 5.0, **limits: object) -> State:
    return State(distances, solve(distances, C=C, names=distances.names, **limits))


# rows


def test_rows_come_and_go_without_touching_other_pairs() -> None:
    whole = planted([0, 0, 1, 1, 1])
    smaller = removed(whole, "c004")
    assert smaller.names == whole.names[:4]
    assert np.array_equal(smaller.raw, whole.raw[:4, :4])
    back = renewed(smaller, whole, "c004")
    assert np.array_equal(back.raw, whole.raw)
    assert np.array_equal(back.stderr, whole.stderr)
    assert np.array_equal(back.quantities, whole.quantities)
    assert back.names == whole.names
    other = planted([0, 1, 1, 1, 1], seed=1)
    new = renewed(whole, other, "c001")
    assert np.array_equal(new.raw[1], other.raw[1])
    assert np.array_equal(np.delete(np.delete(new.raw, 1, 0), 1, 1), np.delete(np.delete(whole.raw, 1, 0), 1, 1))
    grown = renewed(whole, other, "c001", quantity_only=True)
    assert np.array_equal(grown.raw, whole.raw)
    assert grown.quantities[1] == other.quantities[1]


# regrouping


def test_a_move_must_pay_for_its_retraining() -> None:
    distances = planted([0] * 4 + [1] * 4)
    best = solve(distances, C=5.0)
    assert not consider(distances, best.assignment, 5.0, {}).advised
    wrong = best.assignment.copy()
    wrong[0] = wrong[4]
    found = consider(distances, wrong, 5.0, {})
    assert found.advised
    assert set(found.retrain) == set(distances.names)
    assert found.cost == pytest.approx(found.now.objective / best.objective - 1)
    assert "Regrouping is advised: staying costs" in str(found)
    patient = consider(distances, wrong, 5.0, {}, threshold=1.01 * found.excess)
    assert not patient.advised
    assert "does not pay" in str(patient)


def test_an_objective_more_than_the_threshold_above_the_best_is_always_advised_against() -> None:
    rng = np.random.default_rng(0)
    for seed in range(30):
        distances = planted(rng.integers(0, 3, 7).tolist(), noise=0.1, seed=seed)
        found = consider(distances, rng.integers(0, 3, 7), 5.0, {})
        assert found.excess >= found.cost - 1e-12
        assert found.advised or found.cost <= 0.02


def test_joining_one_at_a_time_stays_near_or_says_so() -> None:
    rng = np.random.default_rng(3)
    distances = planted(rng.integers(0, 4, 45).tolist(), noise=0.05)

    def first(count: int) -> Distances:
        part = distances
        for name in distances.names[count:]:
            part = removed(part, name)
        return part

    state = state_of(first(15))
    for count in range(15, 45):
        larger = first(count + 1)
        spot = place(state.collaboration, larger.matrix[-1, :-1], larger.quantities[-1], name=larger.names[-1])
        labels = state.collaboration.assignment
        labels = np.append(labels, labels.max() + 1 if spot.coalition is None else spot.coalition)
        state = State(larger, _valued(larger, labels))
    found = consider(distances, state.collaboration.assignment, 5.0, {})
    assert found.advised or found.cost <= 0.02


def _valued(distances: Distances, labels: np.ndarray) -> Collaboration:
    from fedcollab.coalitions.constraints import Constraints
    from fedcollab.coalitions.inputs import read_inputs
    from fedcollab.coalitions.solve import Found, collaboration_of

    return collaboration_of(read_inputs(distances, None), Constraints(), 5.0, Found(labels, 0.0, False, "placed"))


# leaving


def test_leaving_says_what_staying_costs() -> None:
    state = state_of(planted([0, 0, 0, 1, 1, 1]))
    found = leave(state, "c001")
    assert found.partners == ["c000", "c002"]
    assert found.after.collaboration.coalitions == [["c000", "c002"], ["c003", "c004", "c005"]]
    assert "c001 left c000, c002, who stay together." in str(found)
    assert not found.regrouping.advised
    json.dumps(found.as_dict())


def test_when_the_one_that_held_them_together_leaves_regrouping_is_advised() -> None:
    raw = np.full((4, 4), 0.5)
    raw[3] = raw[:, 3] = 0.02
    np.fill_diagonal(raw, 0)
    state = state_of(Distances(raw, tuple("abcd"), np.array([100, 100, 100, 10000])), C=6.0)
    assert len(state.collaboration.coalitions) == 1
    found = leave(state, "d")
    assert found.regrouping.advised
    assert found.regrouping.best.coalitions == [["a"], ["b"], ["c"]]
    assert found.regrouping.cost > 0.02


def test_constraints_go_with_the_clients() -> None:
    limits = {"must_link": [["c000", "c003"]], "cannot_link": [["c001", "c002"]], "min_size": 2}
    state = state_of(planted([0, 0, 0, 1, 1, 1, 1]), **limits)
    assert limits_of(state.collaboration) == {**limits, "max_size": None}
    assert limits_of(state.collaboration, without="c003")["must_link"] == []
    pair = state_of(planted([0, 0, 1, 1, 1]), min_size=2)
    found = leave(pair, "c001")
    assert not found.regrouping.admissible
    assert "no longer respect the constraints" in str(found)


@pytest.mark.parametrize(("name", "line"), [("x", "did you mean|must be one of"), ("c000", "federation of one")])
def test_who_cannot_leave(name: str, line: str) -> None:
    with pytest.raises(InputError, match=line):
        leave(state_of(planted([0, 0])), name)


def test_the_coalition_can_be_trained_without_the_client(fitted: Fitted) -> None:
    store, state = open_state(fitted.settings.run_dir)
    staying = federate([client for client in members() if client.name != "d"], schema=fitted.federation.schema)
    kept = leave(state, "d")
    assert kept.trained.unchanged == list("abcef")
    found = leave(state, "d", federation=staying, retrain=True, training=Training(scratch=True, rounds=3))
    assert found.trained.unchanged == list("abc")
    keep_leaving(store, state, found)
    _, after = open_state(store.path)
    assert after.names == tuple("abcef")
    assert after.results["coalitions"].coalitions == [["a", "b", "c"], ["e", "f"]]
    assert after.results["local"].names == tuple("abcef")
    assert "d" not in store.config()["clients"]


# change


def test_the_same_data_are_no_change_and_other_data_are(fitted: Fitted) -> None:
    store, state = open_state(fitted.settings.run_dir)
    same = check(state, fitted.federation, ["f"])
    assert not same.changes[0].significant
    assert same.changes[0].pairs == 5
    assert not same.regrouping.advised
    redrawn = [*members()[:-1], blobs("f", SIZES["f"], flip=True, seed=9)]
    chance = check(state, federate(redrawn, schema=fitted.federation.schema), ["f"])
    assert not chance.changes[0].significant, "another sample of the same kind is no drift"
    assert np.array_equal(chance.after.distances.raw, state.distances.raw)
    drifted = [*members()[:-1], blobs("f", 60, flip=False, seed=9)]
    federation = federate(drifted, schema=fitted.federation.schema)
    found = check(state, federation, ["f"])
    assert found.changes[0].significant
    assert (found.changes[0].quantity_before, found.changes[0].quantity) == (25, 60)
    assert found.regrouping.advised
    assert found.regrouping.best.coalitions == [["a", "b", "c", "f"], ["d", "e"]]
    assert "Now:    a, b, c | d, e, f" in str(found)
    after, trained = apply(found, state, federation, Training(rounds=2))
    assert after.collaboration.coalitions == [["a", "b", "c", "f"], ["d", "e"]]
    assert trained.unchanged == []
    path = keep_change(store, state, after, found, trained, federation)
    assert path.name == "001-regroup.json"
    assert json.loads(path.read_text())["summary"] == "the data of f changed and 6 clients regrouped"
    assert open_state(store.path)[1].collaboration.coalitions == after.collaboration.coalitions


def test_a_grown_client_keeps_its_distances_but_counts_for_more() -> None:
    state = state_of(planted([0, 0, 0, 1, 1, 1]))
    row = replace(state.distances, quantities=state.distances.quantities * 4)
    from fedcollab.runs.membership import changes as change

    tested = change._test(state.distances, row, "c002", 5)
    assert not tested.significant
    assert tested.quantity == 4 * tested.quantity_before
    moved = planted([0, 0, 1, 1, 1, 1])
    assert change._test(state.distances, moved, "c002", 5).significant


def test_perfectly_told_apart_clients_have_an_uncertainty_too() -> None:
    from fedcollab.runs.membership import changes as change

    raw = np.array([[0, 1.0, 1.0], [1.0, 0, 1.0], [1.0, 1.0, 0]])
    before = Distances(raw, tuple("abc"), np.array([50, 50, 50]), stderr=0 * raw)
    after = replace(before, raw=raw * 0.96)
    found = change._test(before, after, "a", 2)
    assert np.isfinite(found.z)
    assert not found.significant
    assert change._error(replace(before, stderr=None), 0, [1, 2]) == pytest.approx([np.sqrt(1 / 50)] * 2)


def test_check_needs_everyone(fitted: Fitted) -> None:
    _, state = open_state(fitted.settings.run_dir)
    with pytest.raises(InputError, match="must be one of"):
        check(state, fitted.federation, ["nobody"])
    with pytest.raises(InputError, match="lacks 'f'"):
        check(state, federate(members()[:-1], schema=fitted.federation.schema), ["a"])


# history


def test_every_collaboration_is_kept_with_date_cause_and_what_changed(fitted: Fitted, tmp_path: Path) -> None:
    run = tmp_path / "run"
    old = Collaboration.load(run / "collaboration.json")
    fitted.join(blobs("g", 30, flip=True))
    store, state = open_state(run)
    keep_leaving(store, state, leave(state, "a"))
    listed = entries(store)
    assert [entry["cause"] for entry in listed] == ["run", "join g", "leave a"]
    assert [entry["summary"] for entry in listed] == ["the first collaboration", "g joined d, e, f", "a left b, c"]
    assert all(entry["date"].startswith("20") and (run / entry["file"]).is_file() for entry in listed)
    first, second, third = (json.loads((run / entry["file"]).read_text()) for entry in listed)
    assert first["coalitions"] == second["coalitions_before"] == old.coalitions
    assert first["collaboration"]["objective"] == old.objective
    assert third["coalitions"] == [["b", "c"], ["d", "e", "f", "g"]]
    assert second["details"]["pairs_estimated"] == 6
    assert (run / "history/001-path.json").is_file()
    assert not (run / "path.json").exists(), "it was drawn for other clients"
    assert (run / "history/001-training-global/training.json").is_file()
    assert not (run / "history/.next").exists()


def test_a_change_that_nobody_looked_at_is_not_forgotten(fitted: Fitted, tmp_path: Path) -> None:
    store, state = open_state(tmp_path / "run")
    seen = store.config()["clients"]
    other = federate(
        [*members()[:-1], blobs("f", 30, flip=True, seed=4), blobs("g", 30)], schema=fitted.federation.schema
    )
    keep_joining(store, state, join(state, other, "g", training=Training(rounds=1)), other)
    now = store.config()["clients"]
    assert now.keys() - seen.keys() == {"g"}
    assert {name: now[name] for name in seen} == seen


def test_a_killed_change_is_completed_or_forgotten(fitted: Fitted, monkeypatch: pytest.MonkeyPatch) -> None:
    store, state = open_state(fitted.settings.run_dir)
    left = leave(state, "a")
    moves: list[str] = []
    replace_file = transaction.os.replace

    def killed(source: Path, target: Path) -> None:
        if Path(target).parent != Path(store.path) / transaction.NEXT and ".next" not in Path(target).parts:
            moves.append(str(target))
            if len(moves) == 3:
                raise KeyboardInterrupt
        replace_file(source, target)

    monkeypatch.setattr(transaction.os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        keep_leaving(store, state, left)
    monkeypatch.setattr(transaction.os, "replace", replace_file)
    _, after = open_state(store.path)
    assert after.names == tuple("bcdef")
    assert after.results["coalitions"].names == after.collaboration.names == after.names
    assert entries(store)[-1]["cause"] == "leave a"

    half = store.file(transaction.NEXT)
    half.mkdir(parents=True)
    (half / "distances.json").write_text("half of it")
    _, same = open_state(store.path)
    assert same.names == after.names
    assert not half.exists()


def test_folders_that_are_no_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no run\.json"):
        open_state(tmp_path)
    assert entries(Run(tmp_path)) == []


def test_models_of_another_size_are_refused(fitted: Fitted) -> None:
    from fedcollab.runs.membership.retraining import retrain

    result = TrainingResult.load(Path(fitted.settings.run_dir) / "training/coalitions/training.json")
    cut = replace(result, models={"last": result.models["last"][:, :-1]})
    with pytest.raises(InputError, match="the saved model has 9 weights; the run's model has 10"):
        retrain(fitted.federation, cut, ["a", "b"])
