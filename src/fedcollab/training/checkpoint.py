"""Where training has come to, on disk: a coordinator that is killed goes on from there, and ends with the same models.

A snapshot holds all that a round leaves behind on the server: each coalition's state, who is in which, how long each
trains, and for whom which round counts; and, where the clients live in this process, what they keep. Everything
random is derived from (seed, round, client), so that nothing else is needed: the resumed run equals the undisturbed
one.

In a real federation clients keep their own state on their own disk, that of the last round and of the one before it. A
message says from which round to go on, so that a round may be asked for twice (`training.client`).
"""

from __future__ import annotations

import hashlib
import json
import time
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedcollab.errors import FedcollabWarning, Paused
from fedcollab.files import sweep, write_bytes
from fedcollab.parsing import MISFITS, MOST_DATA, read_bytes
from fedcollab.training.hooks import State
from fedcollab.wire.absence import reasons
from fedcollab.wire.message import Message, pack, unpack

FILE = "checkpoint.safetensors"
#: seconds between snapshots on disk where clients live in this process; and no more than this share of the time
EVERY, SHARE = 10.0, 0.05

States = Mapping[str, Mapping[str, Message]]


@dataclass(frozen=True, eq=False)
class Stopping:
    """How long each coalition trains, whether it uses the mean over rounds, and what both were chosen on.

    Parameters
    ----------
    rounds : mapping
        The number of rounds of each coalition; one that is not named trains as long as any.
    means : mapping
        Whether each coalition uses the mean over rounds; one that is not named does, if there is one.
    curves : mapping of arrays
        For each client that was asked, its mean loss on training rows that the models had not seen, after 0, 1, 2, ...
        rounds: one column for each kind of model, the mean over rounds first, the last round's model last.
    """

    rounds: Mapping[int, int] = field(default_factory=dict)
    means: Mapping[int, bool] = field(default_factory=dict)
    curves: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Snapshot:
    """All that a round leaves behind on the server.

    Parameters
    ----------
    number : int
        The round.
    servers : list of dict
        Each coalition's state.
    assignment : dict
        Each client's coalition, a position in `servers`.
    stopped : dict
        Coalitions whose training broke off, and why.
    stopping : Stopping
        How long each coalition trains, and which of its models it uses.
    failures : list of (round, client, why)
        Every time that a client did not answer.
    seen : dict
        The last round that counts for each client.
    distances : array, optional
        The distance matrix, where the grouping has one.
    states : mapping
        What each client of this process keeps between rounds.
    spent : mapping
        Calls, bytes and seconds so far.
    secure : mapping
        The groups of secure aggregation, as plain values (see `secure_rounds`).
    """

    number: int
    servers: list[State]
    assignment: dict[str, int]
    stopped: dict[int, str]
    stopping: Stopping
    failures: list[tuple[int, str, str]]
    seen: dict[str, int]
    distances: NDArray[np.float64] | None
    states: States = field(default_factory=dict)
    spent: Mapping[str, float] = field(default_factory=dict)
    secure: Mapping[str, Any] = field(default_factory=dict)


@dataclass(eq=False)
class Checkpoint:
    """The snapshot file of one training.

    Parameters
    ----------
    folder : Path
        The folder of the training.
    settings : mapping
        What was asked; named in a warning when the file was written with other settings.
    identity : str
        Checksum of all that decides the training's course (see `identity`); only a snapshot with the same one is used.
    always : bool, default False
        Write every round; otherwise only now and then, so that writing takes a small share of the time.
    """

    folder: Path
    settings: Mapping[str, Any]
    identity: str
    always: bool = False
    _due: float = field(default=0.0, init=False)
    _newest: Snapshot | None = field(default=None, init=False)

    @property
    def path(self) -> Path:
        """The path of the snapshot file."""
        return self.folder / FILE

    def keep(self, snapshot: Snapshot) -> None:
        """Remember a round's snapshot, and write it to disk if that is due."""
        self._newest = snapshot
        if self.always or time.monotonic() >= self._due:
            self.write()

    def write(self) -> None:
        """Write the newest snapshot to disk now, if it has not been written yet."""
        if self._newest is None:
            return
        started = time.monotonic()
        content = pack({"settings": _text(self.settings), "identity": self.identity, **_flat(self._newest)})
        write_bytes(self.path, content + hashlib.sha256(content).digest(), private=True)
        self._newest = None
        ended = time.monotonic()
        self._due = ended + max(EVERY, (ended - started) / SHARE)

    def read(self, left_out: Mapping[str, str] | None = None) -> Snapshot | None:
        """Return the snapshot to go on from, or None if there is none.

        One that was written by a training with other settings, or that cannot be read, is ignored with a warning.

        Parameters
        ----------
        left_out : mapping, optional
            Clients that are absent now, and why.

        Raises
        ------
        Paused
            If the settings are the same but clients of the snapshot are in `left_out`: they may come back.
        """
        self._due = time.monotonic() + EVERY
        if not self.path.exists():
            return None
        try:
            content = unpack(_checked(read_bytes(self.path, "a checkpoint", MOST_DATA)), arrays=None)
            if content["identity"] == self.identity:
                return _snapshot(content)
            settings, began = json.loads(content["settings"]), set(content["assignment"]) & set(left_out or {})
            if not isinstance(settings, dict):
                raise ValueError("its settings are no object")
        except MISFITS as error:
            warnings.warn(
                f"`{self.path}` cannot be used ({error}); training starts over", FedcollabWarning, stacklevel=3
            )
            return None
        wanted = json.loads(_text(self.settings))
        differing = [key for key in wanted if settings.get(key) != wanted[key]] or ["clients or data"]
        if began and differing == ["clients or data"]:
            raise Paused(
                f"`{self.folder}` holds an unfinished training with clients that are not there now: "
                f"{reasons({name: why for name, why in (left_out or {}).items() if name in began})}; "
                f"to train without them, remove {self.path.name}"
            )
        warnings.warn(
            f"`{self.folder}` held an unfinished training with other settings ({', '.join(differing)}); starts over",
            FedcollabWarning,
            stacklevel=3,
        )
        return None

    def done(self) -> None:
        """Remove the snapshot file, because the result is saved or another training begins."""
        self._newest = None
        self.path.unlink(missing_ok=True)
        sweep(self.path)


def without_state(snapshot: Snapshot, names: Collection[str]) -> Snapshot:
    """Return a snapshot after which clients start anew: they go on from no round, and nothing of them is restored.

    Parameters
    ----------
    snapshot : Snapshot
        The snapshot.
    names : collection of str
        The clients.
    """
    return replace(
        snapshot,
        seen={key: number for key, number in snapshot.seen.items() if key.partition("\x1f")[0] not in names},
        states={name: kept for name, kept in snapshot.states.items() if name not in names},
    )


def _checked(content: bytes) -> bytes:
    """Return a snapshot without the checksum at its end; one that does not fit its checksum cannot be unpacked."""
    length = len(content) - hashlib.sha256().digest_size
    whole = length > 0 and hashlib.sha256(content[:length]).digest() == content[length:]
    return content[:length] if whole else content


def identity(settings: Mapping[str, Any], *parts: str | bytes) -> str:
    """Return a checksum of all that decides a training's course.

    Parameters
    ----------
    settings : mapping
        The settings of the training.
    *parts : str or bytes
        What else decides it: clients, schema, initial weights.
    """
    digest = hashlib.sha256(_text(settings).encode())
    for part in parts:
        digest.update(b"\x1f" + (part.encode() if isinstance(part, str) else part))
    return digest.hexdigest()


def _text(settings: Mapping[str, Any]) -> str:
    """Return settings as JSON with sorted keys."""
    return json.dumps(dict(settings), sort_keys=True)


def _flat(snapshot: Snapshot) -> Message:
    """Return a snapshot as a message: arrays under paths, the rest as plain values."""
    names = sorted(snapshot.states)
    arrays: Message = {}
    for position, server in enumerate(snapshot.servers):
        arrays |= {f"server/{position}/{key}": value.numpy() for key, value in server.items()}
    states = {}
    for at, name in enumerate(names):
        for key, kept in snapshot.states[name].items():
            arrays |= {f"state/{at}/{key}/{k}": v for k, v in kept.items() if isinstance(v, np.ndarray)}
            states[f"{at}/{key}"] = {k: v for k, v in kept.items() if not isinstance(v, np.ndarray)}
    if snapshot.distances is not None:
        arrays["distances"] = snapshot.distances
    return {
        **arrays,
        "number": snapshot.number,
        "servers": len(snapshot.servers),
        "assignment": snapshot.assignment,
        "stopped": list(snapshot.stopped.items()),
        "rounds": list(snapshot.stopping.rounds.items()),
        "means": list(snapshot.stopping.means.items()),
        "curves": {name: curve.tolist() for name, curve in snapshot.stopping.curves.items()},
        "failures": snapshot.failures,
        "seen": snapshot.seen,
        "names": names,
        "states": states,
        "spent": dict(snapshot.spent),
        "secure": dict(snapshot.secure),
    }


def _snapshot(content: Message) -> Snapshot:
    """Return the snapshot in a message that `_flat` made."""
    parts: dict[str, dict[str, Any]] = {"server": {}, "state": {}}
    for path, value in content.items():
        kind, _, rest = path.partition("/")
        if rest and kind in parts:
            parts[kind][rest] = value
    if not 0 <= int(content["servers"]) <= 1000 + 10 * len(content["assignment"]):  # baselines may have empty ones
        raise ValueError(f"it has {content['servers']} coalitions of {len(content['assignment'])} clients")
    servers: list[State] = [{} for _ in range(content["servers"])]
    for path, value in parts["server"].items():
        at, key = path.split("/", 1)
        servers[int(at)][key] = torch.from_numpy(np.array(value))
    states: dict[str, dict[str, Message]] = {name: {} for name in content["names"]}
    for path, plain in content["states"].items():
        at, key = path.split("/", 1)
        prefix = f"{path}/"
        kept = {p.removeprefix(prefix): value for p, value in parts["state"].items() if p.startswith(prefix)}
        states[content["names"][int(at)]][key] = {**plain, **kept}
    return Snapshot(
        number=int(content["number"]),
        servers=servers,
        assignment={name: int(label) for name, label in content["assignment"].items()},
        stopped={int(label): why for label, why in content["stopped"]},
        stopping=Stopping(
            {int(label): int(rounds) for label, rounds in content["rounds"]},
            {int(label): bool(mean) for label, mean in content["means"]},
            {name: np.array(curve) for name, curve in content["curves"].items()},
        ),
        failures=[(int(number), name, why) for number, name, why in content["failures"]],
        seen={name: int(number) for name, number in content["seen"].items()},
        distances=content.get("distances"),
        states=states,
        spent=dict(content["spent"]),
        secure=content.get("secure", {}),
    )
