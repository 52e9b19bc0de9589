"""People's own data: a folder with one CSV, Parquet or NPZ file per client; the file's name is the client's name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from fedcollab.data.client import ClientData
from fedcollab.data.samples import is_table
from fedcollab.data.spelling import mapped, merging
from fedcollab.data.tables import TABLES, numbers_as_text, read_table
from fedcollab.errors import InputError
from fedcollab.parsing import check_file, check_size

if TYPE_CHECKING:
    import pandas as pd

TEST = ".test"  # NAME.test.csv beside NAME.csv is that client's own test split
COMMON = "common"  # the columns that all clients have
READABLE = {*TABLES, ".npz"}
#: tables that are not read here: one without a readable file beside it is a client that would be left out unnoticed
FOREIGN = {".xlsx", ".xls", ".xlsm", ".ods", ".tsv", ".feather", ".arff", ".dta", ".sav", ".sas7bdat", ".rds"}


@dataclass(frozen=True)
class Reading:
    """How the files of clients are read.

    Parameters
    ----------
    label : str or None
        The label column of CSV and Parquet files, which need one.
    drop : iterable of str
        Columns to leave out (identifiers, dates); at least one file must have each.
    columns : "common", iterable of str or None
        The columns to read, in this order: those that all files have, or these; None: all.
    label_map : mapping of str to str
        What to read instead of a label; labels that are not in it stay as they are.
    merge_labels : bool
        Whether labels that differ by case, blanks or number format alone are taken as the commonest spelling of all
        files.
    id_column : str or None
        The column whose value rows of one person share: they stay together in every split, and it is no feature.
    """

    label: str | None = None
    drop: Iterable[str] = ()
    columns: str | Iterable[str] | None = None
    label_map: Mapping[str, str] = field(default_factory=dict)
    merge_labels: bool = False
    id_column: str | None = None

    def __post_init__(self) -> None:
        drop, columns = tuple(self.drop), self.columns
        listed = () if columns is None or isinstance(columns, str) else tuple(columns)
        label_map = {str(old): str(new) for old, new in self.label_map.items()}
        object.__setattr__(self, "drop", drop)
        object.__setattr__(self, "columns", listed or columns)
        object.__setattr__(self, "label_map", label_map)
        if isinstance(columns, str) and columns != COMMON:
            raise InputError(f"`columns` (={columns!r}) must be 'common' or a list of columns")
        if self.label is not None and self.label in drop:
            raise InputError(f"`--drop` (={self.label!r}) is the label column; it cannot be left out")
        if self.label is not None and self.label in listed:
            raise InputError(f"`--columns` (={self.label!r}) is the label column; it is read in any case")
        if self.id_column is not None and self.id_column == self.label:
            raise InputError(f"`--id` (={self.id_column!r}) is the label column")


def read_clients(
    directory: str | Path,
    label: str | None = None,
    drop: Iterable[str] = (),
    *,
    columns: str | Iterable[str] | None = None,
    label_map: Mapping[str, str] | None = None,
    merge_labels: bool = False,
    id_column: str | None = None,
) -> list[ClientData]:
    """Read every client file of a folder, in order of name.

    Tables with the same columns in another order get the order of the first one.

    Parameters
    ----------
    directory : str or Path
        The folder, with one CSV, Parquet or NPZ file per client, whose name is the client's. `NAME.test.csv` (or
        `.parquet`, `.npz`) beside `NAME.csv` is that client's test split. NPZ files carry arrays `x`, `y` and perhaps
        `x_test`, `y_test`.
    label : str, optional
        The label column of CSV and Parquet files, which need one.
    drop : iterable of str
        Columns to leave out (identifiers, dates); at least one file must have each.
    columns : "common", iterable of str or None
        The columns to read, in this order: those that all files have, or these; None: all.
    label_map : mapping of str to str, optional
        What to read instead of a label; labels that are not in it stay as they are.
    merge_labels : bool
        Whether labels that differ by case, blanks or number format alone are taken as one.
    id_column : str, optional
        The column whose value rows of one person share: they stay together in every split, and it is no feature.

    Returns
    -------
    list of ClientData
        The clients.

    Raises
    ------
    InputError
        If the folder holds no client's file, or a file cannot be read or used.
    """
    reading = Reading(label, drop, columns, label_map or {}, merge_labels, id_column)
    return read_folder(directory, reading).clients


@dataclass(frozen=True)
class Folder:
    """The clients of a folder, and what was decided on the way.

    Parameters
    ----------
    clients : list of ClientData
        The clients that could be read.
    reading : Reading
        How they were read, with the columns and labels that were meant in place of "common" and `merge_labels`: the
        same reading for a client that comes later.
    unreadable : dict of str to str
        Clients whose files could not be used, and why.
    """

    clients: list[ClientData]
    reading: Reading
    unreadable: dict[str, str]

    @property
    def refusal(self) -> str:
        """Why files could not be used, in one line: a reason that several share is given once."""
        shared: dict[str, list[str]] = {}
        for name, why in self.unreadable.items():
            own = rf"`[^`]*\b{re.escape(name)}(\.\w+)*`|(?<!\w)\d+(\.\d+)?"  # its file, and figures
            alike = re.sub(own, "", why)
            shared.setdefault(alike, []).append(name)
        texts = []
        for first, *others in shared.values():
            named = ", ".join(others[:3]) + (", ..." if len(others) > 3 else "")
            texts.append(self.unreadable[first] + (f" (the same of {named}: {len(others)} more)" if others else ""))
        count = len(self.unreadable)
        return texts[0] if count == 1 else f"{count} files cannot be used: {'; '.join(texts)}"


def read_folder(directory: str | Path, reading: Reading, *, strict: bool = True) -> Folder:
    """Read every client file of a folder; see `read_clients`.

    Parameters
    ----------
    directory : str or Path
        The folder.
    reading : Reading
        How to read.
    strict : bool
        Whether a file that cannot be used is an error; else it is listed.

    Returns
    -------
    Folder
        The clients.

    Raises
    ------
    InputError
        If the folder holds no client's file, or, if `strict`, a file cannot be used.
    """
    directory = Path(directory)
    clients, unreadable = [], {}
    for path, test in _files(directory):
        try:
            clients.append(_read(path, reading, test))
        except InputError as error:
            if strict:
                raise
            unreadable[path.stem] = str(error)
    found = {column for client in clients for column in client.columns_read}
    for column in reading.drop if clients and not unreadable else ():
        if column not in found:
            raise InputError(f"`--drop` (={column!r}) is not a column of any file; columns: {', '.join(sorted(found))}")
    if reading.id_column is not None and clients and reading.id_column not in found:
        listed = ", ".join(sorted(found))
        raise InputError(f"`--id` (={reading.id_column!r}) is not a column of any file; columns: {listed}")
    columns, merged = _agreed(reading, [client.data for client in clients])
    label_map = {old: merged.get(new, new) for old, new in reading.label_map.items()} | merged
    settled = replace(reading, columns=columns, label_map=label_map, merge_labels=False)
    return Folder([_settled(client.data, columns, merged) for client in clients], settled, unreadable)


def read_client(
    path: str | Path,
    label: str | None,
    test: str | Path | None = None,
    drop: Iterable[str] = (),
    *,
    columns: Iterable[str] | None = None,
    label_map: Mapping[str, str] | None = None,
    id_column: str | None = None,
    lenient: bool = False,
) -> ClientData:
    """Read one client's file; its name is the client's.

    Parameters
    ----------
    path : str or Path
        A CSV, Parquet or NPZ file.
    label : str or None
        The label column of a CSV or Parquet file.
    test : str or Path, optional
        The file of the client's test split; an NPZ file may also hold its own.
    drop : iterable of str
        Columns to leave out.
    columns : iterable of str, optional
        The columns to read, in this order; None: all.
    label_map : mapping of str to str, optional
        What to read instead of a label.
    id_column : str, optional
        The column whose value rows of one person share (see `read_clients`).
    lenient : bool
        Whether the file may lack columns of `drop`.

    Returns
    -------
    ClientData
        The client.

    Raises
    ------
    InputError
        If the file cannot be read or used.
    """
    reading = Reading(label, drop, columns, label_map or {}, False, id_column)
    read = _read(Path(path), reading, None if test is None else Path(test))
    if is_table(read.data.x):
        for option, names in (("drop", () if lenient else reading.drop), ("id", (id_column,) if id_column else ())):
            for column in names:
                if column not in read.columns_read:
                    listed = ", ".join(read.columns_read)
                    raise InputError(f"`--{option}` (={column!r}) is not a column of `{path}`; columns: {listed}")
    return _settled(read.data, reading.columns, {})


def check_readable(path: Path) -> None:
    """Refuse a file that is not there, is empty or too large, or is of a kind that is not read here.

    Parameters
    ----------
    path : Path
        The file.

    Raises
    ------
    InputError
        If it cannot be read.
    """
    check_file(path)
    if path.suffix.lower() not in READABLE:
        excel = " (in Excel: Save As, CSV UTF-8)" if path.suffix.lower().startswith(".xls") else ""
        raise InputError(f"`{path}` must end in .csv, .parquet or .npz{excel}")
    if path.stat().st_size == 0:
        raise InputError(f"`{path}` is empty")
    check_size(path)


def test_beside(path: Path) -> Path | None:
    """Return the file with the test split of a client, if there is one beside the client's file."""
    beside = (path.with_name(f"{path.stem}{TEST}{suffix}") for suffix in (path.suffix, *sorted(READABLE)))
    return next((file for file in beside if file.is_file()), None)


@dataclass(frozen=True)
class _Read:
    """One client as its file has it, and all columns of the file."""

    data: ClientData
    columns_read: tuple[str, ...]


def _files(directory: Path) -> list[tuple[Path, Path | None]]:
    """Return the training file of every client of a folder, and its test file if there is one."""
    if not directory.is_dir():
        own = f"; a file of `inspect --write` comes without it: fedcollab run {directory}"
        raise InputError(
            f"`--clients` (={str(directory)!r}) must be a folder with one CSV, Parquet or NPZ file per client"
            + (own if directory.suffix == ".toml" else "")
        )
    shown = sorted(path for path in directory.iterdir() if not path.name.startswith((".", "~$")))
    files = [path for path in shown if path.suffix.lower() in READABLE]
    known = {path.stem for path in files}
    files += [path for path in shown if path.suffix.lower() in FOREIGN and path.stem not in known]
    if not files:
        raise InputError(f"`--clients` (={str(directory)!r}) holds no .csv, .parquet or .npz file")
    for path in files:
        check_file(path)  # else a link that leads nowhere would leave a client out, and nobody would notice
    training = [path for path in files if not path.stem.endswith(TEST)]
    names = [path.stem for path in training]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"`--clients` (={str(directory)!r}) has more than one file for client `{twice}`")
    tests: dict[str, Path] = {}
    for path in files:
        if not path.stem.endswith(TEST):
            continue
        name = path.stem.removesuffix(TEST)
        if name not in names:
            raise InputError(f"`{path}` is a test split, but there is no training file for client `{name}`")
        if name in tests:
            raise InputError(f"`{path}` and `{tests[name]}` are both the test split of client `{name}`; keep one")
        tests[name] = path
    return [(path, tests.get(path.stem)) for path in training]


def _read(path: Path, reading: Reading, test: Path | None) -> _Read:
    """Read one client; its columns are still those of its own file."""
    check_readable(path)
    if path.suffix.lower() == ".npz":
        return _read_npz(path, reading, test)
    if reading.label is None:
        raise InputError(f"`--label` must name the label column of `{path}`")
    x, y, groups, columns = _split(path, reading)
    if test is None:
        return _Read(ClientData(path.stem, x, y, groups=groups), columns)
    x_test, y_test = _test_arrays(test, reading)
    if is_table(x_test) and set(x_test.columns) == set(x.columns):
        x_test = x_test[list(x.columns)]
    return _Read(ClientData(path.stem, x, y, x_test, y_test, groups), columns)


def _read_npz(path: Path, reading: Reading, test: Path | None) -> _Read:
    """Read a client's NPZ file, with the test split beside it and as its settings say."""
    client = _with_labels(ClientData.load(path, name=path.stem), reading.label_map)
    if test is not None:
        if client.y_test is not None:
            raise InputError(f"`{path}` holds a test split, and `{test}` is another; keep one")
        x_test, y_test = _test_arrays(test, reading)
        client = replace(client, x_test=x_test, y_test=y_test)
    if not is_table(client.x):
        return _Read(client, ())
    columns = tuple(client.x.columns)
    left_out = [name for name in (*reading.drop, reading.id_column) if name in columns]
    groups = client.x[reading.id_column] if reading.id_column in columns else client.groups
    x, x_test = (
        None if part is None else part.drop(columns=left_out, errors="ignore") for part in (client.x, client.x_test)
    )
    return _Read(replace(client, x=x, x_test=x_test, groups=groups), columns)


def _test_arrays(path: Path, reading: Reading) -> tuple[Any, Any]:
    """Return samples and labels of a test file."""
    if path.suffix.lower() == ".npz":
        client = _with_labels(ClientData.load(path), reading.label_map)
        return client.x, client.y
    if reading.label is None:
        raise InputError(f"`--label` must name the label column of `{path}`")
    return _split(path, reading)[:2]


def _split(path: Path, reading: Reading) -> tuple[pd.DataFrame, Any, Any, tuple[str, ...]]:
    """Return features, labels, the groups of rows if there is such a column, and all columns of the file."""
    frame, label = read_table(path), str(reading.label)
    if label not in frame.columns:
        apart = "; commas, semicolons or tabs must stand between columns" if len(frame.columns) == 1 else ""
        listed = ", ".join(frame.columns)
        raise InputError(f"`--label` (={label!r}) is not a column of `{path}`; columns: {listed}{apart}")
    if len(frame) == 0:
        raise InputError(f"`{path}` has a header but no rows")
    labels = frame[label]
    if labels.isna().all():
        raise InputError(f"`{path}`: label column `{label}` is empty")
    if labels.isna().any():
        missing, first = int(labels.isna().sum()), int(labels.isna().to_numpy().argmax()) + 1
        raise InputError(
            f"`{path}`: label column `{label}` is empty in {missing} of {len(labels)} rows, first in row {first} below "
            "the header; take these rows out of the file, or fill their labels in"
        )
    groups = frame[reading.id_column] if reading.id_column in frame.columns else None
    if groups is not None and groups.isna().any():
        raise InputError(
            f"`{path}`: column `{reading.id_column}` (--id) has {int(groups.isna().sum())} missing value(s)"
        )
    left_out = [name for name in (label, *reading.drop, reading.id_column) if name in frame.columns]
    features = frame.drop(columns=left_out)
    if features.shape[1] == 0:
        raise InputError(f"`{path}` has no column beside the label `{label}`")
    for column in (label, *features.columns):
        if numbers_as_text(frame[column]):
            other = "" if column == label else f", or leave the column out (--drop {quote(column)})"
            raise InputError(
                f"`{path}`: column `{column}` holds numbers with commas in them; write 1500 for 1,500 and 0.5 for 0,5"
                + other
            )
    if reading.label_map:
        return features, mapped(labels.tolist(), reading.label_map), groups, tuple(frame.columns)
    return features, labels, groups, tuple(frame.columns)


def _agreed(reading: Reading, clients: Sequence[ClientData]) -> tuple[Any, dict[str, str]]:
    """Return the columns that are read of every client (None: its own), and the labels that are spelt otherwise."""
    tables, columns = [client for client in clients if is_table(client.x)], reading.columns
    if columns == COMMON and tables:
        columns = [name for name in tables[0].x.columns if all(name in client.x.columns for client in tables)]
        if not columns:
            raise InputError("`--columns` (='common'): the files have no column in common beside the label")
    elif columns is None and len({frozenset(client.x.columns) for client in tables}) == 1:
        orders = {tuple(client.x.columns) for client in tables}
        columns = tuple(tables[0].x.columns) if len(orders) > 1 else None
    merged = merging(Counter(map(str, client.y.tolist())) for client in clients) if reading.merge_labels else {}
    return columns, merged


def _settled(client: ClientData, columns: Any, label_map: Mapping[str, str]) -> ClientData:
    """Return a client with these columns alone, and with labels replaced."""
    if columns not in (None, COMMON) and is_table(client.x):
        lacking = [name for name in columns if name not in client.x.columns]
        if lacking:
            raise InputError(f"`--columns` names {lacking[0]!r}, which client `{client.name}` lacks")
        x_test = None if client.x_test is None else client.x_test[list(columns)]
        client = replace(client, x=client.x[list(columns)], x_test=x_test)
    return _with_labels(client, label_map)


def _with_labels(client: ClientData, label_map: Mapping[str, str]) -> ClientData:
    if not label_map:
        return client
    y_test = None if client.y_test is None else mapped(client.y_test.tolist(), label_map)
    return replace(client, y=mapped(client.y.tolist(), label_map), y_test=y_test)
