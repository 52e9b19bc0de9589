"""Silos and the coordinator fail, as processes over Flower: what is computed stays, the end is as without the fault.

`west` is a silo that misbehaves when told to (`faulty_silo.py`); the others are ordinary. A silo is killed while it
works on a message: it says so, and goes on with nothing until it is dead.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcollab.data import Schema
from fedcollab.distances import Distances, estimate_distances
from fedcollab.federation import Federation, federate
from fedcollab.flower import FederationFolder, processes
from fedcollab.flower.silo.state_store import StateStore
from fedcollab.training import TrainingResult, checkpoint, train
from fedcollab.wire import Wire
from fedcollab.wire.absence import read

from .conftest import COMMAND, LIMIT, Running, fedcollab, wait_for
from .faulty_silo import FILE

SAME = {"rtol": 0, "atol": 1e-5}
DEADLINE = 60  # seconds; a killed silo costs a stage as many
WEST = "west"

pytestmark = pytest.mark.faults


class Shaky:
    """The federation, with a silo that does as it is told."""

    def __init__(self, running: Running) -> None:
        self.running, self.folder, self.run = running, running.folder, running.root / "faults"
        self.home = running.root / WEST
        self.settings = (self.folder / "federation.toml").read_text()

    def policy(self, **values: float) -> None:
        """What federation.toml says for the next command."""
        text = self.settings
        for key, value in {"deadline": DEADLINE, "retries": 0, "wait": 0, "patience": LIMIT, **values}.items():
            text = re.sub(rf"(?m)^{key} = \S+", f"{key} = {value}", text)
        (self.folder / "federation.toml").write_text(text)

    def plan(self, *faults: tuple[str, int | None, str]) -> None:
        temporary = self.home / "next"
        temporary.write_text(json.dumps(faults))
        temporary.replace(self.home / FILE)

    def met(self, action: str, number: int | None, fault: str) -> bool:
        return wait_for(lambda: (self.home / f"met-{action}-{number}-{fault}").exists())

    def start(self) -> None:
        line = [sys.executable, str(Path(__file__).with_name("faulty_silo.py")), str(self.home / "silo.toml")]
        self.running.silos[WEST] = processes.start(line, self.home / "log", os.environ)

    def kill(self) -> None:
        """SIGKILL to the silo and all that it started, which first stand still: none may tell of another's death."""
        groups = processes.process_groups(self.running.silos.pop(WEST).pid)
        for sent in (signal.SIGSTOP, signal.SIGKILL):
            for group in groups:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(group, sent)
        assert wait_for(lambda: not processes.running_groups(groups), 60)

    def absences(self, folder: Path) -> set[tuple[str, int | None, str, str]]:
        return {(each.action, each.round, each.client, each.kind) for each in read(folder)}

    def wire(self, schema: Schema) -> Federation:
        """The same clients in this process, without faults."""
        return federate(Wire(self.running.clients, keys=self.running.keys()), schema=schema)


@contextlib.contextmanager
def background(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*COMMAND, *map(str, arguments)], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def shaky(running: Running) -> Iterator[Shaky]:
    made = Shaky(running)
    running.stop_silo(WEST)
    made.start()
    try:
        yield made
    finally:
        (made.folder / "federation.toml").write_text(made.settings)
        made.plan()
        if WEST in running.silos:
            running.stop_silo(WEST)
        running.start_silo(WEST)


def same_distances(found: Distances, expected: Distances) -> None:
    order = np.ix_(*[[expected.names.index(name) for name in found.names]] * 2)
    assert found.observed.all()
    for part in ("raw", "stderr"):
        np.testing.assert_allclose(getattr(found, part), getattr(expected, part)[order], **SAME)


def few_round(federation: Wire) -> Distances:
    return estimate_distances(federation, method="few-round", seed=3, min_samples=10)


def test_a_silo_killed_during_distances_is_measured_when_it_is_back(shaky: Shaky) -> None:
    shaky.policy(quorum=0.5)
    shaky.plan(("few-validate", None, "hang"))
    target = shaky.run / "distances.json"
    estimate = ("estimate", "--on", shaky.folder, "-o", target, "--seed", 3, "--quiet")
    with background(*estimate) as command:
        assert shaky.met("few-validate", None, "hang"), command.poll()
        shaky.kill()
        shaky.plan()
        shaky.start()  # it is back before the command has ended; what it was asked for is gone
        _, errors = command.communicate(timeout=LIMIT)
    assert command.returncode == 0, errors
    assert "the distances of these clients are left unobserved" in errors
    part = Distances.load(target)
    at = part.names.index(WEST)
    assert np.isnan(np.delete(part.raw[at], at)).all()
    assert ("few-validate", None, WEST, "silent") in shaky.absences(shaky.run)

    fedcollab(*estimate, "--resume")
    schema = Schema.load(shaky.run / "schema.json")
    assert schema == federate(Wire(shaky.running.clients, keys=shaky.running.keys()), seed=3).schema
    same_distances(Distances.load(target), few_round(shaky.wire(schema)))
    fedcollab("solve", target, "--C", 10, "-o", shaky.run / "collaboration.json")


def test_silo_and_coordinator_killed_during_training_lose_nothing(shaky: Shaky) -> None:
    """Twice in one training: without a quorum it pauses; killed, it goes on; the end is the undisturbed one."""
    coalitions = shaky.run / "collaboration.json"
    out = shaky.run / "training" / "coalitions"
    line = ("train", "--on", shaky.folder, "--coalitions", coalitions, "--algorithm", "ditto", "--rounds", 3,
            "--stopping", "none", "--seed", 3, "--quiet", "-o", out)  # fmt: skip
    shaky.policy(quorum=1.0)
    shaky.plan(("train", 2, "hang"))
    with background(*line) as command:
        assert shaky.met("train", 2, "hang"), command.poll()
        shaky.kill()
        shaky.plan(("train", 3, "hang"))
        shaky.start()
        _, errors = command.communicate(timeout=LIMIT)
    assert command.returncode == 75, errors
    assert "3 of 4 client(s) answered `train` of round 2, 4 must: `west` (" in errors
    assert "run the same command again to go on" in errors
    assert rounds(out) == [1]
    assert ("train", 2, WEST, "silent") in shaky.absences(shaky.run)

    with background(*line) as command:
        assert shaky.met("train", 3, "hang"), command.poll()
        command.send_signal(signal.SIGKILL)
        command.wait()
    assert rounds(out) == [1, 2]
    assert (out / checkpoint.FILE).exists()
    shaky.plan()  # the silo finishes what nobody waits for any more, and keeps its own state of that round

    fedcollab(*line)
    found = TrainingResult.load(out)
    wire = shaky.wire(Schema.load(shaky.run / "schema.json"))
    groups = json.loads(coalitions.read_text())["coalitions"]
    calm = train(wire, groups, "ditto", "mlp", rounds=3, lr=0.1, seed=3, stopping="none")
    assert found.failures == []
    np.testing.assert_allclose(found.models["last"], calm.models["last"], **SAME)
    for name, own in zip(calm.names, calm.models["personal"], strict=True):
        np.testing.assert_allclose(StateStore(shaky.running.root / name / "state")["model"]["w"], own, **SAME)
    assert rounds(out) == [1, 2, 3]
    assert not (out / checkpoint.FILE).exists()


def rounds(out: Path) -> list[int]:
    return sorted({json.loads(text)["round"] for text in (out / "training.jsonl").read_text().splitlines()})


def test_nonsense_and_slowness_are_left_out_and_named(shaky: Shaky) -> None:
    shaky.policy(quorum=0.5)
    shaky.plan(("train", 1, "nan"), ("train", 2, "shape"), ("train", 3, "garbage"), ("evaluate", 3, "hang"))
    out = shaky.run / "training" / "global"
    fedcollab("train", "--on", shaky.folder, "--coalitions", "global", "--rounds", 3, "--stopping", "none",
              "--seed", 3, "--quiet", "-o", out)  # fmt: skip
    shaky.plan()
    assert {each.client for each in read(out)} == {WEST}
    why = {(each.action, each.round): (each.kind, each.why) for each in read(out)}
    compared = why.pop(("compare", None), ("silent", ""))  # asked for where the run has another training
    assert compared[0] == "silent"
    assert {key: kind for key, (kind, _) in why.items()} == {
        ("train", 1): "garbage",
        ("train", 2): "garbage",
        ("train", 3): "garbage",
        ("evaluate", 3): "silent",
    }
    assert "NaN" in why["train", 1][1]
    assert why["evaluate", 3][1] == f"no answer in {DEADLINE} s"
    found = TrainingResult.load(out)
    wire = shaky.wire(Schema.load(shaky.run / "schema.json"))
    without = wire.part([name for name in wire.names if name != WEST])
    calm: Any = train(without, "global", "fedavg", "mlp", rounds=3, lr=0.1, seed=3, stopping="none")
    np.testing.assert_allclose(found.models["last"], calm.models["last"], **SAME)
    assert np.isnan(found.accuracy[found.names.index(WEST)])
    fedcollab("report", shaky.run)
    page = (shaky.run / "report.html").read_text()
    assert "Who was absent, and when" in page
    assert "west was absent from" in page


def test_a_silo_that_comes_late(shaky: Shaky) -> None:
    shaky.running.stop_silo(WEST)
    assert wait_for(lambda: shaky.running.status()[WEST] != "online")
    target = shaky.running.root / "late" / "distances.json"
    estimate = ("estimate", "--on", shaky.folder, "-o", target, "--seed", 3, "--quiet")
    shaky.policy(quorum=1.0, patience=5)
    paused = fedcollab(*estimate, check=False)
    assert paused.returncode == 75, paused.stderr
    assert "3 of 4 client(s) are there, 4 must be: `west` (not connected in 5 s)" in paused.stderr
    assert shaky.absences(target.parent) == {("connect", None, WEST, "silent")}
    shaky.policy(quorum=0.5, patience=5)
    fedcollab(*estimate)
    assert Distances.load(target).names == ("east", "north", "south")

    shaky.start()
    shaky.policy(quorum=1.0)
    fedcollab("estimate", "--on", shaky.folder, "-o", target, "--quiet", "--resume")  # no word of the seed
    assert json.loads((target.parent / "run.json").read_text())["settings"]["seed"] == 3
    three = Wire([c for c in shaky.running.clients if c.name != WEST], keys=shaky.running.keys())
    schema = federate(three, seed=3).schema  # what the three had agreed on is kept
    assert Schema.load(target.parent / "schema.json") == schema
    found = Distances.load(target)
    assert found.names == ("east", "north", "south", WEST)
    same_distances(found, few_round(shaky.wire(schema)))


def test_a_superlink_that_died_is_started_again(shaky: Shaky) -> None:
    """The command that waits for it ends at once, the silos connect again, and nothing of the old one is left."""
    shaky.policy(quorum=1.0, deadline=LIMIT)
    shaky.plan(("few-validate", None, "hang"))
    met = shaky.home / "met-few-validate-None-hang"
    met.unlink(missing_ok=True)
    target = shaky.run / "again" / "distances.json"
    estimate = ("estimate", "--on", shaky.folder, "-o", target, "--seed", 3, "--quiet")
    link = FederationFolder.read(shaky.folder).handles[0]
    with background(*estimate) as command:
        assert shaky.met("few-validate", None, "hang"), command.poll()
        os.kill(link.pid, signal.SIGKILL)
        _, errors = command.communicate(timeout=60)  # not the deadline, which is a quarter of an hour
    assert command.returncode == 75, errors
    assert "the SuperLink or its gate has ended; start it again with `fedcollab federation start`" in errors
    assert not json.loads(fedcollab("federation", "status", shaky.folder, "--json").stdout)["running"]
    fedcollab("federation", "start", shaky.folder)
    assert processes.running_groups([link.pid]) == []
    shaky.plan()
    assert wait_for(lambda: set(shaky.running.status().values()) == {"online"})
    fedcollab(*estimate)
    same_distances(Distances.load(target), few_round(shaky.wire(Schema.load(target.parent / "schema.json"))))
