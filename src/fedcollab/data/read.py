"""People's own data: a folder with one CSV, Parquet or NPZ file per client; the file's name is the client's name."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from fedcollab.data.client import ClientData
from fedcollab.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

MISSING = ["?"]  # counted as missing beside what pandas knows (empty, NA, NaN, null, ...)
TEST = ".test"  # NAME.test.csv beside NAME.csv is that client's own test split


def read_clients(directory: str | Path, label: str | None = None, drop: Iterable[str] = ()) -> list[ClientData]:
    """Read every client file of a folder, in order of name.

    Parameters
    ----------
    directory : str or Path
        The folder, with one CSV, Parquet or NPZ file per client, whose name is the client's. `NAME.test.csv` (or
        `.parquet`) beside `NAME.csv` is that client's test split. NPZ files carry arrays `x`, `y` and perhaps `x_test`,
        `y_test`.
    label : str, optional
        The label column of CSV and Parquet files, which need one.
    drop : iterable of str
        Columns to leave out (identifiers, dates).

    Returns
    -------
    list of ClientData
        The clients.

    Raises
    ------
    InputError
        If the folder holds no client's file, or a file cannot be read or used.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise InputError(
            f"`--clients` (={str(directory)!r}) must be a folder with one CSV, Parquet or NPZ file per client"
        )
    files = sorted(path for path in directory.iterdir() if path.suffix.lower() in READABLE and path.is_file())
    if not files:
        raise InputError(f"`--clients` (={str(directory)!r}) holds no .csv, .parquet or .npz file")
    training = [path for path in files if not path.stem.endswith(TEST)]
    names = [path.stem for path in training]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"`--clients` (={str(directory)!r}) has more than one file for client `{twice}`")
    tests = {path.stem.removesuffix(TEST): path for path in files if path.stem.endswith(TEST)}
    for name in tests.keys() - set(names):
        raise InputError(f"`{tests[name]}` is a test split, but there is no training file for client `{name}`")
    return [read_client(path, label, tests.get(path.stem), drop) for path in training]


def read_client(
    path: str | Path, label: str | None, test: str | Path | None = None, drop: Iterable[str] = ()
) -> ClientData:
    """Read one client's file; its name is the client's.

    Parameters
    ----------
    path : str or Path
        A CSV, Parquet or NPZ file.
    label : str or None
        The label column of a CSV or Parquet file.
    test : str or Path, optional
        The file of the client's test split; an NPZ file holds its own.
    drop : iterable of str
        Columns to leave out (identifiers, dates).

    Returns
    -------
    ClientData
        The client.

    Raises
    ------
    InputError
        If the file cannot be read, lacks a column, or its samples cannot be used.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"`{path}` does not exist")
    if path.stat().st_size == 0:
        raise InputError(f"`{path}` is empty")
    if path.suffix.lower() == ".npz":
        return ClientData.load(path, name=path.stem)
    if label is None:
        raise InputError(f"`--label` must name the label column of `{path}`")
    x, y = _split(path, label, drop)
    if test is None:
        return ClientData(path.stem, x, y)
    return ClientData(path.stem, x, y, *_split(Path(test), label, drop))


def _split(path: Path, label: str, drop: Iterable[str]) -> tuple[pd.DataFrame, pd.Series]:
    frame = TABLES[path.suffix.lower()](path)
    frame.columns = [str(column).strip() for column in frame.columns]
    if label in drop:
        raise InputError(f"`--drop` (={label!r}) is the label column; it cannot be left out")
    if label not in frame.columns and frame.shape[1] == 1 and ";" in frame.columns[0]:
        raise InputError(f"`{path}` seems to be separated by semicolons; save it with commas")
    if label not in frame.columns:
        raise InputError(f"`--label` (={label!r}) is not a column of `{path}`; columns: {', '.join(frame.columns)}")
    if len(frame) == 0:
        raise InputError(f"`{path}` has a header but no rows")
    labels = frame[label]
    if labels.isna().all():
        raise InputError(f"`{path}`: label column `{label}` is empty")
    unknown = [column for column in drop if column not in frame.columns]
    if unknown:
        raise InputError(f"`--drop` (={unknown[0]!r}) is not a column of `{path}`; columns: {', '.join(frame.columns)}")
    features = frame.drop(columns=[label, *drop])
    if features.shape[1] == 0:
        raise InputError(f"`{path}` has no column beside the label `{label}`")
    return features, labels


def _read_csv(path: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        header = pd.read_csv(path, header=None, nrows=1, dtype=str, skipinitialspace=True).iloc[0].tolist()
        repeated = sorted({str(name) for name in header if header.count(name) > 1})
        if repeated:
            raise InputError(f"`{path}` has repeated columns: {', '.join(repeated)}")
        return pd.read_csv(path, na_values=MISSING, skipinitialspace=True)
    except UnicodeDecodeError as error:
        raise InputError(f"`{path}` is not UTF-8 (byte {error.start}); save it as UTF-8") from None
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise InputError(f"`{path}` cannot be read as CSV: {str(error).splitlines()[0]}") from None


def _read_parquet(path: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        return pd.read_parquet(path)
    except ImportError:
        raise InputError(f"`{path}` needs pyarrow: pip install 'fedcollab[parquet]'") from None
    except Exception as error:
        raise InputError(f"`{path}` cannot be read as Parquet: {str(error).splitlines()[0]}") from None


TABLES = {".csv": _read_csv, ".parquet": _read_parquet}
READABLE = {*TABLES, ".npz"}
