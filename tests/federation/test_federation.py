"""Between real processes: Flower carries what wire carries, strangers are refused, and nothing is left behind."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import shutil
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from fedcollab import FedCollab, advise, inspect, solve
from fedcollab.advice import Advice
from fedcollab.data import ClientData, Schema
from fedcollab.distances import Distances, estimate_distances
from fedcollab.errors import Paused
from fedcollab.federation import federate
from fedcollab.flower import FederationFolder, connect_federation, own_model, processes
from fedcollab.flower.coordinator import folder
from fedcollab.flower.keys import make_silo_key
from fedcollab.flower.protocol import PROTOCOL, version_difference
from fedcollab.flower.silo.state_store import StateStore
from fedcollab.silo.audit import Audit
from fedcollab.training import TrainingResult, compare, train
from fedcollab.training.models import Network
from fedcollab.wire import Wire
from fedcollab.wire.action import Action, Empty, Release, Step, free

from .conftest import COMMAND, Running, blobs, fedcollab, wait_for

NAMES = ("east", "north", "south", "west")
COALITIONS = [["north", "south"], ["east", "west"]]
TRAINING = {"rounds": 2, "lr": 0.1, "batch_size": 16, "seed": 3}
SAME = {"rtol": 0, "atol": 1e-5}


def same_training(over_flower: TrainingResult, over_wire: TrainingResult, running: Running) -> None:
    assert over_flower.names == over_wire.names
    assert over_flower.failures == over_wire.failures == []
    assert over_flower.rounds == over_wire.rounds
    assert set(over_flower.held_out) == set(over_wire.held_out)
    for name, curve in over_wire.held_out.items():
        np.testing.assert_allclose(over_flower.held_out[name], curve, **SAME)
    np.testing.assert_allclose(over_flower.models["last"], over_wire.models["last"], **SAME)
    for measure, values in over_wire.measures.items():
        np.testing.assert_allclose(over_flower.measures[measure], values, **SAME)
    for measure, values in over_wire.personal.items():
        np.testing.assert_allclose(over_flower.personal[measure], values, **SAME)
    for client in running.clients:
        mine, theirs = (logits(result, client) for result in (over_flower, over_wire))
        np.testing.assert_allclose(mine, theirs, **SAME)


def logits(result: TrainingResult, client: ClientData) -> np.ndarray:
    network = Network(json.dumps({key: result.model[key] for key in ("name", "options", "shape", "classes")}))
    row = result.assignment[result.names.index(client.name)]
    inputs = torch.from_numpy(Schema.from_json(json.dumps(result.schema)).features(client.x_test))
    with torch.no_grad():
        return network.point(torch.from_numpy(result.models["last"][row])).eval()(inputs).numpy()


def test_flower_carries_what_wire_carries(running: Running) -> None:
    wire = Wire(running.clients, keys=running.keys())
    with connect_federation(running.folder) as flower:
        assert flower.names == wire.names == ("east", "north", "south", "west")
        there, here = (federate(each, seed=3) for each in (flower, wire))
        assert there.schema == here.schema
        assert there.quantities == {client.name: client.quantity for client in running.clients}

        found = estimate_distances(there, seed=3)
        assert (found.method, found.cost["rounds"]) == ("few-round", 2)
        expected = estimate_distances(here, method="few-round", seed=3, min_samples=10)  # what silos insist on
        for part in ("raw", "matrix", "stderr"):
            np.testing.assert_allclose(getattr(found, part), getattr(expected, part), **SAME)
        answers = [solve(distances, C=10) for distances in (found, expected)]
        assert answers[0].coalitions == answers[1].coalitions

        before = flower.cost.rounds, flower.messages
        trained = {}
        for algorithm in ("fedavg", "ditto"):
            results = trained[algorithm] = [
                train(each, COALITIONS, algorithm, "mlp", **TRAINING) for each in (there, here)
            ]
            same_training(*results, running)
        kept = {name: StateStore(running.root / name / "state")["model"]["w"] for name in flower.names}
        for name, own in zip(flower.names, results[1].models["personal"], strict=True):
            np.testing.assert_allclose(kept[name], own, **SAME)  # Ditto's own models are equal too,
        assert "personal" not in results[0].models  # and stay at the silo
        calls = flower.cost.rounds - before[0]
        assert calls == 2 * (2 * (TRAINING["rounds"] + 1))  # rounds and a last measurement, for the folds and for good
        assert flower.messages - before[1] == 4 * calls  # one message a silo and round, whatever the coalitions
        assert flower.cost.down == wire.cost.down
        compared = [
            compare(each, {algorithm: pair[side] for algorithm, pair in trained.items()})
            for side, each in enumerate((there, here))
        ]
        np.testing.assert_array_equal(compared[0].right, compared[1].right)  # what silos kept of Ditto's own models,
        np.testing.assert_allclose(compared[0].spread, compared[1].spread, **SAME)  # and models that were sent to them
        assert np.isfinite(compared[0].right).all()

        with pytest.raises(Paused, match="0 of 4 client\\(s\\) answered `no-such`, 4 must: `east`"):
            flower.call_all(
                Action("no-such", "", Release.NOTHING, lambda message, silo: {}, Empty, Empty, Step.CHECK, free), {}
            )
        flower.call("fingerprint", {"east": {}, "west": {}})  # and goes on


def test_the_advice_is_that_of_wire_and_costs_the_rounds_of_one_training(running: Running) -> None:
    wire = Wire(running.clients, keys=running.keys())
    wire.few_rounds = True  # type: ignore[misc]  # propose from the same distances
    with connect_federation(running.folder) as flower:
        there, here = (federate(each, seed=3) for each in (flower, wire))
        distances = estimate_distances(there, seed=3)
        before = flower.messages
        asked = {"model": "logistic", "rounds": 3, "lr": 0.1, "seed": 3, "distances": distances}
        one, other = (advise(each, **asked) for each in (there, here))
        assert flower.messages - before == 4 * (1 + 1 + 3 + 1)  # sums, alone, the rounds and a last measurement
    assert (one.verdict, one.coalitions, one.plan) == (other.verdict, other.coalitions, other.plan)
    for mine, theirs in zip(one.candidates, other.candidates, strict=True):
        for name, row in mine.held_out.items():
            np.testing.assert_allclose(np.array(row, dtype=float), np.array(theirs.held_out[name], dtype=float), **SAME)


def test_state_stays_at_the_silo_and_the_path_of_its_data_too(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(running.root / running.clients[0].name)
    for page in ("federation.md", "tutorials/real-federation.md"):  # what they show is typed at a silo
        text = (Path(__file__).parents[2] / "docs" / page).read_text()
        shown = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "own_model" in block]
        exec(compile(shown[0], page, "exec"), {"x": running.clients[0].x_test})
    for client in running.clients:
        kept = {path.name for path in (running.root / client.name / "state").glob("*.safetensors")}
        assert {"prepare.safetensors", "train.safetensors", "model.safetensors"} <= kept
        predicted = own_model(running.root / client.name / "silo.toml").predict(client.x_test)
        assert np.mean(predicted == client.y_test) > 0.7
        written = [path for path in (running.root / client.name / "state").rglob("*") if path.is_file()]
        assert [path for path in written if path.stat().st_mode & 0o077] == []  # readable by their owner alone
    written = [path for path in running.folder.rglob("*") if path.is_file()]
    assert running.folder / "superlink.log" in written
    assert [path for path in written if b"secret-place" in path.read_bytes()] == []
    for process in (psutil.Process(handle.pid) for handle in FederationFolder.read(running.folder).handles):
        assert not in_memory(process.pid, b"secret-place")  # the SuperLink keeps messages in its memory alone
        assert in_memory(process.pid, b"127.0.0.1")


def in_memory(pid: int, text: bytes) -> bool:
    """Whether a process has these bytes in the memory that it writes to."""
    with Path(f"/proc/{pid}/maps").open() as maps, Path(f"/proc/{pid}/mem").open("rb", 0) as memory:
        for line in maps:
            place, rights, *_ = line.split()
            if rights.startswith("rw"):
                first, last = (int(each, 16) for each in place.split("-"))
                with contextlib.suppress(OSError):  # a region that cannot be read
                    memory.seek(first)
                    if text in memory.read(last - first):
                        return True
    return False


def test_the_commands_from_distances_to_report(running: Running) -> None:
    run = running.root / "run"
    fedcollab("estimate", "--on", running.folder, "-o", run / "distances.json", "--seed", 3)
    fedcollab("solve", run / "distances.json", "--C", "auto", "-o", run / "collaboration.json")
    training = ("--rounds", 1, "--model", "logistic", "--quiet", "--json")
    done = fedcollab(
        "train", "--on", running.folder, "--coalitions", run / "collaboration.json", *training,
        "-o", run / "training" / "coalitions",
    )  # fmt: skip
    assert json.loads(done.stdout)["coalitions"] == json.loads((run / "collaboration.json").read_text())["coalitions"]
    fedcollab("train", "--on", running.folder, "--coalitions", "local", *training, "-o", run / "training" / "local")
    assert json.loads((run / "training" / "comparison.json").read_text())["models"] == [
        "local",
        "coalitions",
        "majority",
    ]
    assert Distances.load(run / "distances.json").names == ("east", "north", "south", "west")
    assert json.loads((run / "run.json").read_text())["clients"]["north"]["quantity"] == 200
    fedcollab("report", run)
    page = (run / "report.html").read_text()
    assert "north" in page
    # whether anybody clearly gains by one round depends on the keys that the silos drew
    assert re.search(r"In coalitions: [^<]*training alone[^<]*\. On average [^<]* points", page)
    wrong = fedcollab(
        "train", "--on", running.folder, "--coalitions", "local", "-o", run / "x", "--clients", run, check=False
    )
    assert wrong.returncode == 2
    assert "give either --on FOLDER or clients" in wrong.stderr


def test_the_data_check_and_the_advice_by_command(running: Running) -> None:
    """Both say what they say of the same clients in one process, and training follows the advice without being told."""
    run, on = running.root / "advised", ("--on", running.folder)
    keys = running.keys()
    found = fedcollab("inspect", *on, "--json", "-o", run / "inspection.json", check=False)
    assert found.returncode in (0, 3), found.stderr
    checked = json.loads(found.stdout)
    expected = inspect(Wire(running.clients, keys=keys))
    told = [(each["client"], each["column"], each["kind"], each["severity"]) for each in checked["findings"]]
    assert told == [(each.client, each.column, each.kind, each.severity) for each in expected.findings]

    how = ("--model", "logistic", "--rounds", 3, "--lr", 0.1, "--seed", 3)
    shown = fedcollab("advise", *on, *how, "-o", run, "--quiet").stdout
    advice = Advice.load(run)
    wire = Wire(running.clients, keys=keys)
    wire.few_rounds = True  # type: ignore[misc]  # propose from the same distances
    here = FedCollab(seed=3).fit(wire).advise(model="logistic", rounds=3, lr=0.1)
    assert (advice.verdict, advice.coalitions, advice.plan) == (here.verdict, here.coalitions, here.plan)
    following = shlex.split(shown.rpartition("Next:    fedcollab ")[2])
    watch = [*COMMAND, "federation", "status", str(running.folder), "--watch", "--json"]
    with subprocess.Popen(
        watch,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    ) as watching:
        done = json.loads(fedcollab(*following, "--tensorboard", run / "events", "--quiet", "--json").stdout)
        watching.send_signal(signal.SIGINT)
        told = [json.loads(line) for line in watching.communicate()[0].splitlines()]
    assert set(told[0]["silos"]) >= set(NAMES)
    trainings = [stage for each in told for stage in each["stages"] if stage["stage"] == "training"]
    rounds = [stage["round"] for stage in trainings if stage["action"] == "train"]
    assert rounds == sorted(rounds)  # a round may be over before anyone has looked
    assert {1, 2, 3} >= set(rounds) != set()
    assert {name for stage in trainings for name in stage["asked"]} == set(NAMES)
    assert any(0 < len(stage["waiting"]) <= len(NAMES) for stage in trainings)  # who has not answered yet
    assert list((run / "events").rglob("events*"))
    assert done["coalitions"] == [list(group) for group in advice.coalitions]
    assert (done["model"]["name"], done["settings"]["rounds"], done["method"]) == ("logistic", 3, advice.algorithm)
    fedcollab("report", run)
    assert "north" in (run / "report.html").read_text()
    assert "north" in fedcollab("explain", run, "--client", "north").stdout


def test_an_unregistered_silo_is_refused(running: Running) -> None:
    stranger = blobs("stranger", 30, flip=False)
    running.add(stranger)
    running.start_silo("stranger")
    try:
        assert wait_for(lambda: "not registered there" in running.log("stranger"))
        assert "connected as node" not in running.log("stranger")
        assert wait_for(
            lambda: {running.status().get(name) for name in ("east", "north", "south", "west")} == {"online"}
        )
        assert "stranger" not in running.status()
    finally:
        running.stop_silo("stranger")


def test_only_what_silos_need_is_reachable(running: Running) -> None:
    """Else whoever reaches the port could start runs at every silo, and admit keys of their own."""
    federation = FederationFolder.read(running.folder)
    trust = ssl.create_default_context(cafile=str(running.folder / "keys" / "ca.crt"))
    kind = {"Content-Type": "application/protobuf"}
    for path, code in {
        "/v1/control/list-nodes": 404,
        "/v1/fleet/../control/list-nodes": 404,
        "/v1/fleet/pull-messages": 401,  # Flower's own answer to a caller without a key
    }.items():
        address = f"https://127.0.0.1:{federation.port}{path}"
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(urllib.request.Request(address, b"", kind), context=trust, timeout=60)
        assert refused.value.code == code
        refused.value.close()
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        urllib.request.urlopen(f"https://127.0.0.1:{federation.port}/", timeout=60)


def test_an_existing_flower_app_trains_inside_coalitions(running: Running) -> None:
    federation = FederationFolder.read(running.folder)
    app = Path(__file__).parents[2] / "examples" / "flower-coalitions"
    (started,) = federation.flwr(["run", str(app), "federation"])
    look = ["list", "federation", "--run-id", str(started["run-id"])]
    assert wait_for(lambda: federation.flwr(look)[0]["runs"][0]["status"].startswith("finished"))
    show = [Path(sys.executable).with_name("flwr"), "log", str(started["run-id"]), "federation", "--show"]
    log = subprocess.run(show, env=federation.env(), capture_output=True, text=True, timeout=300, check=True).stdout
    models = json.loads(log.partition("MODELS ")[2].splitlines()[0])
    expected = [fedavg([c for c in running.clients if c.name in members]) for members in COALITIONS]
    np.testing.assert_allclose(models, expected, rtol=0, atol=1e-6)
    assert models[0][0] > 0 > models[1][0]  # the two coalitions learnt opposite things


def fedavg(members: list) -> list[float]:
    """The example, without Flower."""
    w = np.zeros(4)
    for _ in range(2):
        updates = []
        for data in members:
            v = w
            for _ in range(20):
                v = v - 0.5 * data.x.T @ (1 / (1 + np.exp(-data.x @ v)) - data.y) / len(data.y)
            updates.append(v)
        w = np.average(updates, axis=0, weights=[len(data.y) for data in members])
    return w.tolist()


def test_another_protocol_version_is_refused_on_both_sides(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator's app is that of a later version; the silos refuse it before Flower installs it."""
    monkeypatch.setattr(folder, "APP", folder.APP.replace(f"protocol = {PROTOCOL}", f"protocol = {PROTOCOL + 1}"))
    line = version_difference(coordinator=PROTOCOL + 1, silo=PROTOCOL)
    with connect_federation(running.folder) as flower, pytest.raises(Paused) as told:
        flower.call_all("fingerprint", {})
    everyone = ", ".join(f"`{name}`" for name in sorted(client.name for client in running.clients))
    assert f"{everyone} ({line})" in str(told.value)
    for client in running.clients:
        assert f"fedcollab: {line}\n" in running.log(client.name)


def test_every_silo_has_logged_what_left_it(running: Running) -> None:
    for client in running.clients:
        log = Audit(running.root / client.name / "state" / "audit.jsonl")
        entries = log.entries()
        assert log.verify()[0] == len(entries)
        assert {"describe", "spread", "prepare", "few-moments", "few-validate"} <= {e["action"] for e in entries}
        assert {entry["action"] for entry in entries if entry["outcome"] != "answered"} <= {"no-such"}


THREE = ["east", "north", "south"]


@pytest.mark.filterwarnings("ignore::fedcollab.errors.FedcollabWarning")
def test_three_silos_train_under_masks(running: Running) -> None:
    """North was given its partners' keys: it trains with these silos, and not with another under the same name."""
    partners = running.root / "north" / "partners"
    partners.mkdir()
    for name in ("east", "south"):
        shutil.copy(running.root / name / f"{name}.pub", partners / f"{name}.pub")
    clients = [client for client in running.clients if client.name in THREE]
    expected = train(federate(Wire(clients, keys=running.keys()), seed=3), "global", **TRAINING)
    with connect_federation(running.folder, names=THREE) as flower:
        there = federate(flower, seed=3)
        before = flower.cost.rounds
        secure = train(there, "global", secure_aggregation=True, **TRAINING)
        assert secure.failures == []
        assert secure.rounds == expected.rounds
        np.testing.assert_allclose(secure.models["last"], expected.models["last"], **SAME)
        np.testing.assert_allclose(secure.loss, expected.loss, **SAME)
        # keys once; folds and rounds as without masks, because of three members none may drop out
        assert flower.cost.rounds - before <= 2 + 2 * (TRAINING["rounds"] + 1)
        make_silo_key(running.root / "impostor", "south")
        shutil.copy(running.root / "impostor.pub", partners / "south.pub")
        with pytest.raises(Paused, match="certificate of `south` is signed by another key than that of the silo"):
            train(there, "global", secure_aggregation=True, stopping="none", **TRAINING)
    shutil.rmtree(partners)
    for name in THREE:
        entries = Audit(running.root / name / "state" / "audit.jsonl").entries()
        sent = [entry["sent"] for entry in entries if entry["action"] == "train" and entry["outcome"] == "answered"]
        assert any(array.startswith("masked uint32") for arrays in sent for array in arrays)


def test_nothing_is_left_behind(running: Running) -> None:
    """Run after all others (see conftest): the federation is stopped, and every process that was started is gone."""
    handles = [*FederationFolder.read(running.folder).handles, *running.silos.values()]
    groups = [group for handle in handles for group in processes.process_groups(handle.pid)]
    assert len(groups) >= len(handles)
    running.stop()
    assert processes.running_groups(groups) == []
    status = json.loads(fedcollab("federation", "status", running.folder, "--json").stdout)
    assert not status["running"]
    assert not processes.listening("127.0.0.1", FederationFolder.read(running.folder).port)
    late = fedcollab("estimate", "--on", running.folder, "-o", running.root / "late.json", check=False)
    assert late.returncode == 2
    assert "does not run" in late.stderr
