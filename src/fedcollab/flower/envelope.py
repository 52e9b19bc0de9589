"""What a Flower message carries: the bytes of a packed message and who it is for, or why there is no reply.

Flower moves every object of a message by an HTTP call of its own, so the bytes stand in one record with the rest. More
than `LARGE` of them go as an array, which Flower cuts into chunks: a call through the gate has its limits.

Both directions carry the protocol version, which is looked at before anything else (see `protocol.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedcollab.errors import InputError
from fedcollab.flower.protocol import PROTOCOL, UNVERSIONED, check_protocol

_BYTES, _ABOUT, _VERSION = "content", "about", "protocol"
LARGE = 16 << 20  # bytes


@dataclass(frozen=True)
class Envelope:
    """A message from the coordinator to a silo.

    Attributes
    ----------
    action : str
        The name of the action that the silo is to carry out.
    name : str
        The name of the silo.
    call : str
        The call that the message is part of, the same for every silo.
    content : bytes
        The packed message.
    protocol : int
        The coordinator's protocol version.
    """

    action: str
    name: str
    call: str
    content: bytes
    protocol: int = PROTOCOL

    def records(self) -> RecordDict:
        """Return the envelope as Flower's records."""
        about = {"action": self.action, "name": self.name, "call": self.call, _VERSION: self.protocol}
        return _records(about, self.content)

    @classmethod
    def open(cls, records: RecordDict) -> Envelope:
        """Read at a silo what a coordinator sent.

        Parameters
        ----------
        records : RecordDict
            Flower's records.

        Raises
        ------
        InputError
            If the coordinator has another protocol version, or parts are missing.
        """
        try:
            about = records[_ABOUT]
            check_protocol(coordinator=_version(about), silo=PROTOCOL)
            return cls(str(about["action"]), str(about["name"]), str(about["call"]), _bytes(records))
        except KeyError as error:
            raise InputError(f"a message without {error} was received") from None


@dataclass(frozen=True)
class Answer:
    """A silo's answer.

    Attributes
    ----------
    name : str
        The name of the silo.
    content : bytes
        The packed reply.
    error : str
        Why there is no reply; empty if there is one.
    protocol : int
        The silo's protocol version.
    """

    name: str
    content: bytes = b""
    error: str = ""
    protocol: int = PROTOCOL

    def records(self) -> RecordDict:
        """Return the answer as Flower's records."""
        about = {"name": self.name, "error": self.error, _VERSION: self.protocol}
        return _records(about, b"" if self.error else self.content)

    @classmethod
    def open(cls, records: RecordDict) -> Answer:
        """Read at the coordinator what a silo sent.

        Parameters
        ----------
        records : RecordDict
            Flower's records.

        Returns
        -------
        Answer
            The answer; with an `error` if the silo has another protocol version, or parts are missing.
        """
        try:
            about = records[_ABOUT]
            check_protocol(coordinator=PROTOCOL, silo=_version(about))
            error = str(about["error"])
            return cls(str(about["name"]), b"" if error else _bytes(records), error)
        except KeyError as error:
            return cls("", error=f"the reply lacks {error}")
        except InputError as error:
            return cls("", error=str(error))


def _version(about: Mapping[str, Any]) -> int:
    """Return the sender's protocol version; anything but an integer counts as none."""
    version = about.get(_VERSION)
    return version if isinstance(version, int) else UNVERSIONED


def _records(about: dict[str, Any], content: bytes) -> RecordDict:
    """Return Flower's records for a message."""
    if len(content) <= LARGE:
        return RecordDict({_ABOUT: ConfigRecord({**about, _BYTES: content})})
    array = Array(dtype="uint8", shape=(len(content),), stype="safetensors", data=content)
    return RecordDict({_ABOUT: ConfigRecord(about), _BYTES: ArrayRecord({_BYTES: array})})


def _bytes(records: RecordDict) -> bytes:
    """Return the bytes that `_records` packed; KeyError where they are missing."""
    about = records[_ABOUT]
    found = about[_BYTES] if _BYTES in about else records[_BYTES]
    if isinstance(found, ArrayRecord):
        found = found[_BYTES].data
    if not isinstance(found, bytes):
        raise KeyError(_BYTES)
    return found
