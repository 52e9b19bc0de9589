"""A file for runs on one's own data: where the clients are, and how their files are read.

[data]
clients = "hospitals"        # the folder, relative to this file
label = "outcome"
drop = ["record"]            # columns to leave out
columns = "common"           # or a list of columns
merge_labels = true          # take spellings of one label as one
id = "patient"               # rows of one patient stay together in every split; no feature
trust = ["income"]            # columns that the data check may not object to

[data.label_map]             # what to read instead of a label
ja = "yes"

[settings]                   # how to run, as in a scenario file
rounds = 50
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedcollab.data.read import Reading
from fedcollab.errors import InputError, unknown
from fedcollab.parsing import MOST_TEXT, parse_toml, read_text

TABLE = "data"
KEYS = ("clients", "label", "drop", "columns", "merge_labels", "id", "trust", "label_map")


@dataclass(frozen=True)
class OwnData:
    """The content of such a file.

    Parameters
    ----------
    clients : Path
        The folder with one file per client.
    reading : Reading
        How its files are read.
    trust : tuple of str
        Columns that the data check may not object to.
    settings : mapping
        The table [settings], not checked yet.
    """

    clients: Path
    reading: Reading
    trust: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)


def load_own(path: str | Path) -> OwnData | None:
    """Read a file for runs on one's own data.

    Parameters
    ----------
    path : str or Path
        A TOML file.

    Returns
    -------
    OwnData or None
        Its content; None if the file has no table [data], as a scenario file.

    Raises
    ------
    InputError
        If something in the table is wrong.
    """
    path = Path(path)
    try:
        content = parse_toml(path, "a TOML file")
    except InputError:
        return None  # whoever reads it as a scenario says what is wrong with it
    table = content.pop(TABLE, None)
    if table is None:
        return None
    try:
        return _own(table, content, path.parent)
    except InputError as error:
        raise InputError(f"`{path}`: {error}") from None


def _own(table: Any, rest: dict[str, Any], folder: Path) -> OwnData:
    if not isinstance(table, dict):
        raise InputError(f"`{TABLE}` (={table!r}) must be a table")
    settings = rest.pop("settings", {})
    if not isinstance(settings, dict):
        raise InputError(f"`settings` (={settings!r}) must be a table")
    for name in rest:
        raise InputError(unknown("table", name, (TABLE, "settings")))
    for key in table:
        if key not in KEYS:
            raise InputError(unknown(f"key of [{TABLE}]", key, KEYS))
    if not isinstance(table.get("clients"), str):
        raise InputError(f"the table [{TABLE}] must have `clients`, a folder")
    columns = table.get("columns")
    columns = columns if columns is None or columns == "common" else _texts("columns", columns)
    if columns == ():
        raise InputError("`columns` (=[]) must be 'common' or a list of columns")
    label_map = table.get("label_map", {})
    if not isinstance(label_map, dict) or not all(isinstance(value, str) for value in label_map.values()):
        raise InputError(f"`label_map` (={label_map!r}) must be a table of labels")
    if not isinstance(table.get("merge_labels", False), bool):
        raise InputError(f"`merge_labels` (={table['merge_labels']!r}) must be true or false")
    reading = Reading(
        _text("label", table.get("label")),
        _texts("drop", table.get("drop", [])),
        columns,
        label_map,
        table.get("merge_labels", False),
        _text("id", table.get("id")),
    )
    return OwnData(folder / table["clients"], reading, _texts("trust", table.get("trust", [])), settings)


def _text(key: str, value: Any) -> str | None:
    if value is not None and (not isinstance(value, str) or not value):
        raise InputError(f"`{key}` (={value!r}) must be the name of a column")
    return value


def _texts(key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) and name for name in value):
        raise InputError(f"`{key}` (={value!r}) must be a list of columns")
    return tuple(value)


def own_text(own: OwnData, reasons: Mapping[str, str] | None = None) -> str:
    """Return the text of a file for runs on one's own data.

    Parameters
    ----------
    own : OwnData
        What to write; `clients` as it is to stand in the file.
    reasons : mapping of str to str, optional
        A comment for each key that needs one.

    Returns
    -------
    str
        TOML that `load_own` reads.
    """
    reading, notes = own.reading, reasons or {}
    columns = reading.columns if reading.columns is None or isinstance(reading.columns, str) else list(reading.columns)
    entries: dict[str, Any] = {
        "clients": own.clients.as_posix(),
        "label": reading.label,
        "drop": list(reading.drop),
        "columns": columns,
        "merge_labels": reading.merge_labels,
        "id": reading.id_column,
        "trust": list(own.trust),
    }
    lines = [f"[{TABLE}]"]
    for key, value in entries.items():
        if value not in (None, [], False):
            lines.append(f"{key} = {_toml(value)}" + (f"  # {notes[key]}" if key in notes else ""))
    if reading.label_map or "label_map" in notes:
        lines += ["", f"[{TABLE}.label_map]"] + [f"# {notes['label_map']}"] * ("label_map" in notes)
        lines += [f"{_toml(old)} = {_toml(new)}" for old, new in reading.label_map.items()]
    if own.settings:
        lines += ["", "[settings]", *(f"{key} = {_toml(value)}" for key, value in own.settings.items())]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def read_label_map(path: str | Path) -> dict[str, str]:
    """Read a file that says which label to read instead of which: CSV with two columns, and no header.

    Parameters
    ----------
    path : str or Path
        The file, with lines such as `ja,yes`; a first line `from,to` is taken as a header.

    Raises
    ------
    InputError
        If the file cannot be read, or a line has not two entries.
    """
    found: dict[str, str] = {}
    for place, line in _lines("label-map", path):
        parts = [part.strip() for part in line.split(",")]
        if len(parts) != 2 or not all(parts):
            raise InputError(f"`--label-map` (={str(path)!r}) line {place}: expected two labels, as in `ja,yes`")
        if place > 1 or parts != ["from", "to"]:
            found[parts[0]] = parts[1]
    return found


def read_columns(value: str) -> str | tuple[str, ...]:
    """Return "common", or the columns that a file lists, one a line.

    Parameters
    ----------
    value : str
        "common" or the path of a file.

    Returns
    -------
    str or tuple of str
        As `Reading` takes it.

    Raises
    ------
    InputError
        If there is no such file, or it lists nothing.
    """
    if value == "common":
        return value
    return tuple(line for _, line in _lines("columns", value))


def _lines(option: str, path: str | Path) -> Iterable[tuple[int, str]]:
    try:
        text = read_text(path, "a text file", MOST_TEXT)
    except InputError as error:
        other = "'common' or " if option == "columns" else ""
        raise InputError(f"`--{option}` (={str(path)!r}) must be {other}a text file: {error}") from None
    lines = [(place, line.strip()) for place, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        raise InputError(f"`--{option}` (={str(path)!r}) is an empty file")
    return lines
