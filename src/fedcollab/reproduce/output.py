"""What an experiment hands over: tables with the paper's figure beside ours, pictures, and a sentence or two.

A figure farther from the paper's than two of the paper's standard deviations is marked.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcollab import files as artefact

if TYPE_CHECKING:
    from fedcollab.report.charts import Chart

MARK = "†"
FORMATS = ("png", "svg")


@dataclass(frozen=True)
class Figure:
    """Our figure over seeds, and the paper's (mean, and standard deviation where it gives one)."""

    ours: tuple[float, ...]
    paper: tuple[float, float | None] | None = None
    digits: int = 2

    @property
    def mean(self) -> float:
        """Over seeds."""
        return float(np.mean(self.ours))

    @property
    def deviation(self) -> float | None:
        """Sample standard deviation over seeds, as in the paper; None for one seed."""
        return float(np.std(self.ours, ddof=1)) if len(self.ours) > 1 else None

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's."""
        return None if self.paper is None else self.mean - self.paper[0]

    @property
    def far(self) -> bool:
        """Whether it is more than two of the paper's standard deviations away from the paper's."""
        if self.paper is None:
            return False
        return abs(self.mean - self.paper[0]) > 2 * (self.paper[1] or 0.0) + 10.0**-self.digits / 2

    def cells(self) -> list[str]:
        """Ours, the paper's, and the difference, as text."""
        own = _spread(self.mean, self.deviation, self.digits)
        if self.paper is None or self.difference is None:
            return [own, "", ""]
        return [own, _spread(*self.paper, self.digits), f"{self.difference:+.{self.digits}f}{MARK * self.far}"]

    def short(self) -> str:
        """Ours and the paper's means."""
        known = "" if self.paper is None else f" | {self.paper[0]:.{self.digits}f}{MARK * self.far}"
        return f"{self.mean:.{self.digits}f}{known}"


Entry = str | int | float | Figure | None


@dataclass(frozen=True)
class Table:
    """Rows of entries; figures that the paper has too take three columns: ours, the paper's, the difference.

    `key` names the table in files.
    """

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[Entry, ...]]
    notes: tuple[str, ...] = ()
    key: str = ""

    @property
    def far(self) -> int:
        """How many figures are far from the paper's."""
        return sum(isinstance(entry, Figure) and entry.far for row in self.rows for entry in row)

    def flat(self) -> tuple[list[str], list[list[str]]]:
        """Columns and rows of text."""
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
                cells = entry.cells() if isinstance(entry, Figure) else [_text(entry), "", ""]
                line += cells if three else cells[:1]
            body.append(line)
        return heads, body

    def short(self) -> tuple[list[str], list[list[str]]]:
        """Columns and rows for a terminal: ours, and the paper's mean after a stroke."""
        body = [[entry.short() if isinstance(entry, Figure) else _text(entry) for entry in row] for row in self.rows]
        return list(self.columns), body

    def markdown(self) -> str:
        """As a Markdown table under its title."""
        heads, body = self.flat()
        rows = [heads, ["---", *["---:"] * (len(heads) - 1)], *body]
        lines = [f"**{self.title}**", "", *("| " + " | ".join(row) + " |" for row in rows)]
        if self.far:
            lines += ["", f"{MARK} more than two of the paper's standard deviations away."]
        return "\n".join([*lines, *(f"\n{note}" for note in self.notes)]) + "\n"

    def records(self) -> list[dict[str, Any]]:
        """One record a figure, for CSV and JSON."""
        found: list[dict[str, Any]] = []
        for row in self.rows:
            plain = {
                name: entry for name, entry in zip(self.columns, row, strict=True) if not isinstance(entry, Figure)
            }
            figures = [(name, e) for name, e in zip(self.columns, row, strict=True) if isinstance(e, Figure)]
            base = {"table": self.title, **plain}
            for name, figure in figures:
                values: dict[str, Any] = {"measure": name, "ours": round(figure.mean, 4)}
                values["ours_sd"] = None if figure.deviation is None else round(figure.deviation, 4)
                values["seeds"] = len(figure.ours)
                if figure.paper is not None and figure.difference is not None:
                    values |= {"paper": figure.paper[0], "paper_sd": figure.paper[1]}
                    values |= {"difference": round(figure.difference, 4), "far": figure.far}
                found.append({**base, **values})
            if not figures:
                found.append(base)
        return found


@dataclass(frozen=True)
class Output:
    """Tables, pictures by name (Altair charts) and what to say about them."""

    tables: list[Table] = field(default_factory=list)
    charts: dict[str, Chart] = field(default_factory=dict)
    text: list[str] = field(default_factory=list)

    def save(self, name: str, folder: Path, title: str) -> list[Path]:
        """Write NAME.md, NAME.csv and the pictures."""
        written = []
        parts = [f"# {title}", *self.text, *(table.markdown() for table in self.tables)]
        parts += [f"![{picture}]({picture}.svg)" for picture in self.charts]
        artefact.write_bytes(folder / f"{name}.md", ("\n\n".join(part.rstrip() for part in parts) + "\n").encode())
        written.append(folder / f"{name}.md")
        records = [record for table in self.tables for record in table.records()]
        if records:
            artefact.write_bytes(folder / f"{name}.csv", as_csv(records).encode())
            written.append(folder / f"{name}.csv")
        for picture, chart in self.charts.items():
            written += draw(chart, folder / picture)
        return written


def draw(chart: Chart, path: Path) -> list[Path]:
    """Write a chart as PNG and SVG, black on white."""
    from fedcollab.report import theme
    from fedcollab.report.figures import convert

    spec: dict[str, Any] = chart.to_dict()
    spec["config"] = theme.config(theme.PRINT_INK) | {"background": "white"}
    written = []
    for kind in FORMATS:
        target = path.parent / f"{path.name}.{kind}"
        artefact.write_bytes(target, convert(spec, kind))
        written.append(target)
    return written


def as_csv(records: Sequence[dict[str, Any]]) -> str:
    """Records with all their keys as columns."""
    keys = list(dict.fromkeys(key for record in records for key in record))
    text = io.StringIO()
    writer = csv.DictWriter(text, keys, lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def _compared(entry: Entry) -> bool:
    return isinstance(entry, Figure) and entry.paper is not None


def _spread(mean: float, deviation: float | None, digits: int) -> str:
    return f"{mean:.{digits}f}" + ("" if deviation is None else f" ({deviation:.{digits}f})")


def _text(entry: Entry) -> str:
    if entry is None:
        return ""
    if isinstance(entry, float):
        return f"{entry:.3g}"
    return f"{entry:,}" if isinstance(entry, int) else str(entry)
