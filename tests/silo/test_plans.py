"""Plans: a silo that requires them serves what it has approved and nothing else, within their budget."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

pytest.importorskip("msgspec")
pytest.importorskip("cryptography")

from fedcollab.advice import advise
from fedcollab.advice.pilot import DRAWS
from fedcollab.cli import cli
from fedcollab.data import ClientData
from fedcollab.distances import estimate_distances
from fedcollab.errors import InputError, Paused
from fedcollab.federation import federate
from fedcollab.flower import FederationFolder, approve_plan, approved_plans, make_plan, withdraw_plan
from fedcollab.flower.coordinator.planning import needed_budget
from fedcollab.flower.silo.config import SiloConfig, init_silo
from fedcollab.flower.silo.serving import silo_guard, silo_limits
from fedcollab.silo.guard import Guard
from fedcollab.silo.plans import Approved, Plan, Training, read_plan
from fedcollab.silo.review import review
from fedcollab.training import honest, train
from fedcollab.wire import Wire
from fedcollab.wire.action import ACTIONS, SPENDS
from fedcollab.wire.limits import PRESETS, Limits, make_limits
from fedcollab.wire.message import pack, unpack
from fedcollab.wire.silo import Silo

from .test_guard import EXACT, Guarded

NAMES = "abcdef"
PARTNERS = dict.fromkeys(NAMES, "")
BUDGET = {"models": 60, "repeats": 6, "rounds": 30, "schemas": 2}
LOOK = Plan("study", "look", PARTNERS, BUDGET, methods=("few-round",))
TRAINING = Training("mlp", "fedavg", batch_size=32, rounds=3, lr=0.1, model_options={"widths": [4]}, options={})
COALITIONS = (("a", "b", "c"), ("d", "e", "f"))
TRAIN = Plan("study", "train", PARTNERS, BUDGET, training=TRAINING, coalitions=COALITIONS)
HOW: dict[str, Any] = {"model_options": {"widths": [4]}, "rounds": 2, "lr": 0.1, "batch_size": 32}


@pytest.fixture
def planned(clients: list[ClientData], tmp_path: Path) -> Any:
    """Return a runtime whose silos require plans and have approved these."""

    def make(*plans: Plan, kind: type[Guarded] = Guarded, **limited: Any) -> Guarded:
        limits = Limits(min_samples=5, min_batch=5, require_plan=True, **limited)
        runtime = kind(clients, tmp_path, limits)
        approved = [Approved(plan, "2026-01-01T00:00:00+00:00") for plan in plans]
        runtime.guards = {
            name: type(guard)(guard.log, guard.limits, approved) for name, guard in runtime.guards.items()
        }
        return runtime

    return make


def test_without_a_plan_nothing_is_served(planned: Any) -> None:
    with pytest.raises(
        Paused,
        match="'describe' is in no plan that this silo has approved; none is approved: `fedcollab federation plan`",
    ):
        federate(planned())


def test_a_look_serves_its_method_and_no_training(planned: Any, clients: list[ClientData]) -> None:
    runtime = planned(LOOK, **EXACT)
    found = estimate_distances(runtime, method="few-round", min_samples=5)
    same = estimate_distances(Wire(clients), method="few-round", min_samples=5)
    np.testing.assert_array_equal(found.raw, same.raw)
    with pytest.raises(Paused, match="the plan's distance methods are few-round"):
        estimate_distances(runtime, method="prototype", least=5)
    with pytest.raises(Paused, match=r"the plan \(look\) has no training"):
        train(runtime, "global", stopping="none", **HOW)
    entry = runtime.guards["a"].log.entries()[-1]
    assert (entry["outcome"], entry["plan"]) == ("refused", "")
    answered = [each for each in runtime.guards["a"].log.entries() if each["action"] == "few-validate"]
    assert answered[0]["plan"] == LOOK.digest
    assert answered[0]["step"] == "look: distances"
    assert answered[0]["cost"] == {"models": 5}


@pytest.mark.parametrize("plans", [(LOOK, TRAIN), (TRAIN, LOOK)])
def test_a_refusal_says_what_differs_in_the_plan_of_the_right_kind(planned: Any, plans: Any) -> None:
    with pytest.raises(Paused, match=r"the plan's step size is 0\.1, the message's 0\.2"):
        train(planned(*plans), COALITIONS, stopping="none", **{**HOW, "lr": 0.2})


def test_a_train_plan_gives_the_same_models_and_pins_everything(
    planned: Any, clients: list[ClientData], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(honest, "AT_LEAST", 8)  # without errors, honest updates give a few of 25 rows away
    runtime = planned(LOOK, TRAIN, **EXACT)
    result = train(runtime, COALITIONS, **HOW)
    plain = train(Wire(clients), COALITIONS, **HOW)
    np.testing.assert_array_equal(result.models["last"], plain.models["last"])
    np.testing.assert_array_equal(result.accuracy, plain.accuracy)
    for changed, why in (
        ({"lr": 0.2}, "the plan's step size is 0.1, the message's 0.2"),
        ({"batch_size": 16}, "the plan's batch size is 32, the message's 16"),
        ({"local_epochs": 2}, "the plan's local epochs is 1, the message's 2"),
        ({"algorithm": "fedprox"}, "the plan's algorithm is fedavg, the message's fedprox"),
        ({"model_options": {"widths": [40]}}, r"the plan's model options is {'widths': \[4\]}, the message's .*40"),
        ({"optimizer": "adam"}, "the plan's optimiser is sgd, the message's adam"),
        ({"weight_decay": 0.5}, "the plan's weight decay is 0, the message's 0.5"),
    ):
        with pytest.raises(Paused, match=why):
            train(runtime, COALITIONS, stopping="none", **{**HOW, **changed})
    with pytest.raises(Paused, match="the plan has other coalitions"):
        train(runtime, [["a", "d"], ["b", "e"], ["c", "f"]], stopping="none", **HOW)
    with pytest.raises(Paused, match="the plan trains nobody alone"):
        train(runtime, "local", stopping="none", **HOW)


class FewRounds(Guarded):
    """Guarded silos of a runtime whose rounds cost seconds, as in a real federation."""

    few_rounds = True


def test_a_look_with_candidates_allows_an_advice(
    planned: Any, clients: list[ClientData], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(honest, "AT_LEAST", 8)  # of 25 rows, honest updates give a few away
    how = {"methods": ("few-round",), "candidates": 6, "training": TRAINING}
    budget = needed_budget("look", len(NAMES), **how)
    runtime = planned(Plan("study", "look", PARTNERS, budget, **how), kind=FewRounds)
    advice = advise(runtime, model="mlp", **HOW)
    entries = [each for each in runtime.guards["a"].log.entries() if each["outcome"] == "answered"]
    steps = {each["action"]: each["step"] for each in entries}
    assert steps["ridge-sums"] == steps["train-alone"] == "look: advice"
    assert steps["train-folds"] == "look: choice of rounds"
    spent = [each["cost"] for each in entries if each["action"] in ("ridge-sums", "train-alone", "train-folds")]
    draws = sum(each["action"] == "train-alone" for each in entries)
    assert draws == DRAWS
    assert sum(cost.get("repeats", 0) for cost in spent) == 1 + draws, "the sums' folds, and those of all trainings"
    models = [(each["action"], each["cost"]["models"]) for each in entries if each["cost"].get("models")]
    assert models.count(("train-alone", 2)) == draws, "on all rows of a part, and on half of them"
    assert 0 < models.count(("train-folds", 1)) <= 6, "the last models of each candidate"
    assert set(advice.names) == set(NAMES)
    without = planned(Plan("study", "look", PARTNERS, budget, methods=("few-round",)), kind=FewRounds)
    with pytest.raises(Paused, match="the plan has no candidates to train"):
        advise(without, model="mlp", **HOW)


@pytest.mark.parametrize(("preset", "rounds"), [("cautious", 36), ("usual", 100), ("open", 100)])
def test_every_preset_allows_a_look_with_an_advice_and_a_training_after_it(preset: str, rounds: int) -> None:
    most = make_limits({"preset": preset}, ()).budget
    look = needed_budget(
        "look", 10, methods=("few-round",), candidates=6, training=Training("mlp", "fedavg", 32, rounds, 0.1)
    )
    trained = [needed_budget("train", 10, training=Training("mlp", "fedavg", 32, 100, 0.1))]
    if preset != "cautious":  # it asks for coalitions of three, and then own weights are not advised
        trained.append(needed_budget("train", 10, training=Training("mlp", "own-weights", 32, 100, 0.1)))
    for needed in (look, *trained):
        assert all(needed[kind] <= most[kind] for kind in SPENDS), needed


def test_where_the_plan_masks_updates_plain_ones_are_refused() -> None:
    masked = Training("mlp", "fedavg", batch_size=32, rounds=3, lr=0.1, secure_aggregation=True)
    plan = Plan("study", "train", PARTNERS, BUDGET, training=masked)
    setting = {"model": json.dumps({"name": "mlp", "options": {}}), "algorithm": "fedavg", "options": {}}
    setting |= {"batch_size": 32, "epochs": 1, "lr": 0.1, "optimizer": "sgd", "weight_decay": 0.0}
    message = {"setting": json.dumps(setting), "round": 1, "w": np.zeros(3), "coalition": list(NAMES)}
    assert "the plan's updates are masked" in str(plan.objection(ACTIONS["train"], message, "a"))
    assert plan.objection(ACTIONS["train"], {**message, "group": "g"}, "a") is None
    assert plan.objection(ACTIONS["evaluate"], message, "a") is None
    outside = {"group": "g", "coalition": ["a", "b", "z"], "threshold": 3}
    assert plan.objection(ACTIONS["secure-keys"], outside, "a") == "the plan has no partner 'z'"


def test_the_budget_is_spent_and_counted_over_runs(planned: Any) -> None:
    runtime = planned(LOOK, TRAIN)
    federation = federate(runtime)
    for run in range(15):
        runtime.run = str(run)
        train(federation, COALITIONS, stopping="none", seed=run, **HOW)
    assert runtime.guards["a"].spent(runtime.guards["a"].plans[1])["rounds"] == 30
    runtime.run = "15"
    with pytest.raises(Paused, match=f"the plan {TRAIN.digest[:12]} allows 30 updates"):
        train(federation, COALITIONS, stopping="none", seed=15, **HOW)


def test_the_same_message_again_costs_nothing(planned: Any) -> None:
    runtime = planned(LOOK)
    for _ in range(8):
        estimate_distances(runtime, method="few-round", min_samples=5)
    assert runtime.guards["a"].spent(runtime.guards["a"].plans[0])["repeats"] == 1


def test_a_review_hides_nothing() -> None:
    """A purpose that would clear the screen, or write lines of its own, is shown as it is."""
    crafted = msgspec.structs.replace(LOOK, purpose="heart\x1b[2J\x1b[8m\nIts budget: nothing\u202e\u2028")
    text = "\n".join(review(crafted, Limits(), [], []))
    assert "Purpose: heart\\x1b[2J\\x1b[8m\\x0aIts budget: nothing\\u202e\\u2028" in text
    assert text.isprintable() or set(text) - {"\n"} == {sign for sign in text if sign.isprintable()}


def test_a_clock_that_goes_back_gives_no_new_budget(
    clients: list[ClientData], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is spent counts although the clock shows a time before it; a plan from the future is not served."""
    silo = Silo(clients[0], key=b"k" * 32)
    guard = Guard.at(tmp_path, Limits(max_schemas=1, min_samples=1))
    schemas = [federate(Wire(clients), test_share=share).schema.to_json() for share in (0.2, 0.4)]
    assert guard.serve("prepare", pack({"schema": schemas[0]}), silo).done
    monkeypatch.setattr("fedcollab.silo.guard.now", lambda precision="seconds": "2001-01-01T00:00:00+00:00")
    assert "today, without a plan, allows 1" in str(
        unpack(guard.serve("prepare", pack({"schema": schemas[1]}), silo).content)
    )
    later = Guard(guard.log, Limits(require_plan=True), [Approved(LOOK, "2999-01-01T00:00:00+00:00")])
    served = later.serve("prepare", pack({"schema": schemas[0]}), silo)
    assert "approved later than this silo's clock shows" in str(unpack(served.content))


def test_a_plan_in_plain_words() -> None:
    entries = [
        {"outcome": "answered", "plan": LOOK.digest, "cost": {"models": 5}},
        {"outcome": "answered", "plan": "", "cost": {"rounds": 2}},
        {"outcome": "answered"},
        {"outcome": "refused"},
    ]
    lines = review(TRAIN, Limits(max_rounds=20), entries, [Approved(LOOK, "2026-01-01")])
    text = "\n".join(lines)
    assert "train in the study 'study'" in text
    assert "Coalitions: a, b, c; d, e, f." in text
    assert "Updates are not masked" in text
    assert "20 updates computed from its samples (asked: 30)" in text
    assert f"plan {LOOK.digest[:12]} (look of 'study'): 1 answers; 5 models tested on its samples" in text
    assert "without a plan: 2 answers; 2 updates computed from its samples" in text
    assert "in all: 3 answers; 5 models tested on its samples, 2 updates" in text
    assert "few-moments" not in text
    usual = "\n".join(review(LOOK, Limits(), [], []))
    assert "few-moments" in usual
    assert "wider than the preset" not in usual
    assert "wider than the preset 'usual'" in "\n".join(review(LOOK, make_limits({"preset": "open"}, ()), [], []))


def test_a_plan_of_trees_says_what_histograms_tell_and_asks_for_no_weights() -> None:
    training = Training(model="xgboost", algorithm="fedavg", batch_size=32, rounds=10, lr=0.1)
    trees = Plan("study", "train", {"a": "", "b": ""}, {"rounds": 22}, training=training)
    text = "\n".join(review(trees, Limits(), [], []))
    assert "sums of gradients by node and bin of each feature" in text
    assert "at least 10 samples (`min_samples`) and has an error of half its standard error." in text
    assert "training: train-trees (grew trees" in text
    assert "choice of rounds: train-folds" not in text
    assert "without an error" in "\n".join(review(trees, Limits(blur_updates=False), [], []))
    assert "train-trees" not in "\n".join(review(TRAIN, Limits(), [], []))


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"kind": "peek"}, "Invalid enum value 'peek'"),
        ({"methods": ["magic"]}, "unknown distance method 'magic'"),
        ({"budget": {"wishes": 3}}, "unknown budget 'wishes'"),
        ({"kind": "train"}, "must say how it trains"),
        ({"secret": 1}, "unknown field `secret`"),
        ({"study": ""}, "length >= 1"),
    ],
)
def test_a_broken_plan(changed: dict[str, Any], why: str, tmp_path: Path) -> None:
    LOOK.save(tmp_path / "look.json")
    content = json.loads((tmp_path / "look.json").read_text())
    assert read_plan(content) == LOOK
    (tmp_path / "broken.json").write_text(json.dumps({**content, **changed}))
    with pytest.raises(InputError, match=why):
        Plan.load(tmp_path / "broken.json")
    with pytest.raises(InputError, match="expected a plan"):
        Plan.load(tmp_path / "nowhere.json")


# Files and commands.


@pytest.fixture
def silo(tmp_path: Path) -> tuple[FederationFolder, SiloConfig, Path]:
    """Return a federation of two silos, and the config of one of them, with the preset `usual`."""
    federation = FederationFolder.init(tmp_path / "fed", "127.0.0.1", 9000)
    for name in ("north", "south"):
        ClientData(name, np.zeros((4, 2)), [0, 1, 0, 1]).save(tmp_path / name / "data.npz")
        folder, invitation = tmp_path / name, tmp_path / "fed" / "invitation.toml"
        _, public = init_silo(folder, name, folder / "data.npz", None, invitation, "usual")
        assert public is not None
        federation.admit(public, name)
    return federation, SiloConfig.read(tmp_path / "north" / "silo.toml"), tmp_path / "north" / "silo.toml"


def test_an_approval_is_signed_with_the_silos_key(silo: Any) -> None:
    federation, config, _ = silo
    plan = make_plan(federation, "look", purpose="who fits whom")
    assert len(plan.partners["north"]) == 64
    approval = approve_plan(config, plan, silo_limits(config))
    assert approval["signature"]
    assert [each.plan for each in approved_plans(config)] == [plan]
    assert silo_guard(config).limits.require_plan
    (path,) = (config.state / "plans").glob("*.json")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    content = json.loads(path.read_text())
    for changed in ({"approved": "2099"}, {"signature": "00"}, {"plan": {**content["plan"], "candidates": 9}}):
        path.write_text(json.dumps({**content, **changed}))
        assert approved_plans(config) == [], changed
    path.write_text(json.dumps(content))
    assert withdraw_plan(config, plan.digest[:8]) == plan
    assert approved_plans(config) == []


def test_what_a_silo_does_not_approve(silo: Any) -> None:
    federation, config, _ = silo
    plan = make_plan(federation, "train", training=TRAINING)
    limits = silo_limits(config)
    swapped = Plan("study", "look", {"north": "0" * 64, "south": ""}, BUDGET)
    for wrong, why in (
        (Plan("study", "look", {"south": ""}, BUDGET), "this silo is `north`"),
        (swapped, "names another key for `north`"),
        (Plan("study", "look", {"north": "", "south": ""}, {"models": 10**6}), "budget of models is 1000000"),
        (Plan("s", "train", plan.partners, {}, training=Training("mlp", "fedavg", 1, 1, 0.1)), "batch size is 1"),
    ):
        with pytest.raises(InputError, match=why):
            approve_plan(config, wrong, limits)
    with pytest.raises(InputError, match="this silo asks for 3 clients"):
        approve_plan(config, plan, make_limits(PRESETS["cautious"], ()))


def test_the_commands(silo: Any, tmp_path: Path) -> None:
    from click.testing import CliRunner

    _, _, path = silo

    def run(*words: object) -> str:
        done = CliRunner().invoke(cli, list(map(str, words)), catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    plan = tmp_path / "train.json"
    how = ("--model", "logistic", "--rounds", 5, "--alone", "--purpose", "to learn", "--algorithm", "fedprox")
    how = (*how, "--algorithm-option", "mu=0.2", "--optimizer", "adam")
    run("federation", "plan", tmp_path / "fed", "train", *how, "-o", plan)
    shown = run("silo", "review", plan, "--config", path)
    assert "model logistic, algorithm fedprox" in shown
    assert "optimiser adam" in shown
    assert "Options of the algorithm: mu = 0.2." in shown
    assert "This silo has answered nothing so far." in shown
    assert "Approved plan" in run("silo", "approve", plan, "--config", path)
    assert json.loads((tmp_path / "north.approval.json").read_text())["silo"] == "north"
    listed = json.loads(run("silo", "plans", "--config", path, "--json"))
    assert listed["required"]
    assert listed["plans"][0]["budget"]["rounds"] == 24
    assert "0 of 24 rounds" in run("silo", "plans", "--config", path)
    run("silo", "withdraw", listed["plans"][0]["plan"][:10], "--config", path)
    assert json.loads(run("silo", "plans", "--config", path, "--json"))["plans"] == []


def test_presets_are_where_limits_begin() -> None:
    assert make_limits({}, ()) == Limits()
    assert make_limits({"preset": "usual"}, ()) == Limits(require_plan=True)
    cautious = make_limits({"preset": "cautious", "min_samples": 50}, ())
    assert (cautious.min_samples, cautious.min_coalition, cautious.require_plan) == (50, 3, True)
    with pytest.raises(InputError, match="did you mean 'usual'"):
        make_limits({"preset": "usul"}, ())
