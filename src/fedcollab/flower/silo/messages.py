"""Flower's messages at a silo, in the form in which they travel: bytes by name, without a connection.

What is received: `message` and `tree` (Flower's metadata and the names of the parts), `run` and `fab` (the run and its
app), `state` where an app has kept something at this node, and the parts. What is sent: `message`, `tree`, `state` and
parts. Made for flwr 1.41 and 1.42; `tests/flower/test_compat.py` watches what this relies on.
"""

from __future__ import annotations

import re

from flwr.app import Context, Error, Message
from flwr.app.message import remove_content_from_message
from flwr.common.constant import ErrorCode
from flwr.common.serde import message_from_proto, message_to_proto, recorddict_to_proto
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    no_object_id_recompute,
)

from fedcollab.errors import InputError

PART = "part "  # before the name of a part
PATH = re.compile(r"`(?:/|[A-Za-z]:\\)[^`]*`|'(?:/|[A-Za-z]:\\)[^']*'|(?<![\w.`'])(?:/|[A-Za-z]:\\)[^\s'\"`;,()]+")
HIDDEN = "a file of the silo's"


def pack_message(message: Message, context: Context | None = None) -> dict[str, bytes]:
    """Return an answer as it travels.

    Parameters
    ----------
    message : flwr.app.Message
        The answer.
    context : flwr.app.Context, optional
        What the app has kept at this node.
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

    Examples
    --------
    >>> hide_paths("`/home/north/state/train.safetensors` cannot be written: No space left on device")
    "a file of the silo's cannot be written: No space left on device"
    """
    return PATH.sub(HIDDEN, text)
