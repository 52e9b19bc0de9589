"""What a run's trainings mean: figures with intervals, who clearly gained, and whether the answer contradicts itself.

The same for the terminal, the page and `--json`. A difference counts where its 90 % interval does not hold 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedcollab import metrics, uncertainty
from fedcollab.advice.promises import BrokenPromise, broken_promises
from fedcollab.report.ways import follows, way_words
from fedcollab.report.words import amount, equivalent_words, error_words, interval, range_of_names, signed
from fedcollab.tasks import Task, error_gain
from fedcollab.training.comparison import MAJORITY, Comparison
from fedcollab.training.learning_curve import Equivalent, LearningCurve, equivalent
from fedcollab.uncertainty import BETTER, LEVEL, UNCLEAR, UNKNOWN, WORSE, Estimate, Estimates

if TYPE_CHECKING:
    from fedcollab.advice.result import Advice
    from fedcollab.training import TrainingResult

Floats = NDArray[np.float64]

#: an accuracy whose interval is wider than this is called too uncertain to tell
WIDE = 0.2
#: so many times as many rows as any other client are worth a sentence
OUTWEIGHS = 10
#: the ways that what was advised is held against, and what they are called in a sentence
OTHERS = {"local": "training alone", "global": "one model for everyone"}


@dataclass(frozen=True, eq=False)
class Judgement:
    """What the trainings of the same clients mean, compared with each other.

    Parameters
    ----------
    names : tuple of str
        The clients, in the order of all arrays here.
    results : mapping of TrainingResult
        What was trained, by way of training.
    comparison : Comparison
        What is known about the same test samples, in the order of `names`.
    curve : LearningCurve or None
        What clients reach alone with half of their rows, if that was measured.
    advice : Advice or None
        What was advised before training, if that was measured: what the training in coalitions is held against.
    rows : sequence of int or None
        How many training rows each client says that it has, where that is known.
    """

    names: tuple[str, ...]
    results: Mapping[str, TrainingResult]
    comparison: Comparison
    curve: LearningCurve | None = None
    advice: Advice | None = None
    rows: Sequence[int] | None = None

    @classmethod
    def of(
        cls,
        results: Mapping[str, TrainingResult],
        comparison: Comparison | None,
        names: Sequence[str],
        curve: LearningCurve | None = None,
        advice: Advice | None = None,
        rows: Sequence[int] | None = None,
    ) -> Judgement:
        """Return the judgement of some results.

        Parameters
        ----------
        results : mapping of TrainingResult
            What was trained, by way of training.
        comparison : Comparison or None
            How they compare on the same test samples; without it, differences are taken from the results alone, and
            their intervals are wider.
        names : sequence of str
            The clients, in the order of all figures.
        curve : LearningCurve, optional
            What clients reach alone with half of their rows.
        advice : Advice, optional
            What was advised before training.
        rows : sequence of int, optional
            How many training rows each client says that it has, in the order of `names`.
        """
        if comparison is None or not set(results) <= set(comparison.models):
            comparison = Comparison.of_results(results)
        return cls(tuple(names), results, comparison.ordered(names), curve, advice, rows)

    @property
    def task(self) -> Task:
        """What the models predict, and what the figures are called."""
        return next(iter(self.results.values())).scores.task

    @cached_property
    def ways(self) -> dict[str, str]:
        """What each way of training is called: the training in coalitions "as advised", where it is that."""
        return way_words(self.results, self.advice)

    @cached_property
    def astray(self) -> bool:
        """Whether the training in coalitions is another one than was advised."""
        ours = self.results.get("coalitions")
        return ours is not None and self.advice is not None and not follows(ours, self.advice)

    @cached_property
    def sure(self) -> bool:
        """Whether anything is known about how sure the figures are; results of earlier versions do not tell."""
        return bool(np.isfinite(self.comparison.samples).any())

    def column(self, way: str, measure: str) -> Floats:
        """Return one measure of each client's model, NaN where it is not known."""
        result = self.results[way]
        values = result.used.get(measure, np.full(len(result.names), np.nan))
        by_name = dict(zip(result.names, values.tolist(), strict=True))
        return np.array([by_name.get(name, np.nan) for name in self.names])

    def accuracy(self, way: str) -> Estimates:
        """Return each client's accuracy (of a numeric target R2) by a way of training, if nothing else is known too."""
        return self._with_figures(self.comparison.accuracy(way), self.column(way, self.task.key))

    def gain(self, way: str, over: str = "local") -> Estimates:
        """Return each client's gain in accuracy (of a numeric target in R2) by one way of training over another."""
        key = self.task.key
        return self._with_figures(
            self.comparison.accuracy_gain(way, over), self.column(way, key) - self.column(over, key)
        )

    def error_gain(self, way: str, over: str = "local") -> Estimates:
        """Return by how much each client's RMSE is lower by one way of training than by another, in units."""
        gain = self.gain(way, over)
        keys = ((self.task.key, way), (self.task.key, over), ("rmse", way), ("rmse", over))
        factor = error_gain(*(self.column(which, key) for key, which in keys))
        return uncertainty.scaled(gain, factor)

    def loss_gain(self, way: str, over: str = "local") -> Estimates:
        """Return by how much each client's loss is lower by one way of training than by another."""
        return self._with_figures(
            self.comparison.loss_gain(way, over), self.column(over, "loss") - self.column(way, "loss")
        )

    def mean(self, way: str, measure: str) -> float:
        """Return the mean of a measure over the clients that have it; NaN if none has."""
        values = self.column(way, measure)
        return float(np.nanmean(values)) if np.isfinite(values).any() else float("nan")

    @property
    def majority(self) -> Estimates | None:
        """The accuracy of always giving each client's most frequent training class (R2 of the mean), where known."""
        return self.comparison.accuracy(MAJORITY) if MAJORITY in self.comparison.models else None

    def contradictions(self) -> list[str]:
        """Return a sentence for each way of training that is clearly better than the answer, the worst first.

        That is so where the mean gain of the answer over it is clearly negative in accuracy, or clearly negative in
        log loss and not clearly positive in accuracy. The answer is what was advised, if anything was, else the
        coalitions; a training other than the advised one contradicts nothing.
        """
        if self.astray:
            return []
        found = []
        answer = "these coalitions" if self.advice is None else "what was advised"
        for other, words in OTHERS.items():
            if other not in self.results or "coalitions" not in self.results:
                continue
            gain, loss = self.gain("coalitions", other).average, self.loss_gain("coalitions", other).average
            begin = f"Measured on the clients' test samples, {words} is better than {answer}"
            if gain.verdict == WORSE:
                by = f"by {amount(-gain.mean)} {self._points_of_score} on average over clients"
                text = f"{begin}: {by} ({interval(gain, flipped=True)})."
            elif loss.verdict == WORSE and gain.verdict != BETTER:
                by = f"its mean {self.task.loss} is lower by {-loss.mean:.3f}"
                limits = f"{100 * LEVEL:.0f} % interval {-loss.high:.3f} to {-loss.low:.3f}"
                text = f"{begin}: {by} ({limits}); {self._scores} show no clear difference."
            else:
                continue
            found.append((gain.mean, text))
        return [text for _, text in sorted(found)]

    @property
    def _points_of_score(self) -> str:
        return self.task.points if self.task.numeric else f"{self.task.points} of {self.task.score}"

    @property
    def _scores(self) -> str:
        return f"values of {self.task.score}" if self.task.numeric else "accuracies"

    def sentences(self) -> list[str]:
        """Return what each way of training gave against training alone: nothing where that was not trained."""
        if "local" not in self.results:
            return []
        ways = [way for way in ("coalitions", "global") if way in self.results]
        compared = [way for way in ways if not (way == "coalitions" and self._is_alone())]
        worth = {way: self.worth(way) for way in compared if self.curve is not None}
        if len(worth) > 1 and len(set(worth.values())) == 1:  # said once where it is the same
            told = next(iter(worth.values()))
            return [*(self.counted(way) for way in ways), f"{told[0].upper()}{told[1:]}"]
        return [*(self.counted(way) for way in ways), *(f"{self.ways[w].capitalize()}: {worth[w]}" for w in worth)]

    def equivalent(self, way: str) -> Equivalent:
        """Return with how many times their rows clients would reach alone the mean log loss of a way of training."""
        if self.curve is None:
            return Equivalent(*[float("nan")] * 3)
        halved = Judgement.of(self.results, self.comparison, self.curve.names)
        return equivalent(halved.loss_gain(way).average, self.curve.loss_gain)

    def worth(self, way: str) -> str:
        """Return the same in words, or why it cannot be told."""
        found, curve = self.equivalent(way), self.curve
        if curve is not None and not np.isnan(found.factor):
            return equivalent_words(found.factor, found.low, found.high, float(curve.rows.mean()), self.task.loss)
        clear = curve is not None and curve.loss_gain.verdict == BETTER
        why = "it is not clear" if clear else "with half of their rows, clients are not clearly worse alone"
        return f"how many rows the difference in {self.task.loss} is worth cannot be told ({why})."

    def verdicts(self) -> list[str]:
        """Return a sentence for every client that was trained both alone and in its coalition."""
        if not {"local", "coalitions"} <= set(self.results):
            return []
        key = "rmse" if self.task.numeric else self.task.key
        ours, local = self.column("coalitions", key), self.column("local", key)
        everyone = self.column("global", key) if "global" in self.results else np.full(len(self.names), np.nan)
        gain = self.error_gain("coalitions") if self.task.numeric else self.gain("coalitions")
        say = metrics.error_verdict if self.task.numeric else metrics.verdict
        found = []
        for row in np.flatnonzero(np.isfinite(ours) & np.isfinite(local)).tolist():
            third = None if np.isnan(everyone[row]) else float(everyone[row])
            known = float(gain.low[row]), float(gain.high[row])
            found.append(say(self.names[row], float(ours[row]), float(local[row]), third, interval=known))
        return found

    def counted(self, way: str) -> str:
        """Return how many clients clearly gain and lose by a way of training against training alone, in words."""
        if way == "coalitions" and self._is_alone():
            return f"{self.ways[way].capitalize()}: these are the models of training alone."
        gain = self.gain(way)
        count = sum(verdict != UNKNOWN for verdict in gain.verdicts)
        average = gain.average
        if not count and average.verdict == UNKNOWN:
            return f"{self.ways[way].capitalize()}: how sure the differences are is not known."
        better, worse, unclear = (gain.count(word) for word in (BETTER, WORSE, UNCLEAR))
        if not count:
            text = "single clients have too few test samples to tell"
        elif unclear == count:
            text = f"no clear difference to training alone for any of {count} clients"
        else:
            text = (
                f"{better or 'none'} of {count} clients clearly gain{'s' if better < 2 else ''} against training alone"
            )
            text += f", {worse or 'none'} clearly lose{'s' if worse < 2 else ''}"
            text += f"; no clear difference for {unclear}" if unclear else ""
        if 0 < count < len(self.names):
            text += f" ({len(self.names) - count} more cannot be told: too few test samples)"
        clear = {BETTER: "a clear gain", WORSE: "a clear loss"}.get(average.verdict, "no clear difference")
        mean = f"On average {signed(average.mean)} {self.task.points} ({interval(average)}): {clear}."
        if self.task.numeric:
            mean += f" RMSE: on average {error_words(self.error_gain(way).average)}."
        return f"{self.ways[way].capitalize()}: {text}. {mean}"

    def _is_alone(self) -> bool:
        """Return whether everyone was advised to train alone, and these are the same models."""
        if self.advice is None or self.advice.candidate.kind != "alone" or "coalitions" not in self.results:
            return False
        return np.array_equal(self.column("coalitions", "loss"), self.column("local", "loss"), equal_nan=True)

    def lengths(self) -> str:
        """Return how many rounds were chosen for each way of training, in words; empty where they were given."""
        chosen = {way: result for way, result in self.results.items() if result.settings.get("stopping") == "held-out"}
        if not chosen:
            return ""
        most = max(int(result.settings["rounds"]) for result in chosen.values())
        spans = []
        for way, result in chosen.items():
            least, longest = min(result.rounds), max(result.rounds)
            span = str(least) if least == longest else f"{least} to {longest}"
            spans.append(f"{self.ways.get(way, way)} {span}")
        return f"Rounds, chosen on training rows that no model had seen (at most {most}): {', '.join(spans)}."

    def remarks(self) -> list[str]:
        """Return sentences on what the figures cannot tell, and on models that are no better than a constant answer."""
        called_out = [*self._outweighs(), *map(str, self.broken())]
        return [*self._not_advised(), *called_out, *self._below_majority(), *self._too_small()]

    def broken(self) -> list[BrokenPromise]:
        """Return the advised coalitions whose members clearly lost where a gain was expected."""
        if self.advice is None or self.astray or not {"local", "coalitions"} <= set(self.results) or not self.sure:
            return []
        gain = self.loss_gain("coalitions")
        return broken_promises(self.advice, self.names, gain.mean, gain.stderr)

    def figures(self) -> dict[str, Any]:
        """Return all figures as plain values, for JSON."""
        ways = {way: self._way(way) for way in self.results}
        majority = self.majority
        return {
            "remarks": self.remarks(),
            "results": ways,
            "majority_class": None if majority is None else as_plain(majority),
            "learning_curve": None if self.curve is None else _half(self.curve),
            "test_samples": self.comparison.samples,
        }

    def _way(self, way: str) -> dict[str, Any]:
        """Return the figures of one way of training."""
        score, further = self.task.key, [each.key for each in self.task.further]
        accuracy, known = self.accuracy(way), np.isfinite(self.column(way, score))
        values: dict[str, Any] = {
            score: accuracy.mean,
            f"mean_{score}": accuracy.average.mean,
            f"{score}_interval": as_plain(accuracy),
            "loss": self.column(way, "loss"),
            "mean_loss": self.mean(way, "loss"),
            **{key: self.column(way, key) for key in further},
            **{f"mean_{key}": self.mean(way, key) for key in further},
            "rounds": list(self.results[way].rounds),
            "ipr": None,
            "rsd": None,
        }
        if "local" in self.results and way != "local":
            alone = self.column("local", score)
            both = known & np.isfinite(alone)
            values["ipr"] = metrics.ipr(accuracy.mean[both], alone[both]) if both.any() else None
            values["rsd"] = metrics.rsd(accuracy.mean[both], alone[both]) if both.any() else None
        for other in ("local", "global"):
            if other in self.results and other != way and way != "local":
                values[f"gain_over_{other}"] = as_plain(self.gain(way, other), verdicts=True)
                values[f"loss_gain_over_{other}"] = as_plain(self.loss_gain(way, other), verdicts=True)
                if self.task.numeric:
                    values[f"rmse_gain_over_{other}"] = as_plain(self.error_gain(way, other), verdicts=True)
        if self.curve is not None and "local" in self.results and way != "local":
            values["equivalent_rows"] = {**asdict(self.equivalent(way)), "sentence": self.worth(way)}
        return values

    def _not_advised(self) -> list[str]:
        """Return a sentence on a training in coalitions that is not the one that was advised."""
        if self.advice is None or not self.astray:
            return []
        how = self.advice.candidate
        return [
            f"The training in coalitions (by {self.results['coalitions'].method}) is not what was advised "
            f"({how.label}): it neither confirms nor contradicts the advice."
        ]

    def _outweighs(self) -> list[str]:
        """Return a sentence on a client that claims more rows than all others together, and many times the next."""
        if self.rows is None or len(self.rows) < 3:
            return []
        *_, second, largest = ordered = sorted(self.rows)
        if 2 * largest <= sum(ordered) or largest < OUTWEIGHS * second:
            return []
        name = self.names[list(self.rows).index(largest)]
        return [
            f"{name} says that it has {amount(largest / sum(ordered))} % of all training rows ({largest}; no other has "
            f"more than {second}): its word decides coalitions and models, and nobody else can count its rows."
        ]

    def _below_majority(self) -> list[str]:
        """Return sentences on ways of training, and on coalitions, whose mean accuracy is below the majority class."""
        if self.majority is None:
            return []
        found = []
        groups = {way: [(self.ways[way].capitalize(), list(self.names))] for way in ("local", "global")}
        if "coalitions" in self.results:
            numbered = enumerate(self.results["coalitions"].coalitions, 1)
            named = [(number, members) for number, members in numbered if len(members) > 1]
            groups["coalitions"] = [
                (f"Coalition {number} ({range_of_names(members, 3)})", members) for number, members in named
            ]
        for way, parts in groups.items():
            for words, members in parts if way in self.results else ():
                part = self.comparison.ordered(members)
                gain = part.accuracy_gain(way, MAJORITY).average
                if gain.mean < 0:
                    least = part.accuracy(MAJORITY).average.mean
                    sure = "clearly " if gain.verdict == WORSE else ""
                    found.append(
                        f"{words}: the mean {self.task.score} ({amount(part.accuracy(way).average.mean)} %) is {sure}"
                        f"below that of {self.task.constant} ({amount(least)} %)."
                    )
        return found

    def _too_small(self) -> list[str]:
        """Return a sentence on the clients whose test split is too small to tell an accuracy."""
        way = "coalitions" if "coalitions" in self.results else next(iter(self.results))
        found, samples = self.comparison.accuracy(way), self.comparison.samples
        wide = np.flatnonzero(np.nan_to_num(found.high - found.low) > WIDE)
        if not len(wide):
            return []
        most = int(wide[np.argmax((found.high - found.low)[wide])])
        few = samples[wide].astype(int)
        how_many = f"{few.min()}" if few.min() == few.max() else f"{few.min()} to {few.max()}"
        one = len(wide) == 1
        clients = f"{self.names[wide[0]]} has" if one else f"{len(wide)} of {len(self.names)} clients have"
        whose = f"its {self.task.score}" if one else f"the {self.task.score} of {self.names[most]}"
        return [
            f"{clients} too few test samples to tell much ({how_many}): {whose}, {amount(found.mean[most])} % of "
            f"{int(samples[most])} samples, may be anything from {amount(found.low[most])} to "
            f"{amount(found.high[most])} %."
        ]

    def _with_figures(self, found: Estimates, figures: Floats) -> Estimates:
        """Return estimates with the figures themselves where nothing but them is known."""
        if self.sure:
            return found
        mean = float(np.nanmean(figures)) if np.isfinite(figures).any() else float("nan")
        unknown = np.full(len(figures), np.nan)
        return Estimates(figures, unknown, unknown, unknown, Estimate(mean, *[float("nan")] * 3))


def as_plain(found: Estimates, *, verdicts: bool = False) -> dict[str, Any]:
    """Return estimates as plain values, with the mean over clients.

    Parameters
    ----------
    found : Estimates
        The estimates.
    verdicts : bool
        Whether they are gains, of which the intervals say something.
    """
    parts: dict[str, Any] = {"mean": found.mean, "stderr": found.stderr, "low": found.low, "high": found.high}
    average = found.average
    over: dict[str, Any] = {"mean": average.mean, "stderr": average.stderr, "low": average.low, "high": average.high}
    if verdicts:
        parts["verdicts"] = found.verdicts
        over["verdict"] = average.verdict
    return {"average": over, **parts}


def _half(curve: LearningCurve) -> dict[str, Any]:
    """Return what half of the rows cost clients that train alone, on average, as plain values."""
    found = {"clients": curve.names, "mean_rows": float(curve.rows.mean()) if len(curve.rows) else None}
    return {**found, "loss": asdict(curve.loss_gain), "accuracy": asdict(curve.accuracy_gain)}
