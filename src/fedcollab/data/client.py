"""ClientData: what one client has, checked once, never changed."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcollab.data.npz import has_features, packed, read_npz, unpacked
from fedcollab.data.samples import (
    Features,
    Labels,
    check_magnitude,
    check_same_length,
    checked_features,
    checked_labels,
    feature_shape,
    group_numbers,
    is_numeric,
    is_table,
)
from fedcollab.errors import InputError, first_line
from fedcollab.files import write_bytes
from fedcollab.parsing import complete


@dataclass(frozen=True, eq=False)
class ClientData:
    """One client's labelled samples, and a test split if it has one.

    Parameters
    ----------
    name : str
        The client's name, which must stay the same from run to run: random draws depend on it.
    x : array_like or pandas.DataFrame
        The training samples: a numeric array with one row a sample (any shape after the first axis), a DataFrame with
        numeric and categorical columns (missing values allowed there), or anything that NumPy reads as an array.
    y : array_like
        One class label a sample: whole numbers, booleans or strings; or one number a sample: numbers with fractions,
        or whole ones of very many values, are a numeric target, which a regression predicts.
    x_test, y_test : optional
        The client's own test split, in the form of `x` and `y`; given together or not at all.
    groups : array_like, optional
        One value a training sample: samples that share it (of one patient, one household) stay on one side of every
        split and fold. It is never a feature, and never leaves the client.

    Raises
    ------
    InputError
        If samples and labels do not fit together, or values are missing or infinite.

    Examples
    --------
    >>> ClientData("north", [[0.5, 1.0], [0.1, 2.0], [0.3, 1.5]], ["ill", "well", "ill"])
    ClientData('north', 3 samples, 2 classes, features (2,), no test split)
    """

    name: str
    x: Features
    y: Labels
    x_test: Features | None = None
    y_test: Labels | None = None
    groups: Any | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise InputError(f"`name` (={self.name!r}) must be a non-empty string")
        where = f"client `{self.name}`"
        if (self.x_test is None) != (self.y_test is None):
            raise InputError(f"{where}: `x_test` and `y_test` must be given together")
        values = {"x": checked_features(self.x, f"{where}: `x`"), "y": checked_labels(self.y, f"{where}: `y`")}
        check_same_length(values["x"], values["y"], where, "x", "y")
        if len(values["y"]) < 2:
            raise InputError(f"{where} has {len(values['y'])} training sample(s); at least 2 are needed")
        if self.x_test is not None:
            values |= {"x_test": checked_features(self.x_test, f"{where}: `x_test`")}
            values |= {"y_test": checked_labels(self.y_test, f"{where}: `y_test`")}
            check_same_length(values["x_test"], values["y_test"], where, "x_test", "y_test")
            if feature_shape(values["x_test"]) != feature_shape(values["x"]):
                raise InputError(
                    f"{where}: `x_test` has features {feature_shape(values['x_test'])}; "
                    f"expected {feature_shape(values['x'])} as in `x`"
                )
        for key, value in values.items():
            check_magnitude(value, f"{where}: `{key}`")
        if self.groups is not None:
            values["groups"] = group_numbers(self.groups, len(values["y"]), where)
        for key, value in values.items():
            object.__setattr__(self, key, value)

    @property
    def quantity(self) -> int:
        """Return the number of training samples."""
        return len(self.y)

    @classmethod
    def from_torch(cls, name: str, dataset: Any, test: Any | None = None) -> ClientData:
        """Make a client from map-style PyTorch data sets of (features, label) pairs.

        Parameters
        ----------
        name : str
            The client's name.
        dataset : torch.utils.data.Dataset
            The training samples; anything with a length and an index will do.
        test : torch.utils.data.Dataset, optional
            The test samples.

        Returns
        -------
        ClientData
            The client.

        Raises
        ------
        InputError
            If a data set is empty or has no length and index, or its samples cannot be used.
        """
        x, y = _collect(dataset)
        if test is None:
            return cls(name, x, y)
        return cls(name, x, y, *_collect(test))

    def save(self, path: str | Path) -> None:
        """Write an NPZ file with the arrays `x`, `y` and, where there are any, `x_test`, `y_test` and `groups`.

        A table is written column by column (`x:COLUMN`); missing text is kept apart in `missing:x:COLUMN`.

        Parameters
        ----------
        path : str or Path
            The file.
        """
        arrays: dict[str, NDArray[Any]] = {"name": np.array(self.name), "y": self.y}
        arrays |= packed("x", self.x)
        if self.x_test is not None and self.y_test is not None:
            arrays |= {"y_test": self.y_test, **packed("x_test", self.x_test)}
        if self.groups is not None:
            arrays["groups"] = self.groups
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **arrays)
        write_bytes(path, buffer.getvalue())

    @classmethod
    def load(cls, path: str | Path, name: str | None = None) -> ClientData:
        """Read an NPZ file with `x` and `y` (and perhaps `x_test`, `y_test`, `groups`).

        Parameters
        ----------
        path : str or Path
            The file.
        name : str, optional
            The client's name; without one, that in the file, or the file's own name.

        Returns
        -------
        ClientData
            The client.

        Raises
        ------
        InputError
            If the file cannot be read, or lacks `x` or `y`.
        """
        path = Path(path)
        arrays = read_npz(path)
        if "y" not in arrays or not has_features("x", arrays):
            raise InputError(f"`{path}` has arrays {sorted(arrays)}; expected `x` and `y`")
        with complete(path, "NPZ"):
            return cls(
                name or (str(arrays["name"].item()) if "name" in arrays else path.stem),
                unpacked("x", arrays),
                arrays["y"],
                unpacked("x_test", arrays) if has_features("x_test", arrays) else None,
                arrays.get("y_test"),
                arrays.get("groups"),
            )

    def __repr__(self) -> str:
        test = "no test split" if self.y_test is None else f"{len(self.y_test)} for testing"
        what = "numeric target" if is_numeric(self.y) else f"{len(np.unique(self.y))} classes"
        shape = feature_shape(self.x)
        return f"ClientData({self.name!r}, {self.quantity} samples, {what}, features {shape}, {test})"


def list_clients(clients: Any) -> Any:
    """Return clients as a list: those of a mapping by name, or of any other iterable; everything else as it is.

    Parameters
    ----------
    clients : mapping, iterable of ClientData or other object
        In a mapping, each name stands for a `ClientData`, for features and labels `(x, y)`, or for these and a test
        split `(x, y, x_test, y_test)`.

    Returns
    -------
    list of ClientData or object
        The clients; what is no iterable (a runtime, a federation) is returned unchanged.

    Raises
    ------
    InputError
        If a name stands for something else, or for the data of a client of another name.

    Examples
    --------
    >>> list_clients({"north": ([[0.5], [0.1], [0.3]], ["ill", "well", "ill"])})
    [ClientData('north', 3 samples, 2 classes, features (1,), no test split)]
    """
    if not isinstance(clients, Mapping):
        return list(clients) if isinstance(clients, Iterable) else clients
    return [_of_mapping(name, value) for name, value in clients.items()]


def _of_mapping(name: Any, value: Any) -> ClientData:
    """Return the client that a mapping has under a name."""
    if isinstance(value, ClientData):
        if value.name != name:
            raise InputError(f"`clients` has the client {value.name!r} under the name {name!r}; expected the same name")
        return value
    if isinstance(value, (tuple, list)) and len(value) in (2, 4):
        return ClientData(name, *value)
    wanted = "expected ClientData, or features and labels (x, y)"
    if is_table(value):
        wanted = f"which column is the label? {wanted}, such as (table.drop(columns='outcome'), table['outcome'])"
    raise InputError(f"`clients` has a {type(value).__name__} under the name {name!r}; {wanted}")


def _collect(dataset: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the features and labels of a map-style PyTorch data set, or refuse what is none."""
    try:
        samples = [dataset[index] for index in range(len(dataset))]
    except (TypeError, NotImplementedError, AttributeError):  # such as an IterableDataset
        raise InputError(
            f"`dataset` (a {type(dataset).__name__}) must have a length and an index; of one that is only "
            "iterated over, give list(dataset)"
        ) from None
    try:
        pairs = [(np.asarray(x), np.asarray(label)) for x, label in samples]
    except (TypeError, ValueError) as error:
        raise InputError(f"`dataset` must hold (features, label) pairs: {first_line(error)}") from None
    if not pairs:
        raise InputError("`dataset` is empty; expected (features, label) pairs")
    shapes = sorted({x.shape for x, _ in pairs})
    if len(shapes) > 1:
        raise InputError(f"`dataset` has features of shapes {shapes[0]} and {shapes[1]}; expected one shape")
    counts = {label.size for _, label in pairs}
    if counts != {1}:
        raise InputError(f"`dataset` has labels of {max(counts)} values; expected one label a sample")
    return np.stack([x for x, _ in pairs]), np.array([label.item() for _, label in pairs])
