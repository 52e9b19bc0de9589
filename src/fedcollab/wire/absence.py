"""Clients that do not answer: how long to wait, how many are enough, and the list of who was absent, when and why.

A client is absent from a round if it did not answer, refused, failed, or answered what cannot be used (garbage, NaN,
the wrong shape). The round goes on with the others as long as they are a quorum; else the run pauses, and the same
command goes on later.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from fedcollab.errors import number

#: how an absence came about, and its words; the first two are worth another try
KINDS = {"silent": "did not answer", "garbage": "answered garbage", "refused": "refused", "failed": "failed"}
AGAIN = ("silent", "garbage")
#: a reply with this key is none: what it says instead, and the kind of absence
EXCUSES = {"refused": "refused", "error": "failed", "garbage": "garbage"}
FILE = "absences.jsonl"


@dataclass(frozen=True)
class Policy:
    """What to do about clients that do not answer.

    Parameters
    ----------
    quorum : float
        The share of the clients asked in a round that must answer; with fewer the run pauses.
    retries : int
        How often a client that did not answer, or answered something unusable, is asked again in the same round; one
        that was absent from the round before is not.
    deadline : float
        Seconds that a client has for its answer, where the runtime can tell (a real federation).
    wait : float
        Seconds before asking again: time for a silo to come back.

    Examples
    --------
    >>> Policy(quorum=0.5).enough(5), Policy(quorum=0.5).enough(1)
    (3, 1)
    """

    quorum: float = 0.5
    retries: int = 1
    deadline: float = 3600.0
    wait: float = 0.0

    def __post_init__(self) -> None:
        number("quorum", self.quorum, at_least=0, at_most=1)
        number("retries", self.retries, at_least=0, whole=True)
        number("deadline", self.deadline, above=0)
        number("wait", self.wait, at_least=0)

    def enough(self, asked: int) -> int:
        """Return how many of `asked` clients must answer: at least one, if any is asked."""
        return min(asked, max(1, math.ceil(self.quorum * asked - 1e-9)))


@dataclass(frozen=True)
class Absence:
    """One client that was absent from one round.

    Parameters
    ----------
    time : str
        When it was noticed, in UTC.
    action : str
        The action that the client was asked for.
    round : int or None
        The number of the round, for actions that count rounds.
    client : str
        The client's name.
    kind : str
        How the absence came about: a key of `KINDS`.
    why : str
        The reason, for people.
    """

    time: str
    action: str
    round: int | None
    client: str
    kind: str
    why: str

    def __str__(self) -> str:
        where = self.action if self.round is None else f"{self.action}, round {self.round}"
        return f"{self.time} {where}: `{self.client}` {KINDS[self.kind]} ({self.why})"


def write(path: Path, absences: Sequence[Absence]) -> None:
    """Append absences to a file, one JSON object a line.

    Parameters
    ----------
    path : Path
        The file; it is made if it does not exist.
    absences : sequence of Absence
        What to append.
    """
    if not absences:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(asdict(absence), ensure_ascii=False) + "\n" for absence in absences)


def read(folder: Path) -> list[Absence]:
    """Return the absences that a run directory and its trainings list, in order of time.

    A line that is none, as one that is incomplete because its writer was killed, is left out.
    """
    found: list[Absence] = []
    for path in (folder / FILE, *sorted(folder.glob(f"training/*/{FILE}"))):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else ():
            try:
                absence = msgspec.convert(json.loads(line), Absence)
            except (ValueError, RecursionError):  # msgspec's ValidationError is a ValueError
                continue
            if absence.kind in KINDS:
                found.append(absence)
    return sorted(found, key=lambda absence: absence.time)


def words(absences: Sequence[Absence]) -> list[str]:
    """Return a sentence for every client that was absent: how often, from when to when, and the last reason."""
    by_client: dict[str, list[Absence]] = {}
    for absence in absences:
        by_client.setdefault(absence.client, []).append(absence)
    return [_sentence(name, listed) for name, listed in sorted(by_client.items())]


def _sentence(name: str, listed: Sequence[Absence]) -> str:
    """Return when a client was absent, in which stages, and why it was last, in a sentence."""
    stages: dict[str, int] = {}
    for absence in listed:
        stages[absence.action] = stages.get(absence.action, 0) + 1
    first, last = listed[0].time, listed[-1].time
    when = f"at {first}" if first == last else f"from {first} to {last}"
    rounds = ", ".join(f"{count} of {action}" if count > 1 else action for action, count in stages.items())
    return f"{name} was absent {when} ({rounds}): {KINDS[listed[-1].kind]}, {listed[-1].why}."


def reasons(absent: Mapping[str, str]) -> str:
    """Return names and reasons in one line, each reason once; after five names only how many more there are.

    Examples
    --------
    >>> reasons({"b": "no answer", "c": "its disk is full", "d": "no answer"})
    '`b`, `d` (no answer), `c` (its disk is full)'
    """
    shown, more = sorted(absent)[:5], len(absent) - 5
    named: dict[str, list[str]] = {}
    for name in shown:
        named.setdefault(absent[name], []).append(f"`{name}`")
    listed = [f"{', '.join(names)} ({why})" for why, names in named.items()]
    return ", ".join([*listed, *[f"{more} more"] * (more > 0)])
