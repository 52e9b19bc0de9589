"""A message as a silo's worker opens it; the silo's other process never does. See `messages.py` for the form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from flwr.app import Context, Message, RecordDict
from flwr.common.config import get_fused_config_from_fab
from flwr.common.serde import recorddict_from_proto, run_from_proto
from flwr.proto.message_pb2 import ObjectTree
from flwr.proto.recorddict_pb2 import RecordDict as ProtoRecordDict
from flwr.proto.run_pb2 import Run as ProtoRun
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity

from fedcollab.flower.silo.messages import PART


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
