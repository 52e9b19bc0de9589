"""What a federation is doing now: the notes of commands, who is late, and the lines that people see."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterable
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr")

from click.testing import CliRunner

from fedcollab import progress
from fedcollab.cli import cli
from fedcollab.errors import InputError, Paused
from fedcollab.federation.fingerprint import fingerprint
from fedcollab.flower import FederationFolder, processes
from fedcollab.flower.channel import Channel
from fedcollab.flower.coordinator.relay import RelayRuntime
from fedcollab.flower.coordinator.stage_note import (
    WAITING,
    StageNote,
    current_stages,
    noted_stage,
    stage_lines,
    tell_waiting,
)
from fedcollab.flower.remote import Asked
from fedcollab.wire.message import pack

GONE = 2**22 + 1  # no process has this number


def test_a_command_notes_what_it_does_and_nothing_is_left(tmp_path: Path) -> None:
    with noted_stage(tmp_path) as note:
        note.ask(Asked("describe", None, ["east", "north", "west"]))
        assert current_stages(tmp_path)[0]["stage"] == "connected"
        note.progress("training", 12, 50)
        note.ask(Asked("train", 13, ["east", "north", "west"]))
        note.wait_for(["west"])
        (found,) = current_stages(tmp_path)
        assert (found["stage"], found["done"], found["total"]) == ("training", 12, 50)
        assert (found["action"], found["round"], found["waiting"]) == ("train", 13, ["west"])
        assert found["pid"] == os.getpid()
    assert current_stages(tmp_path) == []


def test_the_note_of_a_command_that_was_killed_is_removed(tmp_path: Path) -> None:
    StageNote(tmp_path / "stages" / "1.json")
    path = tmp_path / "stages" / "1.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "pid": GONE}))
    (tmp_path / "stages" / "2.json").write_text("{half")
    assert current_stages(tmp_path) == []
    assert not path.exists()


def test_lines_for_people() -> None:
    note: dict[str, Any] = {
        "command": "fedcollab train --on h", "pid": 1, "started": 0.0, "stage": "training", "stage_started": 40.0,
        "done": 12, "total": 50, "action": "train", "round": 13, "asked": ["a", "b", "c"], "asked_at": 95.0,
        "waiting": ["b"],
    }  # fmt: skip
    assert stage_lines(note, 100.0) == [
        "training, 12 of 50, about 3 min 10 s left (fedcollab train --on h, for 1 min 40 s)",
        "  `train`, round 13: 2 of 3 have answered; for 5 s no answer of b",
    ]
    assert stage_lines({**note, "waiting": []}, 100.0)[1] == "  `train`, round 13: all 3 have answered"
    assert stage_lines({**note, "asked": [], "total": 0}, 100.0) == [
        "training (fedcollab train --on h, for 1 min 40 s)"
    ]


def test_who_has_not_answered_is_told_as_answers_come_in() -> None:
    class Grid:
        """Answers the messages 1, 2 and 3 one look after the other."""

        ready: list[str]

        def push_messages(self, messages: Iterable[Any]) -> list[str]:
            self.ready = [str(message.metadata.dst_node_id) for message in messages]
            return list(self.ready)

        def pull_messages(self, message_ids: Iterable[str]) -> list[Any]:
            first = self.ready.pop(0)
            return [SimpleNamespace(metadata=SimpleNamespace(reply_to_message_id=first))]

    exchange: Any = SimpleNamespace(grid=Grid(), nodes={"east": 1, "north": 2, "west": 3})
    told: list[list[str]] = []
    waiting = tell_waiting(exchange, told.append)
    sent = [SimpleNamespace(metadata=SimpleNamespace(dst_node_id=node)) for node in (1, 2, 3)]
    assert list(exchange.grid.push_messages(sent)) == ["1", "2", "3"]
    for _ in range(3):
        exchange.grid.pull_messages(["1", "2", "3"])
    assert told == [["north", "west"], ["west"]]
    assert waiting == {}


def test_the_command_takes_interim_news_and_then_the_answer(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    here, there = (Channel(Connection(end.detach())) for end in (ours, theirs))
    seen: list[Any] = []

    def app() -> None:
        there.receive()
        there.send({"names": ["east", "west"], "refused": []})
        there.receive()
        there.send({WAITING: ["west"]})
        seen.append(current_stages(tmp_path)[0]["waiting"])
        there.send({"silent": {}, "failed": {}}, {name: pack({"fingerprint": "0" * 16}) for name in ("east", "west")})

    server = threading.Thread(target=app)
    server.start()
    with noted_stage(tmp_path) as note:
        waits: list[Any] = []
        take = note.wait_for
        note.wait_for = lambda names: (waits.append(list(names)), take(names))[1]  # type: ignore[method-assign]
        runtime = RelayRuntime(here, deadline=60, patience=1, note=note)
        replies = runtime.call_all(fingerprint, {})
    server.join()
    assert set(replies) == {"east", "west"}
    assert waits == [["east", "west"], ["west"], []]
    assert runtime.asked == Asked("fingerprint", None, ["east", "west"])
    here.close()
    there.close()


@pytest.mark.parametrize(("running", "told"), [(True, "the Flower run has ended"), (False, "or its gate has ended")])
def test_a_run_that_ends_pauses_the_command(running: bool, told: str) -> None:
    """A ServerApp that is killed loses nothing: the same command goes on."""
    ours, theirs = socket.socketpair()
    here, there = (Channel(Connection(end.detach())) for end in (ours, theirs))
    there.send({"names": ["east", "west"], "refused": []})
    runtime = RelayRuntime(here, deadline=60, patience=1, running=lambda: running)
    there.close()
    with pytest.raises(Paused, match=told):
        runtime.call_all(fingerprint, {})
    here.close()


def test_what_has_died_is_told_until_it_is_stopped(tmp_path: Path) -> None:
    made = FederationFolder.init(tmp_path / "fed", "127.0.0.1", 9000)
    here = [os.getpid(), processes.start_time(os.getpid())]
    for noted, died in (([here], []), ([here, here], []), ([[GONE, 1.0], here], ["SuperLink"]), ([], [])):
        (made.folder / "processes.json").write_text(json.dumps(noted))
        assert made.died == died
        assert made.running == (len(noted) == 2 and not died)  # with the SuperLink alone it is still being started
    (made.folder / "processes.json").write_text(json.dumps([here, [GONE, 1.0]]))
    assert made.status()["warnings"] == [
        f"the gate has ended by itself; `fedcollab federation start {made.folder}` starts it again"
    ]


def test_status_shows_stages(tmp_path: Path) -> None:
    FederationFolder.init(tmp_path / "fed", "127.0.0.1", 9000)

    def run(*words: object) -> str:
        done = CliRunner().invoke(cli, ["federation", "status", str(tmp_path / "fed"), *map(str, words)])
        assert done.exit_code == 0, done.output
        return done.output

    assert json.loads(run("--json"))["stages"] == []
    with noted_stage(tmp_path / "fed") as note:
        note.progress("distances", 1, 3)
        assert "distances, 1 of 3, about" in run()
        lines = run("--watch", "--seconds", 0, "--json").splitlines()
        assert json.loads(lines[0])["stages"][0]["stage"] == "distances"
        assert "stopped" in run("--watch", "--seconds", 0)


def test_status_of_a_federation_that_is_stopped_while_it_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = FederationFolder.init(tmp_path / "fed", "127.0.0.1", 9000)
    here = [os.getpid(), processes.start_time(os.getpid())]

    def flwr(self: FederationFolder, *calls: list[str]) -> Any:
        (made.folder / "processes.json").unlink()
        raise InputError("`flwr supernode list` failed: Connection to the SuperLink is unavailable")

    monkeypatch.setattr(FederationFolder, "flwr", flwr)
    for more in ([], ["--watch", "--seconds", "0"]):
        (made.folder / "processes.json").write_text(json.dumps([here, here]))
        done = CliRunner().invoke(cli, ["federation", "status", str(made.folder), *more])
        assert (done.exit_code, "stopped" in done.output) == (0, True), done.output


def test_stages_are_told_to_watchers_even_where_nothing_is_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, int, int]] = []
    with progress.watched(lambda *state: told.append(state)), progress.bar("training", quiet=True) as show:
        show(1, 4)
    with progress.bar("training", quiet=True) as show:
        show(2, 4)
    assert told == [("training", 0, 0), ("training", 1, 4)]
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(progress, "EVERY", 0.0)
    with progress.bar("training") as show:
        show(1, 4)
        show(2, 4)
    shown = capsys.readouterr().err
    assert "training: 1 of 4\n" in shown  # what comes before the first step says nothing about the others
    assert "training: 2 of 4, about 0 s left" in shown
