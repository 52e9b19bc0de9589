"""What a field of a message may be: types that are checked where a message arrives, before anything is done with it.

A message type is a `TypedDict`, or a dataclass whose fields with defaults may be missing. Plain values are checked by
msgspec (`Whole`, `Positive`, `Finite`, lists and dicts of them). An array is written with its element type and sides:

    w: Annotated[NDArray[np.float32], Sides("M", "R", 3)]

A side that is a letter stands for the same length everywhere in a message and its reply, "_" for any length; `Sides()`
for any shape. A list may have `Sides` of one side too. Numbers in arrays must be finite unless `nan=True`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from functools import cache
from typing import Annotated, Any, NotRequired, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

#: the largest whole number that a message may hold
MOST = 2**63 - 1
#: the most samples and the most labels that a client may say it has, and the longest label
MOST_SAMPLES = 10**9
MOST_LABELS = 2000
LONGEST_LABEL = 200

Whole = Annotated[int, Meta(ge=-MOST, le=MOST)]
Positive = Annotated[int, Meta(ge=1, le=MOST)]
Quantity = Annotated[int, Meta(ge=1, le=MOST_SAMPLES)]
#: no characters that a terminal takes for commands: text of a reply may be printed
PRINTABLE = r"\A[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x9b]*\Z"
Text = Annotated[str, Meta(pattern=PRINTABLE)]
Label = Annotated[str, Meta(max_length=LONGEST_LABEL, pattern=PRINTABLE)]
Labels = Annotated[list[Label | Whole], Meta(max_length=MOST_LABELS)]
Counts = Annotated[dict[Label, Annotated[int, Meta(ge=0, le=MOST_SAMPLES)]], Meta(max_length=MOST_LABELS)]
Checks = dict[str, int]


class BrokenMessage(ValueError):
    """A message that is not of its declared type; the text says which field is wrong, and how."""


class Sides:
    """The shape of an array or the length of a list, and the values that its numbers may have.

    Parameters
    ----------
    *sides : str or int
        One a side: a length, a letter (the same length wherever it stands), or "_" (any length). None: any shape.
    low, high : float, optional
        The smallest and the largest value allowed.
    nan : bool
        Whether NaN and infinite values are allowed.
    """

    def __init__(
        self, *sides: str | int, low: float | None = None, high: float | None = None, nan: bool = False
    ) -> None:
        self.sides, self.low, self.high, self.nan = sides, low, high, nan

    def check(self, value: Any, lengths: Checks) -> None:
        """Check the shape and the values of a list or an array, and note the lengths that letters stand for.

        Parameters
        ----------
        value : list or array
            The value of a field.
        lengths : dict
            The lengths that letters stand for, so far; letters met for the first time are added.

        Raises
        ------
        BrokenMessage
            If the value has another shape, or values that are not allowed.
        """
        shape = value.shape if isinstance(value, np.ndarray) else (len(value),)
        if self.sides and len(shape) != len(self.sides):
            raise BrokenMessage(f"has shape {shape}; expected {len(self.sides)} side(s)")
        for side, length in zip(self.sides, shape, strict=bool(self.sides)):
            wanted = lengths.setdefault(side, length) if isinstance(side, str) and side != "_" else side
            if wanted not in ("_", length):
                raise BrokenMessage(f"has shape {shape}; expected {wanted} for {length}")
        if not isinstance(value, np.ndarray):
            return
        if not self.nan and not finite(value):
            raise BrokenMessage("has NaN or infinite values")
        low = -np.inf if self.low is None else self.low - 1e-6
        high = np.inf if self.high is None else self.high + 1e-6
        if value.size and np.isfinite((low, high)).any() and not (value.min() >= low and value.max() <= high):
            raise BrokenMessage(f"has values outside {self.low} to {self.high}")


class FurtherArrays:
    """Mark a message type whose messages may also hold float32 arrays under any other name."""


@dataclass(frozen=True)
class Field:
    """One field of a message type.

    Parameters
    ----------
    kind : type or None
        The type of a plain value, as msgspec reads it; None for an array.
    required : bool
        Whether the field must be there.
    sides : Sides or None
        The shape that an array or a list must have.
    dtype : numpy.dtype or None
        The element type of an array; None for a plain value.
    """

    kind: Any
    required: bool
    sides: Sides | None
    dtype: np.dtype[Any] | None


def check(kind: Any, content: Mapping[str, Any], lengths: Checks) -> None:
    """Check that a message is of its type.

    Parameters
    ----------
    kind : type
        A `TypedDict`, a dataclass, or `Annotated[TypedDict, FurtherArrays]`.
    content : dict
        The message.
    lengths : dict
        The lengths that letters stand for, so far (see `Sides`); it is added to.

    Raises
    ------
    BrokenMessage
        If a field is missing, unexpected, or not of its type.
    """
    fields, further = _fields(kind)
    for key, field in fields.items():
        if field.required and key not in content:
            raise BrokenMessage(f"`{key}` is missing")
    for key, value in content.items():
        expected = fields.get(key, further)
        if expected is None:
            raise BrokenMessage(f"`{key[:40]}` is not expected")
        try:
            _check_value(expected, value, lengths)
        except (BrokenMessage, msgspec.ValidationError) as error:
            raise BrokenMessage(f"`{key[:40]}`: {error}") from None


def finite(value: NDArray[Any]) -> bool:
    """Return whether an array has no NaN and no infinite value."""
    return value.dtype.kind != "f" or bool(np.isfinite(value).all())


def _check_value(field: Field, value: Any, lengths: Checks) -> None:
    """Check the kind, type and shape of one value of a message."""
    if field.dtype is None:
        msgspec.convert(value, field.kind)
    elif not isinstance(value, np.ndarray) or value.dtype != field.dtype:
        found = f"array of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
        raise BrokenMessage(f"expected an array of {field.dtype}, got {found}")
    if field.sides is not None:
        field.sides.check(value, lengths)


@cache
def _fields(kind: Any) -> tuple[dict[str, Field], Field | None]:
    """Return the fields of a message type, and what further keys must be (None: there may be none)."""
    further = None
    if get_origin(kind) is Annotated:
        further = Field(None, False, Sides(), np.dtype(np.float32))
        kind = get_args(kind)[0]
    return dict(_each(kind)), further


def _each(kind: Any) -> Iterator[tuple[str, Field]]:
    """Yield the name and the field of each entry of a message type."""
    for key, hint in get_type_hints(kind, include_extras=True).items():
        optional = get_origin(hint) is NotRequired
        if optional:
            (hint,) = get_args(hint)
        required = not (optional or (is_dataclass(kind) and hasattr(kind, key)))
        plain, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        sides = next((note for note in notes if isinstance(note, Sides)), None)
        if get_origin(plain) is np.ndarray:
            yield key, Field(None, required, sides, np.dtype(get_args(get_args(plain)[1])[0]))
        else:
            yield key, Field(hint if sides is None else plain, required, sides, None)
