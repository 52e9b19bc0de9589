"""ClientData: what one client has, checked once, never changed."""

from __future__ import annotations

import io
import math
import sys
import warnings
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedcollab.errors import InputError, is_number
from fedcollab.files import write_bytes
from fedcollab.parsing import MOST_ARRAYS, MOST_DATA, check_size, complete

if TYPE_CHECKING:
    import pandas as pd

Features = Any  # a NumPy array of numbers (rows first), or a pandas DataFrame
Labels = Any  # a NumPy array once checked; lists, Series and tensors are taken


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
        One class label a sample: whole numbers, booleans or strings.
    x_test, y_test : optional
        The client's own test split, in the form of `x` and `y`; given together or not at all.
    groups : array_like, optional
        One value a training sample: samples that share it (of one patient, one household) stay on one side of every
        split and fold. It is never a feature, and never leaves the client.

    Raises
    ------
    InputError
        If samples and labels do not fit together, values are missing or infinite, or labels are continuous.

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
        values = {"x": _features(self.x, f"{where}: `x`"), "y": _labels(self.y, f"{where}: `y`")}
        _same_length(values["x"], values["y"], where, "x", "y")
        if len(values["y"]) < 2:
            raise InputError(f"{where} has {len(values['y'])} training sample(s); at least 2 are needed")
        if self.x_test is not None:
            values |= {"x_test": _features(self.x_test, f"{where}: `x_test`")}
            values |= {"y_test": _labels(self.y_test, f"{where}: `y_test`")}
            _same_length(values["x_test"], values["y_test"], where, "x_test", "y_test")
            if feature_shape(values["x_test"]) != feature_shape(values["x"]):
                raise InputError(
                    f"{where}: `x_test` has features {feature_shape(values['x_test'])}; "
                    f"expected {feature_shape(values['x'])} as in `x`"
                )
        if self.groups is not None:
            values["groups"] = _groups(self.groups, len(values["y"]), where)
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
        arrays |= _pack("x", self.x)
        if self.x_test is not None and self.y_test is not None:
            arrays |= {"y_test": self.y_test, **_pack("x_test", self.x_test)}
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
        if "y" not in arrays or not any(key == "x" or key.startswith("x:") for key in arrays):
            raise InputError(f"`{path}` has arrays {sorted(arrays)}; expected `x` and `y`")
        has_test = any(key == "x_test" or key.startswith("x_test:") for key in arrays)
        with complete(path, "NPZ"):
            return cls(
                name or (str(arrays["name"].item()) if "name" in arrays else path.stem),
                _unpack("x", arrays),
                arrays["y"],
                _unpack("x_test", arrays) if has_test else None,
                arrays.get("y_test"),
                arrays.get("groups"),
            )

    def __repr__(self) -> str:
        test = "no test split" if self.y_test is None else f"{len(self.y_test)} for testing"
        classes = len(np.unique(self.y))
        shape = feature_shape(self.x)
        return f"ClientData({self.name!r}, {self.quantity} samples, {classes} classes, features {shape}, {test})"


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


def is_table(x: Features) -> bool:
    """Return whether the features are a pandas DataFrame (without importing pandas to find out)."""
    return type(x).__module__.split(".")[0] == "pandas" and hasattr(x, "columns")


def feature_shape(x: Features) -> tuple[Any, ...]:
    """Return the shape of one sample, or the columns of a table."""
    return tuple(x.columns) if is_table(x) else tuple(x.shape[1:])


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of an NPZ file by name.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    dict
        The arrays.

    Raises
    ------
    InputError
        If the file cannot be read, or holds object arrays, which would need pickle.
    """
    if not path.exists():
        raise InputError(f"`{path}` does not exist")
    try:
        check_size(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about headers by Python 2
            if zipfile.is_zipfile(path):
                _check_arrays(path)
            with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                if not hasattr(file, "files"):
                    raise InputError(f"`{path}` must be an NPZ file with arrays `x` and `y`")
                return {key: _checked_text(path, key, file[key]) for key in file.files}
    except InputError:
        raise
    except Exception as error:  # zipfile, zlib and NumPy have a dozen kinds for a damaged file
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"`{path}` cannot be read as NPZ: {why}") from None


def _checked_text(path: Path, key: str, array: NDArray[Any]) -> NDArray[Any]:
    """Return an array of an NPZ file; one of text must hold characters that exist."""
    if array.dtype.kind == "U" and array.dtype.itemsize:
        codes = np.ascontiguousarray(array).reshape(-1).astype(array.dtype.newbyteorder("=")).view(np.uint32)
        if codes.size and (int(codes.max()) > sys.maxunicode or ((codes >= 0xD800) & (codes < 0xE000)).any()):
            raise InputError(f"`{path}` cannot be read as NPZ: array `{key}` holds characters that do not exist")
    return array


def _check_arrays(path: Path) -> None:
    """Refuse an NPZ file that would unpack to more than allowed, or whose arrays claim more than is there."""
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if len(members) > MOST_ARRAYS:
            raise InputError(f"`{path}` has {len(members)} arrays; an NPZ file may have at most {MOST_ARRAYS}")
        if sum(member.file_size for member in members) > MOST_DATA:
            raise InputError(f"`{path}` would unpack to more than {MOST_DATA / 2**30:g} GiB, the most for an NPZ file")
        for member in members:
            with archive.open(member) as file:
                version = np.lib.format.read_magic(file)
                read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                shape, _, dtype = read(file)
                if math.prod(shape) * dtype.itemsize > member.file_size or min(shape, default=0) < 0:
                    raise InputError(
                        f"`{path}` cannot be read as NPZ: array `{member.filename}` claims shape {shape}, but has "
                        f"{member.file_size} bytes"
                    )


def _features(x: Any, where: str) -> Features:
    if is_table(x):
        return _table(x, where)
    if hasattr(x, "detach"):
        x = x.detach().cpu().numpy()
    try:
        array = np.array(x)
    except ValueError as error:
        raise InputError(f"{where} must be an array of numbers with rows of equal shape: {error}") from None
    if array.dtype.kind not in "buif":
        raise InputError(f"{where} has type {array.dtype}; expected numbers, or a pandas DataFrame for mixed columns")
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim == 0 or array.size == 0:
        raise InputError(f"{where} is empty (shape {array.shape})")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InputError(
            f"{where} has {int((~np.isfinite(array)).sum())} NaN or infinite value(s); expected finite numbers"
        )
    array.setflags(write=False)
    return array


def _table(frame: pd.DataFrame, where: str) -> pd.DataFrame:
    if frame.shape[0] == 0 or frame.shape[1] == 0:
        raise InputError(f"{where} is an empty table (shape {frame.shape})")
    frame = frame.reset_index(drop=True).copy()
    frame.columns = [str(column) for column in frame.columns]
    repeated = sorted(frame.columns[frame.columns.duplicated()])
    if repeated:
        raise InputError(f"{where} has repeated columns: {', '.join(repeated)}")
    numbers = [place for place, dtype in enumerate(frame.dtypes) if dtype.kind in "fc"]
    for start in range(0, len(numbers), 1000):
        part = frame.iloc[:, numbers[start : start + 1000]]
        infinite = np.isinf(part.to_numpy(dtype=float, na_value=np.nan)).any(axis=0)
        if infinite.any():
            raise InputError(f"{where}: column `{part.columns[int(infinite.argmax())]}` has infinite values")
    return frame


def _labels(y: Any, where: str) -> NDArray[Any]:
    if hasattr(y, "detach"):
        y = y.detach().cpu().numpy()
    elif hasattr(y, "to_numpy"):
        y = y.to_numpy()
    array = np.array(y)
    if array.ndim != 1:
        raise InputError(f"{where} has shape {array.shape}; expected one label a sample")
    if array.size == 0:
        raise InputError(f"{where} is empty")
    if array.dtype.kind in "OUS":
        array = _text_labels(list(y), where)
    if array.dtype.kind == "f":
        if not np.isfinite(array).all():
            raise InputError(f"{where} has {int((~np.isfinite(array)).sum())} missing or infinite label(s)")
        if (array != np.floor(array)).any():
            example = array[array != np.floor(array)][0]
            raise InputError(
                f"{where} has continuous labels (such as {example:g}); fedcollab trains classifiers: give classes"
            )
    if array.dtype.kind in "biuf":
        array = array.astype(np.int64)
        distinct = len(np.unique(array))
        if distinct > 100 and 2 * distinct > len(array):
            raise InputError(
                f"{where} has {distinct} different values in {len(array)} samples, which looks continuous; "
                "fedcollab trains classifiers: give classes"
            )
    array.setflags(write=False)
    return array


def _text_labels(values: list[Any], where: str) -> NDArray[Any]:
    """Convert labels that came as objects to an array: all text, or all numbers; refuse a mix and missing labels."""
    missing = sum(value is None or value != value or (isinstance(value, str) and not value.strip()) for value in values)
    if missing:
        raise InputError(f"{where} has {missing} missing label(s)")
    numeric = [value for value in values if not isinstance(value, str) or is_number(value)]
    if len(numeric) == len(values):
        return np.array([float(value) for value in values])
    if numeric:
        text = next(value for value in values if isinstance(value, str) and not is_number(value))
        raise InputError(f"{where} mixes numbers and text (such as {numeric[0]!r} and {text!r}); expected one kind")
    return np.array([str(value).strip() for value in values])


def _groups(groups: Any, rows: int, where: str) -> NDArray[np.int64]:
    """Return which group each sample belongs to, as a number from 0 in order of first appearance."""
    values = np.array([str(value) for value in (groups.tolist() if hasattr(groups, "tolist") else groups)])
    if values.shape != (rows,):
        raise InputError(f"{where}: `groups` has {len(values)} values and `y` has {rows}; expected as many")
    _, first, place = np.unique(values, return_index=True, return_inverse=True)
    numbers: NDArray[np.int64] = np.argsort(np.argsort(first))[place].astype(np.int64)
    numbers.setflags(write=False)
    return numbers


def _same_length(x: Features, y: Labels, where: str, x_name: str, y_name: str) -> None:
    if len(x) != len(y):
        raise InputError(f"{where}: `{x_name}` has {len(x)} rows and `{y_name}` has {len(y)}; expected as many")


def _collect(dataset: Any) -> tuple[NDArray[Any], NDArray[Any]]:
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
        raise InputError(f"`dataset` must hold (features, label) pairs: {str(error).splitlines()[0]}") from None
    if not pairs:
        raise InputError("`dataset` is empty; expected (features, label) pairs")
    shapes = sorted({x.shape for x, _ in pairs})
    if len(shapes) > 1:
        raise InputError(f"`dataset` has features of shapes {shapes[0]} and {shapes[1]}; expected one shape")
    counts = {label.size for _, label in pairs}
    if counts != {1}:
        raise InputError(f"`dataset` has labels of {max(counts)} values; expected one label a sample")
    return np.stack([x for x, _ in pairs]), np.array([label.item() for _, label in pairs])


def _pack(key: str, x: Features) -> dict[str, NDArray[Any]]:
    if not is_table(x):
        return {key: x}
    packed: dict[str, NDArray[Any]] = {}
    for column in x.columns:
        values = x[column]
        if values.dtype.kind in "biuf":
            packed[f"{key}:{column}"] = values.to_numpy()
        else:
            packed[f"{key}:{column}"] = values.astype(object).where(values.notna(), "").astype(str).to_numpy(dtype=str)
            packed[f"missing:{key}:{column}"] = values.isna().to_numpy()
    return packed


def _unpack(key: str, arrays: dict[str, NDArray[Any]]) -> Features:
    if key in arrays:
        return arrays[key]
    import pandas as pd

    columns: dict[str, Any] = {}
    for name, values in arrays.items():
        if name.startswith(f"{key}:"):
            series = pd.Series(values.astype(object) if values.dtype.kind == "U" else values)
            missing = arrays.get(f"missing:{name}")
            columns[name.removeprefix(f"{key}:")] = series if missing is None else series.where(~missing, None)
    return pd.DataFrame(columns)
