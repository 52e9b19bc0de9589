"""The run directory when its clients change: every collaboration is kept, and a change is written whole or not at all.

    history/index.json          one entry a collaboration: date, cause, what changed, file
    history/000-run.json        the first one, written when something first changes
    history/001-join-NAME.json  cause and explanation in full, coalitions before and after, the collaboration
    history/001-path.json       what no longer holds for the new clients (path over C, advice, training with everyone)

A change touches several files: see `Run.replace_files`.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedcollab import files
from fedcollab.coalitions.explain import names_in_words
from fedcollab.federation import Federation, describe_clients
from fedcollab.parsing import complete
from fedcollab.runs.membership.changes import Check
from fedcollab.runs.membership.joining import Joining
from fedcollab.runs.membership.leaving import Leaving
from fedcollab.runs.membership.state import State, Trained
from fedcollab.runs.provenance import command
from fedcollab.runs.run import Run

INDEX = "history/index.json"
#: what holds only for the clients that there were
OUTDATED = {"path.json": "path.json", "advice.json": "advice.json", "training/global": "training-global"}


def open_state(directory: str | Path) -> tuple[Run, State]:
    """Open a run directory that has come as far as the coalitions.

    Parameters
    ----------
    directory : str or Path
        The run directory.

    Returns
    -------
    tuple of (Run, State)
        The run, and what it knows now.

    Raises
    ------
    InputError
        If it has not, or if its files are about different clients.
    """
    run = Run.open(directory, "run.json", "collaboration.json")
    collaboration = run.collaboration()
    assert collaboration is not None
    results = {way: result for way, result in run.results().items() if way != "global"}
    advice = run.advice()
    return run, State(run.distances(), collaboration, results, None if advice is None else advice.bound)


def entries(run: Run) -> list[dict[str, Any]]:
    """Return the history's index, first collaboration first; empty where nothing has changed yet.

    Parameters
    ----------
    run : Run
        The run.

    Returns
    -------
    list of dict
        Number, date, cause, summary and file of each collaboration.
    """
    if not run.has(INDEX):
        return []
    content = files.read_json(run.file(INDEX), "history")
    with complete(run.file(INDEX), "history"):
        return [dict(entry) for entry in content["collaborations"]]


def record(
    run: Run,
    before: State,
    after: State,
    cause: str,
    summary: str,
    details: Mapping[str, Any],
    described: Mapping[str, Mapping[str, Any]],
) -> Path:
    """Write a change into the history and make `after` the state of the run, in one step.

    Parameters
    ----------
    run : Run
        The run.
    before, after : State
        What it knew, and what it knows now.
    cause : str
        "join NAME", "leave NAME", "change" or "regroup"; becomes part of the file's name.
    summary : str
        What changed, in a sentence.
    details : mapping
        The explanation in full.
    described : mapping
        How the clients describe themselves, for run.json.
    """
    known = entries(run)
    number = max(1, len(known))
    event = {"date": files.now(), "cause": cause, "summary": summary}

    def write(folder: Path) -> None:
        listed = list(known)
        if not listed:
            first = {"date": _written(run), "cause": "run", "summary": "the first collaboration"}
            listed = [_keep(run, folder, 0, first, before, before, {})]
        listed.append(_keep(run, folder, number, event, before, after, details))
        files.write_json(folder / INDEX, "history", {"collaborations": listed})
        clients = {name: reply.get("fingerprint") for name, reply in described.items()}
        after.distances.save(folder / "distances.json", _made(run, "distances.json", {"clients": clients}))
        digest = files.digest(folder / "distances.json")
        made = _made(run, "collaboration.json", {"distances.json": digest})
        after.collaboration.save(folder / "collaboration.json", made)
        groups: dict[str, Any] = {"coalitions": after.collaboration.coalitions}
        for way, result in after.results.items():
            name = f"training/{way}/training.json"
            inputs = {"clients": clients, **(groups if way == "coalitions" else {})}
            result.save(folder / name, _made(run, name, inputs))
        files.write_json(folder / "run.json", "run", run.config_with({"clients": dict(described)}))

    run.replace_files(write, {old: f"history/{number:03d}-{new}" for old, new in OUTDATED.items()})
    return run.file(entries(run)[-1]["file"])


def keep_joining(run: Run, before: State, joining: Joining, federation: Federation) -> Path:
    """Record that a client joined.

    Parameters
    ----------
    run : Run
        The run.
    before : State
        What it knew before.
    joining : Joining
        The result of `join`.
    federation : Federation
        The clients, the new one included.

    Returns
    -------
    Path
        The file of the history that describes it.
    """
    partners = [name for name in joining.placement.best.members if name != joining.client]
    where = f"joined {names_in_words(tuple(partners), None)}" if partners else "joined and trains alone"
    return record(
        run,
        before,
        joining.after,
        f"join {joining.client}",
        f"{joining.client} {where}",
        joining.as_dict(),
        _noted(run, federation, [joining.client]),
    )


def keep_leaving(run: Run, before: State, leaving: Leaving) -> Path:
    """Record that a client left.

    Parameters
    ----------
    run : Run
        The run.
    before : State
        What it knew before.
    leaving : Leaving
        The result of `leave`.

    Returns
    -------
    Path
        The file of the history that describes it.
    """
    described = {name: reply for name, reply in run.config().get("clients", {}).items() if name != leaving.client}
    whom = names_in_words(tuple(leaving.partners), None)
    summary = f"{leaving.client} left {whom}" if whom else f"{leaving.client}, which was alone, left"
    cause = f"leave {leaving.client}"
    return record(run, before, leaving.after, cause, summary, leaving.as_dict(), described)


def keep_change(
    run: Run, before: State, after: State, found: Check, trained: Trained | None, federation: Federation
) -> Path:
    """Record that clients' data changed, that clients regrouped, or both.

    Parameters
    ----------
    run : Run
        The run.
    before, after : State
        What it knew before, and what it knows now.
    found : Check
        The result of `check`.
    trained : Trained or None
        What training again gave.
    federation : Federation
        The clients.

    Returns
    -------
    Path
        The file of the history that describes it.
    """
    changed = [change.client for change in found.changes]
    parts = [f"the data of {names_in_words(tuple(changed), None)} changed"] if changed else []
    if found.regrouping.advised:
        parts.append(f"{len(found.regrouping.retrain)} clients regrouped")
    details = {**found.as_dict(), "training": None if trained is None else trained.as_dict()}
    cause = "regroup" if found.regrouping.advised else "change"
    summary = " and ".join(parts) or "nothing changed"
    return record(run, before, after, cause, summary, details, _noted(run, federation, changed))


def _noted(run: Run, federation: Federation, names: Iterable[str]) -> dict[str, Any]:
    """Return how the clients describe themselves, renewed for `names` only: changes of others are yet to be checked."""
    listed = list(names)
    described = describe_clients(federation.part(listed)) if listed else {}
    return {**run.config().get("clients", {}), **{name: described[name] for name in listed}}


def _written(run: Run) -> str:
    """Return when the run's collaboration was written."""
    seconds = run.file("collaboration.json").stat().st_mtime
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="seconds")


def _made(run: Run, name: str, inputs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the settings and inputs that an artefact records, with new inputs; None where it records none."""
    made = files.read_made(run.file(name)) if run.has(name) else None
    return None if made is None else {**made, "inputs": {**made["inputs"], **inputs}}


def _keep(
    run: Run,
    folder: Path,
    number: int,
    event: Mapping[str, Any],
    before: State,
    after: State,
    details: Mapping[str, Any],
) -> dict[str, Any]:
    """Write one collaboration with its cause, and return its entry in the index."""
    slug = re.sub(r"[^\w.-]+", "-", str(event["cause"])).strip("-.") or "change"
    name = f"history/{number:03d}-{slug}.json"
    staged = folder / name
    after.collaboration.save(staged)
    collaboration = files.read_json(staged, "collaboration")
    content = {
        **event,
        "command": command() if number else run.config().get("command"),
        "coalitions_before": before.collaboration.coalitions,
        "coalitions": after.collaboration.coalitions,
        "objective": after.collaboration.objective,
        "quantities": dict(zip(after.names, after.distances.quantities.tolist(), strict=True)),
        "details": dict(details),
        "collaboration": {key: value for key, value in collaboration.items() if key not in ("fedcollab", "format")},
    }
    files.write_json(staged, "membership", content)
    return {
        "number": number,
        **event,
        "clients": len(after.names),
        "coalitions": len(after.collaboration.coalitions),
        "objective": after.collaboration.objective,
        "file": name,
    }
