"""The advice: who should train with whom, how, and what each client will gain. A frozen value that saves itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcollab.advice.fit import BoundFit
from fedcollab.advice.gains import Expected, Gain, in_units
from fedcollab.advice.words import explain_client, summarise
from fedcollab.distances import Distances
from fedcollab.errors import InputError, choose
from fedcollab.files import inside, read_json, write_json
from fedcollab.parsing import complete
from fedcollab.tasks import CLASSIFICATION, REGRESSION, TASKS, Task

Floats = NDArray[np.float64]

FILE = "advice.json"
#: what an advice can say
VERDICTS = ("together", "coalitions", "own weights", "alone", "no clear difference")


@dataclass(frozen=True, eq=False)
class Candidate:
    """One way of training that was considered.

    Parameters
    ----------
    label : str
        In words: who, and how.
    kind : str
        "alone", "together", "coalitions" or "own weights".
    algorithm, options, keep
        How: as in `fedcollab.train`.
    coalitions : list of lists of str
        Who; under own weights the clients that share a model.
    C : float or None
        The C that it comes from, where there is one.
    gain, accuracy_gain : Expected
        What the clients are expected to gain on average, in loss and in accuracy.
    held_out : dict of lists
        For each client what was measured on rows that the models had not seen: loss, accuracy, and the standard errors
        of their differences from training alone (None where they are not known).
    rounds : list of int
        How many rounds each coalition would train.
    means : list of bool
        Whether each would use the mean over rounds.
    dropped : bool
        Whether its pilot was ended early, because it was clearly behind.
    """

    label: str
    kind: str
    algorithm: str
    options: Mapping[str, Any]
    keep: tuple[str, ...]
    coalitions: list[list[str]]
    C: float | None
    gain: Expected
    accuracy_gain: Expected
    held_out: dict[str, list[float | None]]
    rounds: list[int]
    means: list[bool]
    dropped: bool = False


@dataclass(frozen=True, eq=False)
class Advice:
    """Who should train with whom, how, and what each client will gain.

    Parameters
    ----------
    names : tuple of str
        The clients.
    quantities : array
        Their training samples.
    verdict : str
        "together", "coalitions", "own weights", "alone" or "no clear difference": then it matters little, and the
        plan is the largest coalition and the simplest algorithm among the best.
    chosen : int
        The position of the advised candidate in `candidates`.
    coalitions : list of lists of str
        The advised coalitions; under own weights the best hard partition.
    weights : array
        N x N: what each client's data weigh in each client's model.
    C : float
        The C of the bound at which these coalitions or weights come out.
    candidates : list of Candidate
        All that was considered, training alone first.
    gains : dict of Gain
        By client, in the metric of the advice.
    mean_gain : Expected
        The mean gain over clients, in that metric.
    metric : str
        "loss" or "accuracy".
    fit : mapping
        The bound fitted to the measurements (`advice.fit`).
    separates : list of mappings
        The columns in which clients differ, how far, and whether that changes the rule.
    settings : mapping
        Model and step sizes that were measured with.
    cost : mapping
        Rounds, bytes and CPU seconds.
    target : mapping
        Of a numeric target the `loss` of the models and the `scale` that it was divided by; else empty.

    Examples
    --------
    >>> import numpy as np
    >>> from fedcollab import advise
    >>> x = np.random.default_rng(0).normal(size=(48, 2))
    >>> y = (x[:, 0] > 0).astype(int)
    >>> advice = advise({"north": (x[:24], y[:24]), "south": (x[24:], y[24:])}, model="logistic", rounds=2)
    >>> advice.verdict in ("together", "own weights", "alone", "no clear difference")
    True
    >>> advice.weights.shape, sorted(advice.gains)
    ((2, 2), ['north', 'south'])
    """

    names: tuple[str, ...]
    quantities: Floats
    verdict: str
    chosen: int
    coalitions: list[list[str]]
    weights: Floats = field(repr=False)
    C: float
    candidates: list[Candidate] = field(repr=False)
    gains: dict[str, Gain] = field(repr=False)
    mean_gain: Expected
    metric: str = "loss"
    fit: Mapping[str, Any] = field(default_factory=dict, repr=False)
    separates: list[Mapping[str, Any]] = field(default_factory=list, repr=False)
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    cost: Mapping[str, Any] = field(default_factory=dict, repr=False)
    target: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def task(self) -> Task:
        """What models predict, and what the figures are called."""
        return TASKS[REGRESSION if self.target else CLASSIFICATION]

    @property
    def error_gains(self) -> dict[str, Expected]:
        """By how much each client's error will be lower, in the units of a numeric target: RMSE, or MAE for the
        absolute loss. Empty where there are classes, and without clients that could not be measured."""
        alone = self.candidates[0].held_out
        losses = {name: row[0] for name, row in alone.items() if row[0]} if self.target else {}
        return {name: in_units(self.gains[name].loss, loss, self.target) for name, loss in losses.items() if loss}

    @property
    def mean_error_gain(self) -> Expected | None:
        """The mean of `error_gains`; None where there are none."""
        gains = self.error_gains
        if not gains:
            return None
        mean, error, loss = (
            float(np.mean(values))
            for values in (
                [gain.mean for gain in gains.values()],
                [gain.stderr for gain in gains.values()],
                [self.gains[name].loss.stderr for name in gains],
            )
        )
        return Expected(mean, self.candidate.gain.stderr * error / max(loss, 1e-12))

    @property
    def candidate(self) -> Candidate:
        """The candidate that is advised."""
        return self.candidates[self.chosen]

    @property
    def algorithm(self) -> str:
        """The name of the advised algorithm."""
        return self.candidate.algorithm

    @property
    def plan(self) -> dict[str, Any]:
        """How to train: what `fedcollab.train` reads of an advice."""
        how = self.candidate
        return {
            "algorithm": how.algorithm,
            "options": dict(how.options) or None,
            "keep": list(how.keep) or None,
            "rows": max(1, len(how.coalitions)),
            "names": list(self.names),
            "settings": {key: value for key, value in self.settings.items() if key != "distance"},
            "stopping": {"rounds": list(how.rounds), "means": list(how.means)},
        }

    @property
    def followed(self) -> dict[str, Any]:
        """The algorithm, its options and what stays with each client, as `fedcollab.train` takes them."""
        plan = self.plan
        return {"algorithm": plan["algorithm"], "options": plan["options"], "keep": plan["keep"]}

    @property
    def bound(self) -> BoundFit:
        """The bound fitted to the measurements."""
        return BoundFit.from_dict(self.fit)

    def predict(self, distances: Distances, coalitions: Sequence[Sequence[str]]) -> dict[str, float]:
        """Return what the fitted bound expects of coalitions that were not tried: each client's gain in log loss.

        A rough figure: `advice.bound.explained` says how much of the measured gains the fit explains.

        Parameters
        ----------
        distances : Distances
            The distances of the clients.
        coalitions : sequence of sequences of str
            Who trains with whom, by FedAvg; every client once.

        Raises
        ------
        InputError
            If a client is missing, unknown, or in two coalitions.
        """
        labels = {name: number for number, members in enumerate(coalitions) for name in members}
        if sorted(name for members in coalitions for name in members) != sorted(distances.names):
            raise InputError("`coalitions` must hold every client of `distances` once")
        found = self.bound.partition_gain(
            np.array([labels[name] for name in distances.names]),
            distances.matrix,
            distances.quantities.astype(np.float64),
        )
        return dict(zip(distances.names, found.tolist(), strict=True))

    def in_order(self, names: Sequence[str]) -> Advice:
        """Return the same advice with the clients in another order.

        Parameters
        ----------
        names : sequence of str
            All clients, in the order that is wanted.
        """
        places = [self.names.index(name) for name in names]
        return replace(
            self,
            names=tuple(names),
            quantities=self.quantities[places],
            weights=self.weights[np.ix_(places, places)],
            gains={name: self.gains[name] for name in names},
        )

    def explain(self, client: str | None = None) -> str:
        """Say what a client should do, what it will gain and why, in sentences; without a client, for all of them.

        Parameters
        ----------
        client : str, optional
            The client's name.

        Raises
        ------
        InputError
            If there is no such client.
        """
        if client is None:
            return summarise(self)
        choose("client", client, dict.fromkeys(self.names))
        return explain_client(self, client)

    def __str__(self) -> str:
        return summarise(self)

    def as_dict(self) -> dict[str, Any]:
        """Return the content as plain values that can be written as JSON."""
        gains = {
            name: {
                **{key: getattr(gain, key) for key in ("mean", "stderr", "probability", "measured")},
                "interval": list(gain.interval()),
                "loss": _expected(gain.loss),
                "accuracy": _expected(gain.accuracy),
            }
            for name, gain in self.gains.items()
        }
        return {
            "verdict": self.verdict,
            "coalitions": self.coalitions,
            "algorithm": self.algorithm,
            "options": dict(self.candidate.options),
            "keep": list(self.candidate.keep),
            "C": self.C,
            "metric": self.metric,
            "mean_gain": _expected(self.mean_gain),
            "gains": gains,
            "names": list(self.names),
            "quantities": self.quantities,
            "weights": self.weights,
            "chosen": self.chosen,
            "candidates": [asdict(candidate) for candidate in self.candidates],
            "fit": dict(self.fit),
            "separates": [dict(row) for row in self.separates],
            "settings": dict(self.settings),
            "cost": dict(self.cost),
            **({"target": dict(self.target)} if self.target else {}),
        }

    def save(self, path: str | Path, made: Mapping[str, Any] | None = None) -> None:
        """Write the advice as a JSON file.

        Parameters
        ----------
        path : str or Path
            The file.
        made : mapping, optional
            What a run notes about settings and inputs.
        """
        write_json(path, "advice", self.as_dict(), made)

    @classmethod
    def load(cls, path: str | Path) -> Advice:
        """Read an advice that `save` wrote.

        Parameters
        ----------
        path : str or Path
            The file, or the run directory that it is in.

        Raises
        ------
        InputError
            If it is not an advice, or its fields contradict each other.
        """
        content = read_json(inside(path, FILE), "advice")
        with complete(path, "advice"):
            found = _read(cls, content)
            str(found), found.followed, found.as_dict(), found.explain(found.names[0])  # else it is not complete
        return found


def _expected(value: Expected) -> dict[str, float]:
    """Return an expected gain as plain values."""
    return {"mean": value.mean, "stderr": value.stderr, "probability": value.probability}


def _number(value: Any) -> float:
    """Return a number of a file; NaN for the null that stands for it."""
    return float("nan") if value is None else float(value)


def _to_expected(value: Mapping[str, Any]) -> Expected:
    """Return an expected gain from plain values."""
    return Expected(_number(value["mean"]), _number(value["stderr"]))


def _read(cls: type[Advice], content: Mapping[str, Any]) -> Advice:
    """Make an advice of the content of its file."""
    candidates = [
        Candidate(
            **{
                **{key: each[key] for key in ("label", "kind", "algorithm", "options", "coalitions", "C", "dropped")},
                "keep": tuple(each["keep"]),
                "gain": _to_expected(each["gain"]),
                "accuracy_gain": _to_expected(each["accuracy_gain"]),
                "held_out": dict(each["held_out"]),
                "rounds": [int(number) for number in each["rounds"]],
                "means": [bool(mean) for mean in each["means"]],
            }
        )
        for each in content["candidates"]
    ]
    gains = {
        name: Gain(
            _number(each["mean"]),
            _number(each["stderr"]),
            _to_expected(each["loss"]),
            _to_expected(each["accuracy"]),
            bool(each["measured"]),
        )
        for name, each in content["gains"].items()
    }
    names = tuple(map(str, content["names"]))
    weights = np.array(content["weights"], dtype=np.float64)
    grouped = sorted(name for members in content["coalitions"] for name in members)
    if weights.shape != (len(names),) * 2 or grouped != sorted(names) or set(gains) != set(names):
        raise ValueError("names, coalitions, weights and gains are not about the same clients")
    if content["verdict"] not in VERDICTS or not 0 <= int(content["chosen"]) < len(candidates):
        raise ValueError("its verdict is unknown, or what is advised is not among the candidates")
    chosen = candidates[int(content["chosen"])]
    if chosen.kind != "own weights" and not set(names) <= {name for members in chosen.coalitions for name in members}:
        raise ValueError("the coalitions that are advised lack a client")
    return cls(
        names=names,
        quantities=np.array(content["quantities"], dtype=np.float64),
        verdict=content["verdict"],
        chosen=int(content["chosen"]),
        coalitions=[list(members) for members in content["coalitions"]],
        weights=weights,
        C=_number(content["C"]),
        candidates=candidates,
        gains=gains,
        mean_gain=_to_expected(content["mean_gain"]),
        metric=str(content["metric"]),
        fit=content["fit"],
        separates=list(content["separates"]),
        settings=content["settings"],
        cost=content["cost"],
        target=dict(content.get("target", {})),
    )
