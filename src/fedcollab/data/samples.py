"""Features and labels as a client gives them: what they may be, checked once and made read-only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, SupportsFloat

import numpy as np
from numpy.typing import NDArray

from fedcollab.errors import InputError, is_number

if TYPE_CHECKING:
    import pandas as pd


#: the largest number that a model can be trained with: float32 ends at 3.4e38
LARGEST_NUMBER = 1e36

Features = Any  # a NumPy array of numbers (rows first), or a pandas DataFrame
Labels = Any  # a NumPy array once checked; lists, Series and tensors are taken

#: the largest labels of classes that are told apart: of whole numbers without a sign, and of floating-point numbers
LARGEST_CLASS = {"u": 2**63 - 1, "f": 2**53 - 1}


def is_table(x: Features) -> bool:
    """Return whether the features are a pandas DataFrame (without importing pandas to find out)."""
    return type(x).__module__.split(".")[0] == "pandas" and hasattr(x, "columns")


def is_numeric(y: Labels) -> bool:
    """Return whether checked labels are a numeric target: numbers with fractions, or whole ones of very many values."""
    return bool(y.dtype.kind == "f")


def looks_numeric(values: int, rows: int) -> bool:
    """Return whether whole numbers of so many different values, in so many rows, are taken as a numeric target."""
    return values > 100 and 2 * values > rows


def feature_shape(x: Features) -> tuple[Any, ...]:
    """Return the shape of one sample, or the columns of a table."""
    return tuple(x.columns) if is_table(x) else tuple(x.shape[1:])


def checked_features(x: Any, where: str) -> Features:
    """Return features as an array of finite numbers or as a table with named columns.

    Parameters
    ----------
    x : array_like or pandas.DataFrame
        The features.
    where : str
        What error messages call them.

    Raises
    ------
    InputError
        If they are empty, no numbers, or infinite; in an array, missing values too.
    """
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
    """Return a table with text as column names, after checking that it is not empty and its numbers are finite."""
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


def check_magnitude(values: Any, where: str) -> None:
    """Check that no number of checked features or labels is beyond `LARGEST_NUMBER`.

    Parameters
    ----------
    values : array or pandas.DataFrame
        The features or labels.
    where : str
        What error messages call them.

    Raises
    ------
    InputError
        If one is: models compute with 32 bits.
    """
    if is_table(values):
        for name, column in values.items():
            if column.dtype.kind == "f":
                check_magnitude(column.to_numpy(dtype=np.float64, na_value=np.nan), f"{where}: column `{name}`")
    elif values.dtype.kind == "f" and values.dtype.itemsize > 2 and (np.abs(values) > LARGEST_NUMBER).any():
        raise InputError(f"{where} has a number beyond {LARGEST_NUMBER:g}, which is too large for a model")


def checked_labels(y: Any, where: str) -> NDArray[Any]:
    """Return labels as an array: whole numbers or text where they are classes, numbers where they are a numeric target.

    Parameters
    ----------
    y : array_like
        The labels.
    where : str
        What error messages call them.

    Raises
    ------
    InputError
        If they are empty, missing, infinite or of more than one kind.
    """
    if hasattr(y, "detach"):
        y = y.detach().cpu().numpy()
    elif hasattr(y, "to_numpy"):
        y = y.to_numpy()
    array = np.array(y)
    if array.ndim != 1:
        raise InputError(f"{where} has shape {array.shape}; expected one label a sample")
    if array.size == 0:
        raise InputError(f"{where} is empty")
    if array.dtype.kind not in "biufOUS":
        raise InputError(f"{where} has labels of type {array.dtype}; expected numbers or text")
    if array.dtype.kind in "OUS":
        array = _text_labels(list(y), where)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InputError(f"{where} has {int((~np.isfinite(array)).sum())} missing or infinite label(s)")
    if array.dtype.kind in "biuf":
        numeric = (array != np.floor(array)).any() or looks_numeric(len(np.unique(array)), len(array))
        if not numeric and array.dtype.kind in "uf" and (np.abs(array) > LARGEST_CLASS[array.dtype.kind]).any():
            raise InputError(
                f"{where} has labels as large as {array.max():.3g}, which cannot be told apart: number the classes, "
                "or give a numeric target in larger units"
            )
        array = array.astype(np.float64 if numeric else np.int64)
    array.setflags(write=False)
    return array


def _text_labels(values: list[Any], where: str) -> NDArray[Any]:
    """Convert labels that came as objects to an array: all text, or all numbers; refuse a mix and missing labels."""
    missing = sum(value is None or value != value or (isinstance(value, str) and not value.strip()) for value in values)
    if missing:
        raise InputError(f"{where} has {missing} missing label(s)")
    other = next(
        (each for each in values if isinstance(each, bytes) or not isinstance(each, (str, SupportsFloat))), None
    )
    if other is not None:
        raise InputError(f"{where} has labels of type {type(other).__name__}; expected numbers or text")
    numeric = [value for value in values if not isinstance(value, str) or is_number(value)]
    if len(numeric) == len(values):
        try:
            return np.array([float(value) for value in values])
        except OverflowError:
            raise InputError(f"{where} has labels of hundreds of digits; give classes") from None
    if numeric:
        text = next(value for value in values if isinstance(value, str) and not is_number(value))
        raise InputError(
            f"{where} mixes numbers and text (such as {numeric[0]!r} and {text!r}); expected one kind: write all "
            "classes as words (of files: --label-map FILE)"
        )
    return np.array([str(value).strip() for value in values])


def group_numbers(groups: Any, rows: int, where: str) -> NDArray[np.int64]:
    """Return which group each sample belongs to, as a number from 0 in order of first appearance.

    Parameters
    ----------
    groups : array_like
        One value a sample.
    rows : int
        How many samples there are.
    where : str
        What error messages call the client.

    Raises
    ------
    InputError
        If there are more or fewer values than samples.
    """
    values = np.array([str(value) for value in (groups.tolist() if hasattr(groups, "tolist") else groups)])
    if values.shape != (rows,):
        raise InputError(f"{where}: `groups` has {len(values)} values and `y` has {rows}; expected as many")
    _, first, place = np.unique(values, return_index=True, return_inverse=True)
    numbers: NDArray[np.int64] = np.argsort(np.argsort(first))[place].astype(np.int64)
    numbers.setflags(write=False)
    return numbers


def check_same_length(x: Features, y: Labels, where: str, x_name: str, y_name: str) -> None:
    """Refuse features and labels of different lengths; the names are what error messages call them."""
    if len(x) != len(y):
        raise InputError(f"{where}: `{x_name}` has {len(x)} rows and `{y_name}` has {len(y)}; expected as many")
