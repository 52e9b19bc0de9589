"""Clients come and change where silos serve approved plans alone: what a join and a check may ask."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("msgspec")
pytest.importorskip("cryptography")

from fedcollab.cli import cli
from fedcollab.data import ClientData
from fedcollab.errors import InputError, Paused
from fedcollab.federation import federate
from fedcollab.flower import FederationFolder, approve_plan, make_plan, plan_check, plan_join
from fedcollab.flower.coordinator.change_plans import starts_of, training_of
from fedcollab.flower.silo.config import SiloConfig, init_silo
from fedcollab.flower.silo.serving import silo_limits
from fedcollab.runs import FedCollab, membership
from fedcollab.silo.plans import Approved, Plan, read_plan
from fedcollab.silo.review import review
from fedcollab.training import retrain
from fedcollab.wire import Wire
from fedcollab.wire.limits import Limits

from ..conftest import blobs
from .test_guard import EXACT, Guarded

SIZES = {"a": 80, "b": 70, "c": 60, "d": 80, "e": 70, "f": 60}
HOW: dict[str, Any] = {"model": "logistic", "rounds": 3, "lr": 0.1, "stopping": "none"}
NEWCOMER = blobs("g", 60, flip=True)
pytestmark = pytest.mark.filterwarnings("ignore::fedcollab.errors.FedcollabWarning")


def members(**changed: ClientData) -> list[ClientData]:
    return [changed.get(name, blobs(name, size, flip=name in "def")) for name, size in SIZES.items()]


def admitted(folder: Path, names: str) -> FederationFolder:
    """A federation with these silos, each with a key of its own."""
    federation = FederationFolder.init(folder, "127.0.0.1", 9000)
    for name in names:
        silo = folder.parent / "silos" / name
        ClientData(name, np.zeros((4, 2)), [0, 1, 0, 1]).save(silo / "data.npz")
        _, public = init_silo(silo, name, silo / "data.npz", None, folder / "invitation.toml", "usual")
        assert public is not None
        federation.admit(public, name)
    return federation


class Study:
    """A run whose silos require plans and have approved a look and a training; and the same run on plain `wire`."""

    def __init__(self, root: Path, *, exact: bool) -> None:
        self.root, self.exact = root, EXACT if exact else {}
        self.federation = admitted(root / "fed", "abcdefg")
        look = make_plan(self.federation, "look")
        silos = self.silos(members(), [look])
        self.fitted = FedCollab(C=5.0, distance="few-round", run_dir=root / "run").fit(silos)
        assert self.fitted.collaboration.coalitions == [["a", "b", "c"], ["d", "e", "f"]]
        self.approve(silos, look, self.train_plan())
        self.fitted.train("fedavg", **HOW)
        self.before = silos

    def train_plan(self) -> Plan:
        from fedcollab.silo.plans import Training

        how = Training("logistic", "fedavg", batch_size=32, rounds=3, lr=0.1, options={})
        return make_plan(self.federation, "train", training=how, coalitions=[["a", "b", "c"], ["d", "e", "f"]])

    def approve(self, silos: Guarded, *plans: Plan) -> None:
        approved = [Approved(plan, "2026-01-01T00:00:00+00:00") for plan in plans]
        silos.guards = {name: type(guard)(guard.log, guard.limits, approved) for name, guard in silos.guards.items()}

    def silos(self, clients: list[ClientData], plans: list[Plan]) -> Guarded:
        """These clients as silos, with what they have kept."""
        limits = Limits(min_samples=5, min_batch=5, require_plan=True, **self.exact)
        silos = Guarded(clients, self.root / "state", limits)
        if hasattr(self, "before"):
            silos._state |= {name: state for name, state in self.before._state.items() if name in silos.names}
        self.approve(silos, *plans)
        return silos

    def state(self) -> tuple[Any, Any]:
        return membership.open_state(self.root / "run")

    def prepared(self, clients: list[ClientData], *plans: Plan) -> Any:
        run, _ = self.state()
        return federate(self.silos(clients, list(plans)), schema=run.schema())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return Study(tmp_path_factory.mktemp("study"), exact=True)


@pytest.fixture
def study(made: Study, tmp_path: Path) -> Study:
    """A fresh copy."""
    shutil.copytree(made.root, tmp_path / "study")
    fresh = object.__new__(Study)
    fresh.root, fresh.exact, fresh.before = tmp_path / "study", made.exact, made.before
    fresh.federation = FederationFolder.read(tmp_path / "study" / "fed")
    return fresh


def entries(silos: Any, name: str, plan: Plan) -> list[dict[str, Any]]:
    return [entry for entry in silos.guards[name].log.entries() if entry.get("plan") == plan.digest]


def test_a_join_under_its_plan_is_that_without_plans(study: Study) -> None:
    run, state = study.state()
    plan = plan_join(study.federation, run.path, "g")
    assert set(plan.partners) == set("abcdefg")
    assert plan.coalitions == (("a", "b", "c", "g"), ("d", "e", "f", "g"))
    federation = study.prepared([*members(), NEWCOMER], plan)
    found = membership.join(state, federation, "g")
    assert found.collaboration.coalitions == [["a", "b", "c"], ["d", "e", "f", "g"]]
    plain = membership.join(state, federate(Wire([*members(), NEWCOMER]), schema=run.schema()), "g")
    np.testing.assert_allclose(found.training.models["last"], plain.training.models["last"], atol=1e-6)

    silos = federation.runtime
    for name in "abcdefg":
        mine = entries(silos, name, plan)
        actions = [entry["action"] for entry in mine]
        spent = sum(entry["cost"].get("models", 0) for entry in mine if entry["action"] == "few-validate")
        assert spent == (6 if name == "g" else 1), "one pair each: no two partners are compared"
        assert ("train" in actions) == (name in "defg"), "nobody else is asked to train"
    kept = membership.keep_joining(run, state, found, federation)
    assert json.loads(kept.read_text())["cause"] == "join g"
    last = silos.guards["a"].log.entries()[-1]["action"]
    assert last == "few-validate", "nor for a checksum afterwards"


def test_without_a_plan_a_join_is_refused_and_nothing_changes(study: Study) -> None:
    run, state = study.state()
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    look, train = make_plan(study.federation, "look"), study.train_plan()
    with pytest.raises(Paused, match="none is approved"):
        study.prepared([*members(), NEWCOMER])
    federation = study.prepared([*members(), NEWCOMER], look, train)
    with pytest.raises(Paused, match=r"`g` \('train' is in no plan .* the plan has other coalitions\)"):
        membership.join(state, federation, "g")
    federation = study.prepared([*members(), NEWCOMER], look, plan_join(study.federation, run.path, "g"))
    newcomer = federation.runtime.guards["g"]
    federation.runtime.guards["g"] = type(newcomer)(newcomer.log, newcomer.limits, newcomer.plans[:1])
    with pytest.raises(Paused, match=r"'g' took no part in training .*; nothing is changed"):
        membership.join(state, federation, "g")  # its coalition would go on without it
    assert before == {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}


def test_a_join_plan_serves_that_newcomer_and_those_models_alone(study: Study) -> None:
    run, state = study.state()
    plan = plan_join(study.federation, run.path, "g")
    federation = study.prepared([*members(), NEWCOMER], plan)
    result = state.results["coalitions"]
    with pytest.raises(Paused, match="the plan trains no coalition without 'g'"):
        retrain(federation, result, ["a", "b", "c"])
    with pytest.raises(Paused, match="the plan has other coalitions"):
        retrain(federation, result, ["a", "f", "g"])
    other = retrain(federate(Wire(members()), schema=run.schema()), result, ["d", "e", "f"], rounds=5)
    with pytest.raises(Paused, match="nor from one that its plan names"):
        retrain(federation, other, ["d", "e", "f", "g"])
    assert retrain(federation, result, ["d", "e", "f", "g"]).failures == []


def test_a_check_under_its_plan(study: Study) -> None:
    run, state = study.state()
    changed = blobs("f", 90, flip=False, seed=5)
    plan = plan_check(study.federation, run.path)
    federation = study.prepared(members(f=changed), plan)
    found = membership.check(state, federation, ["f"])
    assert found.regrouping.advised
    assert found.regrouping.best.coalitions == [["a", "b", "c", "f"], ["d", "e"]]
    with pytest.raises(Paused, match="the plan trains no model"):
        membership.apply(found, state, federation)
    trains = plan_check(study.federation, run.path, apply=True)
    federation = study.prepared(members(f=changed), trains)
    after, trained = membership.apply(found, state, federation)
    assert trained.again == [["a", "b", "c", "f"], ["d", "e"]]
    assert after.results["coalitions"].failures == []


def test_the_plans_say_how_the_run_was_trained(study: Study) -> None:
    _, state = study.state()
    result = state.results["coalitions"]
    how = training_of(result)
    assert (how.model, how.algorithm, how.rounds, how.lr, how.options) == ("logistic", "fedavg", 3, 0.1, {})
    plan = plan_join(study.federation, study.root / "run", "g")
    assert plan.starts == starts_of(result)
    assert plan.comparison_alone
    untrained = study.root / "untrained"
    shutil.copytree(study.root / "run", untrained)
    shutil.rmtree(untrained / "training")
    looks = plan_join(study.federation, untrained, "g")
    assert (looks.training, looks.starts, looks.coalitions) == (None, (), ())
    for wrong, why in (
        (lambda: plan_join(study.federation, study.root / "run", "a"), r"`--client` \(='a'\) is in this run already"),
        (lambda: plan_join(study.federation, study.root / "run", "z"), "no silo 'z' is admitted"),
        (lambda: plan_check(study.federation, untrained, apply=True), "no training in coalitions that could go on"),
    ):
        with pytest.raises(InputError, match=why):
            wrong()


def test_what_a_join_plan_must_say() -> None:
    content = {"study": "s", "kind": "join", "partners": {"a": "", "g": ""}, "budget": {}, "newcomer": "g"}
    assert read_plan(content).newcomer == "g"
    for changed in ({"newcomer": ""}, {"newcomer": "z"}, {"kind": "look"}):
        with pytest.raises(ValueError, match="must name one of the partners as the `newcomer`"):
            read_plan({**content, **changed})


def test_a_plan_without_a_newcomer_keeps_the_digest_that_it_had() -> None:
    """Made by the version before there were newcomers: silos have signed it."""
    plan = Plan("study", "look", {"a": "", "b": ""}, {"models": 3}, methods=("few-round",))
    assert plan.digest == "a7ef372c545e8874901fb1704b6f9b157332f13e91d9f0831ffb606709b999ca"


def test_a_join_and_a_check_in_plain_words(study: Study) -> None:
    plan = plan_join(study.federation, study.root / "run", "g")
    mine = starts_of(study.state()[1].results["coalitions"])[1]
    text = "\n".join(review(plan, Limits(), [], [], own=[mine]))
    assert "g joins. It is compared with each partner (few-round), no two partners with each other." in text
    assert "Coalitions: a, b, c, g; d, e, f, g." in text
    assert "Training may start from the model that this silo has from its last training." in text
    assert f"1 model(s) of the coordinator's: ask where they come from (SHA-256 {plan.starts[0][:16]})" in text
    assert "g also trains alone, for comparison" in text
    assert "few-validate" in text
    assert "training: train (" in text
    check = "\n".join(review(plan_check(study.federation, study.root / "run"), Limits(), [], []))
    assert "Each silo says by a checksum whether its data changed" in check
    assert "Nothing is trained." in check
    assert "training: train (" not in check


def test_the_commands(study: Study) -> None:
    from click.testing import CliRunner

    def run(*words: object) -> str:
        done = CliRunner().invoke(cli, list(map(str, words)), catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    fed, folder, plan = study.root / "fed", study.root / "run", study.root / "join.json"
    shown = run("federation", "plan", fed, "join", "--run", folder, "--client", "g", "-o", plan)
    assert "(join of 'fed')" in shown
    for name in "ag":
        config = study.root / "silos" / name / "silo.toml"
        assert "g joins." in run("silo", "review", plan, "--config", config)
        approve_plan(SiloConfig.read(config), Plan.load(plan), silo_limits(SiloConfig.read(config)))
    assert "(check of 'fed')" in run("federation", "plan", fed, "check", "--run", folder, "--apply", "-o", plan)
    out = ("-o", plan)
    for words, line in (
        (("join", "--run", folder), "a join plan needs --run RUN_DIR and --client NAME"),
        (("check",), "a check plan needs --run RUN_DIR"),
        (("check", "--run", folder, "--client", "g"), "`--client` does not belong to a check plan"),
        (("join", "--run", folder, "--client", "g", "--lr", 1), "`--lr` does not belong to a join plan; how models"),
        (("train", "--run", folder), "`--run` does not belong to a train plan"),
    ):
        with pytest.raises(InputError, match=line):
            run("federation", "plan", fed, *words, *out)
