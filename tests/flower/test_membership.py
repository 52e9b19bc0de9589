"""A silo joins, is checked and leaves by command: real silos with state on disk and signed plans, in one process.

What Flower carries is the business of tests/federation; here messages go to the silos' side by a function call.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("flwr")

from click.testing import CliRunner, Result

from fedcollab import flower
from fedcollab.cli import cli
from fedcollab.data import ClientData
from fedcollab.errors import InputError, Paused
from fedcollab.federation import federate
from fedcollab.flower import FederationFolder, SiloConfig, approve_plan, init_silo, own_model, silo_limits
from fedcollab.flower.envelope import Envelope
from fedcollab.flower.remote import Found, RemoteRuntime, Returned
from fedcollab.flower.silo.client_app import reply_to
from fedcollab.flower.silo.state_store import StateStore
from fedcollab.runs import FedCollab, membership
from fedcollab.runs.membership.retraining import merged
from fedcollab.silo.audit import Audit
from fedcollab.silo.plans import Plan
from fedcollab.training import TrainingResult, load_model, retrain, train
from fedcollab.wire import Wire
from fedcollab.wire.absence import Policy

from ..conftest import blobs

SIZES = {"north": 120, "south": 80, "east": 120, "west": 80}
COAST = blobs("coast", 100, flip=True)
#: so that what silos send can be compared to the last digit with a runtime that has no limits
EXACT = "round_measures = false\nblur_updates = false\nmin_batch = 1\n"
pytestmark = pytest.mark.filterwarnings("ignore::fedcollab.errors.FedcollabWarning")


class Silos(RemoteRuntime):
    """The coordinator's runtime over silos whose side runs in this process; `down` silos do not connect."""

    def __init__(self, root: Path, names: list[str], down: set[str], journal: Path | None) -> None:
        self.root = root
        there = [name for name in names if name not in down]
        super().__init__(names, Found(there, []), 1.0, Policy(), journal)

    def _exchange(self, action: str, sent: dict[str, bytes]) -> Returned:
        contents, failed = {}, {}
        for name, content in sent.items():
            config = SiloConfig.read(self.root / name / "silo.toml")
            try:
                contents[name] = reply_to(Envelope(action, name, "1", content), config, "1").content
            except InputError as error:
                failed[name] = str(error)
        return Returned(contents, {}, failed)


class Federation:
    """A federation's folder, its silos' folders, and the commands of both sides."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder, self.run = root, root / "fed", root / "run"
        self.down: set[str] = set()
        FederationFolder.init(self.folder, "127.0.0.1", 9000)
        for name, size in SIZES.items():
            self.add(blobs(name, size, flip=name in ("east", "west")), "open")

    def add(self, client: ClientData, preset: str) -> None:
        folder = self.root / client.name
        client.save(folder / "data.npz")
        init_silo(folder, client.name, folder / "data.npz", None, self.folder / "invitation.toml", preset)
        with (folder / "silo.toml").open("a") as config:
            config.write(EXACT)
        FederationFolder.read(self.folder).admit(folder / f"{client.name}.pub", client.name)

    @contextmanager
    def connect(self, folder: Path, *, names: list[str] | None = None, journal: Path | None = None) -> Iterator[Silos]:
        yield Silos(self.root, names or FederationFolder.read(folder).admitted, self.down, journal)

    def __call__(self, *words: object) -> Result:
        done = CliRunner().invoke(cli, list(map(str, words)))
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done

    def approve(self, plan: Path, *names: str) -> None:
        for name in names:
            config = SiloConfig.read(self.root / name / "silo.toml")
            approve_plan(config, Plan.load(plan), silo_limits(config))

    def answered(self, name: str, since: int = 0) -> list[str]:
        entries = Audit(self.root / name / "state" / "audit.jsonl").entries()
        return [entry["action"] for entry in entries[since:] if entry["outcome"] == "answered"]

    def groups(self) -> list[list[str]]:
        groups: list[list[str]] = json.loads((self.run / "collaboration.json").read_text())["coalitions"]
        return groups

    def clients(self) -> list[ClientData]:
        return [blobs(name, size, flip=name in ("east", "west")) for name, size in SIZES.items()]

    def wire(self, *more: ClientData) -> Wire:
        clients = [*self.clients(), *more]
        return Wire(clients, keys={c.name: StateStore(self.root / c.name / "state").key() for c in clients})


@pytest.fixture
def federation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Federation:
    """A federation of four silos that has trained in two coalitions."""
    made = Federation(tmp_path)
    monkeypatch.setattr(flower, "connect_federation", made.connect)
    on = ("--on", made.folder, "--quiet")
    made("estimate", *on, "-o", made.run / "distances.json", "--seed", 3)
    made("solve", made.run, "--C", 10, "-o", made.run)
    how = ("--model", "logistic", "--rounds", 5, "--stopping", "none", "--seed", 3, "--lr", 0.1)
    made("train", *on, "--coalitions", made.run, *how, "-o", made.run)
    assert (made.run / "training" / "coalitions" / "training.jsonl").is_file()
    return made


def test_a_silo_joins_is_checked_and_leaves(federation: Federation) -> None:
    run, on = federation.run, ("--on", federation.folder, "--quiet")
    with pytest.raises(InputError, match="no silo 'coast' is admitted"):
        federation("join", run, "--client", "coast", *on)
    federation.add(COAST, "usual")
    with pytest.raises(Paused, match=r"'coast' is not there .*none is approved"):
        federation("join", run, "--client", "coast", *on)
    assert not (run / "history").exists()

    plan = federation.root / "join.json"
    federation("federation", "plan", federation.folder, "join", "--run", run, "--client", "coast", "-o", plan)
    shown = federation("silo", "review", plan, "--config", federation.root / "coast" / "silo.toml").output
    assert "coast joins. It is compared" in shown
    theirs = federation("silo", "review", plan, "--config", federation.root / "east" / "silo.toml").output
    assert "Training may start from the model that this silo has from its last training." in theirs
    federation.approve(plan, "coast")
    before = membership.open_state(run)
    logged = {name: len(federation.answered(name)) for name in SIZES}
    answer = json.loads(federation("join", run, "--client", "coast", *on, "--json").output)
    assert answer["pairs_estimated"] == 4
    mine = next(group for group in answer["coalitions"] if "coast" in group)
    assert set(mine) == {"east", "west", "coast"}
    assert answer["training"]["unchanged"] == ["north", "south"]
    for name, since in logged.items():
        actions = federation.answered(name, since)
        assert ("train" in actions) == (name in mine), (name, actions)
        assert actions.count("few-validate") == 1
        assert "inspect" not in actions
    assert "inspect" in federation.answered("coast")

    same = membership.join(before[1], federate(federation.wire(COAST), schema=before[0].schema()), "coast", seed=3)
    result = TrainingResult.load(run / "training" / "coalitions" / "training.json")
    assert result.names == same.training.names
    np.testing.assert_allclose(result.models["last"], same.training.models["last"], rtol=0, atol=1e-5)
    np.testing.assert_allclose(before[1].distances.raw, membership.open_state(run)[1].distances.raw[:4, :4])
    predicted = own_model(federation.root / "coast" / "silo.toml").predict(COAST.x_test)
    assert np.mean(predicted == COAST.y_test) > 0.7
    told = json.loads(federation("explain", run, "--client", "coast", "--json").output)["differences"]
    assert set(told) == set(SIZES)

    assert "No client's data changed." in federation("check", run, *on).output
    blobs("coast", 160, flip=False).save(federation.root / "coast" / "data.npz")
    found = federation("check", run, *on, "--json")
    assert found.exit_code == 3
    (change,) = json.loads(found.output)["changes"]
    assert (change["client"], change["quantity_before"], change["quantity"]) == ("coast", 100, 160)
    federation("federation", "plan", federation.folder, "check", "--run", run, "--apply", "-o", plan)
    federation.approve(plan, "coast")
    assert federation("check", run, *on, "--apply").output.startswith("Regrouped.")
    groups = json.loads((run / "collaboration.json").read_text())["coalitions"]
    assert {frozenset(group) for group in groups} == {
        frozenset({"north", "south", "coast"}),
        frozenset({"east", "west"}),
    }
    gone = federation("leave", run, "--client", "coast", *on)
    assert "coast left north, south, who stay together." in gone.output
    assert "federation expel" in gone.output
    causes = [entry["cause"] for entry in json.loads((run / "history/index.json").read_text())["collaborations"]]
    assert causes == ["run", "join coast", "regroup", "leave coast"]
    again = json.loads(federation("leave", run, "--client", "west", "--retrain", *on, "--json").output)
    assert again["training"]["again"] == [["east"]]


def test_own_models_answer_at_their_silos_alone(federation: Federation) -> None:
    """Ditto's own models stay: the coordinator says so in a line, and each silo predicts with its own."""
    new, out = federation.root / "new.npz", federation.root / "out.csv"
    np.savez(new, x=COAST.x_test)
    how = ("--model", "logistic", "--rounds", 3, "--stopping", "none", "--seed", 3, "--lr", 0.1)
    config = federation.root / "north" / "silo.toml"
    shared = federation("predict", federation.run, "--client", "north", new).output
    assert shared == federation("silo", "predict", new, "--config", config).output, "the coalition's, on both sides"
    on = ("--on", federation.folder, "--quiet")
    federation("train", *on, "--coalitions", federation.run, "--algorithm", "ditto", *how, "-o", federation.run / "own")
    same = train(federate(federation.wire(), seed=3), federation.groups(), "ditto", "logistic",
                 rounds=3, stopping="none", seed=3, lr=0.1)  # fmt: skip
    told = federation("silo", "predict", new, "--config", config, "-o", out).output
    assert told == f"The model of north predicted {len(COAST.x_test)} rows: {out}\n"
    wanted = load_model(same, client="north").predict_proba(COAST.x_test)
    np.testing.assert_allclose(pd.read_csv(out)[["probability_0", "probability_1"]], wanted, atol=1e-5)
    (federation.run / "training" / "coalitions").rename(federation.root / "before")
    (federation.run / "own").rename(federation.run / "training" / "coalitions")
    with pytest.raises(
        InputError, match="own model of `north` stayed at its silo: there, `fedcollab silo predict FILE`"
    ):
        federation("predict", federation.run, "--client", "north", new)
    # Another run prepares the data otherwise: the model goes on with the preparation that it was trained with.
    federation("estimate", *on, "-o", federation.root / "later" / "distances.json", "--seed", 4, "--test-share", 0.4)
    after = json.loads(federation("silo", "predict", new, "--config", config, "--json").output)
    np.testing.assert_allclose(np.array(after["probability_1"]), wanted[:, 1], atol=1e-5)


def test_a_silo_that_is_down_stops_a_join_and_a_check(federation: Federation) -> None:
    federation.add(COAST, "open")
    federation.down = {"north"}
    before = {path: path.read_bytes() for path in federation.run.rglob("*.json")}
    for words in (("join", federation.run, "--client", "coast"), ("check", federation.run)):
        with pytest.raises(Paused, match=r"'north' is not there \(not connected in 1 s\); nothing is changed"):
            federation(*words, "--on", federation.folder, "--quiet")
    assert before == {path: path.read_bytes() for path in federation.run.rglob("*.json")}


def test_the_same_in_python(federation: Federation) -> None:
    """A newcomer without limits that ask for a plan still starts from no model that it does not know, but from new."""
    federation.add(COAST, "open")
    with federation.connect(federation.folder, names=list(SIZES)) as silos:
        fitted = FedCollab(C=10.0, seed=3).fit(silos)
        result = fitted.train("fedavg", "logistic", rounds=3, lr=0.1, stopping="none")
        with pytest.raises(InputError, match="the name of a silo, with all silos as `clients`"):
            fitted.join("coast")
    with federation.connect(federation.folder) as silos:
        with pytest.raises(Paused, match=r"'coast' took no part in training .*nor from one that its plan names"):
            fitted.join("coast", clients=silos, trained=result)
        joining = fitted.join("coast", clients=silos, trained=result, retrain=True)
    assert set(joining.collaboration.coalitions[joining.placement.coalition]) == {"east", "west", "coast"}
    assert joining.fitted.federation.names == ("coast", "east", "north", "south", "west")


def test_own_intercepts_go_on_from_the_models_that_stay_at_the_silos(federation: Federation) -> None:
    """Personal models never leave; in one process, where they are known, the same comes out. Twice: after a change the
    model of those who trained again is another training's."""
    how = {"rounds": 5, "lr": 0.3, "stopping": "none"}
    results = []
    for runtime in (lambda: Silos(federation.root, list(SIZES), set(), None), federation.wire):
        first = federate(runtime())
        changes = [train(first, [["north", "south"], ["east", "west"]], "own-intercept", "logistic", **how)]
        there = federate(runtime(), schema=first.schema)  # nothing of the training is in this process
        for _ in range(2):
            part = retrain(there, changes[-1], ["east", "west"], rounds=2)
            assert not part.failures
            changes.append(merged(changes[-1], [part], changes[0].names, changes[0].coalitions))
        results.append(changes)
    for carried, known in zip(*results, strict=True):
        np.testing.assert_allclose(carried.models["last"], known.models["last"], rtol=0, atol=1e-6)
        np.testing.assert_allclose(carried.reported_loss, known.reported_loss, rtol=0, atol=1e-6)
        assert "personal" not in carried.models
    again = [change.retrained for change in results[0]]
    assert [set(each) for each in again] == [set(), {"east", "west"}, {"east", "west"}]
    assert again[1]["east"] == again[1]["west"] != again[2]["east"]
    before = [own_bias(federation, name) for name in ("east", "west")]
    assert np.abs(before[0] - before[1]).max() > 1e-6  # the silos draw their batches with keys of their own
    still = replace(results[0][-1], settings={**results[0][-1].settings, "lr": 1e-12})  # too small to move a weight
    retrain(federate(Silos(federation.root, list(SIZES), set(), None), schema=there.schema), still, ["east", "west"])
    np.testing.assert_allclose([own_bias(federation, name) for name in ("east", "west")], before, atol=1e-9)


def own_bias(federation: Federation, name: str) -> np.ndarray:
    """The bias of the model that a silo uses."""
    return np.asarray(StateStore(federation.root / name / "state")["model"]["w"][-2:])


def test_few_samples_and_no_file_are_told_what_to_do(federation: Federation) -> None:
    few = blobs("few", 32)
    federation.add(few, "open")
    out = federation.root / "small" / "distances.json"
    on = ("--on", federation.folder, "--quiet", "-o", out)
    with pytest.raises(InputError, match=r"`--resume` completes a file, and `.*distances.json` does not exist"):
        federation("estimate", *on, "--resume")
    with pytest.warns(UserWarning, match=r"32 samples.*With fewer folds it takes part: `folds` of 3 \(`--folds 3`\)"):
        federation("estimate", *on)
    with pytest.raises(InputError, match=r"`--folds` \(=3\) is not that of `.*` \(=5\)"):
        federation("estimate", *on, "--resume", "--folds", 3)
    found = json.loads(federation("estimate", *on, "--folds", 3, "--json").output)
    assert found["settings"]["folds"] == 3
    assert np.isfinite(np.array(found["raw"], dtype=float)).all()
    with pytest.raises(InputError, match="`--trust` is for the data check"):
        federation("train", *on[:3], "--coalitions", "local", "--trust", "age", "-o", out.parent)
