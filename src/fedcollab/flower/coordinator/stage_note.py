"""What a federation is doing now, for `fedcollab federation status`: a file for each command that works on its silos.

    FOLDER/stages/PID.json   the stage, how far it is, what silos are asked for, the round, who has not answered

The command writes it as it goes and removes it at its end; the file of a command that was killed is removed by the next
who looks. The ServerApp, which sees single replies, tells the command for whom it still waits.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedcollab.files import write_bytes
from fedcollab.flower.remote import Asked
from fedcollab.progress import duration, time_left
from fedcollab.runs.provenance import command

if TYPE_CHECKING:
    from fedcollab.flower.grid import Exchange

#: the key of a message from the ServerApp that names the silos it waits for
WAITING = "waiting"
FOLDER = "stages"
CONNECTING = "connecting"  # the stage until the first question to silos
EVERY = 0.5  # seconds between two notes of how far a stage is


class StageNote:
    """The file that says what one command is doing.

    Parameters
    ----------
    path : Path
        The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        now = time.time()
        self._content: dict[str, Any] = {
            "command": command(), "pid": os.getpid(), "started": now, "stage": CONNECTING, "stage_started": now,
            "done": 0, "total": 0, "action": None, "round": None, "asked": [], "asked_at": None, "waiting": [],
        }  # fmt: skip
        self._write()

    def progress(self, stage: str, done: int, total: int) -> None:
        """Note how far a stage is.

        Parameters
        ----------
        stage : str
            The stage, in words.
        done, total : int
            How many steps are done, and how many there are.
        """
        now, new = time.time(), stage != self._content["stage"]
        if new:
            self._content["stage_started"] = now
        self._content |= {"stage": stage, "done": done, "total": total}
        if new or now - self._written >= EVERY:
            self._write()

    def ask(self, asked: Asked) -> None:
        """Note what silos are asked, and that none has answered yet."""
        names = list(asked.names)
        if self._content["stage"] == CONNECTING:
            self._content |= {"stage": "connected", "stage_started": time.time()}
        self._content |= {"action": asked.action, "round": asked.round, "asked": names, "asked_at": time.time()}
        self.wait_for(names)

    def wait_for(self, names: Sequence[str]) -> None:
        """Note who has not answered yet."""
        self._content["waiting"] = list(names)
        self._write()

    def _write(self) -> None:
        self._written = time.time()
        with contextlib.suppress(OSError):  # a full disk stops no training for want of a note
            write_bytes(self._path, json.dumps(self._content).encode())


@contextmanager
def noted_stage(folder: Path) -> Iterator[StageNote]:
    """Yield the note of this command in a federation's folder; it is removed at the end of the block."""
    path = folder / FOLDER / f"{os.getpid()}.json"
    path.parent.mkdir(exist_ok=True)
    try:
        yield StageNote(path)
    finally:
        path.unlink(missing_ok=True)


def current_stages(folder: Path) -> list[dict[str, Any]]:
    """Return what the commands that work on a federation are doing, the earliest first.

    Parameters
    ----------
    folder : Path
        The federation's folder.

    Returns
    -------
    list of dict
        For each: `command`, `pid`, `stage` with `done` of `total`, `action` and `round` that silos are asked for,
        `asked` and `waiting` (silos), and `started`, `stage_started`, `asked_at` in seconds since 1970.
    """
    found = []
    for path in sorted((folder / FOLDER).glob("*.json")):
        with contextlib.suppress(OSError, ValueError):
            note = json.loads(path.read_text())
            if _runs(int(note["pid"])):
                found.append(note)
            else:
                path.unlink(missing_ok=True)
    return sorted(found, key=lambda note: float(note["started"]))


def stage_lines(note: dict[str, Any], now: float) -> list[str]:
    """Return what one command is doing, in words.

    Parameters
    ----------
    note : dict
        One entry of `current_stages`.
    now : float
        The time, in seconds since 1970.

    Returns
    -------
    list of str
        The stage and how far it is; what silos are asked; and who has not answered.
    """
    took = now - note["stage_started"]
    progress = f", {time_left(note['done'], note['total'], took)}" if note["total"] else ""
    lines = [f"{note['stage']}{progress} ({note['command']}, for {duration(now - note['started'])})"]
    if not note["asked"]:
        return lines
    asked, waiting = note["asked"], note["waiting"]
    where = f"`{note['action']}`" + ("" if note["round"] is None else f", round {note['round']}")
    since = duration(now - note["asked_at"])
    if not waiting:
        return [*lines, f"  {where}: all {len(asked)} have answered"]
    answered = len(asked) - len(waiting)
    return [
        *lines,
        f"  {where}: {answered} of {len(asked)} have answered; for {since} no answer of {', '.join(waiting)}",
    ]


def tell_waiting(exchange: Exchange, tell: Callable[[list[str]], None]) -> dict[str, str]:
    """Have every reply told that comes in over a Grid: the silos for which it still waits.

    Parameters
    ----------
    exchange : Exchange
        The exchange, whose Grid is watched from now on.
    tell : callable
        Called with the names of the silos that have not answered, when one has.

    Returns
    -------
    dict
        Name by message for which an answer is expected; to be cleared before the next call.
    """
    grid = exchange.grid
    push, pull = grid.push_messages, grid.pull_messages
    waiting: dict[str, str] = {}

    def push_messages(messages: Iterable[Any]) -> list[str]:
        listed = list(messages)
        sent = list(push(listed))
        names = {node: name for name, node in exchange.nodes.items()}
        for identifier, message in zip(sent, listed, strict=True):
            node = message.metadata.dst_node_id
            if identifier and node in names:
                waiting[identifier] = names[node]
        return sent

    def pull_messages(message_ids: Iterable[str]) -> list[Any]:
        replies = list(pull(message_ids))
        before = len(waiting)
        for reply in replies:
            waiting.pop(reply.metadata.reply_to_message_id, None)
        if waiting and len(waiting) < before:
            tell(sorted(waiting.values()))
        return replies

    grid.push_messages, grid.pull_messages = push_messages, pull_messages  # type: ignore[method-assign]
    return waiting


def _runs(pid: int) -> bool:
    """Return whether a process of this number runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
