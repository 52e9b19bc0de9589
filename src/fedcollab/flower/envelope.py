"""What a Flower message carries: one array of bytes (a packed message) and who it is for, or why there is no reply."""

from __future__ import annotations

from dataclasses import dataclass

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedcollab.errors import InputError

_BYTES, _ABOUT = "content", "about"


@dataclass(frozen=True)
class Envelope:
    """A message for a silo; `call` names the call that it is part of, the same for every silo."""

    action: str
    name: str
    call: str
    content: bytes

    def records(self) -> RecordDict:
        """As Flower sends it."""
        about = ConfigRecord({"action": self.action, "name": self.name, "call": self.call})
        return RecordDict({_BYTES: _array(self.content), _ABOUT: about})

    @classmethod
    def open(cls, records: RecordDict) -> Envelope:
        """What was sent; anything else is one clear line."""
        try:
            about = records[_ABOUT]
            fields = {key: str(about[key]) for key in ("action", "name", "call")}
            return cls(**fields, content=_bytes(records))
        except KeyError as error:
            raise InputError(f"a message without {error} came in; the coordinator's version may be another") from None


@dataclass(frozen=True)
class Answer:
    """A silo's answer: the reply, or why there is none."""

    name: str
    content: bytes = b""
    error: str = ""

    def records(self) -> RecordDict:
        """As Flower sends it."""
        about = ConfigRecord({"name": self.name, "error": self.error})
        return RecordDict({_ABOUT: about, **({} if self.error else {_BYTES: _array(self.content)})})

    @classmethod
    def open(cls, records: RecordDict) -> Answer:
        """What came back; garbage counts as no answer."""
        try:
            about = records[_ABOUT]
            error = str(about["error"])
            return cls(str(about["name"]), b"" if error else _bytes(records), error)
        except KeyError as error:
            return cls("", error=f"the reply lacks {error}")


def _array(content: bytes) -> ArrayRecord:
    """Bytes as one array: Flower cuts it into chunks by itself."""
    return ArrayRecord({_BYTES: Array(dtype="uint8", shape=(len(content),), stype="safetensors", data=content)})


def _bytes(records: RecordDict) -> bytes:
    record = records[_BYTES]
    if not isinstance(record, ArrayRecord):
        raise KeyError(_BYTES)
    return record[_BYTES].data
