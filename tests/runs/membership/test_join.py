"""A client comes: N pairs, a place by the objective, one coalition trains on, all other models are the same bytes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcollab.advice.fit import BoundFit
from fedcollab.coalitions import objective
from fedcollab.distances import estimate_distances
from fedcollab.distances.methods import cross
from fedcollab.errors import FedcollabWarning, InputError
from fedcollab.federation import federate, with_client
from fedcollab.runs.fitted import Fitted
from fedcollab.runs.membership import State, Training, join, open_state
from fedcollab.runs.membership.retraining import retrain
from fedcollab.runs.pipeline import FedCollab
from fedcollab.training import TrainingResult, load_model
from fedcollab.wire import Wire
from fedcollab.wire.action import Action

from ...conftest import blobs
from .conftest import members


def tensors(result: TrainingResult, name: str) -> str:
    """A checksum of the model that serves a client."""
    arrays = result.weights(client=name)
    return hashlib.sha256(b"".join(arrays[key].tobytes() for key in sorted(arrays))).hexdigest()


def test_only_the_newcomers_pairs_are_estimated(fitted: Fitted, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    design = cross.make_design

    def count(request, settings):
        asked.append(request.pairs)
        return design(request, settings)

    monkeypatch.setattr(cross, "make_design", count)
    joining = fitted.join(blobs("g", 30, flip=True))
    assert [sorted(pair) for pair in asked[0]] == [[name, "g"] for name in "abcdef"]
    assert len(asked) == 1
    assert joining.pairs == 6
    assert np.array_equal(joining.distances.raw[:-1, :-1], fitted.distances.raw)
    whole = estimate_distances(joining.fitted.federation)
    order = [whole.names.index(name) for name in joining.distances.names]
    assert np.allclose(whole.raw[np.ix_(order, order)], joining.distances.raw, atol=2e-6), (
        "as if all had been estimated"
    )


def test_it_is_placed_explained_and_only_its_coalition_trains(fitted: Fitted, tmp_path: Path) -> None:
    run = tmp_path / "run"
    before = TrainingResult.load(run / "training/coalitions/training.json")
    schema = (run / "schema.json").read_bytes()
    joining = fitted.join(blobs("g", 30, flip=True))
    assert joining.collaboration.coalitions == [["a", "b", "c"], ["d", "e", "f", "g"]]
    assert str(joining).startswith("g should join d, e, f: bound ")
    assert not joining.resolve_advised
    assert joining.collaboration.objective == pytest.approx(
        objective(joining.distances, None, joining.collaboration.assignment, 2.0)
    )
    after = TrainingResult.load(run / "training/coalitions/training.json")
    for name in "abc":
        assert tensors(after, name) == tensors(before, name), "byte-identical"
        assert after.accuracy[after.names.index(name)] == before.accuracy[before.names.index(name)]
    for name in "def":
        assert tensors(after, name) != tensors(before, name)
    assert joining.trained.unchanged == ["a", "b", "c"]
    assert joining.trained.rounds == 2
    assert after.coalitions == joining.collaboration.coalitions
    assert (run / "schema.json").read_bytes() == schema, "a newcomer does not change the schema"
    local = TrainingResult.load(run / "training/local/training.json")
    assert local.names == tuple("abcdefg")
    assert len(local.coalitions) == 7


def test_what_it_is_expected_to_gain_is_told(fitted: Fitted, tmp_path: Path) -> None:
    """By the bound fitted to the advice's measurements, if that explains enough."""
    newcomer = blobs("g", 30, flip=True)
    run, state = open_state(tmp_path / "run")
    federation = with_client(fitted.federation, newcomer)
    fit = BoundFit(a=2.0, b=0.5, explained=0.4, pairs=9)
    assert join(state, federation, "g").expected is None
    assert join(replace(state, fit=replace(fit, explained=0.01)), federation, "g").expected is None
    told = join(replace(state, fit=fit), federation, "g")
    assert told.expected == told.as_dict()["expected_gain"] == pytest.approx(told.placement.gain(2.0, 0.5))
    assert f"g is expected to gain {told.expected:.3f} in log loss there, against training alone" in str(told)
    assert run.advice() is None


def test_nobody_else_gets_a_message_while_it_trains(fitted: Fitted) -> None:
    asked: set[str] = set()
    federation = with_client(fitted.federation, blobs("g", 30, flip=True))
    carry = federation.runtime._call

    def spy(action: Action, messages: dict[str, Any]) -> dict[str, Any]:
        if action.name in ("train", "evaluate"):
            asked.update(messages)
        return carry(action, messages)

    federation.runtime._call = spy
    _, state = open_state(fitted.settings.run_dir)
    join(state, federation, "g", training=Training(rounds=1))
    assert asked == {"d", "e", "f", "g"}


def test_training_goes_on_from_the_saved_model(fitted: Fitted) -> None:
    result = TrainingResult.load(Path(fitted.settings.run_dir) / "training/coalitions/training.json")
    still = replace(result, settings={**result.settings, "lr": 1e-12})
    saved = result.weights(client="d")
    for scratch in (False, True):
        part = retrain(fitted.federation, still, ["c", "d", "e", "f"], scratch=scratch, rounds=1)
        same = [np.allclose(part.weights(client="c")[key], saved[key], atol=1e-9) for key in saved]
        assert all(same) is not scratch, "most of its samples were with d, e, f"


@pytest.mark.parametrize("rounds", [1, 5])
def test_trees_of_another_number_of_rounds(rounds: int, tmp_path: Path) -> None:
    """Fewer rounds than the run's used to end in a traceback, as did more; the others' models do the same as before."""
    made = [blobs(name, 30, flip=name in "cd") for name in "abcd"]
    fitted = FedCollab(distance="few-round", C=5.0, quiet=True).fit(made)
    trained = fitted.train(model="xgboost", model_options={"max_depth": 2}, rounds=3, stopping="none")
    state = State(fitted.distances, fitted.collaboration, {"coalitions": trained})
    newcomer = blobs("g", 30, flip=True)
    federation = federate([*made, newcomer], schema=fitted.federation.schema)
    found = join(state, federation, "g", training=Training(rounds=rounds))
    assert found.training is not None
    found.training.save(tmp_path / "training.json")
    after, before = TrainingResult.load(tmp_path), state.results["coalitions"]
    assert dict(after.layout)["feature"][0] == max(3, rounds)
    assert [len(after.models["last"]), after.rounds] == [2, [3, rounds]]
    rows = made[0].x[:9]
    same = load_model(before, client="a").predict_proba(rows)
    np.testing.assert_array_equal(load_model(after, client="a").predict_proba(rows), same)
    assert load_model(after, client="g").predict_proba(rows).shape == same.shape
    assert set(found.trained.unchanged) == {"a", "b"}  # type: ignore[union-attr]


def test_being_alone_is_said(fitted: Fitted) -> None:
    joining = fitted.join(blobs("h", 400, shift=5.0))
    assert joining.alone
    assert joining.collaboration.coalitions[-1] == ["h"]
    assert str(joining).startswith("h should stay alone")
    assert "Alone is best" in str(joining)
    assert joining.trained.unchanged == list("abcdef")
    assert joining.trained.rounds == 10, "there is no saved model to go on from"


def test_without_models_nothing_is_trained() -> None:
    fitted = FedCollab(C=2.0).fit(members())
    joining = fitted.join(blobs("g", 30, flip=True))
    assert joining.trained is None
    assert joining.training is None
    assert joining.fitted.collaboration.coalitions == [["a", "b", "c"], ["d", "e", "f", "g"]]
    result = joining.fitted.train(model="logistic", rounds=2, lr=0.1)
    again = joining.fitted.join(blobs("h", 20), trained=result, retrain=True)
    assert again.trained.rounds == 2
    assert again.training.names == (*"abcdefg", "h")
    assert again.trained.unchanged == list("defg")


def test_the_wire_runtime_agrees() -> None:
    found = []
    for runtime in ("vectorised", "wire"):
        options = {"repeats": 1, "rounds": 4, "replicates": 0}
        fitted = FedCollab(C=2.0, runtime=runtime, distance_options=options).fit(members()[1:4])
        found.append(fitted.join(blobs("g", 30, flip=True)))
    assert isinstance(found[1].fitted.federation.runtime, Wire)
    assert np.allclose(found[0].distances.raw, found[1].distances.raw, atol=1e-6)
    assert found[0].collaboration.coalitions == found[1].collaboration.coalitions


def test_personal_models_of_others_stay(tmp_path: Path) -> None:
    fitted = FedCollab(C=2.0, run_dir=tmp_path).fit(members())
    before = fitted.train("ditto", "logistic", rounds=3, lr=0.1)
    after = fitted.join(blobs("g", 30, flip=True)).training
    for name in "abc":
        mine = [result.models["personal"][result.names.index(name)].tobytes() for result in (before, after)]
        assert mine[0] == mine[1]
    assert after.personal_accuracy.shape == (7,)


def test_a_newcomer_that_does_not_fit_is_one_line(fitted: Fitted) -> None:
    strange = blobs("g", 30)
    for client, line in [
        (blobs("a", 30), "`client` (='a') must have a name of its own"),
        (type(strange)("g", strange.x, strange.y + 5), "client `g` has the label 5; the run knows 0, 1"),
        (
            type(strange)("g", strange.x[:, :3], strange.y),
            r"client `g` has features of shape \(3,\); the run has \(4,\)",
        ),
    ]:
        with pytest.raises(InputError, match=line.replace("(='a')", r"\(='a'\)")):
            fitted.join(client)


def test_tables_are_held_against_the_schema() -> None:
    pandas = pytest.importorskip("pandas")
    from fedcollab.data import ClientData

    def table(name: str, **columns: object) -> ClientData:
        frame = pandas.DataFrame({"age": [1.0, 2, 3, 4, 5, 6], "sex": list("fmfmfm"), **columns})
        return ClientData(name, frame[[key for key in frame if columns.get(key, 1) is not None]], [0, 1, 0, 1, 0, 1])

    schema = federate([table("a"), table("b")]).schema
    for client, line in [
        (table("n", sex=None), "client `n` has other columns than the run: lacks sex"),
        (table("n", dose=1.0), "client `n` has other columns than the run: has also dose"),
        (table("n", age=list("uvwxyz")), "column `age` is text at client `n` and numeric in the run"),
    ]:
        with pytest.raises(InputError, match=line):
            federate([table("a"), client], schema=schema)
    with pytest.warns(FedcollabWarning, match="column `sex` has values that the run does not know"):
        federate([table("a"), table("n", sex=list("fmxfmx"))], schema=schema)


def test_a_part_carries_messages_to_its_own_clients_alone() -> None:

    federation = federate(members())
    part = federation.part(["b", "a"])
    assert part.names == ("a", "b")
    assert part.runtime is federation.runtime
    assert part.quantities == {name: federation.quantities[name] for name in "ab"}
    assert set(part.call_all("fingerprint", {})) == {"a", "b"}
    with pytest.raises(InputError, match="'c', which is not a client"):
        part.call("fingerprint", {"c": {}})


def test_a_run_that_goes_on_keeps_its_schema_and_its_clients(fitted: Fitted, tmp_path: Path) -> None:
    joining = fitted.join(blobs("g", 30, flip=True))
    schema = json.loads((tmp_path / "run/schema.json").read_text())
    again = FedCollab(C=2.0, run_dir=tmp_path / "run").fit([*members(), blobs("g", 30, flip=True)])
    assert json.loads(again.federation.schema.to_json()) == schema
    assert again.collaboration.coalitions == joining.collaboration.coalitions
    with pytest.raises(InputError, match="is about other clients \\('g' is on one side only\\)"):
        FedCollab(C=2.0, run_dir=tmp_path / "run").fit(members())


def test_fingerprints_tell_equality() -> None:
    from fedcollab.federation.fingerprint import fingerprints

    federation = federate(members())
    other = federate([*members()[:-1], blobs("f", 25, flip=True, seed=1)], schema=federation.schema)
    first, second = fingerprints(federation), fingerprints(other)
    assert [name for name in first if first[name] != second[name]] == ["f"]
    assert fingerprints(federate(other.runtime, schema=federation.schema)) == second
