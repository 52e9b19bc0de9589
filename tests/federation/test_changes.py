"""A silo joins a trained federation, is checked, and leaves, by name alone: what membership.md says in short."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from fedcollab.federation import federate
from fedcollab.flower import own_model
from fedcollab.flower.silo.state_store import StateStore
from fedcollab.runs import membership
from fedcollab.silo.audit import Audit
from fedcollab.training import TrainingResult, load_model
from fedcollab.wire import Wire

from .conftest import Running, blobs, fedcollab, wait_for

COAST = blobs("coast", 120, flip=True)


def admit_cautiously(running: Running) -> Path:
    """Start the newcomer's silo, which serves approved plans alone; return its config."""
    folder = running.root / "coast"
    COAST.save(folder / "secret-place.npz")
    fedcollab(
        "silo", "init", "--name", "coast", "--data", folder / "secret-place.npz",
        "--invitation", running.folder / "invitation.toml", "--folder", folder, "--preset", "usual",
    )  # fmt: skip
    with (folder / "silo.toml").open("a") as config:  # to be compared with a runtime that has no limits
        config.write("round_measures = false\nblur_updates = false\nmin_batch = 1\n")
    fedcollab("federation", "admit", running.folder, folder / "coast.pub")
    running.start_silo("coast")
    return folder / "silo.toml"


def answered(running: Running, name: str, since: int) -> list[dict[str, Any]]:
    log = Audit(running.root / name / "state" / "audit.jsonl").entries()
    return [entry for entry in log[since:] if entry["outcome"] == "answered"]


def test_a_silo_joins_is_checked_and_leaves(running: Running) -> None:
    run, on = running.root / "changes", ("--on", running.folder)
    fedcollab("estimate", *on, "-o", run / "distances.json", "--seed", 3)
    fedcollab("solve", run, "--C", 10, "-o", run)
    how = ("--model", "logistic", "--rounds", 2, "--stopping", "none", "--seed", 3)
    fedcollab("train", *on, "--coalitions", run, *how, "-o", run)
    early = fedcollab("join", run, "--client", "coast", *on, check=False)
    assert early.returncode == 2
    assert "no silo 'coast' is admitted" in early.stderr

    config = admit_cautiously(running)
    try:
        assert wait_for(lambda: running.status().get("coast") == "online")
        refused = fedcollab("join", run, "--client", "coast", *on, check=False)
        assert refused.returncode == 75
        assert "'coast' is not there" in refused.stderr
        assert "none is approved" in refused.stderr
        assert not (run / "history").exists()

        plan = running.root / "join.json"
        fedcollab("federation", "plan", running.folder, "join", "--run", run, "--client", "coast", "-o", plan)
        assert "coast joins. It is compared" in fedcollab("silo", "review", plan, "--config", config).stdout
        fedcollab("silo", "approve", plan, "--config", config)
        everyone = [*running.clients, COAST]
        before = membership.open_state(run)
        logged = {
            client.name: len(Audit(running.root / client.name / "state" / "audit.jsonl").entries())
            for client in everyone
        }
        answer = json.loads(fedcollab("join", run, "--client", "coast", *on, "--json").stdout)
        assert answer["pairs_estimated"] == 4
        mine = next(group for group in answer["coalitions"] if "coast" in group)
        assert set(mine) == {"east", "west", "coast"}
        assert answer["training"]["unchanged"] == ["north", "south"]
        for name, since in logged.items():
            actions = [entry["action"] for entry in answered(running, name, since)]
            assert ("train" in actions) == (name in mine), (name, actions)
            assert actions.count("few-validate") == 1
        keys = {**running.keys(), "coast": StateStore(running.root / "coast" / "state").key()}
        wire = federate(Wire(everyone, keys=keys), schema=before[0].schema())
        same = membership.join(before[1], wire, "coast", seed=3)
        result = TrainingResult.load(run / "training" / "coalitions" / "training.json")
        assert same.training.names == result.names
        np.testing.assert_allclose(result.models["last"], same.training.models["last"], rtol=0, atol=1e-5)
        trained = load_model(run, client="coast").predict(COAST.x_test)
        np.testing.assert_array_equal(own_model(config).predict(COAST.x_test), trained)

        told = json.loads(fedcollab("explain", run, "--client", "coast", "--json").stdout)["differences"]
        assert set(told) == {"east", "north", "south", "west"}
        watched = json.loads(fedcollab("federation", "status", running.folder, "--json").stdout)
        assert watched["stages"] == [], "every command has removed its note"
        assert "No client's data changed." in fedcollab("check", run, *on).stdout
        blobs("coast", 160, flip=False).save(running.root / "coast" / "secret-place.npz")
        found = fedcollab("check", run, *on, "--json", check=False)
        assert found.returncode == 3, found.stderr
        (change,) = json.loads(found.stdout)["changes"]
        assert (change["client"], change["quantity_before"], change["quantity"]) == ("coast", 120, 160)
        gone = fedcollab("leave", run, "--client", "coast", *on).stdout
        assert "coast left east, west, who stay together." in gone
        assert "federation expel" in gone
    finally:
        running.stop_silo("coast")
        fedcollab("federation", "expel", running.folder, "coast", check=False)
