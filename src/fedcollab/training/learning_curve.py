"""What more rows would bring clients that train alone, and how many rows a gain is worth by that.

Every client trains alone on each half of its training rows and is tested on the same test rows as before. Let l(m) be
the mean loss over clients with m rows each, d = l(m / 2) - l(m), and g how much lower the mean loss is some other way.
If every doubling of the rows brings as much as the last, then

    l(f m) = l(m) - g    for    f = 2^(g/d)

so that g = d is worth twice the rows, and g = -d half of them. Two points cannot tell whether that is so: on a curve
l(m) = a + b / m^p, of which this is the limit p -> 0,

    f = (1 - (2^p - 1) g / d)^(-1/p)

and no number of rows would do if the bracket is not above 0. The loss of a model with many more rows than parameters
falls with p = 1, f = 1 / (1 - g/d); for models that stop in time that said far too much when clients really got more
rows, and p = 0 was the nearest (benchmarks/learning_curve.py). So f is given for p = 0, and its interval holds p = 1.

Nothing is claimed unless the intervals of both g and d are on one side of 0, that of d above. The interval of f is made
of the ends of both: g and d share the test rows, and so made it is wide enough whatever their correlation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcollab import seeds
from fedcollab.data.client import ClientData
from fedcollab.data.split import fold_of, with_test
from fedcollab.errors import InputError
from fedcollab.federation import Federation, federate
from fedcollab.training.figures import Figures
from fedcollab.training.result import TrainingResult
from fedcollab.training.run import train
from fedcollab.uncertainty import BETTER, UNCLEAR, UNKNOWN, Estimate, student
from fedcollab.wire import Vectorised, Wire

Floats = NDArray[np.float64]

#: the fewest rows that a client may have
FEWEST = 2


@dataclass(frozen=True)
class Equivalent:
    """How many times its rows a client that trains alone would need for the same mean loss.

    Parameters
    ----------
    factor : float
        That many times; NaN if it cannot be told.
    low, high : float
        Its interval; `high` is infinity if perhaps no number of rows would do.
    """

    factor: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class LearningCurve(Figures):
    """The measures of clients that trained alone on half of their rows, and on all.

    Parameters
    ----------
    names : tuple of str
        The clients.
    rows : array
        How many training rows each has.
    loss, accuracy : array
        [clients, 2]: with half of the rows (the mean over both halves), and with all; R2 stands for accuracy where the
        target is a number.
    """

    kind = "learning_curve"

    rows: Floats
    loss: Floats
    accuracy: Floats

    @property
    def loss_gain(self) -> Estimate:
        """By how much the mean loss is lower with all rows than with half of them; its spread is that over clients."""
        return over_clients(self.loss[:, 0] - self.loss[:, 1])

    @property
    def accuracy_gain(self) -> Estimate:
        """By how much the mean accuracy is higher with all rows than with half of them."""
        return over_clients(self.accuracy[:, 1] - self.accuracy[:, 0])

    @classmethod
    def shaped(cls, name: str, array: Floats, clients: int) -> Floats:
        """Return an array from a file in its shape; arguments as in `Figures.shaped`."""
        return array.reshape(-1) if name == "rows" else array.reshape(clients, 2)


def measure_learning_curve(federation: Federation, alone: TrainingResult, **settings: Any) -> LearningCurve:
    """Train every client alone on each half of its rows, all in one training, which costs about one more of `alone`.

    Parameters
    ----------
    federation : Federation
        The clients, in this process.
    alone : TrainingResult
        What they reached alone with all rows.
    **settings
        Those that `alone` was trained with, as in `train`.

    Returns
    -------
    LearningCurve
        Without clients that have too few rows to halve, and those whose loss is not known.

    Raises
    ------
    InputError
        If the federation does not run in this process.
    """
    runtime, schema = federation.runtime, federation.schema
    if not isinstance(runtime, (Vectorised, Wire)):
        raise InputError(
            f"`federation` runs on {type(runtime).__name__}; a learning curve is measured only where the data are in "
            "this process (vectorised, wire)"
        )
    halves: dict[str, list[ClientData]] = {}
    for client in runtime.clients:
        if client.name in federation.names and client.name in alone.names:
            parts = halve(with_test(client, schema.test_share, schema.seed), int(settings.get("seed", 0)))
            halves |= {client.name: parts} if parts else {}
    if not halves:
        return LearningCurve((), np.zeros(0), np.zeros((0, 2)), np.zeros((0, 2)))
    everyone = [part for parts in halves.values() for part in parts]
    prepared = federate(type(runtime)(everyone, device=runtime.device), schema=schema)
    trained = train(prepared, "local", **{**settings, "evaluate_every": None})
    columns = {}
    for key, measure in (("loss", "loss"), ("accuracy", alone.scores.measures[0])):
        of_half, of_all = (dict(zip(r.names, r.used[measure].tolist(), strict=True)) for r in (trained, alone))
        columns[key] = np.array(
            [[np.mean([of_half[part.name] for part in parts]), of_all[name]] for name, parts in halves.items()]
        )
    rows = np.array([float(sum(part.quantity for part in parts)) for parts in halves.values()])
    known = np.isfinite(columns["loss"]).all(axis=1)
    names = tuple(name for name, good in zip(halves, known.tolist(), strict=True) if good)
    return LearningCurve(names, rows[known], columns["loss"][known], columns["accuracy"][known])


def halve(client: ClientData, seed: int) -> list[ClientData]:
    """Return a client twice, each time with one half of its training rows; nothing if it has too few.

    Parameters
    ----------
    client : ClientData
        The client.
    seed : int
        The halves are drawn from it and from the client's name.
    """
    half = fold_of(client.y, 2, seeds.generator(seed, "half", client.name), client.groups)
    if np.bincount(half, minlength=2).min() < FEWEST:
        return []
    given = [key for key in ("x", "y", "groups") if getattr(client, key) is not None]
    return [
        replace(
            client,
            name=f"{client.name}, half {number + 1}",
            **{key: getattr(client, key)[half == number] for key in given},
        )
        for number in range(2)
    ]


def over_clients(values: Floats) -> Estimate:
    """Return the mean of a figure over clients, with the error that follows from its spread over them.

    Parameters
    ----------
    values : array
        The figure of each client.

    Returns
    -------
    Estimate
        Without an interval if there are fewer than two clients.

    Examples
    --------
    >>> over_clients(np.array([0.1, 0.2, 0.3]))
    Estimate(mean=0.2..., stderr=0.0577..., low=0.0314..., high=0.3685...)
    """
    if len(values) < 2:
        return Estimate(float(values[0]) if len(values) else float("nan"), *[float("nan")] * 3)
    mean, stderr = float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))
    low, high = student(mean, stderr, len(values))
    return Estimate(mean, stderr, float(low), float(high))


def equivalent(gain: Estimate, halving: Estimate) -> Equivalent:
    """Return how many times the rows a gain in mean loss is worth.

    Parameters
    ----------
    gain : Estimate
        g: by how much the mean loss is lower than alone.
    halving : Estimate
        d: by how much the mean loss alone is higher with half of the rows.

    Examples
    --------
    >>> equivalent(Estimate(0.04, 0.006, 0.03, 0.05), Estimate(0.08, 0.006, 0.07, 0.09))
    Equivalent(factor=1.414..., low=1.259..., high=3.5)
    """
    if halving.verdict != BETTER or gain.verdict in (UNCLEAR, UNKNOWN):
        return Equivalent(*[float("nan")] * 3)
    shares = [g / d for g in (gain.low, gain.high) for d in (halving.low, halving.high)]
    ends = [times_rows(share, power) for share in shares for power in (0.0, 1.0)]
    return Equivalent(times_rows(gain.mean / halving.mean, 0.0), min(ends), max(ends))


def times_rows(share: float, power: float) -> float:
    """Return f, the factor of rows that a gain is worth.

    Parameters
    ----------
    share : float
        g / d: the gain as a share of what halving the rows costs.
    power : float
        p: how fast the curve flattens.

    Examples
    --------
    >>> times_rows(0.5, 1.0), times_rows(2.0, 0.0), times_rows(1.0, 1.0)
    (2.0, 4.0, inf)
    """
    if power == 0:
        return float(np.exp2(min(share, 1000.0)))
    left = 1 - (2**power - 1) * share
    return float(left ** (-1 / power)) if left > 0 else float("inf")
