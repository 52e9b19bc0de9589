"""`fedcollab inspect`: all that is wrong with the data at once; `run` and `estimate` begin with the same check."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from fedcollab import data, files, inspection
from fedcollab import report as report_of
from fedcollab.cli import options
from fedcollab.cli.clients import LABEL, Source, open_source
from fedcollab.errors import FedcollabWarning, InputError, Paused

if TYPE_CHECKING:
    from fedcollab.data import ClientData, OwnData
    from fedcollab.federation import Federation
    from fedcollab.inspection import Inspection
    from fedcollab.wire import Runtime

#: exit code where the data make any advice unsafe
OBJECTION = 3
#: kinds of findings that somebody must settle who knows which label means what
LABEL_MAPPED = ("label-kind", "other-labels")
#: kinds of findings whose column an own-data file leaves out
DROPPED = ("identifier", "date", "free-text", "names-client", "column-kind")


@click.command(
    name="inspect",
    epilog="""\b
Examples:
  fedcollab inspect --clients hospitals/ --label outcome
  fedcollab inspect --clients hospitals/ --label outcome --write hospitals.toml
  fedcollab inspect --on federation/""",
)
@options.source
@options.on
@options.task
@options.test_share
@click.option("--seed", default=0, show_default=True, help="The hold-out is drawn from it.")
@click.option("--write", type=click.Path(path_type=Path), help="Propose a file (TOML) for `fedcollab run`.")
@click.option("-o", "--out", type=click.Path(path_type=Path), help="Where to write the findings (JSON).")
@options.output
def inspect_data(
    on: Path | None,
    task: str,
    test_share: float,
    seed: int,
    write: Path | None,
    out: Path | None,
    as_json: bool,
    quiet: bool,
    **settings: Any,
) -> None:
    """What is wrong with the data? Exits with 3 when it makes any advice unsafe.

    Clients say how many rows and what means and spreads they have, never what a row says. `fedcollab run` and
    `estimate` begin with the same check.
    """
    for path in (write, out):
        if path is not None:
            files.check_target(path)
    source = Source.take(settings)
    with open_source(source, on, strict=False) as (found, brought):
        share, drawn = brought.get("test_share", test_share), brought.get("seed", seed)
        task = task if task != "auto" else brought.get("task", task)
        checked = look(found, brought, test_share=share, seed=drawn, task=task)
    if out is not None:
        checked.save(out)
    written = None
    if write is not None:
        if "own" not in brought:
            raise InputError("`--write` is for your own files: give --clients FOLDER")
        written = propose(checked, brought["own"], write)
        files.write_bytes(write, written.encode())
    if as_json:
        options.print_json({**checked.as_dict(), "written": write})
    else:
        report_of.show_inspection(checked, next_command=_next(checked, write, source.clients))
    click.get_current_context().exit(OBJECTION if checked.errors else 0)


def look(
    clients: list[ClientData] | Runtime, brought: Mapping[str, Any], *, test_share: float, seed: int, task: str = "auto"
) -> Inspection:
    """Check the data of clients; files that could not be read are findings too.

    Parameters
    ----------
    clients : list of ClientData or Runtime
        The clients that could be read.
    brought : mapping
        What `find_clients` found beside them.
    test_share, seed : float, int
        The hold-out of clients without a test split.
    task : str
        As in `inspect`.
    """
    broken = [
        inspection.Finding(name, None, "unreadable", "error", f"{why}.", "Mend the file, or take it out of the folder.")
        for name, why in brought.get("unreadable", {}).items()
    ]
    if isinstance(clients, list) and len(clients) < 2:
        if not broken:
            raise InputError(f"`--clients` has {len(clients)} client(s); at least 2 are needed to compare them")
        return inspection.Inspection(tuple(broken), tuple(client.name for client in clients))
    found = inspection.inspect(clients, trust=brought.get("trust", ()), test_share=test_share, seed=seed, task=task)
    return replace(found, findings=(*broken, *found.findings))


def begin_with_check(
    clients: list[ClientData] | Runtime, brought: Mapping[str, Any], settings: Mapping[str, Any], *, quiet: bool
) -> Inspection | None:
    """Check the data before anything is computed of them, and print the warnings.

    Parameters
    ----------
    clients : list of ClientData or Runtime
        The clients.
    brought : mapping
        What `find_clients` found beside them.
    settings : mapping
        The settings of the run, of which `test_share` and `seed` count.
    quiet : bool
        Whether nothing is printed.

    Returns
    -------
    Inspection or None
        What was found; None where too few clients answered this question.

    Raises
    ------
    InputError
        If something is certain to spoil the advice: all of it in one line, with what settles each.
    """
    try:
        share, task = settings["test_share"], settings.get("task", "auto")
        found = look(clients, brought, test_share=share, seed=settings["seed"], task=task)
    except Paused as error:
        warnings.warn(f"the data were not checked first: {error}", FedcollabWarning, stacklevel=2)
        return None
    if found.errors:
        raise InputError(in_one_line(found))
    if not quiet:
        report_of.show_warnings(found)
    return found


def keep_check(found: Inspection | None, folder: Path) -> None:
    """Write what a data check found beside the distances, unless the same is there already.

    Parameters
    ----------
    found : Inspection or None
        What was found, if the data were checked.
    folder : Path
        The run directory, or the folder of the distances.
    """
    if found is None:
        return
    known = inspection.read_beside(folder)
    if known is None or (known.findings, known.profiles) != (found.findings, found.profiles):
        found.save(folder / inspection.FILE)


def renew_check(federation: Federation, folder: Path, names: Iterable[str]) -> None:
    """Ask clients that are new or changed what their columns are like, so that `explain` can name what differs.

    Parameters
    ----------
    federation : Federation
        The clients.
    folder : Path
        The run directory; one without a data check stays without.
    names : iterable of str
        The clients to ask.
    """
    known, asked = inspection.read_beside(folder), sorted(names)
    if known is None or not asked:
        return
    try:
        inspection.renewed(known, federation, asked).save(folder / inspection.FILE)
    except Paused as error:
        text = f"`explain` will not name the columns in which {', '.join(asked)} differs: {error}"
        warnings.warn(text, FedcollabWarning, stacklevel=2)


def in_one_line(found: Inspection) -> str:
    """Return all errors of an inspection in one line, each with what settles it."""
    parts = []
    for finding, names in found.grouped():
        if finding.severity != "error":
            continue
        where = f"client {', '.join(names[:3])}{' and others' if len(names) > 3 else ''}: " if names else ""
        column = f"column `{finding.column}`: " if finding.column not in (None, LABEL) else ""
        seen, _, _ = finding.message.partition(": ")  # what it does to the advice is in the table
        parts.append(f"{where}{column}{seen.rstrip('.')} [{finding.remedy.rstrip('.')}]")
    count = f"{len(parts)} things make" if len(parts) > 1 else "one thing makes"
    return f"{count} any advice on these data unsafe: {'; '.join(parts)} (a table of all: fedcollab inspect)"


def propose(found: Inspection, own: OwnData, target: Path) -> str:
    """Return the text of an own-data file that settles what was found, as far as options can.

    Parameters
    ----------
    found : Inspection
        What was found.
    own : OwnData
        How the files were read.
    target : Path
        Where the file will be; the clients' folder is written relative to it.
    """
    reading, reasons = own.reading, {}
    groups = own.reading.id_column or next(iter(_shared_identifiers(found)), None)
    drop = list(reading.drop)
    drop += [
        column
        for column in dict.fromkeys(each.column for each in found.errors if each.kind in DROPPED)
        if column is not None and column not in (*drop, groups)
    ]
    columns, merge = reading.columns, reading.merge_labels
    differing = {each.column for each in found.errors if each.kind in ("column-missing", "column-extra")}
    if differing - set(drop) and columns is None:
        columns, reasons["columns"] = "common", "what all clients have"
    if any(each.kind == "label-spelling" for each in found.errors):
        merge, reasons["merge_labels"] = True, "spellings of one label are one"
    if drop != list(reading.drop):
        reasons["drop"] = "identifiers, dates, free text and columns that do not fit"
    if groups and not reading.id_column:
        reasons["id"] = "rows that share it stay together in every split"
    if any(each.kind in LABEL_MAPPED for each in found.findings):
        reasons["label_map"] = f"say here which label is which, as in: {_example(found)}"
    folder = Path(os.path.relpath(own.clients.resolve(), target.resolve().parent))
    settled = replace(reading, drop=tuple(drop), columns=columns, merge_labels=merge, id_column=groups)
    return data.own_text(replace(own, clients=folder, reading=settled), reasons)


def _example(found: Inspection) -> str:
    """Return a line of a label map from the clients' own labels, or an invented one where these are not known."""
    odd = {each.client for each in found.findings if each.kind in LABEL_MAPPED and each.client is not None}
    strange, usual = Counter[str](), Counter[str]()
    for name, each in found.profiles.items():
        (strange if name in odd else usual).update(each["labels"])
    if not strange or not usual:
        return 'ja = "yes"'
    return f'"{min(strange)}" = "{usual.most_common(1)[0][0]}"'


def _shared_identifiers(found: Inspection) -> list[str]:
    """Return identifiers that several rows of a client share, as a patient's number with several visits."""
    named = {each.column for each in found.errors if each.kind == "identifier"}
    shared = []
    for column in sorted(name for name in named if name is not None):
        parts = [part for each in found.profiles.values() for part in each["columns"] if part["name"] == column]
        if parts and sum(part["distinct"] for part in parts) < 0.9 * sum(part["present"] for part in parts):
            shared.append(column)
    return shared


def _next(found: Inspection, write: Path | None, clients: Path | None) -> str | None:
    """Return the command to go on with: it reads the files as this one did."""
    context = click.get_current_context()
    given = " ".join(options.typed_for(context.command, without=("out",)))
    if found.errors and all(each.kind == "unreadable" for each in found.errors):  # no option settles that
        return f"mend the files, then: fedcollab inspect {given}" if clients is not None else None
    if write is not None:
        asks = any(each.kind in LABEL_MAPPED for each in found.errors)
        return f"{f'say in {write} which label is which, then: ' if asks else ''}fedcollab run {quote(str(write))}"
    if clients is None:
        return None
    if found.errors:
        proposed = f"{clients.name or 'data'}.toml"
        return f"fedcollab inspect {given} --write {quote(proposed)}"
    group = context.find_root().command
    run = group.get_command(context, "run") if isinstance(group, click.Group) else None
    return None if run is None else " ".join(["fedcollab run", *options.typed_for(run, without=("out",))])
