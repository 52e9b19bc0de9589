"""A client's arrays and tables in NPZ files: written, and read without ever unpickling or unpacking too much."""

from __future__ import annotations

import math
import sys
import warnings
import zipfile
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcollab.data.samples import Features, is_table
from fedcollab.errors import InputError, first_line
from fedcollab.parsing import MOST_ARRAYS, MOST_DATA, check_file, check_size


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of an NPZ file by name.

    Parameters
    ----------
    path : Path
        The file.

    Raises
    ------
    InputError
        If the file cannot be read, or holds object arrays, which would need pickle.
    """
    check_file(path)
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
        raise InputError(f"`{path}` cannot be read as NPZ: {first_line(error)}") from None


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
        names = [member.filename.removesuffix(".npy") for member in members]
        if len(set(names)) < len(names):
            twice = next(name for name, count in Counter(names).items() if count > 1)
            raise InputError(f"`{path}` cannot be read as NPZ: it has two arrays `{twice}`")
        for member in members:
            with archive.open(member) as file:
                version = np.lib.format.read_magic(file)
                read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                shape, _, dtype = read(file)
                if dtype.hasobject:
                    raise InputError(
                        f"`{path}` cannot be read as NPZ: array `{member.filename}` holds Python objects, which only "
                        "pickle reads; expected numbers or text"
                    )
                if math.prod(shape) * dtype.itemsize > member.file_size or min(shape, default=0) < 0:
                    raise InputError(
                        f"`{path}` cannot be read as NPZ: array `{member.filename}` claims shape {shape}, but has "
                        f"{member.file_size} bytes"
                    )


def packed(key: str, x: Features) -> dict[str, NDArray[Any]]:
    """Return features as the arrays of an NPZ file: an array, or a table column by column.

    Parameters
    ----------
    key : str
        "x" or "x_test".
    x : array or DataFrame
        Checked features.
    """
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


def has_features(key: str, arrays: Collection[str]) -> bool:
    """Return whether an NPZ file with arrays of these names has features under a key: an array, or a table."""
    return any(name == key or name.startswith(f"{key}:") for name in arrays)


def unpacked(key: str, arrays: dict[str, NDArray[Any]]) -> Features:
    """Return the features that an NPZ file holds under a key: an array, or a table column by column.

    Parameters
    ----------
    key : str
        "x" or "x_test".
    arrays : dict
        What `read_npz` returned.

    Raises
    ------
    InputError
        If there is an array and a table, or the columns of the table have different lengths.
    """
    names = [name for name in arrays if name.startswith(f"{key}:")]
    if key in arrays:
        if names:
            raise InputError(f"the file holds an array `{key}` and a table (`{names[0]}`); expected one of them")
        return arrays[key]
    import pandas as pd

    lengths = {name: len(arrays[name]) if arrays[name].ndim == 1 else -1 for name in names}
    for name, length in lengths.items():
        if length != lengths[names[0]]:  # pandas would fill the shorter one up with missing values
            raise InputError(f"`{name}` and `{names[0]}` are columns of different lengths; expected as many values")
    columns: dict[str, Any] = {}
    for name, values in arrays.items():
        if name in lengths:
            series = pd.Series(values.astype(object) if values.dtype.kind == "U" else values)
            missing = arrays.get(f"missing:{name}")
            columns[name.removeprefix(f"{key}:")] = series if missing is None else series.where(~missing, None)
    return pd.DataFrame(columns)
