"""The run directory when its clients change: every collaboration is kept, and a change is written whole or not at all.

    history/index.json          one entry a collaboration: date, cause, what changed, file
    history/000-run.json        the first one, written when something first changes
    history/001-join-NAME.json  cause and explanation in full, coalitions before and after, the collaboration
    history/001-path.json       what no longer holds for the new clients (path over C, training with everyone)

A change touches several files. They are first written beside the run (`history/.next`), then a list of what belongs
where (`ready.json`), and only then moved; a process that is killed in between leaves the old state, or one that the
next command completes.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedcollab import files as artefact
from fedcollab.coalitions import Collaboration
from fedcollab.coalitions.explain import names_in_words
from fedcollab.distances import Distances
from fedcollab.errors import InputError
from fedcollab.runs.membership.check import Check
from fedcollab.federation.adopt import said
from fedcollab.runs.membership.join import Joining
from fedcollab.runs.membership.leave import Leaving
from fedcollab.runs.membership.state import State, Trained
from fedcollab.wire.runtime import Runtime
from fedcollab.runs.directory import RunDirectory, command, now
from fedcollab.training import TrainingResult

NEXT = "history/.next"
INDEX = "history/index.json"
#: what holds only for the clients that there were
OUTDATED = {"path.json": "path.json", "training/global": "training-global"}


def open_state(directory: str | Path) -> tuple[RunDirectory, State]:
    """A run directory that has come as far as the coalitions; a change that was cut off is completed or forgotten."""
    store = RunDirectory(directory)
    for name in ("run.json", "distances.json", "collaboration.json"):
        if not store.has(name):
            raise InputError(f"`RUN_DIR` (={str(directory)!r}) holds no {name}; expected a run of `fedcollab run`")
    recover(store)
    distances = Distances.load(store.file("distances.json"))
    collaboration = Collaboration.load(store.file("collaboration.json"))
    if collaboration.names != distances.names:
        raise InputError(f"`{store.file('collaboration.json')}` is about other clients than distances.json")
    return store, State(distances, collaboration, open_results(store))


def open_results(store: RunDirectory) -> dict[str, TrainingResult]:
    """What was trained, and can be trained on when clients change."""
    ways = [way for way in ("coalitions", "local") if store.has(f"training/{way}/training.json")]
    return {way: TrainingResult.load(store.file(f"training/{way}/training.json")) for way in ways}


def entries(store: RunDirectory) -> list[dict[str, Any]]:
    """The index, first collaboration first; empty where nothing has changed yet."""
    if not store.has(INDEX):
        return []
    listed: list[dict[str, Any]] = artefact.read_json(store.file(INDEX), "history")["collaborations"]
    return listed


def record(
    store: RunDirectory,
    before: State,
    after: State,
    cause: str,
    summary: str,
    details: Mapping[str, Any],
    described: Mapping[str, Mapping[str, Any]],
) -> Path:
    """Keep what happened and make `after` the state of the run, at once.

    cause       "join NAME", "leave NAME", "change", "regroup": becomes part of the file's name
    summary     what changed, in a sentence
    described   what the clients say of themselves, for run.json
    """
    shutil.rmtree(store.file(NEXT), ignore_errors=True)
    known = entries(store)
    if not known:
        first = {"date": _written(store), "cause": "run", "summary": "the first collaboration"}
        known = [_keep(store, 0, first, before, before, {})]
    number = len(known)
    event = {"date": now(), "cause": cause, "summary": summary}
    known.append(_keep(store, number, event, before, after, details))
    artefact.write_json(store.file(f"{NEXT}/{INDEX}"), "history", {"collaborations": known})
    after.distances.save(store.file(f"{NEXT}/distances.json"))
    after.collaboration.save(store.file(f"{NEXT}/collaboration.json"))
    for way, result in after.results.items():
        result.save(store.file(f"{NEXT}/training/{way}/training.json"))
    config = {key: value for key, value in store.config().items() if key not in ("fedcollab", "format")}
    artefact.write_json(store.file(f"{NEXT}/run.json"), "run", {**config, "clients": dict(described)})
    aside = {old: f"history/{number:03d}-{new}" for old, new in OUTDATED.items() if store.has(old)}
    files = [str(path.relative_to(store.file(NEXT))) for path in sorted(store.file(NEXT).rglob("*")) if path.is_file()]
    artefact.write_json(store.file(f"{NEXT}/ready.json"), "change", {"aside": aside, "files": files})
    recover(store)
    return store.file(known[-1]["file"])


def keep_joining(store: RunDirectory, before: State, joining: Joining, federation: Runtime) -> Path:
    """Record that a client joined."""
    partners = [name for name in joining.placement.best.members if name != joining.client]
    where = f"joined {names_in_words(tuple(partners), None)}" if partners else "joined and trains alone"
    return record(
        store,
        before,
        joining.after,
        f"join {joining.client}",
        f"{joining.client} {where}",
        joining.as_dict(),
        _noted(store, federation, [joining.client]),
    )


def keep_leaving(store: RunDirectory, before: State, leaving: Leaving) -> Path:
    """Record that a client left."""
    described = {name: reply for name, reply in store.config().get("clients", {}).items() if name != leaving.client}
    whom = names_in_words(tuple(leaving.partners), None)
    summary = f"{leaving.client} left {whom}" if whom else f"{leaving.client}, which was alone, left"
    cause = f"leave {leaving.client}"
    return record(store, before, leaving.after, cause, summary, leaving.as_dict(), described)


def keep_change(
    store: RunDirectory, before: State, after: State, found: Check, trained: Trained | None, federation: Runtime
) -> Path:
    """Record that clients changed, that they regrouped, or both."""
    changed = [change.client for change in found.changes]
    parts = [f"the data of {names_in_words(tuple(changed), None)} changed"] if changed else []
    if found.regrouping.advised:
        parts.append(f"{len(found.regrouping.retrain)} clients regrouped")
    details = {**found.as_dict(), "training": None if trained is None else trained.as_dict()}
    cause = "regroup" if found.regrouping.advised else "change"
    summary = " and ".join(parts) or "nothing changed"
    return record(store, before, after, cause, summary, details, _noted(store, federation, changed))


def recover(store: RunDirectory) -> None:
    """Complete a change that is ready, forget one that is not."""
    staged = store.file(NEXT)
    if (staged / "ready.json").exists():
        plan = artefact.read_json(staged / "ready.json", "change")
        for old, new in plan["aside"].items():
            if store.has(old) and not store.has(new):
                store.file(new).parent.mkdir(parents=True, exist_ok=True)
                os.replace(store.file(old), store.file(new))
        for name in plan["files"]:
            if (staged / name).exists():
                store.file(name).parent.mkdir(parents=True, exist_ok=True)
                os.replace(staged / name, store.file(name))
        (staged / "ready.json").unlink()
    shutil.rmtree(staged, ignore_errors=True)


def _noted(store: RunDirectory, federation: Runtime, names: Iterable[str]) -> dict[str, Any]:
    """What the clients said of themselves, renewed for these: another one's change has yet to be looked at."""
    now_said = said(federation)
    return {**store.config().get("clients", {}), **{name: now_said[name] for name in names}}


def _written(store: RunDirectory) -> str:
    """When the run's collaboration was written."""
    seconds = store.file("collaboration.json").stat().st_mtime
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="seconds")


def _keep(
    store: RunDirectory,
    number: int,
    event: Mapping[str, Any],
    before: State,
    after: State,
    details: Mapping[str, Any],
) -> dict[str, Any]:
    """Write one collaboration with its cause; returns its entry in the index."""
    slug = re.sub(r"[^\w.-]+", "-", str(event["cause"])).strip("-.") or "change"
    name = f"history/{number:03d}-{slug}.json"
    staged = store.file(f"{NEXT}/{name}")
    after.collaboration.save(staged)
    collaboration = json.loads(staged.read_text(encoding="utf-8"))
    content = {
        **event,
        "command": command() if number else store.config().get("command"),
        "coalitions_before": before.collaboration.coalitions,
        "coalitions": after.collaboration.coalitions,
        "objective": after.collaboration.objective,
        "quantities": dict(zip(after.names, after.distances.quantities.tolist(), strict=True)),
        "details": dict(details),
        "collaboration": {key: value for key, value in collaboration.items() if key not in ("fedcollab", "format")},
    }
    artefact.write_json(staged, "membership", content)
    return {
        "number": number,
        **event,
        "clients": len(after.names),
        "coalitions": len(after.collaboration.coalitions),
        "objective": after.collaboration.objective,
        "file": name,
    }
