"""Runs of the same clients side by side: what differs in data and settings, who moved, and what that changed.

A difference of two runs is told against the first one. Where the models of all runs were tested on the same rows again,
its interval is that of paired answers; else that of different samples, which is wider.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcollab import uncertainty
from fedcollab.advice.words import how_in_words
from fedcollab.errors import InputError
from fedcollab.report.judgement import Judgement, as_plain
from fedcollab.runs.run import WAYS
from fedcollab.uncertainty import Estimates

if TYPE_CHECKING:
    from fedcollab.data.schema import Schema
    from fedcollab.report.run import RunContents
    from fedcollab.training import TrainingResult
    from fedcollab.training.comparison import Comparison

#: settings that say where a run came from, not how it was made
ORIGIN = ("source",)
#: settings of a training that are compared
TRAINED_WITH = (
    "rounds",
    "lr",
    "batch_size",
    "local_epochs",
    "optimizer",
    "weight_decay",
    "stopping",
    "averaging",
    "options",
)
#: what stands for a setting that a run does not have
NOT_SET = "not set"


@dataclass(frozen=True, eq=False)
class ComparedRuns:
    """Runs of the same clients.

    Parameters
    ----------
    labels : tuple of str
        What each run is called, the first one first.
    runs : tuple of RunContents
        What they hold.
    schemas : tuple of Schema or None
        How each prepared its clients; None where the run does not say.
    way : str
        The way of training that is compared: "coalitions", "local" or "global".
    paired : mapping of Comparison
        How the models of the first run and of a later one do on the same test rows, by the label of the later one, as
        far as that is known.

    Raises
    ------
    InputError
        If there are fewer than two runs, or their clients, classes or measures are not the same.
    """

    labels: tuple[str, ...]
    runs: tuple[RunContents, ...]
    schemas: tuple[Schema | None, ...]
    way: str = "coalitions"
    paired: Mapping[str, Comparison] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.runs) < 2:
            raise InputError(f"`RUN` (={self.labels[0]!r}) is one run; give two or more to compare")
        if len(set(self.labels)) < len(self.labels):
            twice = next(label for label in self.labels if self.labels.count(label) > 1)
            raise InputError(f"`RUN` (={twice!r}) is given twice")
        self._check_same("clients", [run.names for run in self.runs])
        self._check_same(
            "classes", [None if schema is None else schema.classes or ("a number",) for schema in self.schemas]
        )
        self._check_same("measures", [None if result is None else result.used for result in self.results])

    def _check_same(self, what: str, lists: Sequence[Iterable[Any] | None]) -> None:
        """Check that all runs have the same of something, as far as they have it."""
        known = [(label, sorted(map(str, each))) for label, each in zip(self.labels, lists, strict=True) if each]
        for label, values in known[1:]:
            first, wanted = known[0]
            if values != wanted:
                only = "; ".join(filter(None, [_only(first, wanted, values), _only(label, values, wanted)]))
                raise InputError(f"`{first}` and `{label}` cannot be compared: they have other {what} ({only})")

    @property
    def names(self) -> tuple[str, ...]:
        """The clients, in the order of the first run."""
        return self.runs[0].names

    @property
    def results(self) -> list[TrainingResult | None]:
        """The training of each run that is compared; None where it has not trained that way."""
        return [run.results.get(self.way) for run in self.runs]

    def settings(self) -> dict[str, list[Any]]:
        """Return the settings that differ, each with its value in every run."""
        found = [_settings(run, schema, self.way) for run, schema in zip(self.runs, self.schemas, strict=True)]
        keys = dict.fromkeys(key for each in found for key in each)
        rows = {key: [each.get(key, NOT_SET) for each in found] for key in keys}
        return {key: values for key, values in rows.items() if any(value != values[0] for value in values)}

    def data_changed(self) -> list[list[str]]:
        """Return for each later run the clients whose data are not known to be those of the first run."""
        fingerprints = [{name: _fingerprint(run, name) for name in self.names} for run in self.runs]
        return [[name for name in self.names if fingerprints[0][name] != each[name]] for each in fingerprints[1:]]

    def moved(self) -> list[list[str]]:
        """Return for each later run the clients that moved: they are not where most of their partners are.

        The coalitions of the two runs are matched so that as many clients as possible stay in theirs.
        """
        first, *others = [self.groups(place) for place in range(len(self.runs))]
        return [movers(self.names, first, other) if first and other else [] for other in others]

    def groups(self, place: int) -> list[list[str]]:
        """Return who is together with whom in a run: in the training that is compared, else as advised."""
        result, known = self.results[place], self.runs[place].collaboration
        if result is not None:
            return result.coalitions
        return (
            [] if known is None or self.way != "coalitions" else [list(map(str, group)) for group in known.coalitions]
        )

    @cached_property
    def judgements(self) -> list[Judgement | None]:
        """What the trainings of each run mean, by themselves."""
        return [run.judgement for run in self.runs]

    def gain_over_alone(self, place: int) -> Estimates | None:
        """Return each client's gain in accuracy over training alone in one run, in the order of `names`."""
        judgement = self.judgements[place]
        if judgement is None or not {self.way, "local"} <= set(judgement.results) or self.way == "local":
            return None
        own = Judgement.of(judgement.results, judgement.comparison, self.names)
        return own.gain(self.way)

    def accuracy(self, place: int) -> Estimates | None:
        """Return each client's accuracy in one run, in the order of `names`."""
        result = self.results[place]
        return None if result is None else self._judged(place).accuracy(self.labels[place])

    def difference(self, place: int, measure: str = "accuracy") -> Estimates | None:
        """Return how much better each client's model of a run is than that of the first run.

        Parameters
        ----------
        place : int
            Which run.
        measure : {"accuracy", "loss"}
            In accuracy (of a numeric target R2), or in loss; positive is better in both.
        """
        if self.results[place] is None or self.results[0] is None:
            return None
        own, first = self.labels[place], self.labels[0]
        if own in self.paired:
            known = self.paired[own].ordered(self.names)
            return known.accuracy_gain(own, first) if measure == "accuracy" else known.loss_gain(own, first)
        return unpaired_difference(self._judged(place), own, self._judged(0), first, measure)

    def _judged(self, place: int) -> Judgement:
        """Return what is known of one run's models, under the run's label."""
        label, result = self.labels[place], self.results[place]
        assert result is not None
        return Judgement.of({label: result}, None, self.names)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON."""
        found = []
        for place, label in enumerate(self.labels):
            accuracy, gain = self.accuracy(place), self.gain_over_alone(place)
            row: dict[str, Any] = {
                "run": label,
                "coalitions": self.groups(place),
                "accuracy": None if accuracy is None else as_plain(accuracy),
                "gain_over_local": None if gain is None else as_plain(gain, verdicts=True),
            }
            if place:
                for measure in ("accuracy", "loss"):
                    each = self.difference(place, measure)
                    row[f"{measure}_difference"] = None if each is None else as_plain(each, verdicts=True)
                row["paired"] = label in self.paired
                row["moved"] = self.moved()[place - 1]
                row["data_changed"] = self.data_changed()[place - 1]
            found.append(row)
        return {
            "clients": list(self.names),
            "way": self.way,
            "settings": self.settings(),
            "runs": found,
        }


def movers(names: Sequence[str], before: Sequence[Sequence[str]], after: Sequence[Sequence[str]]) -> list[str]:
    """Return the clients that moved between two partitions, when coalitions are matched so that the fewest moved.

    Parameters
    ----------
    names : sequence of str
        The clients.
    before, after : sequence of sequences of str
        Who was together, and who is.

    Examples
    --------
    >>> movers("abcde", [["a", "b", "c"], ["d", "e"]], [["a", "b"], ["c", "d", "e"]])
    ['c']
    """
    from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]

    common = np.array([[len(set(one) & set(other)) for other in after] for one in before])
    matched = zip(*linear_sum_assignment(common, maximize=True), strict=True)
    stayed = {name for one, other in matched for name in set(before[one]) & set(after[other])}
    return [name for name in names if name not in stayed]


def unpaired_difference(one: Judgement, own: str, other: Judgement, first: str, measure: str) -> Estimates:
    """Return how much better one run's models are than another's when their answers cannot be paired.

    Parameters
    ----------
    one, other : Judgement
        What is known of the two runs, for the same clients in the same order.
    own, first : str
        The names of their trainings.
    measure : {"accuracy", "loss"}
        In accuracy (of a numeric target R2), or in loss.
    """
    n, m = one.comparison.samples, other.comparison.samples
    if measure == "loss":
        here, there = one.comparison.losses(own), other.comparison.losses(first)
        stderr = np.hypot(here.stderr, there.stderr)
        return uncertainty.means(there.mean - here.mean, stderr, np.fmin(n, m))
    known, before = one.accuracy(own), other.accuracy(first)
    stderr, gain = np.hypot(known.stderr, before.stderr), known.mean - before.mean
    if one.comparison.unexplained is not None:  # R2 of a numeric target, a mean over samples
        return uncertainty.means(gain, stderr, np.fmin(n, m))
    low, high = uncertainty.unpaired(known.mean * n, n, before.mean * m, m)
    return Estimates(gain, stderr, low, high, uncertainty.average(gain, stderr))


def _settings(run: RunContents, schema: Schema | None, way: str) -> dict[str, Any]:
    """Return all that was settled in a run, as plain values by name: asked, agreed, advised and trained."""
    asked = run.config.get("settings", {})
    found = {key: value for key, value in asked.items() if key not in ORIGIN}
    if schema is not None:
        found |= schema.settings
        if schema.columns is not None:
            found["columns"] = [column.name for column in schema.columns]
    if run.collaboration is not None:
        found["C of the coalitions"] = float(f"{run.collaboration.C:.4g}")
    result = run.results.get(way)
    if result is not None:
        found[f"trained {WAYS[way]} by"] = how_in_words(result.method, result.settings.get("keep") or ())
        found |= {key: result.settings[key] for key in TRAINED_WITH if key in result.settings}
        found["model"], found["model_options"] = result.model["name"], dict(result.model["options"])
    return found


def _fingerprint(run: RunContents, name: str) -> Any:
    """Return the checksum of a client's data that a run has; where it has none, an object that equals no other."""
    known: Mapping[str, Any] = run.config.get("clients", {}).get(name, {})
    return known.get("fingerprint") or object()


def _only(label: str, values: Sequence[str], others: Sequence[str]) -> str:
    """Return what one run alone has, in a few words; nothing if there is none."""
    own = [value for value in values if value not in others]
    return f"only in `{label}`: {', '.join(own[:3])}{', ...' if len(own) > 3 else ''}" if own else ""
