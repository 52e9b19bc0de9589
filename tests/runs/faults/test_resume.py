"""Killed and started again: the run goes on, and ends as if nothing had happened."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcollab.data import ClientData
from fedcollab.distances import Distances, complete, estimate_distances, missing_pairs
from fedcollab.errors import FedcollabWarning, InputError, Paused
from fedcollab.federation import federate
from fedcollab.report import write
from fedcollab.runs.pipeline import FedCollab
from fedcollab.training import TrainingResult, checkpoint, train
from fedcollab.wire import Wire
from fedcollab.wire.absence import FILE, Absence, Policy, read
from fedcollab.wire.absence import write as write_absences
from fedcollab.wire.message import Message

SMALL = {"model_options": {"widths": [8]}, "lr": 0.1, "stopping": "none"}
TYPES = [["a", "b", "c"], ["d", "e", "f"]]

PROGRAM = """
import sys
from pathlib import Path
from fedcollab.data import ClientData
from fedcollab.training import checkpoint, train

checkpoint.EVERY = 0.0
folder, algorithm, runtime = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
clients = [ClientData.load(path) for path in sorted(folder.glob("*.npz"))]
train(clients, [["a", "b", "c"], ["d", "e", "f"]], algorithm, model_options={"widths": [8]}, lr=0.1, rounds=40,
      participation=0.7, evaluate_every=3, runtime=runtime, run_dir=folder / "run")
"""


class Stop(Exception):
    """Where a training is broken off."""


def stopping(after: int) -> Callable[[int, int], None]:
    def stop(done: int, total: int) -> None:
        if done == after:
            raise Stop

    return stop


@pytest.mark.parametrize(("algorithm", "runtime"), [("scaffold", "vectorised"), ("ditto", "wire")])
def test_a_killed_coordinator_goes_on(clients: list[ClientData], tmp_path: Path, algorithm: str, runtime: str) -> None:
    """SIGKILL three times at any moment, then to the end: same models, same history."""
    for client in clients:
        client.save(tmp_path / f"{client.name}.npz")
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), algorithm, runtime]
    lines = tmp_path / "run" / "training.jsonl"

    def reached() -> int:
        text = lines.read_text().rsplit("\n", 1)[0] if lines.exists() else ""
        return json.loads(text.splitlines()[-1])["round"] if text else 0

    for goal in (3, 9, 15):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            while reached() < goal and process.poll() is None:
                time.sleep(0.01)
        finally:
            process.send_signal(signal.SIGKILL)
            _, errors = process.communicate()
        assert process.returncode in (-signal.SIGKILL, 0), errors.decode()
    saved = tmp_path / "run" / checkpoint.FILE
    assert saved.exists() or (tmp_path / "run" / "training.json").exists()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = TrainingResult.load(tmp_path / "run")
    calm = train(clients, TYPES, algorithm, rounds=40, participation=0.7, evaluate_every=3,
                 runtime=runtime, **SMALL | {"stopping": "held-out"})  # fmt: skip
    assert (result.rounds, result.averaged) == (calm.rounds, calm.averaged)
    for name, curve in calm.held_out.items():
        np.testing.assert_array_equal(result.held_out[name], curve)
    for which in calm.models:
        np.testing.assert_array_equal(result.models[which], calm.models[which])
    assert [row["round"] for row in result.history] == [row["round"] for row in calm.history]
    assert result.stopped == calm.stopped
    assert result.cost["calls"] == calm.cost["calls"]
    assert not saved.exists()
    assert not list((tmp_path / "run").glob(".*"))


class Lasting(Wire):
    """Silos that keep their state themselves, as in a real federation: the coordinator's snapshot has none of it."""

    lasting = True

    def states(self) -> dict[str, dict[str, Message]]:
        return {}


def test_a_silo_that_lost_its_state_starts_afresh_on_request(clients: list[ClientData], tmp_path: Path) -> None:
    """Ditto's common model does not depend on what silos keep, so that it is that of a calm training."""
    options: dict[str, Any] = {"rounds": 6, **SMALL}
    calm = train(Wire(clients), TYPES, "ditto", **options)
    silos = Lasting(clients)
    with pytest.raises(Stop):
        train(silos, TYPES, "ditto", run_dir=tmp_path / "run", progress=stopping(3), **options)
    for key in ("train", "train-before"):
        silos._state["a"].pop(key, None)
    shutil.copytree(tmp_path / "run", tmp_path / "again")
    hint = r"has lost what it kept of round 2 of this training; start the training anew, .*--afresh a"
    with pytest.raises(InputError, match=hint):  # over Flower its coalition goes on without it
        train(silos, TYPES, "ditto", run_dir=tmp_path / "again", **options)
    with pytest.raises(InputError, match="afresh"):
        train(silos, TYPES, "ditto", run_dir=tmp_path / "run", afresh=["z"], **options)
    with pytest.raises(InputError, match="none is unfinished in"):
        train(silos, TYPES, "ditto", run_dir=tmp_path / "new", afresh=["a"], **options)
    result = train(silos, TYPES, "ditto", run_dir=tmp_path / "run", afresh=["a"], **options)
    assert result.failures == []
    np.testing.assert_array_equal(result.models["last"], calm.models["last"])
    personal = [result.models["personal"] == calm.models["personal"]]
    assert [bool(row.all()) for row in personal[0]] == [False, *[True] * 5]


@pytest.mark.parametrize("grouping", ["ifca", "fedcluster", "fesem", "kmeans"])
def test_clustered_baselines_resume_too(clients: list[ClientData], tmp_path: Path, grouping: str) -> None:
    from fedcollab.baselines import run

    options = {"k": 2, "rounds": 7, **SMALL}
    calm = run(grouping, clients, **options)
    with pytest.raises(Stop):
        run(grouping, clients, run_dir=tmp_path, progress=stopping(4), **options)
    result = run(grouping, clients, run_dir=tmp_path, **options)
    np.testing.assert_array_equal(result.models["last"], calm.models["last"])
    assert result.coalitions == calm.coalitions
    assert list(result.history) == list(calm.history)


def test_another_number_of_clusters_is_another_training(clients: list[ClientData], tmp_path: Path) -> None:
    from fedcollab.baselines import run

    options = {"rounds": 4, **SMALL}
    with pytest.raises(Stop):
        run("ifca", clients, k=3, run_dir=tmp_path, progress=stopping(3), **options)
    with pytest.warns(FedcollabWarning, match=r"other settings \(grouping\); starts over"):
        result = run("ifca", clients, k=2, run_dir=tmp_path, **options)
    np.testing.assert_array_equal(result.models["last"], run("ifca", clients, k=2, **options).models["last"])


def test_no_client_goes_on_from_another_trainings_state(clients: list[ClientData], tmp_path: Path) -> None:
    """Silos outlive the coordinator, and keep what their last training left: it must not pass for this one's."""

    class Lasting(Wire):
        lasting = True

        def states(self) -> dict[str, dict[str, Message]]:
            return {}  # they are on the silos' own disks

        def restore(self, states: object) -> None:
            assert not states

    options = {"algorithm": "scaffold", "rounds": 6, **SMALL}
    calm = train(clients, TYPES, runtime="wire", **options)
    for between in (0, 4, 6):
        silos = federate(Lasting(clients))
        with pytest.raises(Stop):
            train(silos, TYPES, run_dir=tmp_path / str(between), progress=stopping(4), **options)
        if between:
            train(silos, "local", **{**options, "rounds": between})
            with pytest.raises(InputError, match="`a` has lost what it kept of round 3 of this training; start"):
                train(silos, TYPES, run_dir=tmp_path / str(between), **options)
        else:
            result = train(silos, TYPES, run_dir=tmp_path / str(between), **options)
            np.testing.assert_array_equal(result.models["last"], calm.models["last"])


def test_no_history_of_another_training(clients: list[ClientData], tmp_path: Path) -> None:
    """Broken off, another training begun in its place and broken off too, then the first again: its own rounds."""
    options = {"rounds": 6, "run_dir": tmp_path, **SMALL}
    calm = train(clients, TYPES, rounds=6, **SMALL)
    with pytest.raises(Stop):
        train(clients, TYPES, progress=stopping(4), **options)
    with pytest.warns(FedcollabWarning, match="other settings"), pytest.raises(Stop):
        train(clients, TYPES, progress=stopping(1), **{**options, "lr": 0.5})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FedcollabWarning)
        result = train(clients, TYPES, **options)
    assert list(result.history) == list(calm.history)


def test_another_training_is_not_gone_on_with(clients: list[ClientData], tmp_path: Path) -> None:
    with pytest.raises(Stop):
        train(clients, TYPES, rounds=4, run_dir=tmp_path, progress=stopping(2), **SMALL)
    with pytest.warns(
        FedcollabWarning, match=r"held an unfinished training with other settings \(rounds\); starts over"
    ):
        result = train(clients, TYPES, rounds=3, run_dir=tmp_path, **SMALL)
    assert sorted({row["round"] for row in result.history}) == [1, 2, 3]
    with pytest.raises(Stop):
        train(clients, TYPES, rounds=4, run_dir=tmp_path, progress=stopping(2), **SMALL)
    (tmp_path / checkpoint.FILE).write_bytes(b"broken")
    with pytest.warns(FedcollabWarning, match="cannot be used .* starts over"):
        train(clients, TYPES, rounds=4, run_dir=tmp_path, **SMALL)


def test_an_unfinished_training_waits_for_who_began_it(clients: list[ClientData], tmp_path: Path) -> None:
    """A client that is away when training is started again must not cost the rounds that it took part in."""

    calm = train(Wire(clients), TYPES, rounds=4, **SMALL)
    with pytest.raises(Stop):
        train(Wire(clients), TYPES, rounds=4, run_dir=tmp_path, progress=stopping(2), **SMALL)
    whole = federate(Wire(clients))
    without = replace(whole.part([name for name in whole.names if name != "b"]), left_out={"b": "not connected in 5 s"})
    with pytest.raises(Paused, match=r"unfinished training with clients that are not there now: `b` \(not connected"):
        train(without, TYPES, rounds=4, run_dir=tmp_path, **SMALL)
    result = train(Wire(clients), TYPES, rounds=4, run_dir=tmp_path, **SMALL)
    np.testing.assert_array_equal(result.models["last"], calm.models["last"])
    assert [row["round"] for row in result.history] == [row["round"] for row in calm.history]


def test_a_report_names_who_was_absent_from_a_training(tmp_path: Path) -> None:
    """Over silos a training is a command of its own, which lists absences in its own folder."""
    times = {".": "2026-11-16T10:00:00", "training/coalitions": "2026-11-16T09:00:00"}
    for folder, when in times.items():
        write_absences(tmp_path / folder / FILE, [Absence(when, "train", 3, "north", "silent", "no answer")])
    assert [each.time for each in read(tmp_path)] == sorted(times.values())


def test_missing_pairs_are_measured_when_the_client_is_back(clients: list[ClientData], faulty: Any) -> None:
    whole = estimate_distances(Wire(clients), method="few-round")
    with pytest.warns(FedcollabWarning, match="unobserved"):
        part = estimate_distances(
            faulty(clients, lambda action, name, n: "absent" if action == "few-validate" and name in "be" else None),
            method="few-round",
        )
    assert len(missing_pairs(part, part.names)) == 9
    back = faulty(clients, lambda action, name, n: "absent" if name == "e" and action == "few-moments" else None)
    with pytest.warns(FedcollabWarning, match="unobserved"):
        better = complete(part, federate(back))
    assert missing_pairs(better, better.names) == [(a, b) for a, b in missing_pairs(part, part.names) if "e" in (a, b)]
    calm = federate(Wire(clients))
    full = complete(better, calm)
    for key in ("raw", "stderr", "replicates", "observed", "quantities"):
        np.testing.assert_array_equal(getattr(full, key), getattr(whole, key))
    assert calm.runtime.cost.down["a"] < whole.cost["bytes"]["a"]
    assert complete(full, calm) is full


def test_the_pipeline_with_a_client_that_comes_and_goes(clients: list[ClientData], faulty: Any, tmp_path: Path) -> None:
    """Absent at the beginning, then while distances are estimated, then back: the answer is the undisturbed one."""
    undisturbed = FedCollab(distance="few-round", C=5.0).fit(Wire(clients))
    settings = FedCollab(distance="few-round", C=5.0, run_dir=tmp_path / "run")
    (tmp_path / "run").mkdir()
    plans = {
        "describe": lambda action, name, n: "absent" if name == "b" else None,
        "few-validate": lambda action, name, n: "garbage" if (action, name) == ("few-validate", "e") else None,
    }
    policy = Policy(quorum=0.5, retries=0)
    with pytest.warns(FedcollabWarning, match="left out: `b`"):
        first = settings.fit(faulty(clients, plans["describe"], policy))
    assert "b" not in first.distances.names
    trained = first.train(rounds=2, **SMALL)
    assert sorted(n for members in trained.coalitions for n in members) == ["a", "c", "d", "e", "f"]
    with pytest.warns(FedcollabWarning, match="`e` .* left unobserved"):
        second = settings.fit(faulty(clients, plans["few-validate"], policy))
    assert missing_pairs(second.distances, "abcdef") == [("b", "e")]
    assert not (tmp_path / "run" / "training").exists()
    assert (tmp_path / "run" / "set-aside" / "1" / "training" / "coalitions" / "training.json").exists()
    third = settings.fit(Wire(clients))
    assert third.distances.observed.all()
    assert sorted(map(sorted, third.collaboration.coalitions)) == undisturbed.collaboration.coalitions
    trained = third.train(rounds=2, **SMALL)
    assert np.isfinite(trained.accuracy).all()
    again = settings.fit(Wire(clients))
    np.testing.assert_array_equal(again.distances.raw, Distances.load(tmp_path / "run" / "distances.json").raw)
    assert (tmp_path / "run" / "training").exists()
    page = write(tmp_path / "run").read_text()
    assert "Who was absent, and when" in page
    assert "b was absent at" in page
    assert "e was absent at" in page


def test_killed_while_stages_are_set_aside(
    clients: list[ClientData], faulty: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client is back, and the run is killed between two renames: nothing of the incomplete matrix outlives it."""
    undisturbed = FedCollab(distance="few-round", C=5.0).fit(Wire(clients)).collaboration.coalitions
    rename = Path.rename
    for at in range(3):
        settings = FedCollab(distance="few-round", C=5.0, run_dir=tmp_path / str(at))
        away = faulty(clients, lambda action, name, n: "absent" if name == "b" else None, Policy(quorum=0.5, retries=0))
        (tmp_path / str(at)).mkdir()
        with pytest.warns(FedcollabWarning, match="left out: `b`"):
            settings.fit(away)
        left = iter(range(at))

        def killed(path: Path, target: Path, left: Iterator[int] = left) -> Path:
            if next(left, None) is None:
                raise Stop
            return rename(path, target)

        with monkeypatch.context() as patched:
            patched.setattr(Path, "rename", killed)
            with pytest.raises(Stop):
                settings.fit(Wire(clients))
        found = settings.fit(Wire(clients))
        assert found.distances.observed.all()
        assert sorted(map(sorted, found.collaboration.coalitions)) == undisturbed
