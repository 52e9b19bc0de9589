"""Flower's messages at a silo, in the form in which they travel: bytes by name, without a connection.

What is received: `message` and `tree` (Flower's metadata and the names of the parts), `run` and `fab` (the run and its
app), `state` where an app has kept something at this node, and the parts. What is sent: `message`, `tree`, `state` and
parts. Made for flwr 1.41 and 1.42; `tests/flower/test_compat.py` watches what this relies on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from flwr.app import Context, Error, Message, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.cli.install import install_from_fab
from flwr.clientapp import ClientApp
from flwr.clientapp.utils import get_load_client_app_fn
from flwr.common.config import get_fused_config_from_fab, get_metadata_from_config, get_project_config
from flwr.common.constant import ErrorCode
from flwr.common.serde import (
    message_from_proto,
    message_to_proto,
    recorddict_from_proto,
    recorddict_to_proto,
    run_from_proto,
)
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.proto.message_pb2 import ObjectTree
from flwr.proto.recorddict_pb2 import RecordDict as ProtoRecordDict
from flwr.proto.run_pb2 import Run as ProtoRun
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity

from fedcollab.errors import InputError

PART = "part "  # before the name of a part
PATH = re.compile(r"`(?:/|[A-Za-z]:\\)[^`]*`|'(?:/|[A-Za-z]:\\)[^']*'|(?<![\w.`'])(?:/|[A-Za-z]:\\)[^\s'\"`;,()]+")
HIDDEN = "a file of the silo's"


def open_message(contents: Mapping[str, bytes], name: str) -> tuple[Message, Context]:
    """Open a message that was received.

    Parameters
    ----------
    contents : mapping
        What was received.
    name : str
        The silo's name, which its node's config holds.

    Returns
    -------
    message : flwr.app.Message
        The message.
    context : flwr.app.Context
        What a ClientApp gets beside it.
    """
    tree = ObjectTree.FromString(contents["tree"])
    parts = {key.removeprefix(PART): content for key, content in contents.items() if key.startswith(PART)}
    message = cast(Message, inflate_object_from_contents(tree.object_id, parts))
    message.metadata.__dict__["_message_id"] = tree.object_id
    run = run_from_proto(ProtoRun.FromString(contents["run"]))
    TaskIdentity.run_id, TaskIdentity.node_id = run.run_id, message.metadata.dst_node_id  # for what an app makes
    TaskIdentity.task_id = 0
    kept = contents.get("state")
    context = Context(
        run_id=run.run_id,
        node_id=message.metadata.dst_node_id,
        node_config={"name": name},
        state=RecordDict() if kept is None else recorddict_from_proto(ProtoRecordDict.FromString(kept)),
        run_config=get_fused_config_from_fab(contents["fab"], run),
        series_id=run.series_id,
    )
    return message, context


def pack_message(message: Message, context: Context | None = None) -> dict[str, bytes]:
    """Return an answer as it travels.

    Parameters
    ----------
    message : flwr.app.Message
        The answer.
    context : flwr.app.Context, optional
        What the app has kept at this node.

    Returns
    -------
    dict
        What is sent.
    """
    message.metadata.__dict__["_message_id"] = message.object_id
    with no_object_id_recompute():
        packed = {
            "message": message_to_proto(remove_content_from_message(message)).SerializeToString(),
            "tree": get_object_tree(message).SerializeToString(),
        }
        if context is not None and len(context.state):
            packed["state"] = recorddict_to_proto(context.state).SerializeToString()
        parts = {PART + key: part.deflate() for key, part in get_all_nested_objects(message).items()}
    return packed | parts


def pack_error(error: BaseException, received: bytes) -> dict[str, bytes]:
    """Return an error as the answer to a message.

    Parameters
    ----------
    error : BaseException
        What went wrong: of an InputError the text is told, without paths; of anything else the kind alone, since its
        text may hold what must not leave.
    received : bytes
        The metadata of the message.

    Returns
    -------
    dict
        What is sent.
    """
    kind = type(error)
    told = f"{kind.__name__}; the silo's log says more"
    if isinstance(error, InputError):
        told = f"{kind}:<'{hide_paths(str(error))}'>"  # as Flower tells of exceptions: see `compat.input_error_text`
    code = ErrorCode.CLIENT_APP_RAISED_EXCEPTION
    return pack_message(Message(Error(code, told), reply_to=message_from_proto(ProtoMessage.FromString(received))))


def hide_paths(text: str) -> str:
    """Return a text without absolute paths: where a silo keeps its files is nobody else's business.

    Parameters
    ----------
    text : str
        The text of an error.

    Returns
    -------
    str
        The text, for the coordinator.

    Examples
    --------
    >>> hide_paths("`/home/north/state/train.safetensors` cannot be written: No space left on device")
    "a file of the silo's cannot be written: No space left on device"
    """
    return PATH.sub(HIDDEN, text)


def install_app(fab: bytes, folder: Path) -> ClientApp:
    """Install an app into an empty folder, and load its ClientApp.

    Parameters
    ----------
    fab : bytes
        The app, as a zip file.
    folder : Path
        The folder; nothing that an earlier installation has left broken can be in it.

    Returns
    -------
    flwr.clientapp.ClientApp
        The ClientApp.
    """
    placed = install_from_fab(fab, install_dir=folder, skip_prompt=True)
    load: Any = get_load_client_app_fn(default_app_ref="", app_path=str(placed), multi_app=True)
    identifier, version = get_metadata_from_config(get_project_config(placed))
    return cast(ClientApp, load(identifier, version, ""))
