"""Schema: how a client's raw samples become model inputs, the same at every client of a federation.

Numeric columns are centred and scaled (missing becomes the mean, that is 0), categories become one-hot columns (missing
becomes all zeros), arrays are centred and scaled, labels become class indices, a numeric target is centred and scaled.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedcollab.data.client import ClientData
from fedcollab.data.samples import Features, is_table
from fedcollab.data.split import with_test
from fedcollab.encoders.encoding import Encoding
from fedcollab.errors import InputError
from fedcollab.files import inside, write_bytes
from fedcollab.parsing import MISFITS, MOST_JSON, Finite, parse_json, read_text


@dataclass(frozen=True, eq=False)
class Arrays:
    """A client's data in the form that models take: float32 features, class indices, and a test split.

    Parameters
    ----------
    x, x_test : array of float32
        Features of the training and the test samples.
    y, y_test : array of int64, or of float32
        Their class indices, or the numeric target, centred and scaled.
    groups : array of int64 or None
        Which group each training sample belongs to, where samples of one group must stay together.
    """

    x: NDArray[np.float32]
    y: NDArray[Any]
    x_test: NDArray[np.float32]
    y_test: NDArray[Any]
    groups: NDArray[np.int64] | None = None


@dataclass(frozen=True)
class Column:
    """How one column of a table becomes numbers.

    Parameters
    ----------
    name : str
        The column.
    mean, std : float
        Mean and standard deviation over all clients, if the column is numeric.
    categories : tuple of str or None
        The known values, if the column is categorical; None: numeric.
    """

    name: str
    mean: float = 0.0
    std: float = 1.0
    categories: tuple[str, ...] | None = None


class _Column(TypedDict):
    """One column in a schema's JSON; attributes as in `Column`."""

    name: str
    mean: Finite
    std: Finite
    categories: list[str] | None


class _Content(TypedDict):
    """A schema's JSON, which may be from anyone; attributes as in `Schema`."""

    classes: list[int | str]
    shape: list[int]
    columns: list[_Column] | None
    mean: NotRequired[list[Finite]]
    std: NotRequired[list[Finite]]
    missing_indicators: NotRequired[bool]
    test_share: NotRequired[Finite]
    seed: NotRequired[int]
    encoding: NotRequired[dict[str, Any] | None]
    task: NotRequired[Literal["classification", "regression"]]
    target: NotRequired[tuple[Finite, Finite]]


@dataclass(frozen=True)
class Schema:
    """How raw samples become model inputs; the same at every client.

    Parameters
    ----------
    classes : tuple of int or str
        The label of each class index; empty for a regression.
    shape : tuple of int
        The shape of one prepared sample.
    columns : tuple of Column or None
        For tables, how each column is encoded; None for arrays.
    mean, std : tuple of float
        For arrays, one value for all, or one a feature or channel.
    missing_indicators : bool
        For tables, whether each column gets one more feature, which says whether the value is missing.
    test_share : float
        The share of its samples that a client without a test split holds out.
    seed : int
        The seed that the hold-out is drawn from.
    encoding : Encoding or None
        The frozen encoder whose features stand for samples when distances are estimated; None: the samples themselves.
    task : str
        What models predict: "classification" (a class) or "regression" (a numeric target).
    target : tuple of float
        For a regression, the mean and the scale with which every client centres and scales its target.
    """

    classes: tuple[int | str, ...]
    shape: tuple[int, ...]
    columns: tuple[Column, ...] | None = None
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    missing_indicators: bool = False
    test_share: float = 0.2
    seed: int = 0
    encoding: Encoding | None = None
    task: str = "classification"
    target: tuple[float, float] = (0.0, 1.0)

    @property
    def outputs(self) -> int:
        """Return how many numbers a model gives for a sample: a score for each class, or the target."""
        return len(self.classes) or 1

    @property
    def width(self) -> int:
        """Return how many numbers stand for one sample when distances are estimated."""
        return int(np.prod(self.shape)) if self.encoding is None else self.encoding.width

    @property
    def blocks(self) -> list[list[int]]:
        """Return the features that stand for each text column, one for each category."""
        found, start = list[list[int]](), 0
        for column in self.columns or ():
            width = 1 if column.categories is None else len(column.categories)
            if column.categories:
                found.append(list(range(start, start + width)))
            start += width + self.missing_indicators
        return found

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that the clients were prepared with, as far as they do not follow from the data."""
        scale = "features" if self.columns is not None or len(self.mean) > 3 or len(self.shape) == 1 else "channels"
        return {
            "scale": "none" if self.columns is None and (self.mean, self.std) == ((0.0,), (1.0,)) else scale,
            "missing_indicators": self.missing_indicators,
            "test_share": self.test_share,
            "seed": self.seed,
            "encoder": None if self.encoding is None else self.encoding.encoder,
            **({} if self.classes else {"task": self.task}),
        }

    def apply(self, data: ClientData, lot: str | None = None) -> Arrays:
        """Return a client's samples as arrays; a client without a test split holds one out.

        Parameters
        ----------
        data : ClientData
            The client.
        lot : str, optional
            What the hold-out is drawn from beside the seed (see `split.with_test`).

        Returns
        -------
        Arrays
            Features, and class indices or the numeric target, for training and testing.

        Raises
        ------
        InputError
            If the samples do not fit the schema.
        """
        data = with_test(data, self.test_share, self.seed, lot)
        return Arrays(
            self.features(data.x),
            self.targets(data.y),
            self.features(data.x_test),
            self.targets(data.y_test),
            data.groups,
        )

    def features(self, x: Features) -> NDArray[np.float32]:
        """Return raw features as model inputs.

        Parameters
        ----------
        x : array or pandas.DataFrame
            The raw features.

        Returns
        -------
        array of float32
            One row a sample.

        Raises
        ------
        InputError
            If `x` has another shape, or lacks a column.
        """
        if self.columns is None:
            if is_table(x):
                raise InputError("`x` is a table; this schema was made for arrays")
            if tuple(x.shape[1:]) != self.shape:
                raise InputError(f"`x` has features of shape {tuple(x.shape[1:])}; expected {self.shape}")
            axis = (-1, 1, 1) if len(self.mean) > 1 and len(self.shape) == 3 else (-1,)
            exact = np.promote_types(x.dtype, np.float32)  # of 64 bits: as a time in seconds less its mean needs
            mean, std = (np.reshape(np.array(part, dtype=exact), axis) for part in (self.mean, self.std))
            return np.ascontiguousarray((x.astype(exact) - mean) / std, dtype=np.float32)
        missing = [column.name for column in self.columns if column.name not in x.columns]
        if missing:
            raise InputError(f"`x` lacks the column {missing[0]!r}")
        parts = [part for column in self.columns for part in self._encode(column, x[column.name])]
        return np.ascontiguousarray(np.stack(parts, axis=1, dtype=np.float32))

    def targets(self, y: NDArray[Any] | None) -> NDArray[Any]:
        """Return the class indices of raw labels, or a raw numeric target centred and scaled.

        Parameters
        ----------
        y : array
            The labels, or the target.

        Returns
        -------
        array of int64, or of float32
            One value a sample.

        Raises
        ------
        InputError
            If a label is not among `classes`, or is no number where numbers are predicted.
        """
        labels = np.asarray(y)
        if not self.classes:
            if labels.dtype.kind not in "biuf":
                raise InputError(f"label {labels.tolist()[0]!r} is no number; a regression needs a numeric target")
            mean, scale = self.target
            return ((labels.astype(np.float64) - mean) / scale).astype(np.float32)
        index = {label: position for position, label in enumerate(self.classes)}
        try:
            return np.array([index[label] for label in labels.tolist()], dtype=np.int64)
        except KeyError as error:
            raise InputError(f"label {error.args[0]!r} is not among the known classes {list(self.classes)}") from None

    def in_units(self, outputs: NDArray[Any]) -> NDArray[np.float64]:
        """Return a model's predictions of a numeric target in the target's own units; the opposite of `targets`."""
        mean, scale = self.target
        return np.asarray(outputs, dtype=np.float64) * scale + mean

    def _encode(self, column: Column, values: Any) -> list[NDArray[np.float64]]:
        """Return the inputs that a column becomes: a scaled number, or one indicator for each category."""
        absent = values.isna().to_numpy()
        indicator = [absent.astype(float)] if self.missing_indicators else []
        if column.categories is None:
            numbers = np.where(absent, column.mean, values.to_numpy(dtype=float, na_value=np.nan))
            return [(numbers - column.mean) / column.std, *indicator]
        text = values.astype(object).where(values.notna(), "").astype(str).to_numpy(dtype=str)
        return [((text == category) & ~absent).astype(float) for category in column.categories] + indicator

    def to_json(self) -> str:
        """Return the schema as JSON, for messages and files; that of classes says nothing about a numeric target."""
        return self._json

    @cached_property
    def _json(self) -> str:
        """What `to_json` returns, made once: it is asked for at every call of clients."""
        content = asdict(self)
        if self.classes:
            del content["task"], content["target"]
        return json.dumps(content)

    @classmethod
    def from_json(cls, text: str) -> Schema:
        """Return the schema that `to_json` wrote as text."""
        content: dict[str, Any] = parse_json(text, "schema", "a schema")
        if not isinstance(content, dict):
            raise InputError(f"it holds {text.strip()[:40]!r}; expected an object with `classes` and `shape`")
        try:
            msgspec.convert(content, _Content)
            columns, encoding = content.pop("columns"), content.pop("encoding", None)
            if columns is not None:
                columns = tuple(
                    Column(
                        c["name"],
                        c["mean"],
                        c["std"],
                        None if c["categories"] is None else tuple(c["categories"]),
                    )
                    for c in columns
                )
            listed: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in content.items()}
            found = cls(columns=columns, encoding=None if encoding is None else Encoding.of(encoding), **listed)
        except MISFITS as error:
            reason = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
            raise InputError(f"it is not a schema: {reason}") from None
        wrong = found._contradiction()
        if wrong is not None:
            raise InputError(f"it is not a schema: {wrong}")
        return found

    def _contradiction(self) -> str | None:
        """Return which of its parts cannot be together, or None."""
        if bool(self.classes) == (self.task == "regression") or len(set(self.classes)) < len(self.classes):
            return "`classes` has a class twice, or contradicts `task`"
        if min(self.shape, default=-1) < 0:
            return "`shape` has no sides, or a negative one"
        if not 0 <= self.test_share <= 1:
            return f"`test_share` (={self.test_share!r}) is not from 0 to 1"
        sides = {1, self.shape[0] if len(self.shape) == 3 else self.shape[-1]}
        if len(self.mean) != len(self.std) or (self.columns is None and len(self.mean) not in sides):
            return "`mean` and `std` do not fit `shape`"
        if min([*self.std, self.target[1], *(column.std for column in self.columns or ())]) <= 0:
            return "`std` or the scale of `target` is not positive"
        if self.columns is None:
            return None
        widths = [1 if column.categories is None else len(column.categories) for column in self.columns]
        if math.prod(self.shape) != sum(widths) + len(widths) * self.missing_indicators:
            return "`columns` do not make samples of `shape`"
        if len({column.name for column in self.columns}) < len(widths):
            return "`columns` has a name twice"
        if any(len(set(column.categories or ())) < len(column.categories or ()) for column in self.columns):
            return "`columns` has a category twice"
        return None

    def as_dict(self) -> dict[str, Any]:
        """Return the schema as plain values, as they read back from JSON; `of` takes them."""
        content: dict[str, Any] = json.loads(self._json)
        return content

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Schema:
        """Return the schema that `as_dict` returned as plain values, such as a training result has it."""
        return cls.from_json(json.dumps(content))

    def save(self, path: str | Path) -> None:
        """Write the schema to a JSON file."""
        write_bytes(path, (self.to_json() + "\n").encode())

    @classmethod
    def load(cls, path: str | Path) -> Schema:
        """Read the schema that a run left.

        Parameters
        ----------
        path : str or Path
            The JSON file, or a run directory.

        Returns
        -------
        Schema
            The schema.

        Raises
        ------
        InputError
            If the file does not exist or is not a schema.
        """
        path = inside(path, "schema.json")
        try:
            return cls.from_json(read_text(path, "a schema: a run directory of `fedcollab run` has one", MOST_JSON))
        except MISFITS as error:
            if str(error).startswith(f"`{path}`"):
                raise
            raise InputError(f"`{path}` cannot be read as a schema: {error}") from None
