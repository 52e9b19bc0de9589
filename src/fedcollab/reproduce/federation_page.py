"""docs/federations.md from the cells: the short answer, tables, where the advice was wrong, and the README's figures.

The page is written by hand around marks; what stands between them comes from here. Why the advice was wrong on a
federation stands in [federations] of `explanations.toml` beside the cells, one text a federation; nothing is guessed.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedcollab.reproduce.federation_cells import ASIDE, POLICIES, PROCEDURES, Key, Result
from fedcollab.reproduce.federation_pictures import MODELS as TITLES
from fedcollab.reproduce.federation_study import (
    CHANCE,
    Line,
    Study,
    federation_stderr,
    mean_row,
    means_of,
    pooled_clients,
    table_rows,
)
from fedcollab.reproduce.output import Row, Table

#: a loss so much higher than the oracle's counts as wrong
REGRET = 0.005
#: harmed clients that are named, of one federation
NAMED = 4
WORDS = {
    "alone": "alone",
    "everyone": "everyone, FedAvg",
    "ditto": "everyone, Ditto",
    "own-intercept": "everyone, own intercept",
    "own-weights": "own weights (`cross`, C = 10)",
    "paper-published": "the paper's procedure, C = 10, `published`",
    "paper-cross": "the paper's procedure, C = 10, `cross`",
    "paper-hypothesis": "the paper's procedure, C = 10, `hypothesis`",
    "ifca": "clusters of IFCA (K = 4)",
    "fedcluster": "clusters of FedCluster (K = 4)",
    "advice": "**as advised**",
}


def reasons(folder: Path) -> dict[str, str]:
    """Return why the advice was wrong, by federation, and when the cells were computed ("ran")."""
    path = folder / "explanations.toml"
    found: dict[str, str] = (
        tomllib.loads(path.read_text(encoding="utf-8")).get("federations", {}) if path.exists() else {}
    )
    return found


@dataclass(frozen=True, eq=False)
class Page:
    """The parts of the page.

    Parameters
    ----------
    studies : sequence of Study
        One a model.
    advice, policies, procedures : mapping
        The cells by key.
    folder : Path
        Where `explanations.toml` is.
    """

    studies: Sequence[Study]
    advice: Mapping[Key, Result]
    policies: Mapping[Key, Result]
    procedures: Mapping[Key, Result]
    folder: Path

    def blocks(self) -> dict[str, str]:
        """Return the texts between the marks of the page and of the README."""
        short = "\n".join(f"- {line}" for line in self.short())
        made = {"short": short + "\n", "wrong": self.wrong(), "readme": self.readme()}
        return made | ({"heart-advice": self.heart()} if any(key[0] == "heart" for key in self.advice) else {})

    def heart(self) -> str:
        """Return what was advised to the four hospitals, split by split, and what it gave."""
        rows: list[Row] = []
        for study in self.studies:
            for split in range(study.splits):
                cell = self.advice.get(("heart", split, study.model))
                if cell is not None:
                    told = float(np.mean([mean for mean, _ in cell["expected"]["loss"]]))
                    gain = float(np.mean(cell["gain"]["loss"]))
                    row = (TITLES[study.model], split, cell["verdict"], cell["advised"], f"{told:+.3f}")
                    rows.append((*row, f"{gain:+.3f} ± {federation_stderr([cell]):.3f}"))
        heads = ("model", "split", "verdict", "advised", "expected gain", "measured gain")
        return Table("The advice to the four hospitals; gains in log loss over alone", heads, rows).markdown()

    def short(self) -> list[str]:
        """Return the short answer: two sentences or three a model."""
        lines = []
        for study in self.studies:
            loss, accuracy = study.captured
            mean, alone = study.means["advice"], study.means["alone"]
            right, clear = study.signs
            hindsight = " (with one split the oracle knows the test rows)" if study.splits == 1 else ""
            lines.append(
                f"**{TITLES[study.model]}, {_splits(study)} of {len(study.lines)} federations.** Following the advice "
                f"gives a log loss of {mean[0]:.3f} and an accuracy of {100 * mean[1]:.1f} %, training alone "
                f"{alone[0]:.3f} and "
                f"{100 * alone[1]:.1f} %: {loss:.0f} % in loss and {accuracy:.0f} % in accuracy of what the oracle "
                f"gains{hindsight}. {_saved(study)}"
            )
            lines.append(
                f"**Who was harmed.** {_share(len(study.harmed), study)} of {len(study.clients)} clients (30 test rows "
                f"or more), by more than two standard errors; chance alone gives {CHANCE:.1f} %. Federations worse "
                f"than alone by more than two: {', '.join(study.worse) or 'none'}. **Was it told before?** Where a "
                f"client clearly gained or lost, the sign was predicted for {_percent(right, clear)} of {clear}; the "
                f"80 % intervals cover {_covered(study, 'loss')} of gains in loss and {_covered(study, 'accuracy')} in "
                f"accuracy. The advice cost {study.cost:.1f} trainings of everyone alone."
            )
        return lines

    def tables(self) -> list[Table]:
        """Return one table a model, the figures about clients, and the table of all policies."""
        made = []
        for study in self.studies:
            heads = ("federation", *POLICIES, "oracle", "advice", "advised (splits)", "gain over alone")
            rows: list[Row] = [tuple(row) for row in table_rows(study)]
            rows.append(("**mean**", *mean_row(study), None, None))
            title = f"{TITLES[study.model]}, {_splits(study)}: log loss / accuracy, mean over clients, then splits"
            made.append(Table(title, heads, rows, key=study.model))
        made.append(self.clients())
        made += [table for study in self.studies if (table := self.all_policies(study.model)) is not None]
        return made

    def clients(self) -> Table:
        """Return harm, signs and coverage, a row a model and one for the federations that were set aside."""
        rows: list[Row] = []
        for study in self.studies:
            apart = [line for line in study.lines if line.name in ASIDE]
            right, clear = study.signs
            worse = [line for line in apart if line.gain < -2 * line.noise]
            rows.append(
                (
                    f"{TITLES[study.model]}, {_splits(study)}",
                    len(study.clients),
                    _share(len(study.harmed), study),
                    f"{_percent(right, clear)} of {clear}",
                    _covered(study, "loss"),
                    _covered(study, "loss", "under 60 rows"),
                    _covered(study, "accuracy"),
                    f"{np.mean([line.gain for line in apart]):+.3f} ({len(worse)} of {len(apart)} worse)"
                    if apart
                    else None,
                )
            )
        cover = ("80 % intervals cover, loss", "under 60 rows", "80 % intervals cover, accuracy")
        heads = ("model", "clients", "harmed", "signs right", *cover, "mean gain of the five set aside")
        return Table("Clients", heads, rows, key="clients")

    def all_policies(self, model: str) -> Table | None:
        """Return every policy on split 0, over the federations that have all of its cells; None where none has."""
        names = [
            line.name
            for study in self.studies
            if study.model == model
            for line in study.lines
            if all((line.name, 0, model, policy) in self.procedures for policy in PROCEDURES)
        ]
        if not names:
            return None
        cells = {
            policy: {
                name: self.advice[name, 0, model]
                if policy == "advice"
                else (self.policies if policy in POLICIES else self.procedures)[name, 0, model, policy]
                for name in names
            }
            for policy in (*POLICIES, *PROCEDURES, "advice")
        }
        means = {policy: np.array([means_of(cell) for cell in by.values()]) for policy, by in cells.items()}
        rows: list[Row] = []
        for policy in sorted(means, key=lambda each: float(means[each][:, 0].mean())):
            gain = means["alone"][:, 0] - means[policy][:, 0]
            clients = (
                pooled_clients({name: [cell] for name, cell in cells[policy].items()}) if _paired(cells[policy]) else []
            )
            hurt = sum(client.verdict == "harmed" for client in clients)
            loss, accuracy = means[policy].mean(axis=0)
            error = gain.std(ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else np.nan
            change = None if policy == "alone" else f"{gain.mean():+.4f} ± {error:.4f}"
            share = f"{hurt} of {len(clients)}" if clients else None
            rows.append((WORDS[policy], f"{loss:.4f}", f"{100 * accuracy:.2f}", change, int((gain < 0).sum()), share))
        note = (
            f"{len(names)} federations: {', '.join(names)}. ±: the standard error over federations. Harmed: "
            "clients with 30 test rows or more, worse than alone by more than two standard errors; it was not kept of "
            "the fixed policies."
        )
        heads = (
            "policy",
            "log loss",
            "accuracy, %",
            "gain over alone",
            "federations worse than alone",
            "clients harmed",
        )
        return Table(f"{TITLES[model]}: every policy, split 0", heads, rows, (note,), key=f"policies-{model}")

    def wrong(self) -> str:
        """Return where the advice was wrong, federation by federation, with the reason where one is known."""
        why = reasons(self.folder)
        found: dict[str, list[str]] = {}
        for study in self.studies:
            for line in study.lines:
                if (told := self._mistake(study, line)) is not None:
                    found.setdefault(line.name, []).append(told)
        if not found:
            return "Nowhere, by the measure above.\n"
        parts = [
            f"**{name}**{' (set aside)' if name in ASIDE else ''}. {' '.join(told)} "
            f"*Why:* {why.get(name, 'not explained yet.')}"
            for name, told in sorted(found.items())
        ]
        return "\n\n".join(parts) + "\n"

    def _mistake(self, study: Study, line: Line) -> str | None:
        """Return what was wrong on a federation with one model, in a sentence or two, or None."""
        hurt = [client for client in study.harmed if client.federation == line.name]
        if line.regret <= REGRET and line.name not in study.worse and not hurt:
            return None
        best = min(line.policies, key=lambda policy: float(line.policies[policy][:, 0].mean()))
        text = f"{TITLES[study.model]}: advised {line.advised}; {line.gain:+.3f} ± {line.noise:.3f} over alone"
        if line.regret > REGRET:
            text += f", {line.regret:.3f} behind the oracle (best fixed policy: {WORDS[best]})"
        if not hurt:
            return text + "."
        names = self._names(line.name)
        named = ", ".join(
            f"{names[client.client] if names else client.client} {client.gain:+.3f}, predicted {client.predicted:+.3f}"
            for client in sorted(hurt, key=lambda client: client.gain)[:NAMED]
        )
        total = sum(client.federation == line.name for client in study.clients)
        more = "; ..." if len(hurt) > NAMED else ""
        return f"{text}. Harmed: {len(hurt)} of {total} clients ({named}{more})."

    def _names(self, federation: str) -> list[str] | None:
        """Return the names of a federation's clients, where a cell has kept them."""
        return next((cell["names"] for key, cell in self.procedures.items() if key[0] == federation), None)

    def readme(self) -> str:
        """Return the README's figures: one row a model."""
        heads = ("model (splits)", "alone", "everyone, FedAvg", "as advised", "of the oracle's gain", "clients harmed")
        lines = [f"| {' | '.join(heads)} | signs right |", "|---" * 7 + "|"]
        for study in self.studies:
            values = [study.means[key] for key in ("alone", "everyone", "advice")]
            cells = [f"{value[0]:.3f} / {100 * value[1]:.1f} %" for value in values]
            right, clear = study.signs
            hindsight = " (an oracle in hindsight)" if study.splits == 1 else ""
            lines.append(
                f"| {TITLES[study.model]} ({study.splits}) | {' | '.join(cells)} | {study.captured[0]:.0f} %"
                f"{hindsight} | {_share(len(study.harmed), study)} (chance {CHANCE:.1f} %) | {_percent(right, clear)} |"
            )
        return "\n".join(lines) + "\n"


def _paired(cells: Mapping[str, Result]) -> bool:
    """Return whether every cell has gains over alone on the same test rows."""
    return all("gain" in cell for cell in cells.values())


def _saved(study: Study) -> str:
    """Return how much loss the advice saves against each fixed policy, in a sentence."""
    told = [
        f"{change:+.4f} against {WORDS[policy]} ({errors:.1f})" for policy, (change, errors) in study.against.items()
    ]
    return f"Loss saved: {'; '.join(told)}; in brackets paired standard errors over federations."


def _splits(study: Study) -> str:
    return f"{study.splits} split{'s' * (study.splits > 1)}"


def _share(count: int, study: Study) -> str:
    return f"{100 * count / len(study.clients):.1f} %" if study.clients else "none"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / max(whole, 1):.0f} %"


def _covered(study: Study, metric: str, size: str = "all") -> Any:
    found = study.coverage[metric].get(size)
    return None if found is None else f"{100 * found[0]:.0f} %"
