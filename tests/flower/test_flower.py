"""The parts of the Flower runtime that need no federation: state on disk, the line to the ServerApp, keys, folders."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcollab.errors import InputError

pytest.importorskip("flwr")

from fedcollab.flower import keys, node, processes, warm
from fedcollab.flower.channel import Channel, Closed
from fedcollab.flower.config import SiloConfig
from fedcollab.flower.envelope import Answer, Envelope
from fedcollab.flower.federation import Federation
from fedcollab.flower.shelf import Shelf
from fedcollab.wire.message import pack, unpack

names = st.sampled_from(["train", "a/b", "../up", "é", ""])
steps = st.lists(st.tuples(st.sampled_from(["set", "pop", "change", "commit", "forget"]), names, st.integers(0, 9)))


@given(steps)
def test_a_shelf_is_a_dict_that_outlives_its_process(tmp_path_factory: pytest.TempPathFactory, steps: list) -> None:
    folder = tmp_path_factory.mktemp("shelf")
    shelf, held, stored = Shelf(folder), {}, {}
    for what, key, value in steps:
        if what == "set":
            shelf[key], held[key] = ({"v": np.array([value])} for _ in range(2))
        elif what == "pop":
            assert (shelf.pop(key, None) is None) == (held.pop(key, None) is None)
        elif what == "change" and key in held:  # in place, as actions may
            shelf[key]["v"] += 1
            held[key]["v"] += 1
        elif what == "commit":
            shelf.commit()
            stored = {key: unpack(pack(value)) for key, value in held.items()}
        elif what == "forget":  # the process ends without a commit
            shelf, held = Shelf(folder), {key: unpack(pack(value)) for key, value in stored.items()}
        assert dict(shelf) == held
        assert len(shelf) == len(held)
    assert {path.parent for path in folder.rglob("*")} <= {folder}  # whatever the keys, nothing is written elsewhere


def test_what_was_set_last_is_written_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A silo killed while it writes keeps a state that it can go on from: the round before, then the last one."""
    from fedcollab.flower import shelf as module

    shelf = Shelf(tmp_path)
    shelf["train"], shelf["train-before"] = {"round": 2}, {"round": 1}
    shelf.commit()
    written, write = [], module.write_bytes
    monkeypatch.setattr(module, "write_bytes", lambda path, content: (written.append(path.name), write(path, content)))
    later = Shelf(tmp_path)
    last = later["train"]
    later.pop("train-before")
    later["train-before"], later["train"] = last, {"round": 3}
    later.commit()
    assert written == ["train-before.safetensors", "train.safetensors"]


def test_a_silos_key_is_drawn_once_and_is_its_own(tmp_path: Path) -> None:
    keys = [Shelf(tmp_path / name).key() for name in ("a", "b", "a")]
    assert keys[0] == keys[2] != keys[1]
    assert len(keys[0]) == 32
    assert (tmp_path / "a" / "silo.key").stat().st_mode & 0o077 == 0


def test_envelopes_and_answers_travel_as_records() -> None:
    sent = Envelope("train", "north", "1", b"\x00\xff")
    assert Envelope.open(sent.records()) == sent
    for answer in (Answer("north", b"abc"), Answer("north", error="its disk is full")):
        assert Answer.open(answer.records()) == answer
    with pytest.raises(InputError, match="a message without"):
        Envelope.open(Answer("north", error="x").records())
    assert "lacks" in Answer.open(type(sent.records())()).error


def test_a_channel_carries_bytes_and_notices_a_death() -> None:
    ends = socket.socketpair()
    one, other = map(Channel, ends)
    large = os.urandom(3 << 20)
    sender = threading.Thread(target=one.send, args=({"action": "train"}, {"north": large, "south": b""}))
    sender.start()
    about, contents = other.receive(timeout=30)
    sender.join()
    assert about == {"action": "train"}
    assert contents == {"north": large, "south": b""}
    with pytest.raises(TimeoutError):
        other.receive(timeout=0.05)
    one.close()
    with pytest.raises(Closed):
        other.receive(timeout=30)
    with pytest.raises(Closed):
        other.send({}, {"x": large})
    other.close()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_the_certificates_make_a_tls_connection(tmp_path: Path, host: str) -> None:
    keys.make_certificates(tmp_path, "hospitals", "coordinator.example.org")
    assert (tmp_path / "server.key").stat().st_mode & 0o077 == 0
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    trusting = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    trusting.verify_flags |= ssl.VERIFY_X509_STRICT
    with socket.create_server(("127.0.0.1", 0)) as door:

        def answer() -> None:
            for _ in range(2):
                line, _ = door.accept()
                with line:
                    try:
                        server.wrap_socket(line, server_side=True).close()
                    except (ssl.SSLError, OSError):
                        continue

        answering = threading.Thread(target=answer)
        answering.start()
        with (
            socket.create_connection(door.getsockname()) as plain,
            trusting.wrap_socket(plain, server_hostname=host) as line,
        ):
            subject = dict(part[0] for part in line.getpeercert()["subject"])
        with socket.create_connection(door.getsockname()) as plain, pytest.raises(ssl.SSLError):
            trusting.wrap_socket(plain, server_hostname="elsewhere.example.org")
        answering.join()
    assert subject["commonName"] == "coordinator.example.org"


def test_a_silo_is_three_lines_and_a_key(tmp_path: Path) -> None:
    federation = Federation.init(tmp_path / "fed", "127.0.0.1", 8123)
    (tmp_path / "patients.csv").write_text("age,outcome\n" + "".join(f"{age},{age % 2}\n" for age in range(20)))
    invitation = federation.folder / "invitation.toml"
    config, public = node.init(tmp_path / "north", "north", tmp_path / "patients.csv", "outcome", invitation)
    assert public is not None
    read = SiloConfig.read(config)
    assert (read.check_data().name, read.check_data().quantity) == ("north", 20)
    assert read.key.stat().st_mode & 0o077 == 0
    federation.admit(public, "north")
    assert federation.admitted == ["north"]
    line, env = node.command(config)
    assert "127.0.0.1:8123" in line
    assert "patients" not in " ".join(line)  # the path of the data is for the silo's own process alone
    assert env["FLWR_TELEMETRY_ENABLED"] == "0"
    with pytest.raises(InputError, match="never overwritten"):
        keys.make_silo_key(read.key, "north")
    other = keys.make_silo_key(tmp_path / "other.key", "other")
    with pytest.raises(InputError, match="another key is admitted"):
        federation.admit(other, "north")
    with pytest.raises(InputError, match="must be a silo's public key"):
        federation.admit(read.key, "north")
    with pytest.raises(InputError, match="without slashes"):
        federation.admit(public, "../north")
    assert not federation.running
    assert not federation.stop()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ('data = "a.csv"', 'must have a line name = "..."'),
        ('name = "north"\ndata = "a.csv"\nlabels = "y"', "`silo.toml: setting` \\(='labels'\\).*did you mean 'label'"),
        ("name = ", "cannot be read as a silo config"),
    ],
)
def test_a_wrong_config_is_one_line(tmp_path: Path, content: str, complaint: str) -> None:
    (tmp_path / "silo.toml").write_text(content)
    with pytest.raises(InputError, match=complaint):
        SiloConfig.read(tmp_path / "silo.toml")


def test_what_is_wrong_with_the_data_is_not_told_to_others(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "silo.toml").write_text('name = "north"\ndata = "secret.csv"\nlabel = "y"')
    config = SiloConfig.read(tmp_path / "silo.toml")
    with pytest.raises(InputError) as told:
        config.read_data()
    assert "secret" not in str(told.value)
    assert "secret.csv" in capfd.readouterr().err


def test_processes_end_with_their_children(tmp_path: Path) -> None:
    """Also those in sessions of their own, and those that do not listen."""
    child = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(99)"
    line = f"[sys.executable, '-c', {child!r}]"
    parent = f"import subprocess, sys; subprocess.Popen({line}, start_new_session=True).wait()"
    pid = processes.start([sys.executable, "-c", parent], tmp_path / "log", os.environ)
    since = processes.born(pid)
    while "up" not in (tmp_path / "log").read_text():
        assert processes.born(pid) == since
    groups = processes.family(pid)
    assert len(groups) == 2
    assert not processes.stop(pid, "another start time", grace=1)
    assert processes.stop(pid, since, grace=1)
    assert processes.living(groups) == []
    assert processes.born(pid) is None


def test_the_stand_in_starts_the_program_itself_where_nobody_is_warm(tmp_path: Path) -> None:
    folder = warm.write_script(tmp_path / "bin", str(tmp_path / "nobody"))
    done = subprocess.run([folder / warm.PROGRAM, "--help"], capture_output=True, text=True, check=True, timeout=120)
    assert "flwr-clientapp" in done.stdout
    assert "--token" in done.stdout


def test_a_silo_that_is_back_too_early_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SuperLink takes a killed silo to be there until it misses its heartbeats, and refuses it so long."""
    import httpx

    from fedcollab.flower import supernode

    monkeypatch.setattr(supernode, "AGAIN", 0.0)
    answers = [412, 412, 200, 401]

    def activate(address: str) -> str:
        status = answers.pop(0)
        httpx.Response(status, request=httpx.Request("POST", address)).raise_for_status()
        return address

    assert supernode.patient(activate)("http://here") == "http://here"
    with pytest.raises(httpx.HTTPStatusError, match="401"):
        supernode.patient(activate)("http://here")  # a stranger is refused once and for all
    assert answers == []


def test_a_reply_broken_off_is_given_up_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The silo died while it sent: Flower's own grid, with a SuperLink that has the reply's name but not its bytes."""
    from flwr.proto.message_pb2 import Message, Metadata, ObjectTree, PullObjectResponse
    from flwr.proto.runtime_pb2 import PullAppMessagesResponse
    from flwr.superlink.grid import HttpGrid

    from fedcollab.flower.grid import SILENT, uploads_until

    class Link:
        PullMessages = staticmethod(
            lambda _: PullAppMessagesResponse(
                messages_list=[Message(metadata=Metadata(message_id="reply", reply_to_message_id="asked"))],
                message_object_trees=[ObjectTree(object_id="reply")],
            )
        )
        PullObject = staticmethod(lambda _: PullObjectResponse(object_found=True, object_available=False))

    grid = HttpGrid(token="any", insecure=True)
    monkeypatch.setattr(HttpGrid, "_runtime_client", Link)
    monkeypatch.setattr(grid, "_run", SimpleNamespace(run_id=1))
    with uploads_until(grid, time.monotonic()):
        (reply,) = grid.pull_messages(["asked"])
    assert reply.metadata.reply_to_message_id == "asked"
    assert reply.error.code in SILENT


def test_a_reply_broken_off_does_not_silence_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """West's upload never ends, and blocks; the others answer meanwhile, and are heard before the deadline."""
    from flwr.app import Message as FlowerMessage

    from fedcollab.flower.grid import Exchange

    for name in ("_run_id", "_node_id", "_task_id"):  # as in a ServerApp that runs
        monkeypatch.setattr(f"flwr.supercore.task_identity.TaskIdentity.{name}", 1)

    class Link:
        """A grid that takes one reply after the other, as Flower's does: west's blocks for as long as it may."""

        def __init__(self) -> None:
            self.sent: dict[str, FlowerMessage] = {}
            self.given: set[str] = set()
            self.began = time.monotonic()

        def push_messages(self, messages: list[FlowerMessage]) -> list[str]:
            name = Envelope.open(messages[0].content).name
            messages[0].metadata.__dict__["_message_id"] = name
            self.sent[name] = messages[0]
            return [name]

        def pull_messages(self, identifiers: list[str]) -> list[FlowerMessage]:
            there = [name for name in identifiers if name == "west" or time.monotonic() > self.began + 0.5]
            new = [name for name in there if name not in self.given]
            self.given |= set(new)
            if "west" in new:
                globals()["pull_objects"]()
            return [FlowerMessage(Answer(name, b"here").records(), reply_to=self.sent[name])
                    for name in new if name != "west"]  # fmt: skip

    def blocks(max_time: float) -> None:
        time.sleep(max_time)

    module = sys.modules[Link.__module__]
    module.pull_objects = blocks  # where Flower's own grid module has it
    try:
        exchange = Exchange(Link(), deadline=3.0)
        exchange.nodes = {name: number for number, name in enumerate(("east", "north", "west"), start=1)}
        returned = exchange("train", dict.fromkeys(exchange.nodes, b"go"))
    finally:
        del module.pull_objects
    assert set(returned.contents) == {"east", "north"}
    assert set(returned.silent) == {"west"}
