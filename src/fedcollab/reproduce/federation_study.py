"""What the cells of the study of real federations say: one value a model, with every figure that pages show.

oracle      for each federation the fixed policy with the lowest loss on the *other* splits
captured    (advice - alone) / (oracle - alone), ratio of means over federations and splits
harmed      clients (paired on the same test rows, pooled over splits, at least 30 test rows in all) that are worse
            than alone by more than two standard errors; chance alone gives 2.3 %
sign        of the clients whose true gain is beyond two standard errors, those whose predicted gain has its sign; of
            all of them, and of those of which the advice was sure: with a probability of SURE or more
coverage    80 % predictive intervals: the expected gain's error and the noise of the test rows
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from fedcollab.reproduce.federation_cells import Key, Result, policies_of
from fedcollab.tasks import CLASSIFICATION, TASKS, Task

Z80 = NormalDist().inv_cdf(0.9)
#: the probability from which on the advice calls a gain or a loss clear
SURE = 0.8
#: fewer pooled test rows of a client say too little
LEAST_TESTS = 30
#: how many percent of clients seem harmed beyond two standard errors by chance
CHANCE = 100 * (1 - NormalDist().cdf(2))
SIZES = {60: "under 60 rows", 200: "60 to 199"}


@dataclass(frozen=True, eq=False)
class Line:
    """One federation: splits x (log loss, accuracy), means over clients.

    Parameters
    ----------
    name : str
        The federation.
    policies : dict of array
        Each fixed policy.
    oracle, advice : array
        The fixed policy that is best on the other splits, and the advice.
    advised : str
        What was advised, with the number of splits.
    gain, noise : float
        Mean gain in loss of the advice over alone, and its standard error by the noise of the test rows.
    """

    name: str
    policies: dict[str, Any]
    oracle: Any
    advice: Any
    advised: str
    gain: float
    noise: float

    @property
    def regret(self) -> float:
        """How much higher the loss of the advice is than the oracle's."""
        return float(self.advice[:, 0].mean() - self.oracle[:, 0].mean())


@dataclass(frozen=True)
class Pooled:
    """One client, pooled over splits: measured and predicted gain in loss over alone, standard errors, test rows."""

    federation: str
    client: int
    gain: float
    error: float
    predicted: float
    tests: int
    doubt: float = 0.0

    @property
    def verdict(self) -> str:
        """Whether it was "harmed", "gained" or neither beyond two standard errors ("unclear")."""
        return "harmed" if self.gain < -2 * self.error else "gained" if self.gain > 2 * self.error else "unclear"

    @property
    def sure(self) -> bool:
        """Whether the advice was sure of the sign; `doubt` is the standard error of the predicted gain."""
        return abs(self.predicted) > NormalDist().inv_cdf(SURE) * self.doubt


@dataclass(frozen=True, eq=False)
class Study:
    """All that the cells of one model say.

    Parameters
    ----------
    model : str
        The model.
    splits : int
        How many splits there are of every federation.
    lines : list of Line
        One a federation.
    means : dict of array
        Mean loss and accuracy over federations and splits, by policy, "oracle" and "advice".
    against : dict of (float, float)
        By fixed policy: how much lower the loss of the advice is, and how many paired standard errors that is.
    clients : list of Pooled
        The clients with enough test rows.
    coverage : dict
        By measure and size: share of the gains inside the 80 % predictive intervals, and how many there are.
    cost : float
        CPU seconds of the advice in trainings alone.
    """

    model: str
    splits: int
    lines: list[Line]
    means: dict[str, Any]
    against: dict[str, tuple[float, float]]
    clients: list[Pooled]
    coverage: dict[str, dict[str, tuple[float, int]]]
    cost: float

    @property
    def captured(self) -> tuple[float, float]:
        """Percent of what the oracle gains over alone that the advice gains too, in loss and in accuracy."""
        share = (self.means["advice"] - self.means["alone"]) / (self.means["oracle"] - self.means["alone"])
        return 100 * float(share[0]), 100 * float(share[1])

    @property
    def worse(self) -> list[str]:
        """The federations that the advice makes worse than alone by more than two standard errors."""
        return [line.name for line in self.lines if line.gain < -2 * line.noise]

    @property
    def harmed(self) -> list[Pooled]:
        """The clients that the advice makes worse than alone by more than two standard errors."""
        return [client for client in self.clients if client.verdict == "harmed"]

    @property
    def signs(self) -> tuple[int, int]:
        """How many clear gains or losses were predicted with the right sign, and how many there are."""
        return _right([client for client in self.clients if client.verdict != "unclear"])

    @property
    def sure_signs(self) -> tuple[int, int]:
        """The same of those clients of which the advice was sure."""
        return _right([client for client in self.clients if client.verdict != "unclear" and client.sure])


def make_study(
    model: str,
    federations: Sequence[str],
    splits: range,
    advised: Mapping[Key, Result],
    policies: Mapping[Key, Result],
) -> Study:
    """Return what the cells of one model say.

    Parameters
    ----------
    model : str
        The model.
    federations : sequence of str
        The federations.
    splits : range
        The splits.
    advised : mapping
        Cells of the advice by (federation, split, model).
    policies : mapping
        Cells of the fixed policies, "alone" included, by (federation, split, model, policy).
    """
    lines, fixed = [], policies_of(model)
    for name in federations:
        at = {p: np.array([means_of(policies[name, s, model, p]) for s in splits]) for p in fixed}
        got = np.array([means_of(advised[name, s, model]) for s in splits])
        oracle = np.array([at[best_elsewhere(at, s, splits)][s] for s in splits])
        told = counted([advised[name, s, model]["advised"] for s in splits])
        gain = float(np.mean([at["alone"][s][0] - got[s][0] for s in splits]))
        noise = federation_stderr([advised[name, s, model] for s in splits])
        lines.append(Line(name, at, oracle, got, told, gain, noise))
    stacked = {policy: np.concatenate([line.policies[policy] for line in lines]) for policy in fixed}
    stacked |= {key: np.concatenate([getattr(line, key) for line in lines]) for key in ("oracle", "advice")}
    against = {}
    for policy in fixed:
        change = stacked[policy][:, 0] - stacked["advice"][:, 0]
        by = change.reshape(len(federations), -1).mean(axis=1)
        errors = by.mean() / (by.std(ddof=1) / np.sqrt(len(by))) if len(by) > 1 else np.nan
        against[policy] = (float(by.mean()), float(errors))
    cells = {name: [advised[name, s, model] for s in splits] for name in federations}
    cpu = np.array([cell["cpu"] for parts in cells.values() for cell in parts])
    return Study(
        model,
        len(splits),
        lines,
        {key: value.mean(axis=0) for key, value in stacked.items()},
        against,
        pooled_clients(cells),
        {metric: coverage(cells, metric) for metric in ("loss", "accuracy")},
        float(cpu[:, 0].sum() / cpu[:, 1].sum()),
    )


def text_lines(study: Study, task: Task = TASKS[CLASSIFICATION]) -> list[str]:
    """Return the table and the figures of one model as lines of text.

    Parameters
    ----------
    study : Study
        The figures.
    task : Task
        What was predicted: of a numeric target R2 stands for accuracy.
    """
    lines = [
        f"\n## {study.model}, {len(study.lines)} federations, {study.splits} splits\n",
        f"Mean over clients, then splits: {task.loss} / {task.score}.\n",
        "| federation | " + " | ".join(study.against) + " | oracle | advice | advised (splits) | gain over alone |",
        "|" + "---|" * (len(study.against) + 5),
    ]
    lines += ["| " + " | ".join(row) + " |" for row in table_rows(study)]
    lines.append("| **mean** | " + " | ".join(mean_row(study)) + " | | |")
    captured = study.captured
    lines.append(f"\nCaptured: {captured[0]:.0f} % in loss, {captured[1]:.0f} % in {task.score}.")
    for policy, (change, errors) in study.against.items():
        lines.append(f"Advice against {policy}: {change:+.4f} in loss, {errors:.1f} paired standard errors.")
    lines.append(f"Worse than alone beyond two standard errors: {', '.join(study.worse) or 'none'}.")
    share = 100 * len(study.harmed) / len(study.clients) if study.clients else np.nan
    lines.append(
        f"Clients harmed beyond two standard errors: {share:.1f} % of {len(study.clients)} (chance: {CHANCE:.1f} %)."
    )
    (right, clear), (certain, sure) = study.signs, study.sure_signs
    lines.append(
        f"Sign of clear gains right: {100 * right / max(clear, 1):.0f} % of {clear}; where the advice was sure of it "
        f"(probability {100 * SURE:.0f} % or more): {100 * certain / max(sure, 1):.0f} % of {sure}."
    )
    for metric, by in study.coverage.items():
        told = ", ".join(f"{size} {100 * hit:.0f} % ({count})" for size, (hit, count) in sorted(by.items()))
        called = task.score if metric == "accuracy" else metric
        lines.append(f"80 % predictive intervals of gains in {called} cover: {told}.")
    lines.append(f"Cost: {study.cost:.1f} ordinary trainings alone (CPU, rounds chosen).")
    return lines


def table_rows(study: Study) -> list[list[str]]:
    """Return one row of text a federation: policies, oracle, advice, what was advised, gain over alone."""
    rows = []
    for line in study.lines:
        values = (*(line.policies[p].mean(axis=0) for p in study.against), line.oracle.mean(axis=0))
        cells = [f"{value[0]:.3f} / {100 * value[1]:.1f}" for value in values]
        cells.append(f"**{line.advice[:, 0].mean():.3f} / {100 * line.advice[:, 1].mean():.1f}**")
        rows.append([line.name, *cells, line.advised, f"{line.gain:+.3f} ± {line.noise:.3f}"])
    return rows


def mean_row(study: Study) -> list[str]:
    """Return the means over federations as text: policies, oracle, advice."""
    keys = (*study.against, "oracle", "advice")
    return [f"{study.means[key][0]:.4f} / {100 * study.means[key][1]:.2f}" for key in keys]


def pooled_clients(cells: Mapping[str, Sequence[Result]]) -> list[Pooled]:
    """Return the clients with enough test rows, pooled over splits.

    Parameters
    ----------
    cells : mapping of lists
        By federation: one cell a split, with gains over alone; predicted ones are left at 0 where a cell has none.
    """
    found = []
    for name, parts in cells.items():
        for client in range(len(parts[0]["loss"])):
            gains, errors, tests, told, doubts = [], [], [], [], []
            for part in parts:
                if part["gain"]["loss"][client] is not None and part["stderr"]["loss"][client] is not None:
                    gains.append(part["gain"]["loss"][client])
                    errors.append(part["stderr"]["loss"][client])
                    tests.append(part["tests"][client])
                    expected, doubt = part["expected"]["loss"][client] if "expected" in part else (0.0, 0.0)
                    told.append(expected)
                    doubts.append(doubt)
            if sum(tests) < LEAST_TESTS:
                continue
            weight = np.array(tests) / sum(tests)
            error = float(np.sqrt((weight**2) @ np.array(errors) ** 2))
            predicted, doubt = float(np.mean(told)), float(np.mean(doubts))
            found.append(Pooled(name, client, float(weight @ gains), error, predicted, sum(tests), doubt))
    return found


def _right(clients: Sequence[Pooled]) -> tuple[int, int]:
    """Return for how many clients the sign of the gain was predicted, and how many there are."""
    return sum(bool(client.predicted * client.gain > 0) for client in clients), len(clients)


def coverage(cells: Mapping[str, Sequence[Result]], metric: str) -> dict[str, tuple[float, int]]:
    """Return the share of measured gains inside the 80 % predictive intervals, and how many there are, by size.

    Where the advice was to train alone, nothing was predicted.
    """
    inside: dict[str, list[bool]] = defaultdict(list)
    for cell in (cell for parts in cells.values() for cell in parts):
        for gain, error, (mean, stderr), rows in zip(
            cell["gain"][metric], cell["stderr"][metric], cell["expected"][metric], cell["rows"], strict=True
        ):
            if gain is None or error is None or cell["advised"] == "alone":
                continue
            hit = bool(abs(gain - mean) <= Z80 * np.hypot(error, stderr))
            inside["all"].append(hit)
            inside[next((words for most, words in SIZES.items() if rows < most), "200 or more")].append(hit)
    return {size: (float(np.mean(hits)), len(hits)) for size, hits in inside.items()}


def best_elsewhere(at: Mapping[str, Any], split: int, splits: range) -> str:
    """Return the fixed policy with the lowest mean loss on the other splits (on this one, if it is the only one)."""
    others = [s for s in splits if s != split] or [split]
    return min(at, key=lambda policy: float(at[policy][others, 0].mean()))


def means_of(cell: Result) -> tuple[float, float]:
    """Return the mean loss and accuracy of a cell over clients."""
    return float(np.mean(cell["loss"])), float(np.mean(cell["accuracy"]))


def federation_stderr(cells: Sequence[Result]) -> float:
    """Return the standard error of a federation's mean gain over clients and splits, from the noise of test rows."""
    errors = [
        np.sqrt(np.sum(np.square([e for e in cell["stderr"]["loss"] if e is not None]))) / len(cell["loss"])
        for cell in cells
    ]
    return float(np.sqrt(np.sum(np.square(errors))) / len(errors))


def counted(labels: Sequence[str]) -> str:
    """Return different labels in order, each with how often it occurs.

    >>> counted(["alone", "everyone", "alone"])
    'alone (2); everyone (1)'
    """
    return "; ".join(f"{label} ({list(labels).count(label)})" for label in dict.fromkeys(labels))
