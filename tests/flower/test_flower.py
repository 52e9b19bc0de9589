"""The parts of the Flower runtime that need no federation: state on disk, the line to the ServerApp, keys, folders."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import sys
import threading
import time
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Pipe
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from fedcollab.errors import InputError

pytest.importorskip("flwr")

from fedcollab import flower
from fedcollab.cli import cli
from fedcollab.flower import keys, processes
from fedcollab.flower.channel import Channel, ChannelClosed
from fedcollab.flower.coordinator import relay
from fedcollab.flower.coordinator.certificates import make_certificates
from fedcollab.flower.coordinator.folder import APP, FederationFolder
from fedcollab.flower.envelope import Answer, Envelope
from fedcollab.flower.grid import Exchange
from fedcollab.flower.silo import state_store, supernode
from fedcollab.flower.silo.config import Invitation, SiloConfig, init_silo
from fedcollab.flower.silo.starting import silo_command
from fedcollab.flower.silo.state_store import StateStore
from fedcollab.wire.message import pack, unpack

names = st.sampled_from(["train", "a/b", "../up", "é", ""])
steps = st.lists(st.tuples(st.sampled_from(["set", "pop", "change", "commit", "forget"]), names, st.integers(0, 9)))


@given(steps)
def test_a_state_store_is_a_dict_that_outlives_its_process(
    tmp_path_factory: pytest.TempPathFactory, steps: list
) -> None:
    folder = tmp_path_factory.mktemp("state")
    store, held, stored = StateStore(folder), {}, {}
    for what, key, value in steps:
        if what == "set":
            store[key], held[key] = ({"v": np.array([value])} for _ in range(2))
        elif what == "pop":
            assert (store.pop(key, None) is None) == (held.pop(key, None) is None)
        elif what == "change" and key in held:  # in place, as actions may
            store[key]["v"] += 1
            held[key]["v"] += 1
        elif what == "commit":
            store.commit()
            stored = {key: unpack(pack(value)) for key, value in held.items()}
        elif what == "forget":  # the process ends without a commit
            store, held = StateStore(folder), {key: unpack(pack(value)) for key, value in stored.items()}
        assert dict(store) == held
        assert len(store) == len(held)
    assert {path.parent for path in folder.rglob("*")} <= {folder}  # whatever the keys, nothing is written elsewhere


def test_what_was_set_last_is_written_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A silo killed while it writes keeps a state that it can go on from: the round before, then the last one."""
    store = StateStore(tmp_path)
    store["train"], store["train-before"] = {"round": 2}, {"round": 1}
    store.commit()
    written, write = [], state_store.write_bytes
    monkeypatch.setattr(
        state_store, "write_bytes", lambda path, content: (written.append(path.name), write(path, content))
    )
    later = StateStore(tmp_path)
    last = later["train"]
    later.pop("train-before")
    later["train-before"], later["train"] = last, {"round": 3}
    later.commit()
    assert written == ["train-before.safetensors", "train.safetensors"]


def test_a_silos_key_is_drawn_once_and_is_its_own(tmp_path: Path) -> None:
    keys = [StateStore(tmp_path / name).key() for name in ("a", "b", "a")]
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
    one, other = map(Channel, Pipe())
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
    with pytest.raises(ChannelClosed):
        other.receive(timeout=30)
    with pytest.raises(ChannelClosed):
        other.send({}, {"x": large})
    other.close()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_the_certificates_make_a_tls_connection(tmp_path: Path, host: str) -> None:
    make_certificates(tmp_path, "hospitals", "coordinator.example.org")
    assert (tmp_path / "server.key").stat().st_mode & 0o077 == 0
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    trusting = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    trusting.verify_flags |= ssl.VERIFY_X509_STRICT
    with socket.create_server(("127.0.0.1", 0)) as server_socket:

        def answer() -> None:
            for _ in range(2):
                line, _ = server_socket.accept()
                with line:
                    try:
                        server.wrap_socket(line, server_side=True).close()
                    except (ssl.SSLError, OSError):
                        continue

        answering = threading.Thread(target=answer)
        answering.start()
        with (
            socket.create_connection(server_socket.getsockname()) as plain,
            trusting.wrap_socket(plain, server_hostname=host) as line,
        ):
            subject = dict(part[0] for part in line.getpeercert()["subject"])
        with socket.create_connection(server_socket.getsockname()) as plain, pytest.raises(ssl.SSLError):
            trusting.wrap_socket(plain, server_hostname="elsewhere.example.org")
        answering.join()
    assert subject["commonName"] == "coordinator.example.org"


def test_a_silo_is_three_lines_and_a_key(tmp_path: Path) -> None:
    federation = FederationFolder.init(tmp_path / "fed", "127.0.0.1", 8123)
    (tmp_path / "patients.csv").write_text("age,outcome\n" + "".join(f"{age},{age % 2}\n" for age in range(20)))
    invitation = federation.folder / "invitation.toml"
    config, public = init_silo(tmp_path / "north", "north", tmp_path / "patients.csv", "outcome", invitation)
    assert public is not None
    read = SiloConfig.read(config)
    assert (read.check_data().name, read.check_data().quantity) == ("north", 20)
    for private in (config, read.key):
        assert private.stat().st_mode & 0o077 == 0
    federation.admit(public, "north")
    assert federation.admitted == ["north"]
    line, env = silo_command(config)
    assert line[-1] == str(config)
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
        ('data = "a.csv"', r"silo\.toml`: object missing required field `name`"),
        ('name = ""\ndata = "a.csv"', r"silo\.toml`: `name` expected `str` of length >= 1"),
        ('name = "north"\ndata = 3', r"silo\.toml`: `data` expected the name of a file, got 3"),
        ('name = "north"\ndata = "a.csv"\ndrop = "id"', r"silo\.toml`: `drop` expected `array`, got `str`"),
        (
            'name = "north"\ndata = "a.csv"\n[app]\nallow = ["x"]',
            r"silo\.toml`: `app\.allow\[0\]` expected `str` matching",
        ),
        ('name = "north"\ndata = "a.csv"\n[limit]', r"(='limit').*did you mean 'limits'"),
        ('name = "north"\ndata = "a.csv"\n[limits]\n[floors]', r"both \[limits\] and \[floors\]"),
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
    handle = processes.start([sys.executable, "-c", parent], tmp_path / "log", os.environ)
    while "up" not in (tmp_path / "log").read_text():
        assert processes.alive(handle)
    groups = processes.process_groups(handle.pid)
    assert len(groups) == 2
    assert not processes.stop(handle._replace(started=1.0), grace=1)  # the id of another process
    assert processes.alive(handle)
    assert processes.stop(handle, grace=1)
    assert processes.running_groups(groups) == []
    assert not processes.alive(handle)


def test_what_a_dead_process_leaves_behind_is_ended_too(tmp_path: Path) -> None:
    """It is known by its group and a variable of its environment; others in a group of that number are left alone."""
    child = "import time; print('up', flush=True); time.sleep(99)"
    parent = f"import subprocess, sys, os; subprocess.Popen([sys.executable, '-c', {child!r}]); os._exit(0)"
    handle = processes.start([sys.executable, "-c", parent], tmp_path / "log", {**os.environ, "MINE": "yes"})
    while "up" not in (tmp_path / "log").read_text() or processes.alive(handle):
        time.sleep(0.05)
    assert not processes.stop(handle, grace=1)
    assert not processes.stop_orphans(handle, "MINE", "no", grace=1)
    assert processes.running_groups([handle.pid]) == [handle.pid]
    assert processes.stop_orphans(handle, "MINE", "yes", grace=1)
    assert processes.running_groups([handle.pid]) == []
    assert not processes.stop_orphans(handle, "MINE", "yes", grace=1)


def test_a_reply_broken_off_does_not_silence_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """West's upload never ends, and blocks; the others answer meanwhile, and are heard before the deadline."""
    from flwr.app import Message as FlowerMessage

    for name in ("_run_id", "_node_id", "_task_id"):  # as in a ServerApp that runs
        monkeypatch.setattr(f"flwr.supercore.task_identity.TaskIdentity.{name}", 1)

    class Link:
        """A grid that takes one reply after the other, as Flower's does: west's blocks for as long as it may."""

        def __init__(self) -> None:
            self.sent: dict[str, FlowerMessage] = {}
            self.given: set[str] = set()
            self.began = time.monotonic()

        def push_messages(self, messages: list[FlowerMessage]) -> list[str]:
            names = [Envelope.open(message.content).name for message in messages]
            for name, message in zip(names, messages, strict=True):
                message.metadata.__dict__["_message_id"] = name
                self.sent[name] = message
            return names

        def pull_messages(self, identifiers: list[str]) -> list[FlowerMessage]:
            there = [name for name in identifiers if name == "west" or time.monotonic() > self.began + 0.5]
            new = [name for name in there if name not in self.given]
            self.given |= set(new)
            if "west" in new:
                with contextlib.suppress(TimeoutError):
                    globals()["pull_objects"](["west"], lambda _: b"")
            return [FlowerMessage(Answer(name, b"here").records(), reply_to=self.sent[name])
                    for name in new if name != "west"]  # fmt: skip

    def blocks(names: list[str], pull: Any, *, max_time: float, initial_backoff: float) -> dict[str, bytes]:
        time.sleep(max_time)
        raise TimeoutError

    module: Any = sys.modules[Link.__module__]  # where Flower's own grid module has these
    module.pull_objects, module.inflate_object_from_contents, module.ObjectPullError = blocks, None, TimeoutError
    try:
        exchange = Exchange(Link(), deadline=3.0)
        exchange.nodes = {name: number for number, name in enumerate(("east", "north", "west"), start=1)}
        returned = exchange("train", dict.fromkeys(exchange.nodes, b"go"))
    finally:
        del module.pull_objects, module.inflate_object_from_contents, module.ObjectPullError
    assert set(returned.contents) == {"east", "north"}
    assert set(returned.silent) == {"west"}


def test_every_file_that_a_silo_writes_is_private(tmp_path: Path) -> None:
    """Also where the administrator's umask would let everyone read them."""
    before = os.umask(0)
    try:
        federation = FederationFolder.init(tmp_path / "fed", "127.0.0.1", 8123)
        invitation = federation.folder / "invitation.toml"
        config, _ = init_silo(tmp_path / "north", "north", tmp_path / "a.csv", "outcome", invitation)
        silo_command(config)
        with supernode.lock(SiloConfig.read(config).state / "flwr"):
            pass
        state = StateStore(SiloConfig.read(config).state)
        state["train"] = {"round": 1}
        state.key()
        state.commit()
    finally:
        os.umask(before)
    written = [path for path in (tmp_path / "north").rglob("*") if path.is_file()]
    assert {"silo.toml", "north.key", "silo.key", "train.safetensors", "lock"} <= {p.name for p in written}
    assert [path for path in written if path.stat().st_mode & 0o077] == []


def test_a_silo_without_its_state_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    invitation = FederationFolder.init(tmp_path / "fed", "127.0.0.1", 8123).folder / "invitation.toml"
    (tmp_path / "a.csv").write_text("x,outcome\n" + "".join(f"{row},{row % 2}\n" for row in range(40)))
    config, _ = init_silo(tmp_path / "north", "north", tmp_path / "a.csv", "outcome", invitation)
    monkeypatch.setattr(flower, "start_silo", lambda path: None)
    said = CliRunner().invoke(cli, ["silo", "start", str(config)])
    assert said.exit_code == 0, said.output
    assert "nothing is known here of earlier plans" in said.stderr
    SiloConfig.read(config).state.mkdir()
    assert "earlier plans" not in CliRunner().invoke(cli, ["silo", "start", str(config)]).stderr


def test_the_limits_table_is_read_under_its_old_name_too(tmp_path: Path) -> None:
    for table in ("limits", "floors"):
        (tmp_path / "silo.toml").write_text(f'name = "a"\ndata = "a.csv"\n[{table}]\nmin_samples = 20\n')
        assert SiloConfig.read(tmp_path / "silo.toml").limits == {"min_samples": 20}


def test_the_paths_in_a_config_are_relative_to_it(tmp_path: Path) -> None:
    (tmp_path / "silo.toml").write_text('name = "a"\ndata = "b.csv"\ntest = "/c.csv"\ninvitation = "../d.toml"')
    read = SiloConfig.read(tmp_path / "silo.toml")
    assert (read.data, read.test) == (tmp_path / "b.csv", Path("/c.csv"))
    assert (read.invitation, read.key, read.state) == (
        tmp_path / "../d.toml",
        tmp_path / "a.key",
        tmp_path / "state",
    )


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("port = 70000", r"federation\.toml`: `port` expected `int` <= 65535"),
        ("deadline = 0", r"federation\.toml`: `deadline` expected `float` > 0"),
        ("quorum = 2", r"federation\.toml`: `quorum` expected `float` <= 1"),
        ('secure = "yes"', r"federation\.toml`: `secure` expected `bool`, got `str`"),
        ("qourum = 1", r"`federation\.toml: setting` \(='qourum'\).*did you mean 'quorum'"),
    ],
)
def test_a_wrong_federation_is_one_line(tmp_path: Path, line: str, complaint: str) -> None:
    made = FederationFolder.init(tmp_path / "fed", "127.0.0.1", 8123, secure=False)
    assert FederationFolder.read(made.folder) == made
    path = made.folder / "federation.toml"
    kept = [each for each in path.read_text().splitlines() if each.split()[0] != line.split()[0]]
    path.write_text("\n".join([*kept, line]))
    with pytest.raises(InputError, match=complaint):
        FederationFolder.read(made.folder)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ('certificate = "x"', r"invitation\.toml`: object missing required field `address`"),
        ('address = "here:1"', r"invitation\.toml` lacks `certificate`"),
        ('address = "here:1"\ninsecure = 1', r"invitation\.toml`: `insecure` expected `bool`, got `int`"),
    ],
)
def test_a_wrong_invitation_is_one_line(tmp_path: Path, content: str, complaint: str) -> None:
    (tmp_path / "invitation.toml").write_text(content)
    with pytest.raises(InputError, match=complaint):
        Invitation.read(tmp_path / "invitation.toml")


def test_a_federation_made_by_an_older_fedcollab_gets_the_new_app(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = FederationFolder.init(tmp_path / "fed", "127.0.0.1", 8123)
    app = made.folder / "app" / "pyproject.toml"
    app.write_text("an old app")
    monkeypatch.setattr(FederationFolder, "running", True)
    monkeypatch.setattr(FederationFolder, "flwr", lambda *_: [{"run-id": 7}])
    assert made.run("note") == "7"
    assert app.read_text() == APP


def test_only_a_program_that_has_read_the_note_can_connect(tmp_path: Path) -> None:
    def call(key: bytes | None) -> None:
        note = json.loads(next(tmp_path.iterdir()).read_text())
        assert next(tmp_path.iterdir()).stat().st_mode & 0o077 == 0
        try:
            with Client(note["address"], "AF_UNIX", authkey=key or bytes.fromhex(note["key"])) as connection:
                Channel(connection).send({"hello": 1}, {"north": b"x"})
        except (AuthenticationError, EOFError):
            pass

    for key in (None, b"another key"):
        calling = threading.Thread(target=call, args=(key,))
        if key is None:
            with relay.listen(tmp_path, lambda _: calling.start()) as channel:  # noqa: B023
                assert channel.receive(timeout=30) == ({"hello": 1}, {"north": b"x"})
        else:
            with (
                pytest.raises(InputError, match="another program than the Flower run"),
                relay.listen(tmp_path, lambda _: calling.start()),  # noqa: B023
            ):
                pass
        calling.join()
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_does_not_start_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "START", 0.05)
    with pytest.raises(InputError, match="has not started"), relay.listen(tmp_path, lambda _: None):
        pass
    assert list(tmp_path.iterdir()) == []
