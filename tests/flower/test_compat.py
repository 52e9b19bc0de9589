"""What relies on Flower's internals: each test fails when Flower no longer has what `compat` replaces."""

from __future__ import annotations

import inspect
import time
from importlib import metadata
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

pytest.importorskip("flwr")

from flwr import app
from flwr.app import ConfigRecord, RecordDict
from flwr.app.message import make_message
from flwr.common.constant import ErrorCode
from flwr.proto.message_pb2 import Message, Metadata, ObjectTree, PullObjectResponse
from flwr.proto.runtime_pb2 import PullAppMessagesResponse
from flwr.supercore.constant import TASK_TYPE_TO_COMMAND
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.superexec.executor import subprocess_executor
from flwr.superlink.grid import HttpGrid, http_grid
from flwr.supernode import fleet_http_client, start_client_internal
from flwr.supernode.runtime import run_clientapp

from fedcollab.errors import InputError
from fedcollab.flower import compat
from fedcollab.flower.grid import SILENT


def test_it_was_made_for_the_installed_flower() -> None:
    assert metadata.version("flwr").rpartition(".")[0] in compat.VERSIONS


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Flower's own, of its command line
def test_flowers_programs_can_be_loaded() -> None:
    for name in ("flwr", "flower-supernode", compat.CLIENT_PROGRAM):
        assert callable(compat.load_program(name))


def test_a_silo_replaces_every_program_that_flower_starts_by_name() -> None:
    assert set(TASK_TYPE_TO_COMMAND.values()) == {compat.CLIENT_PROGRAM, *compat.OTHER_PROGRAMS}
    launch = inspect.getsource(subprocess_executor.SubprocessExecutor.launch)
    assert "TASK_TYPE_TO_COMMAND[spec.task_type]" in launch
    assert "subprocess.Popen(args" in launch  # found on the path, where the silo's scripts come first


def test_the_pauses_of_a_supernode_are_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    source = inspect.getsource(start_client_internal)
    assert source.count("time.sleep(") == 3  # between polls, for a reply, for its parts
    assert "time.sleep(3)" in inspect.getsource(start_client_internal.start_client_internal)
    monkeypatch.setattr(start_client_internal, "time", time)
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    compat.poll_faster()
    start_client_internal.time.sleep(3)
    assert slept == [0.5]
    assert start_client_internal.time.monotonic is time.monotonic
    monkeypatch.setattr(start_client_internal, "time", None)  # a later Flower without it is left alone
    compat.poll_faster()
    assert start_client_internal.time is None


def test_activation_is_where_it_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    client = fleet_http_client.FleetHttpClient
    assert list(inspect.signature(client.ActivateNode).parameters) == ["self", "request"]
    monkeypatch.setattr(client, "ActivateNode", lambda self, request: request)
    before = client.ActivateNode
    compat.retry_activation()
    assert client.ActivateNode is not before
    assert client.ActivateNode(None, "request") == "request"


def test_a_silo_that_is_back_too_early_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SuperLink takes a killed silo to be there until it misses its heartbeats, and refuses it so long."""
    monkeypatch.setattr(compat, "RETRY_PAUSE", 0.0)
    answers = [412, 412, 200, 401]

    def activate(address: str) -> str:
        status = answers.pop(0)
        httpx.Response(status, request=httpx.Request("POST", address)).raise_for_status()
        return address

    assert compat.retried(activate)("http://here") == "http://here"
    with pytest.raises(httpx.HTTPStatusError, match="401"):
        compat.retried(activate)("http://here")  # a stranger is refused once and for all
    assert answers == []


def test_a_reply_broken_off_is_given_up_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The silo died while it sent: Flower's own grid, with a SuperLink that has the reply's name but not its bytes."""

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
    with compat.limit_uploads(grid, time.monotonic()):
        (reply,) = grid.pull_messages(["asked"])
    assert reply.metadata.reply_to_message_id == "asked"
    assert reply.error.code in SILENT


def pulled(monkeypatch: pytest.MonkeyPatch, contents: dict[str, bytes], **limits: Any) -> Any:
    """Return what Flower's own grid makes of a reply of these objects, the last of them the message."""
    *parts, root = contents

    class Link:
        PullMessages = staticmethod(
            lambda _: PullAppMessagesResponse(
                messages_list=[Message(metadata=Metadata(message_id=root, reply_to_message_id="asked"))],
                message_object_trees=[ObjectTree(object_id=root, children=[ObjectTree(object_id=p) for p in parts])],
            )
        )
        PullObject = staticmethod(
            lambda asked: PullObjectResponse(
                object_found=True, object_available=True, object_content=contents[asked.object_id]
            )
        )
        ConfirmMessageReceived = staticmethod(lambda _: None)

    grid = HttpGrid(token="any", insecure=True)
    monkeypatch.setattr(HttpGrid, "_runtime_client", Link)
    monkeypatch.setattr(grid, "_run", SimpleNamespace(run_id=1))
    with compat.limit_uploads(grid, time.monotonic() + 60, **limits):
        (reply,) = grid.pull_messages(["asked"])
    return reply


def objects_of(content: RecordDict) -> dict[str, bytes]:
    """Return the objects that a silo's reply consists of, children first."""
    about = app.Metadata(1, "", 2, 1, "asked", "1", time.time(), 60.0, "query")
    message = make_message(about, content)
    return {name: part.deflate() for name, part in get_all_nested_objects(message).items()}


def test_a_reply_that_is_none_is_its_silos_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that Flower cannot make a message of used to end the run of everybody in a traceback."""
    for content in (b"", b"garbage", b"Nothing  0\x00", b"ArrayRecord  0\x00"):
        reply = pulled(monkeypatch, {"reply": content})
        assert reply.metadata.reply_to_message_id == "asked"
        assert compat.unreadable(str(reply.error.reason)).startswith("its reply cannot be read (")


def test_a_reply_that_is_too_large_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    records = RecordDict({"n": ConfigRecord({"text": "x" * 5000})})
    assert pulled(monkeypatch, objects_of(records)).content == records
    assert http_grid.inflate_object_from_contents is inflate_object_from_contents  # put back
    reply = pulled(monkeypatch, objects_of(records), most=4000)
    assert compat.unreadable(str(reply.error.reason)) == "its reply cannot be read, it has more than 4000 bytes"
    reply = pulled(monkeypatch, {f"part{n}": b"x" for n in range(2000)}, most=4000)
    assert compat.unreadable(str(reply.error.reason)) == "its reply cannot be read, it has 2000 parts"


def test_flowers_grid_pulls_the_parts_of_a_reply_where_it_is_replaced() -> None:
    parameters = inspect.signature(http_grid.pull_objects).parameters
    assert parameters["max_time"].kind is inspect.Parameter.KEYWORD_ONLY
    assert "pull_objects" in HttpGrid.pull_messages.__code__.co_names
    assert "max_time" not in inspect.getsource(HttpGrid.pull_messages)  # else it would be given twice


def test_flowers_program_installs_apps_where_it_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert next(iter(inspect.signature(run_clientapp.install_from_fab).parameters)) == "fab_file"
    assert "install_from_fab" in run_clientapp.run_clientapp.__code__.co_names
    installed: list[bytes] = []
    monkeypatch.setattr(run_clientapp, "install_from_fab", lambda content, **_: installed.append(content))

    def check(content: bytes) -> None:
        if content == b"bad":
            raise ValueError("refused")

    compat.check_before_install(check)
    run_clientapp.install_from_fab(b"good", skip_prompt=True)
    with pytest.raises(ValueError, match="refused"):
        run_clientapp.install_from_fab(b"bad", skip_prompt=True)
    assert installed == [b"good"]
    monkeypatch.delattr(run_clientapp, "install_from_fab")
    with pytest.raises(AttributeError):  # a Flower that installs otherwise is not used at all
        compat.check_before_install(check)


def test_flower_tells_the_text_of_an_exception_in_the_way_that_is_read() -> None:
    source = inspect.getsource(run_clientapp.run_clientapp)
    assert """reason = str(type(ex)) + ":<'" + str(ex) + "'>\"""" in source
    ex = InputError("the 'third' line")
    assert compat.input_error_text(str(type(ex)) + ":<'" + str(ex) + "'>") == "the 'third' line"
    assert compat.input_error_text("<class 'OSError'>:<'/home/north/patients.csv'>") == ""


def test_flowers_error_codes_have_the_meaning_that_is_relied_on() -> None:
    assert set(SILENT) == {ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.NODE_UNAVAILABLE}
