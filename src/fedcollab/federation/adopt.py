"""A schema that was agreed on earlier: clients, newcomers among them, are encoded by it and never change it."""

from __future__ import annotations

import warnings

from fedcollab.data.schema import Schema
from fedcollab.errors import FedcollabWarning, InputError
from fedcollab.federation.prepare import differing_columns
from fedcollab.federation.prepare_client import describe
from fedcollab.federation.present import Present
from fedcollab.wire.message import Message


def adopt(present: Present, schema: Schema) -> dict[str, Message]:
    """Have every client describe its data, and check the descriptions against a schema that was agreed on earlier.

    Parameters
    ----------
    present : Present
        The clients.
    schema : Schema
        The schema.

    Raises
    ------
    InputError
        If a client's data do not fit the schema.
    """
    message: Message = {"scale": "none", "test_share": schema.test_share, "seed": schema.seed}
    if schema.task == "regression":
        message["task"] = schema.task
    described = present.ask(describe, message)
    for name, reply in described.items():
        _refuse_misfit(name, reply, schema)
    return described


def _refuse_misfit(name: str, reply: Message, schema: Schema) -> None:
    """Compare a client's description of its data with the schema: kind of data, columns, labels."""
    where = f"client `{name}`"
    if reply["table"] != (schema.columns is not None):
        raise InputError(f"{where} has {'a table' if reply['table'] else 'an array'}; the run was made with the other")
    if bool(reply.get("numeric")) != (schema.task == "regression"):
        raise InputError(f"{where} has a numeric target; the run was made with classes")
    new = [label for label in reply["labels"] if label not in schema.classes]
    if new:
        raise InputError(f"{where} has the label {new[0]!r}; the run knows {', '.join(map(str, schema.classes))}")
    if schema.columns is None:
        if tuple(reply["shape"]) != schema.shape:
            raise InputError(f"{where} has features of shape {tuple(reply['shape'])}; the run has {schema.shape}")
        return
    known = {column.name: column for column in schema.columns}
    differing = differing_columns(list(known), reply["shape"])
    if differing:
        raise InputError(f"{where} has other columns than the run: {differing}")
    for column, kind, categories in zip(reply["shape"], reply["kinds"], reply["categories"], strict=True):
        wanted = known[column].categories
        if kind != "empty" and (kind == "categorical") != (wanted is not None):
            here, there = ("numeric", "text") if wanted is not None else ("text", "numeric")
            raise InputError(f"column `{column}` is {here} at {where} and {there} in the run")
        strange = [value for value in categories if wanted is not None and value not in wanted]
        if strange:
            warnings.warn(
                f"{where}: column `{column}` has values that the run does not know ({', '.join(strange[:3])}); "
                "they count as missing",
                FedcollabWarning,
                stacklevel=4,
            )
