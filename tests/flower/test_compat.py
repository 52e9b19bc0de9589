"""What relies on Flower's internals: each test fails when Flower no longer has what `compat` replaces."""

from __future__ import annotations

import inspect
import time
from importlib import metadata
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr")

from flwr import app
from flwr.app import ConfigRecord, RecordDict
from flwr.app.message import make_message
from flwr.common.constant import (
    HEARTBEAT_DEFAULT_INTERVAL,
    HEARTBEAT_MIN_INTERVAL,
    SYSTEM_TIME_TOLERANCE,
    TIMESTAMP_TOLERANCE,
    ErrorCode,
)
from flwr.proto.message_pb2 import Message, Metadata, ObjectTree, PullObjectResponse
from flwr.proto.runtime_pb2 import PullAppMessagesResponse
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME
from flwr.supercore.error import ApiErrorCode
from flwr.supercore.error.catalog import API_ERROR_MAP
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.superlink.grid import HttpGrid, http_grid
from flwr.superlink.routers.fleet import node_auth
from flwr.supernode import fleet_http_client
from flwr.supernode.runtime import run_clientapp

from fedcollab.errors import InputError
from fedcollab.flower import compat
from fedcollab.flower.coordinator import gate, superlink
from fedcollab.flower.grid import SILENT
from fedcollab.flower.silo import fleet


def test_it_was_made_for_the_installed_flower() -> None:
    assert metadata.version("flwr").rpartition(".")[0] in compat.VERSIONS


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Flower's own, of its command line
def test_flowers_commands_can_be_loaded() -> None:
    assert callable(compat.load_program("flwr"))


def test_the_calls_of_a_silo_are_flowers() -> None:
    """Those of Flower's own SuperNode, on the paths that the gate passes on."""
    client = fleet_http_client.FleetHttpClient
    calls = ("ActivateNode", "DeactivateNode", "RegisterNode", "UnregisterNode", "SendNodeHeartbeat", "PullMessages")
    calls += ("PushMessages", "GetRun", "GetFab", "PushObject", "PullObject", "ConfirmMessageReceived")
    for name in calls:
        call = getattr(client, name)
        assert list(inspect.signature(call).parameters) == ["self", "request"]
        (path,) = [each for each in call.__code__.co_consts if isinstance(each, str) and each.startswith("/v1/")]
        assert gate.OPEN.fullmatch(path)


def test_what_a_superlink_answers_means_what_a_silo_takes_it_for() -> None:
    meant = {
        ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED: fleet.REFUSED,
        ApiErrorCode.PUBLIC_KEY_ALREADY_IN_USE: fleet.REFUSED,
        ApiErrorCode.FLEET_RUN_STATUS_NOT_ALLOWED: fleet.OVER,
    }
    assert {code: API_ERROR_MAP[code].http_status_code for code in meant} == meant
    assert "HTTP_401_UNAUTHORIZED" in inspect.getsource(node_auth.authenticate_node)
    assert fleet.UNKNOWN == 401
    assert fleet.AHEAD <= SYSTEM_TIME_TOLERANCE
    assert fleet.BEHIND == TIMESTAMP_TOLERANCE
    assert HEARTBEAT_MIN_INTERVAL <= fleet.HEARTBEAT < HEARTBEAT_DEFAULT_INTERVAL


def test_the_database_in_memory_has_the_name_that_is_used() -> None:
    assert superlink.MEMORY == FLWR_IN_MEMORY_DB_NAME


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
    for name in ("max_time", "initial_backoff"):
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
    assert "pull_objects" in HttpGrid.pull_messages.__code__.co_names
    assert "max_time" not in inspect.getsource(HttpGrid.pull_messages)  # else it would be given twice


def test_flower_tells_the_text_of_an_exception_in_the_way_that_is_read() -> None:
    source = inspect.getsource(run_clientapp.run_clientapp)
    assert """reason = str(type(ex)) + ":<'" + str(ex) + "'>\"""" in source
    ex = InputError("the 'third' line")
    assert compat.input_error_text(str(type(ex)) + ":<'" + str(ex) + "'>") == "the 'third' line"
    assert compat.input_error_text("<class 'OSError'>:<'/home/north/patients.csv'>") == ""


def test_flowers_error_codes_have_the_meaning_that_is_relied_on() -> None:
    assert set(SILENT) == {ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.NODE_UNAVAILABLE}
