"""The tables of real federations: declared in declared.toml, looked for, checked, made from what is published.

A federation lies in a folder NAME with one file CLIENT.csv for each client: features, and a text column `label`.
Looked for in this order: FEDCOLLAB_DATA/federations, then the cache. `get` makes the cached ones from the CSV files of
the Rdatasets collection by the rules of `rules`; where no rule reproduces the table, only the prepared folder serves.

The collection states no checksums of its files. What a rule makes of them is checked instead: clients, rows and
columns, and a digest of the content,
    sha256 of all clients in the order of their names: name, columns, rows; numbers to 10 significant digits.
"""

from __future__ import annotations

import hashlib
import shutil
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcollab import files
from fedcollab.errors import InputError, choose
from fedcollab.files import cache_folder, own_folder
from fedcollab.scenarios.data.base import Say, silent
from fedcollab.scenarios.data.federations.rules import RULES, prepare
from fedcollab.scenarios.data.fetch import SourceError, download

if TYPE_CHECKING:
    import pandas as pd

#: what all of them together are called in `fedcollab data get`, and the folder that they lie in
COLLECTION = "federations"
ADDRESS = "https://vincentarelbundock.github.io/Rdatasets/csv"


@dataclass(frozen=True)
class Table:
    """A table with natural clients.

    Parameters
    ----------
    name : str
        What it is called in commands.
    source : str
        The published tables that it is made of.
    client, label : str
        What is a client, and what the label is.
    licence, citation : str
        The licence as far as it is known, and whom to cite.
    rows : (int, int, float, int)
        Rows in all, of the smallest, of the median and of the largest client.
    clients, features : int
        How many clients and features it has.
    digest : str
        The digest of its content.
    files : tuple of str
        The files of the Rdatasets collection (PACKAGE/TABLE) that its rule takes; none where there is no rule.
    cut : int
        Of clients with more rows so many are drawn.
    missing : str
        Where there is no rule: what is not known.
    """

    name: str
    source: str
    client: str
    label: str
    licence: str
    citation: str
    rows: tuple[int, int, float, int]
    clients: int
    features: int
    digest: str
    files: tuple[str, ...] = ()
    cut: int = 3000
    missing: str = ""

    @property
    def content(self) -> str:
        """What it holds, in a few words."""
        return f"{self.rows[0]:,} rows of {self.clients} clients, {self.features} features; client: {self.client}"

    def check(self, clients: Mapping[str, pd.DataFrame], where: object) -> None:
        """Raise `InputError`, in one line, if the tables of the clients are others than those declared."""
        sizes = [len(table) for table in clients.values()]
        found = (len(sizes), sum(sizes), *((min(sizes), float(np.median(sizes)), max(sizes)) if sizes else (0, 0, 0)))
        if found != (self.clients, *self.rows):
            told = ("clients", "rows", "rows of the smallest", "rows of the median client", "rows of the largest")
            kind, got, expected = next(
                (kind, got, expected)
                for kind, got, expected in zip(told, found, (self.clients, *self.rows), strict=True)
                if got != expected
            )
            raise InputError(f"`{where}` is not {self.name} as published: {kind} {got:g}, expected {expected:g}")
        wide = {table.shape[1] - 1 for table in clients.values()}
        if wide != {self.features}:
            raise InputError(
                f"`{where}` is not {self.name} as published: features {min(wide - {self.features})}, expected "
                f"{self.features}"
            )
        if (found_digest := digest(clients)) != self.digest:
            raise InputError(
                f"`{where}` is not {self.name} as published: its content has digest {found_digest[:12]}, expected "
                f"{self.digest[:12]}"
            )


def _declared() -> dict[str, Table]:
    """Return the tables that declared.toml describes, by name: source, rule, licence, sizes, digest."""
    text = resources.files(__package__).joinpath("declared.toml").read_text(encoding="utf-8")
    entries: dict[str, dict[str, Any]] = tomllib.loads(text)
    return {
        name: Table(name, **{**entry, "rows": tuple(entry["rows"]), "files": tuple(entry.get("files", ()))})
        for name, entry in entries.items()
    }


TABLES: dict[str, Table] = _declared()


def digest(clients: Mapping[str, pd.DataFrame]) -> str:
    """Return a checksum of the content of all clients, the same for every spelling of a number."""
    from pandas.api.types import is_numeric_dtype

    made = hashlib.sha256()
    for name in sorted(clients):
        table = clients[name]
        columns = [
            ["" if value != value else f"{value:.10g}" for value in table[column].to_numpy(dtype=np.float64)]
            if is_numeric_dtype(table[column]) and column != "label"
            else ["" if value != value else str(value) for value in table[column]]
            for column in table.columns
        ]
        lines = [name, ",".join(table.columns), *("\x1f".join(row) for row in zip(*columns, strict=True))]
        made.update("\n".join(lines).encode() + b"\n\n")
    return made.hexdigest()


def read_table(path: Path) -> pd.DataFrame:
    """Read the table of a client: features, and the text column `label`; only empty cells are missing.

    Raises
    ------
    InputError
        If the file cannot be read, or has no column `label`.
    """
    import pandas as pd

    try:
        table = pd.read_csv(path, dtype={"label": str}, keep_default_na=False, na_values=[""])
    except (OSError, ValueError) as error:
        raise InputError(f"`{path}` cannot be read as a table: {error}") from None
    if "label" not in table.columns:
        raise InputError(f"`{path}` must have a column `label`")
    return table


def tables_here() -> list[str]:
    """Return the names of the federations whose tables are on this machine, sorted.

    Those of FEDCOLLAB_DATA/federations, which may hold tables of your own beside the declared ones, and of the cache.
    """
    found = set()
    for folder in _folders():
        if folder.is_dir():
            found |= {path.name for path in folder.iterdir() if any(path.glob("*.csv"))}
    return sorted(found)


def located(name: str) -> tuple[str, Path] | None:
    """Return where a federation lies, as ("own folder" or "cache", the folder with one CSV file a client), or None."""
    for kind, folder in zip(("own folder", "cache"), _folders(), strict=True):
        if any((folder / name).glob("*.csv")):
            return kind, folder / name
    return None


def find(name: str) -> list[Path]:
    """Return the files of a federation, one a client, in the order of their names.

    Parameters
    ----------
    name : str
        One of `TABLES`, or the name of a folder of your own in FEDCOLLAB_DATA/federations.

    Returns
    -------
    list of Path

    Raises
    ------
    InputError
        If it is not on this machine, or has another number of clients than was declared.
    """
    where = located(name)
    if where is None:
        choose("dataset", name, {**TABLES, **dict.fromkeys(tables_here())})
        raise InputError(
            f"`dataset` (={name!r}) is not on this machine: run `fedcollab data get {name}`, or put its files "
            f"federations/{name}/CLIENT.csv into the folder that FEDCOLLAB_DATA names"
        )
    paths = sorted(where[1].glob("*.csv"))
    if name in TABLES and len(paths) != TABLES[name].clients:
        raise InputError(
            f"`{where[1]}` has {len(paths)} clients, expected {TABLES[name].clients}: it is not {name} as published"
        )
    return paths


def get(name: str, source: Path | None = None, say: Say = silent) -> None:
    """Bring a federation onto this machine, or check the one that is here.

    Parameters
    ----------
    name : str
        One of `TABLES`.
    source : Path, optional
        A folder to take it from: one with the prepared tables NAME/CLIENT.csv, or one with the published CSV files.
    say : function
        Called with messages for the user.

    Raises
    ------
    InputError
        If it cannot be had, or is not what was declared; one line says what is missing.
    """
    table = choose("dataset", name, TABLES)
    if source is not None:
        _from_folder(table, source)
        return
    where = located(name)
    if where is not None:
        table.check(_read(where[1]), where[1])
        say(f"{name} is here already: {where[0]} ({where[1]})")
        return
    if not table.files:
        raise InputError(f"`dataset` (={name!r}) {_only_prepared(table)}")
    raw = cache_folder() / COLLECTION / ".raw" / name
    raw.mkdir(parents=True, exist_ok=True)
    for file in table.files:
        target = raw / f"{file.partition('/')[2]}.csv"
        if not target.is_file():
            try:
                download(f"{ADDRESS}/{file}.csv", target, say)
            except SourceError as error:
                raise InputError(
                    f"`dataset` (={name!r}) could not be got: {error}; next to try: put {_expected(table)} into a "
                    f"folder and run `fedcollab data get {name} --from FOLDER`"
                ) from None
    try:
        _make(table, raw)
    finally:
        shutil.rmtree(raw)


def _from_folder(table: Table, source: Path) -> None:
    """Take a federation from a folder: as prepared tables, or as the published files."""
    for folder in (source / table.name, source / COLLECTION / table.name):
        if any(folder.glob("*.csv")):
            clients = _read(folder)
            table.check(clients, folder)
            _keep(table.name, clients)
            return
    if not table.files:
        raise InputError(f"`--from` (='{source}') has no {table.name}/CLIENT.csv; {table.name} {_only_prepared(table)}")
    if not all((source / f"{file.partition('/')[2]}.csv").is_file() for file in table.files):
        raise InputError(f"`--from` (='{source}') has no {table.name}; expected {_expected(table)}")
    _make(table, source)


def _make(table: Table, folder: Path) -> None:
    """Make a federation from the published files in a folder, check it, and keep it in the cache."""
    import pandas as pd

    frames = {}
    for file in table.files:
        name = file.partition("/")[2]
        try:
            frames[name] = pd.read_csv(
                folder / f"{name}.csv", keep_default_na=False, na_values=["", "NA"], low_memory=False
            )
        except (OSError, ValueError) as error:
            raise InputError(f"`{folder / name}.csv` cannot be read as a table: {error}") from None
    try:
        clients = prepare(RULES[table.name], frames, table.cut)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"`{folder}` has other tables than {table.source} as published: {error!r}") from None
    table.check(clients, f"{table.source} from {folder}")
    _keep(table.name, clients)


def _keep(name: str, clients: Mapping[str, pd.DataFrame]) -> None:
    """Write the tables of the clients to the cache."""
    folder = cache_folder() / COLLECTION / name
    for client, table in clients.items():
        files.write_bytes(folder / f"{client}.csv", table.to_csv(index=False).encode())


def _read(folder: Path) -> dict[str, pd.DataFrame]:
    """Read the tables of all clients in a folder."""
    return {path.stem: read_table(path) for path in sorted(folder.glob("*.csv"))}


def _folders() -> tuple[Path, Path]:
    """Return where federations may lie: the user's own folder (or one that does not exist), and the cache."""
    own = own_folder()
    cached = cache_folder() / COLLECTION
    return (cached / ".none" if own is None else own / COLLECTION), cached


def _expected(table: Table) -> str:
    """Return the files that a federation can be made from, as text."""
    names = ", ".join(f"{file.partition('/')[2]}.csv" for file in table.files)
    return f"{names} ({table.source}), or the prepared {table.name}/CLIENT.csv"


def _only_prepared(table: Table) -> Any:
    """Return why a federation without a rule cannot be made, as the end of a sentence."""
    return (
        f"can be had as prepared tables alone ({table.missing}): put {COLLECTION}/{table.name}/CLIENT.csv into the "
        "folder that FEDCOLLAB_DATA names"
    )
