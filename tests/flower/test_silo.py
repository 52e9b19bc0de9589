"""A silo's two processes: the node that carries messages, and the worker that answers them."""

from __future__ import annotations

import base64
import datetime
import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import warnings
from collections.abc import Callable
from email.utils import format_datetime
from multiprocessing import Pipe
from pathlib import Path

import httpx
import pytest

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.cli.build import build_fab_from_disk
from flwr.common.constant import TIMESTAMP_HEADER
from flwr.common.serde import run_to_proto
from flwr.proto.fleet_pb2 import ActivateNodeResponse, PullMessagesResponse
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.proto.message_pb2 import ObjectTree
from flwr.proto.run_pb2 import Run as ProtoRun
from flwr.supercore.constant import FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.error import ApiErrorCode, FlowerError
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.interceptors.http import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import verify_signature
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from fedcollab.errors import InputError
from fedcollab.flower import keys, processes
from fedcollab.flower.channel import Channel, ChannelClosed
from fedcollab.flower.compat import input_error_text
from fedcollab.flower.coordinator.folder import APP
from fedcollab.flower.envelope import LARGE, Answer, Envelope
from fedcollab.flower.protocol import HELLO, PROTOCOL, WORKER_DIED
from fedcollab.flower.silo import client_app, fleet, node, signing, supernode, worker
from fedcollab.flower.silo.config import SiloConfig
from fedcollab.flower.silo.messages import PART, hide_paths, pack_message
from fedcollab.flower.silo.received import open_message
from fedcollab.flower.silo.state_store import StateStore

# Flower's own way of building an app
pytestmark = [
    pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning"),
    pytest.mark.usefixtures("inside_a_run"),
]

EMPTY = Path(__file__).parents[2] / "benchmarks" / "peers" / "empty-flower-app"


@pytest.fixture
def own(tmp_path: Path) -> bytes:
    return app_of(tmp_path / "app", APP)


def app_of(folder: Path, project: str, **files: str) -> bytes:
    """A Flower app as it travels."""
    folder.mkdir()
    (folder / "pyproject.toml").write_text(project)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(text))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Flower's own
        return build_fab_from_disk(folder)


def travelling(records: RecordDict, fab: bytes) -> dict[str, bytes]:
    """A message as it reaches a silo."""
    TaskIdentity.node_id = 1  # the coordinator's; in this process the worker sets the silo's
    message = Message(records, dst_node_id=7, message_type="query")
    run = run_to_proto(Run.create_empty(1)).SerializeToString()
    return {**pack_message(message), "run": run, "fab": fab}


def opened(answer: dict[str, bytes]) -> Message:
    """An answer as it reaches the coordinator."""
    tree = ObjectTree.FromString(answer["tree"])
    parts = {name.removeprefix(PART): content for name, content in answer.items() if name.startswith(PART)}
    found = inflate_object_from_contents(tree.object_id, parts)
    assert isinstance(found, Message)
    assert ProtoMessage.FromString(answer["message"]).metadata.dst_node_id == 1
    return found


def answered(contents: dict[str, bytes]) -> Message:
    """What a worker in this process answers."""
    here, there = map(Channel, Pipe())
    worker._answer(there, "north", contents)
    _, answer = here.receive(timeout=60)
    return opened(answer)


def test_fedcollabs_own_app_is_answered_in_the_worker_itself(silo: Path, own: bytes) -> None:
    reply = answered(travelling(Envelope(HELLO, "", "", b"").records(), own))
    assert Answer.open(reply.content) == Answer("north")
    reply = answered(travelling(Envelope("describe", "south", "1", b"").records(), own))
    assert Answer.open(reply.content).error == "the message is for `south`; this silo is `north`"


def test_an_app_with_other_code_is_not_run_and_the_coordinator_is_told_how_to_be_let_in(silo: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fab = build_fab_from_disk(EMPTY)
    reply = answered(travelling(RecordDict(), fab))
    assert reply.has_error()
    assert "an app with other code than fedcollab's was refused" in input_error_text(reply.error.reason)
    later = app_of(silo / "later", APP.replace(f"protocol = {PROTOCOL}", f"protocol = {PROTOCOL + 1}"))
    assert f"the silo version {PROTOCOL}" in input_error_text(answered(travelling(RecordDict(), later)).error.reason)


FOREIGN = """
    import os
    from pathlib import Path
    from flwr.app import ConfigRecord, Message
    from flwr.clientapp import ClientApp

    client = ClientApp()
    count = 0

    @client.query()
    def answer(message, context):
        global count
        count += 1
        if message.content["about"]["what"] == "raise":
            raise OSError(f"{Path.cwd()}/patients.csv has no column `income`")
        if message.content["about"]["what"] == "die":
            os._exit(3)
        kept = context.state["kept"]["times"] if "kept" in context.state else 0
        context.state["kept"] = ConfigRecord({"times": kept + 1})
        message.content["about"] = ConfigRecord({"pid": os.getpid(), "count": count, "kept": kept, "at": __file__})
        return Message(message.content, reply_to=message)
"""


def test_an_allowed_app_runs_in_a_child_of_its_own(silo: Path) -> None:
    """Nothing of it is left in the worker, or on the disk; what it keeps travels by the node."""
    project = (EMPTY / "pyproject.toml").read_text().replace("empty_app", "foreign")
    fab = app_of(silo / "foreign", project, foreign=FOREIGN)
    with (silo / "silo.toml").open("a") as config:
        config.write('[app]\nallow = "any"\n')
    here, there = map(Channel, Pipe())
    contents = travelling(RecordDict({"about": ConfigRecord({"what": "answer"})}), fab)
    found = []
    for _ in range(2):
        worker._answer(there, "north", contents)
        _, answer = here.receive(timeout=60)
        contents["state"] = answer["state"]
        found.append(opened(answer).content["about"])
    assert [each["kept"] for each in found] == [0, 1]
    assert [each["count"] for each in found] == [1, 1]
    assert len({os.getpid(), *(each["pid"] for each in found)}) == 3
    assert "foreign" not in sys.modules
    assert [each for each in found if Path(str(each["at"])).exists()] == []
    before = set(Path(tempfile.gettempdir()).glob("fedcollab-app-*"))
    for what, told in (("raise", "OSError; the silo's log says more"), ("die", "RuntimeError; the silo's log says")):
        reply = answered(travelling(RecordDict({"about": ConfigRecord({"what": what})}), fab))
        assert reply.error.reason.startswith(told)
    assert set(Path(tempfile.gettempdir()).glob("fedcollab-app-*")) <= before


@pytest.mark.parametrize("size", [0, 10, LARGE, LARGE + 1])
def test_contents_of_every_size_travel(size: int) -> None:
    content = bytes(size)
    for sent, read in ((Envelope("train", "north", "1", content), Envelope), (Answer("north", content), Answer)):
        assert read.open(sent.records()) == sent
    parts = [name for name in travelling(Envelope("train", "north", "1", content).records(), b"") if PART in name]
    assert (len(parts) == 3) == (size <= LARGE)  # each part is an HTTP call: message, its content, one record


def test_a_silo_whose_disk_was_full_works_again_and_its_path_stays(
    silo: Path, own: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = travelling(Envelope("describe", "north", "1", b"").records(), own)
    calm = Answer.open(answered(ask).content)
    commit = StateStore.commit
    for error, told in (
        (InputError(f"`{silo}/state/train.safetensors` cannot be written: No space left on device"), "a file of the"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(silo)), "its disk is full"),
        (OSError(errno.EIO, "broken", str(silo)), "OSError; the silo's log says more"),
    ):

        def full(store: StateStore, error: Exception = error) -> None:
            raise error

        with monkeypatch.context() as patched:
            patched.setattr(client_app.StateStore, "key", full)
            answer = Answer.open(answered(ask).content)
        assert answer.error.startswith(told)
        assert "/" not in answer.error
        assert str(silo) not in answer.error
    assert StateStore.commit is commit
    assert Answer.open(answered(ask).content) == calm


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("`/srv/a b/x.npz` cannot be read", "a file of the silo's cannot be read"),
        ("[Errno 28] No space: '/srv/a b'", "[Errno 28] No space: a file of the silo's"),
        ("in /srv/data/x.csv, line 3", "in a file of the silo's, line 3"),
        (r"`C:\data\x.csv` is missing", "a file of the silo's is missing"),
        ("2 of 3 rows/columns and/or `a/b`", "2 of 3 rows/columns and/or `a/b`"),
        ('[app] allow = ["9f2c"] in silo.toml', '[app] allow = ["9f2c"] in silo.toml'),
    ],
)
def test_paths_are_hidden_and_nothing_else(text: str, told: str) -> None:
    assert hide_paths(text) == told


def test_a_worker_is_started_by_a_message_and_again_after_it_died_or_was_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The message that it died of is not answered."""
    (tmp_path / "working.py").write_text(
        "import os, sys\nfrom multiprocessing.connection import Connection\n"
        "from fedcollab.flower.channel import Channel\nchannel = Channel(Connection(int(sys.argv[1])))\n"
        "while True:\n    header, contents = channel.receive()\n    if header['name'] == 'die': os._exit(1)\n"
        "    channel.send({}, {**contents, 'pid': str(os.getpid()).encode()})\n"
    )
    monkeypatch.setattr(supernode, "WORKER", "working")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    one = supernode.Worker()
    one.stop()  # nothing runs yet
    first = one.ask({"name": "north"}, {"x": b"1"})
    try:
        assert one.ask({"name": "north"}, {})["pid"] == first["pid"]
        with pytest.raises(ChannelClosed):
            one.ask({"name": "die"}, {})
        second = one.ask({"name": "north"}, {"x": b"2"})
        one.stop()
        third = one.ask({"name": "north"}, {"x": b"3"})
        assert [each["x"] for each in (first, second, third)] == [b"1", b"2", b"3"]
        assert len({each["pid"] for each in (first, second, third)}) == 3
        assert [processes.start_time(int(each["pid"])) for each in (first, second)] == [None, None]
    finally:
        one.stop()
    assert processes.start_time(int(third["pid"])) is None


def test_a_silo_that_waits_has_neither_pytorch_nor_pandas_in_memory() -> None:
    """Nor has its worker what reads tables or installs apps of others, until one comes."""
    told = "import sys, fedcollab.flower.silo.{}; print(*sys.modules)"
    found = {
        name: set(
            subprocess.run(
                [sys.executable, "-c", told.format(name)], capture_output=True, text=True, check=True
            ).stdout.split()
        )
        for name in ("supernode", "worker")
    }
    assert found["supernode"] & {"torch", "pandas", "scipy", "sklearn", "fastapi"} == set()
    assert found["worker"] & {"pandas", "scipy", "sklearn", "fastapi", "flwr.cli.install"} == set()
    assert "torch" in found["worker"]


def test_a_state_folder_that_cannot_be_written_is_one_line(
    silo: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (silo / "silo.toml").write_text('name = "north"\ndata = "x.npz"\nstate = "taken"\n')
    (silo / "taken").write_text("a file where the folder should be")
    monkeypatch.setattr(sys, "argv", ["supernode", str(silo / "silo.toml")])
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as ended:
            supernode.main()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended.value.code == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("fedcollab: ")
    assert line.endswith("taken/flwr/lock'")


def test_two_processes_of_one_silo_are_one_too_many(tmp_path: Path) -> None:
    with supernode.lock(tmp_path), pytest.raises(InputError, match="runs already"), supernode.lock(tmp_path):
        pass
    with supernode.lock(tmp_path):
        pass


def link_of(answer: Callable[[httpx.Request], httpx.Response], key: Path) -> fleet.Fleet:
    """A silo's end of a SuperLink that answers like this."""
    made = fleet.Fleet("127.0.0.1:1", None, key)
    made._client._client = httpx.Client(transport=httpx.MockTransport(answer))
    return made


def test_calls_are_signed_as_flowers_own_nodes_sign_them(key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same headers; the signature holds for the key and the time that are sent."""
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return dated(200, 0, ActivateNodeResponse(node_id=5).SerializeToString())

    ours = link_of(answer, key)
    ours.connect()
    private, public = fleet._read_key(key)
    ours._client._interceptors = (
        RuntimeVersionHttpInterceptor(component_name="SuperNode"),
        NodeAuthHttpInterceptor(private, public),
    )
    ours.connect()
    sent, flowers = (dict(each.headers) for each in asked)
    changing = {TIMESTAMP_HEADER, FLEET_HTTP_SIGNATURE_HEADER}
    assert sent.keys() == flowers.keys()
    assert {name for name in sent if sent[name] != flowers[name]} == changing
    time, signature = sent[TIMESTAMP_HEADER].encode(), base64.b64decode(sent[FLEET_HTTP_SIGNATURE_HEADER])
    assert verify_signature(public, time, signature)
    assert not verify_signature(public, time + b"0", signature)


def test_a_coordinator_with_another_flower_is_named(key: Path) -> None:
    """The answer is what Flower's own check makes."""
    assert signing.OTHER_VERSION == ApiErrorCode.RUNTIME_VERSION_INCOMPATIBLE
    told = FlowerError(signing.OTHER_VERSION, "inside", public_details="1.50 is no 1.42").to_json("not compatible")
    link = link_of(lambda request: dated(412, 0, json.dumps(told).encode()), key)
    with pytest.raises(InputError, match=r"another version than this silo's: 1\.50 is no 1\.42"):
        link.connect()
    link = link_of(lambda request: dated(412, 0, b"[1]"), key)
    with pytest.raises(fleet.Refused):
        link.connect()


def dated(status: int, seconds: float, content: bytes = b"") -> httpx.Response:
    """An answer of a coordinator whose clock is so many seconds ahead of this one."""
    when = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
    return httpx.Response(status, headers={"date": format_datetime(when, usegmt=True)}, content=content)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    keys.make_silo_key(tmp_path / "north.key", "north")
    return tmp_path / "north.key"


@pytest.mark.parametrize(("ahead", "told"), [(-60.0, "60 s ahead of"), (-59.0, "59 s ahead"), (900.0, "900 s behind")])
def test_a_clock_that_is_off_is_named(key: Path, ahead: float, told: str) -> None:
    link = link_of(lambda request: dated(401, ahead), key)
    for call in (link.connect, link.pull):
        with pytest.raises(InputError, match="set the clock") as raised:
            call()
        shown = int(str(raised.value).split("clock is ")[1].split(" s ")[0])
        assert abs(shown - abs(ahead)) <= 1
        assert told.split(" s ")[1] in str(raised.value)


def test_a_silo_tells_a_restarted_coordinator_from_one_that_refuses_it(
    key: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fleet, "PAUSES", (0.0, 0.0))
    answers = [dated(200, 0, ActivateNodeResponse(node_id=5).SerializeToString()), dated(401, 0), dated(412, 0)]
    answers += [dated(502, 0), dated(200, 0, PullMessagesResponse().SerializeToString()), dated(403, 0)]
    link = link_of(lambda request: answers.pop(0), key)
    assert link.connect() == 5
    with pytest.raises(fleet.Unknown):
        link.pull()
    with pytest.raises(fleet.Refused):
        link.connect()
    assert link.pull() is None  # after a gate without a SuperLink
    shown = capfd.readouterr().err
    assert "the coordinator does not answer; asking again" in shown
    assert "the coordinator answers again" in shown
    with pytest.raises(fleet.RunOver):
        link.pull()
    assert answers == []


def test_a_silo_that_is_not_let_in_ends_with_an_error(
    silo: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """So that a service manager starts it again; and its worker ends with it."""
    stopped = []

    class Worker:
        def stop(self) -> None:
            stopped.append(True)

    def carry(self: object) -> None:
        raise InputError("this silo's clock is 60 s ahead")

    (silo / "invitation.toml").write_text('address = "127.0.0.1:1"\ninsecure = true\n')
    (silo / "state" / "flwr").mkdir(parents=True)
    monkeypatch.setattr(supernode, "Worker", Worker)
    monkeypatch.setattr(node.Node, "carry", carry)
    monkeypatch.setattr(sys, "argv", ["supernode", str(silo / "silo.toml")])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        supernode.main()
    assert ended.value.code == 1
    assert capfd.readouterr().err == "fedcollab: this silo's clock is 60 s ahead\n"
    assert stopped


class Answering:
    """A worker that answers with what it was sent."""

    def ask(self, header: dict[str, str], contents: dict[str, bytes]) -> dict[str, bytes]:
        kept = int(contents.get("state", b"0"))
        sent = Envelope.open(opened_message(contents).content)
        if sent.action == "die":
            raise ChannelClosed
        records = Answer(header["name"], b"%d" % kept).records()
        return {**pack_message(Message(records, reply_to=opened_message(contents))), "state": b"%d" % (kept + 1)}

    def stop(self) -> None:
        """As when nothing has come for long."""


def opened_message(contents: dict[str, bytes]) -> Message:
    message, _ = open_message({key: value for key, value in contents.items() if key != "state"}, "north")
    return message


def test_a_node_carries_messages_and_goes_on_whatever_happens(
    silo: Path, own: bytes, key: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A SuperLink of this test's: three messages, one that the worker dies of, a restart, a run that is over."""
    (silo / "silo.toml").write_text(f'name = "north"\ndata = "x.npz"\nkey = "{key.name}"\n')
    (silo / "invitation.toml").write_text('address = "127.0.0.1:1"\ninsecure = true\n')
    (silo / "state" / "flwr").mkdir(parents=True)
    monkeypatch.setattr(node.time, "sleep", lambda pause: None)
    made = node.Node(SiloConfig.read(silo / "silo.toml"), Answering())
    run = run_to_proto(Run.create_empty(1)).SerializeToString()
    pushed, events = [], []

    class Link:
        def __init__(self) -> None:
            self.waiting = [
                self.say("train"),
                self.say("die"),
                fleet.Unknown(),
                fleet.RunOver(),
                self.say("train"),
                None,
            ]

        def say(self, action: str) -> tuple[fleet.Received, dict[str, bytes]]:
            packed = travelling(Envelope(action, "north", "1", b"x").records(), own)
            parts = {name.removeprefix(PART): part for name, part in packed.items() if name.startswith(PART)}
            received = fleet.Received(ProtoMessage.FromString(packed["message"]), ObjectTree.FromString(packed["tree"]))
            return received, parts

        def pull(self) -> fleet.Received | None:
            if not self.waiting:
                raise InputError("the end of this test")
            following = self.waiting.pop(0)
            if isinstance(following, Exception):
                raise following
            if following is None:
                return None
            self.taken = following[1]
            return following[0]

        def parts(self, received: fleet.Received) -> dict[str, bytes]:
            return self.taken

        def run(self, number: int) -> tuple[object, bytes]:
            events.append("run")
            return ProtoRun.FromString(run), own

        def push(self, message: ProtoMessage, tree: ObjectTree, parts: dict[str, bytes], seconds: float) -> None:
            packed = {"message": message.SerializeToString(), "tree": tree.SerializeToString()}
            pushed.append(opened({**packed, **{PART + name: part for name, part in parts.items()}}))

        def connect(self) -> int:
            events.append("connect")
            return 5

        def disconnect(self, earlier: int | None = None) -> bool:
            events.append(f"disconnect {earlier}")
            return True

        def keep_alive(self) -> None:
            pass

        def close(self) -> None:
            events.append("close")

    made.fleet = Link()  # type: ignore[assignment]
    with pytest.raises(InputError, match="the end of this test"):
        made.carry()
    assert events == ["connect", "run", "disconnect 5", "connect", "close"]  # the run is asked for once
    first, died, last = pushed
    assert [Answer.open(each.content).content for each in (first, last)] == [b"0", b"1"]  # what an app keeps is kept
    assert input_error_text(died.error.reason) == WORKER_DIED
    assert "the worker died" in capfd.readouterr().err
    assert not (silo / "state" / "flwr" / "node").exists()
