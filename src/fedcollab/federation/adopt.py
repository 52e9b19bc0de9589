"""A federation that keeps the schema it once agreed on: newcomers are encoded by it and never change it.

`adopt` has every client describe itself, checks that against the schema and hands the schema out; means, categories
and classes stay those of the first day, so that saved models and distances keep their meaning. `Part` is a federation
of some of the clients: whoever is not in it gets no message.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedcollab.data.client import ClientData
from fedcollab.errors import FedcollabWarning, InputError
from fedcollab.federation.prepare import Schema, ask_everyone
from fedcollab.wire import Vectorised, Wire, connect
from fedcollab.wire.message import Message
from fedcollab.wire.runtime import Runtime
from fedcollab.wire.silo import Silo


def reopen(clients: Iterable[ClientData], schema: Schema, *, runtime: str = "vectorised") -> Runtime:
    """A federation over these clients with a schema that was agreed on earlier."""
    federation = connect(clients, runtime)
    adopt(federation, schema)
    return federation


def adopt(federation: Runtime, schema: Schema) -> None:
    """Have every client of a federation apply this schema; a client that does not fit it is one clear line."""
    common = {"scale": "none", "test_share": schema.test_share, "seed": schema.seed}
    described = ask_everyone(federation, "describe", common)
    for name, reply in described.items():
        _refuse_misfit(name, reply, schema)
    federation.described = described
    ask_everyone(federation, "prepare", {"schema": schema.to_json()})
    federation.schema = schema


def with_client(federation: Runtime, client: ClientData) -> Runtime:
    """A federation over the clients of this one and a newcomer, with the same schema."""
    if not isinstance(federation, (Vectorised, Wire)):
        raise InputError(
            f"`federation` is {type(federation).__name__}; a client's data can be added only to one that runs in "
            "this process (vectorised, wire)"
        )
    if client.name in federation.names:
        raise InputError(f"`client` (={client.name!r}) must have a name of its own; the run has one with that name")
    assert federation.schema is not None
    larger = type(federation)([*federation.clients, client], device=federation.device)
    adopt(larger, federation.schema)
    return larger


class Part(Runtime):
    """Some clients of a federation; messages go through it, to them alone."""

    def __init__(self, federation: Runtime, names: Iterable[str]) -> None:
        super().__init__(names, federation.policy)
        self.federation = federation
        self.schema = federation.schema
        self.few_rounds, self.models_stay = federation.few_rounds, federation.models_stay
        self.min_samples, self.lasting = federation.min_samples, federation.lasting  # type: ignore[misc]
        self.described = {name: federation.described[name] for name in self.names}

    def call(self, action: str, messages: Mapping[str, Message], *, partial: bool = False) -> dict[str, Message]:
        """As the federation's own, which asks again, checks and notes."""
        unknown = sorted(set(messages) - set(self.names))
        if unknown:
            raise InputError(f"`messages` names {unknown[0]!r}, which is not a client of this part of the federation")
        replies = self.federation.call(action, messages, partial=partial)
        self.absent = self.federation.absent
        self.cost.count(messages, replies)
        return replies

    def _call(self, action: str, messages: dict[str, Message]) -> dict[str, Message]:
        raise AssertionError("`call` goes to the federation")


def read_schema(path: Path) -> Schema:
    """The schema that a run left."""
    try:
        return Schema.from_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"`{path}` does not exist; a run directory of `fedcollab run` has one") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"`{path}` cannot be read as a schema: {error}") from None


def fingerprints(federation: Runtime) -> dict[str, str]:
    """What tells whether a client's data are those of the last time; of those who answer."""
    replies = federation.call_all("fingerprint", {}, partial=True)
    return {name: str(reply["fingerprint"]) for name, reply in replies.items()}


def said(federation: Runtime) -> dict[str, dict[str, Any]]:
    """What each client says of itself, without the sums that only preprocessing needs."""
    keep = ("quantity", "test_quantity", "label_counts")
    prints = fingerprints(federation)
    return {
        name: {**{key: reply[key] for key in keep}, "fingerprint": prints.get(name)}
        for name, reply in federation.described.items()
    }


def fingerprint_client(message: Message, silo: Silo) -> Message:
    """Client side: 16 digits of a checksum over all its prepared samples. They tell equality, and nothing else.

    A silo's own key comes first, so that nobody can try out what the samples might be.
    """
    arrays = silo.arrays
    digest = hashlib.sha256(silo.key)
    for part in (arrays.x, arrays.y, arrays.x_test, arrays.y_test):
        digest.update(f"{part.dtype}{part.shape}".encode())
        digest.update(part.tobytes())
    return {"fingerprint": digest.hexdigest()[:16]}


def _refuse_misfit(name: str, reply: Message, schema: Schema) -> None:
    """Compare what a client says of itself with the schema: kind of data, columns, labels."""
    where = f"client `{name}`"
    if reply["table"] != (schema.columns is not None):
        raise InputError(f"{where} has {'a table' if reply['table'] else 'an array'}; the run was made with the other")
    new = [label for label in reply["labels"] if label not in schema.classes]
    if new:
        raise InputError(f"{where} has the label {new[0]!r}; the run knows {', '.join(map(str, schema.classes))}")
    if schema.columns is None:
        if tuple(reply["shape"]) != schema.shape:
            raise InputError(f"{where} has features of shape {tuple(reply['shape'])}; the run has {schema.shape}")
        return
    known = {column.name: column for column in schema.columns}
    lacking = [column for column in known if column not in reply["shape"]]
    extra = [column for column in reply["shape"] if column not in known]
    if lacking or extra:
        parts = [f"lacks {', '.join(lacking)}"] * bool(lacking) + [f"has also {', '.join(extra)}"] * bool(extra)
        raise InputError(f"{where} has other columns than the run: {'; '.join(parts)}")
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
                stacklevel=3,
            )
