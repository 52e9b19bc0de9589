"""Finding and Inspection: what is doubtful about the data of a federation, and what settles it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fedcollab import files
from fedcollab.errors import InputError
from fedcollab.inspection.column import Profile, impossible_column
from fedcollab.inspection.differences import LABEL, Difference, column_differences
from fedcollab.parsing import complete, names_in
from fedcollab.wire.fields import check
from fedcollab.wire.message import Message

#: what a run directory calls the result of its data check
FILE = "inspection.json"
#: from harmless to certain to spoil the advice
SEVERITIES = ("info", "warning", "error")


@dataclass(frozen=True)
class Finding:
    """One thing about the data that the advice depends on.

    Parameters
    ----------
    client : str or None
        The client that it is about; None: all of them.
    column : str or None
        The column, "label" for the labels, or None where it is about rows.
    kind : str
        What was found, in a word: "identifier", "units", "label-spelling", ...
    severity : str
        "info", "warning" (doubtful), or "error" (certain to spoil the advice).
    message : str
        What was seen, and what it does to the advice.
    remedy : str
        What settles it; an option of the command line where there is one.
    """

    client: str | None
    column: str | None
    kind: str
    severity: str
    message: str
    remedy: str

    def __str__(self) -> str:
        about = [f"client {self.client}"] * (self.client is not None)
        about += [f"column {self.column}"] * (self.column not in (None, LABEL))
        where = f" ({', '.join(about)})" if about else ""
        return f"{self.severity}{where}: {self.message} {self.remedy}".rstrip()


@dataclass(frozen=True, eq=False)
class Inspection:
    """The result of a data check.

    Parameters
    ----------
    findings : tuple of Finding
        Everything that was found, the gravest first.
    names : tuple of str
        The clients that answered, in order of name.
    profiles : mapping
        The counts and moments that each client gave, for `differences`.

    Examples
    --------
    >>> import pandas as pd
    >>> from fedcollab import ClientData, inspect
    >>> table = pd.DataFrame({"age": range(40, 70), "ward": ["a", "b", "c"] * 10})
    >>> labels = [0, 1] * 15
    >>> found = inspect([ClientData("north", table, labels), ClientData("south", table[["age"]], labels)])
    >>> [(finding.client, finding.column, finding.kind) for finding in found.errors if finding.client]
    [('south', 'ward', 'column-missing')]
    """

    findings: tuple[Finding, ...]
    names: tuple[str, ...] = ()
    profiles: Mapping[str, Message] = field(default_factory=dict)

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that are certain to spoil the advice."""
        return tuple(found for found in self.findings if found.severity == "error")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The findings that are doubtful."""
        return tuple(found for found in self.findings if found.severity == "warning")

    def differences(self, first: str, second: str) -> tuple[Difference, ...]:
        """Return the columns in which two clients differ by more than chance, the most different first.

        Parameters
        ----------
        first, second : str
            The clients.

        Returns
        -------
        tuple of Difference
            Each with `.column` ("label" for the labels) and `.distance`, from 0 (alike) to 1 (nothing in common).

        Raises
        ------
        InputError
            If one of them is not a client that answered.
        """
        for name in (first, second):
            if name not in self.profiles:
                raise InputError(f"`client` (={name!r}) must be one of: {', '.join(self.names)}")
        return column_differences(self.profiles[first], self.profiles[second])

    def grouped(self) -> list[tuple[Finding, list[str]]]:
        """Return findings that differ in the client alone as one, with the names of all its clients.

        Returns
        -------
        list of (Finding, list of str)
            The finding of the first client, and the names; no names where it is about all clients.
        """
        same: dict[tuple[Any, ...], list[Finding]] = {}
        for found in self.findings:
            alone = found.client is None or found.kind in ("same-table", "unreadable")
            reason = found.message if found.kind == "no-answer" else None
            key = (found.kind, found.column, found.severity, found.remedy, reason, found if alone else None)
            same.setdefault(key, []).append(found)
        return [
            (members[0], list(dict.fromkeys(found.client for found in members if found.client is not None)))
            for members in same.values()
        ]

    def as_dict(self) -> dict[str, Any]:
        """Return the findings as plain values, for JSON."""
        counts = {kind: sum(found.severity == kind for found in self.findings) for kind in reversed(SEVERITIES)}
        return {
            "clients": list(self.names),
            "counts": counts,
            "findings": [asdict(found) for found in self.findings],
        }

    def save(self, path: str | Path, made: Mapping[str, Any] | None = None) -> None:
        """Write the findings, and what every client said about its columns, to a JSON file.

        Parameters
        ----------
        path : str or Path
            The file.
        made : mapping, optional
            The settings and inputs that it was made with, if a run keeps it.
        """
        files.write_json(path, "inspection", {**self.as_dict(), "profiles": dict(self.profiles)}, made)

    @classmethod
    def load(cls, path: str | Path) -> Inspection:
        """Read what `save` wrote.

        Parameters
        ----------
        path : str or Path
            The file.

        Returns
        -------
        Inspection
            The inspection.

        Raises
        ------
        InputError
            If the file does not exist or is not an inspection.
        """
        content = files.read_json(path, "inspection")
        with complete(path, "inspection"):
            found = tuple(Finding(**entry) for entry in content["findings"])
            if any(one.severity not in SEVERITIES or not isinstance(one.message, str) for one in found):
                raise ValueError("a finding has no severity or message")
            profiles = dict(content["profiles"])
            for name, one in profiles.items():
                check(Profile, one, {})
                for column in [*one["columns"], *([one["target"]] if "target" in one else [])]:
                    wrong = impossible_column(column, one["quantity"])
                    if wrong is not None:
                        raise ValueError(f"client `{name}`: column `{column['name']}` {wrong}")
                if sum(one["labels"].values()) > one["quantity"]:
                    raise ValueError(f"client `{name}`: `labels` counts more than the {one['quantity']} rows")
            return cls(found, names_in(content, "clients"), profiles)

    def __str__(self) -> str:
        return "\n".join(map(str, self.findings)) or "Nothing was found that speaks against these data."

    def __repr__(self) -> str:
        counts = self.as_dict()["counts"]
        listed = ", ".join(f"{count} {kind}" for kind, count in counts.items())
        return f"Inspection({len(self.names)} clients: {listed})"


def read_beside(folder: str | Path) -> Inspection | None:
    """Return what the data check of a run directory found; None if the run did not begin with one.

    Parameters
    ----------
    folder : str or Path
        The run directory, or the folder of the distances.
    """
    path = Path(folder) / FILE
    return Inspection.load(path) if path.is_file() else None


def ordered(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return findings with the gravest first; those of one kind and column stay together."""
    first_seen = {key: place for place, (key, _) in enumerate(itertools.groupby(findings, _key))}
    return tuple(sorted(findings, key=lambda found: (-SEVERITIES.index(found.severity), first_seen[_key(found)])))


def _key(found: Finding) -> tuple[str, str | None]:
    return found.kind, found.column
