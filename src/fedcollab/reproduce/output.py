"""What an experiment hands over: tables with the paper's number beside ours, pictures, and a sentence or two.

A number farther from the paper's than two of the paper's standard deviations is marked.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedcollab import files, report
from fedcollab.reproduce.cells import Record

MARK = "†"


@dataclass(frozen=True)
class Comparison:
    """Our numbers, one a seed, beside the paper's.

    Parameters
    ----------
    ours : tuple of float
        One number a seed.
    paper : (mean, standard deviation), optional
        The paper's; the deviation is None where it gives none.
    digits : int
        How many to show after the point.
    """

    ours: tuple[float, ...]
    paper: tuple[float, float | None] | None = None
    digits: int = 2

    @property
    def mean(self) -> float:
        """The mean of our numbers over seeds."""
        return float(np.mean(self.ours))

    @property
    def deviation(self) -> float | None:
        """Sample standard deviation over seeds, as in the paper; None for one seed."""
        return float(np.std(self.ours, ddof=1)) if len(self.ours) > 1 else None

    @property
    def difference(self) -> float | None:
        """Our mean minus the paper's."""
        return None if self.paper is None else self.mean - self.paper[0]

    @property
    def far(self) -> bool:
        """Whether it is more than two of the paper's standard deviations away from the paper's."""
        if self.paper is None:
            return False
        return abs(self.mean - self.paper[0]) > 2 * (self.paper[1] or 0.0) + 10.0**-self.digits / 2

    def cells(self) -> list[str]:
        """Return ours, the paper's and the difference as text."""
        own = _spread(self.mean, self.deviation, self.digits)
        if self.paper is None or self.difference is None:
            return [own, "", ""]
        return [own, _spread(*self.paper, self.digits), f"{self.difference:+.{self.digits}f}{MARK * self.far}"]

    def record(self) -> dict[str, Any]:
        """Return both numbers as plain values, for CSV and JSON."""
        values: dict[str, Any] = {"ours": round(self.mean, 4)}
        values["ours_sd"] = None if self.deviation is None else round(self.deviation, 4)
        values["seeds"] = len(self.ours)
        if self.paper is not None and self.difference is not None:
            values |= {"paper": self.paper[0], "paper_sd": self.paper[1]}
            values |= {"difference": round(self.difference, 4), "far": self.far}
        return values

    def short(self) -> str:
        """Return our mean and the paper's as text."""
        known = "" if self.paper is None else f" | {self.paper[0]:.{self.digits}f}{MARK * self.far}"
        return f"{self.mean:.{self.digits}f}{known}"


Entry = str | int | float | Comparison | None
Row = tuple[Entry, ...]


@dataclass(frozen=True)
class Table:
    """Rows of entries; numbers that the paper has too take three columns: ours, the paper's, the difference.

    Parameters
    ----------
    title : str
        What stands above it.
    columns : tuple of str
        The heads.
    rows : list of tuples
        One entry a column.
    notes : tuple of str
        What stands below it.
    key : str
        What names the table in files.
    """

    title: str
    columns: tuple[str, ...]
    rows: list[Row]
    notes: tuple[str, ...] = ()
    key: str = ""

    @property
    def far(self) -> int:
        """How many numbers are far from the paper's."""
        return sum(isinstance(entry, Comparison) and entry.far for row in self.rows for entry in row)

    def flat(self) -> tuple[list[str], list[list[str]]]:
        """Return heads and rows as text."""
        wide = [any(_compared(row[at]) for row in self.rows) for at in range(len(self.columns))]
        heads = [
            head
            for name, three in zip(self.columns, wide, strict=True)
            for head in ([name, "paper", "difference"] if three else [name])
        ]
        body = []
        for row in self.rows:
            line: list[str] = []
            for entry, three in zip(row, wide, strict=True):
                cells = entry.cells() if isinstance(entry, Comparison) else [_text(entry), "", ""]
                line += cells if three else cells[:1]
            body.append(line)
        return heads, body

    def short(self) -> tuple[list[str], list[list[str]]]:
        """Return heads and rows for a terminal: ours, and the paper's mean after a stroke."""
        body = [
            [entry.short() if isinstance(entry, Comparison) else _text(entry) for entry in row] for row in self.rows
        ]
        return list(self.columns), body

    def markdown(self) -> str:
        """Return a Markdown table under its title."""
        heads, body = self.flat()
        rows = [heads, ["---", *["---:"] * (len(heads) - 1)], *body]
        lines = [f"**{self.title}**", "", *("| " + " | ".join(row) + " |" for row in rows)]
        if self.far:
            lines += ["", f"{MARK} more than two of the paper's standard deviations away."]
        return "\n".join([*lines, *(f"\n{note}" for note in self.notes)]) + "\n"

    def records(self) -> list[dict[str, Any]]:
        """Return one record a number, for CSV and JSON."""
        found: list[dict[str, Any]] = []
        for row in self.rows:
            entries = dict(zip(self.columns, row, strict=True))
            numbers = {name: entry for name, entry in entries.items() if isinstance(entry, Comparison)}
            base = {"table": self.title, **{name: entry for name, entry in entries.items() if name not in numbers}}
            found += [{**base, "measure": name, **number.record()} for name, number in numbers.items()] or [base]
        return found


@dataclass(frozen=True)
class Output:
    """Tables, pictures by name (Altair charts), sentences about them, and texts by key for a page written by hand."""

    tables: list[Table] = field(default_factory=list)
    charts: dict[str, Any] = field(default_factory=dict)
    text: list[str] = field(default_factory=list)
    blocks: dict[str, str] = field(default_factory=dict)

    def save(self, name: str, folder: Path, title: str) -> list[Path]:
        """Write NAME.md under a `title`, NAME.csv and the pictures to a `folder`, and return the files."""
        parts = [f"# {title}", *self.text, *(table.markdown() for table in self.tables)]
        parts += [f"![{picture}]({picture}.svg)" for picture in self.charts]
        written = [folder / f"{name}.md"]
        files.write_bytes(written[0], ("\n\n".join(part.rstrip() for part in parts) + "\n").encode())
        records = [record for table in self.tables for record in table.records()]
        if records:
            written.append(folder / f"{name}.csv")
            files.write_bytes(written[1], as_csv(records).encode())
        for picture, chart in self.charts.items():
            written += report.save_chart(chart, folder / picture)
        return written


def as_csv(records: Sequence[dict[str, Any]]) -> str:
    """Return records as CSV, with all their keys as columns."""
    keys = list(dict.fromkeys(key for record in records for key in record))
    text = io.StringIO()
    writer = csv.DictWriter(text, keys, lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def provenance(records: Sequence[Record]) -> str:
    """Return how many cells there are, and when, where and for how long they were computed."""
    if not records:
        return "Computed in seconds, without cells."
    days = sorted({cell.date for cell in records})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    machine = Counter(cell.machine for cell in records).most_common(1)[0][0]
    spent = duration(sum(cell.seconds for cell in records))
    return f"{len(records)} cell{'s' * (len(records) > 1)}, {when}, {machine}, {spent} of one core in all."


def duration(seconds: float) -> str:
    """Return seconds as text.

    >>> duration(40), duration(600), duration(9000)
    ('40 s', '10 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _compared(entry: Entry) -> bool:
    """Return whether the paper has this number."""
    return isinstance(entry, Comparison) and entry.paper is not None


def _spread(mean: float, deviation: float | None, digits: int) -> str:
    """Return a `mean` with its `deviation` in brackets, both with as many `digits`."""
    return f"{mean:.{digits}f}" + ("" if deviation is None else f" ({deviation:.{digits}f})")


def _text(entry: Entry) -> str:
    """Return an entry without a comparison as text."""
    if entry is None:
        return ""
    if isinstance(entry, float):
        return f"{entry:.3g}"
    return f"{entry:,}" if isinstance(entry, int) else str(entry)
