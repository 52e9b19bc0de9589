"""How sure a measured accuracy, loss or gain is: intervals from counts and sums over test samples, never from samples.

    accuracy of one model         x of n right: Wilson's score interval
    gain of one model over        of the same n samples, b are right with the first model alone and c with the second
    another, same samples         alone: Tango's score interval for (b - c) / n
    gain, different samples       Newcombe's interval: the distances to two Wilson limits, added as squares
    mean loss, or difference      mean ± t(n - 1) stderr, from 40 samples on: losses are skewed, and with fewer samples
                                  such an interval holds the truth too seldom
    mean over N clients           mean ± z sqrt(sum of variances) / N; half a sample is added to each count that a
                                  variance is made of, spread over the clients, so that it is never 0 by luck

All intervals are two-sided, at 90 % unless told otherwise. They say how much the figure would vary with other test
samples of the same clients. The models are taken as given: training again with another seed or on other samples adds a
variation that they do not show.

E. B. Wilson, J. Am. Stat. Assoc. 22 (1927); T. Tango, Stat. Med. 17 (1998); R. G. Newcombe, Stat. Med. 17 (1998),
method 10.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Interval = tuple[Floats, Floats]

#: the share of intervals that hold the true value
LEVEL = 0.9
#: what `verdict` can say
BETTER, WORSE, UNCLEAR, UNKNOWN = "better", "worse", "no clear difference", "not known"
#: the fewest samples for the interval of a mean loss
FEWEST = 40
#: halvings of the search for a limit: far below any figure that is shown
HALVINGS = 50


@dataclass(frozen=True)
class Estimate:
    """One measured figure and how sure it is.

    Parameters
    ----------
    mean : float
        The figure.
    stderr : float
        Its standard error; NaN where it is not known.
    low, high : float
        The interval; NaN where it is not known.
    """

    mean: float
    stderr: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """What the interval of a gain says: see `verdict`."""
        return verdict(self.low, self.high)


@dataclass(frozen=True, eq=False)
class Estimates:
    """A measured figure of each client, and its mean over clients.

    Parameters
    ----------
    mean, stderr, low, high : arrays
        As in `Estimate`, one value a client; NaN for a client without a figure.
    average : Estimate
        The plain mean over the clients that have a figure.
    """

    mean: Floats
    stderr: Floats
    low: Floats
    high: Floats
    average: Estimate

    def __getitem__(self, client: int) -> Estimate:
        return Estimate(*(float(part[client]) for part in (self.mean, self.stderr, self.low, self.high)))

    @property
    def verdicts(self) -> list[str]:
        """What the interval of each client's gain says."""
        return [verdict(low, high) for low, high in zip(self.low.tolist(), self.high.tolist(), strict=True)]

    def count(self, word: str) -> int:
        """Return how many clients have this verdict."""
        return self.verdicts.count(word)


def verdict(low: float, high: float) -> str:
    """Return what the interval of a gain says.

    Parameters
    ----------
    low, high : float
        The interval; positive is better.

    Returns
    -------
    str
        "better" if all of it is above 0, "worse" if all of it is below, "no clear difference" if 0 is inside, and
        "not known" if there is no interval.

    Examples
    --------
    >>> verdict(0.01, 0.2), verdict(-0.3, -0.1), verdict(-0.1, 0.1)
    ('better', 'worse', 'no clear difference')
    """
    if np.isnan(low) or np.isnan(high):
        return UNKNOWN
    return BETTER if low > 0 else WORSE if high < 0 else UNCLEAR


def wilson(right: ArrayLike, samples: ArrayLike, level: float = LEVEL) -> Interval:
    """Return Wilson's score interval of a share.

    Parameters
    ----------
    right : array_like
        How many samples count.
    samples : array_like
        Of how many.
    level : float
        The share of intervals that hold the true value.

    Returns
    -------
    tuple of arrays
        Low and high ends; NaN where there are no samples.

    Examples
    --------
    >>> low, high = wilson(8, 10)
    >>> round(float(low), 3), round(float(high), 3)
    (0.541, 0.931)
    """
    x, n = np.asarray(right, dtype=np.float64), _positive(samples)
    z = _z(level)
    centre = (x + z**2 / 2) / (n + z**2)
    half = z / (n + z**2) * np.sqrt(x * (n - x) / n + z**2 / 4)
    return np.clip(centre - half, 0.0, 1.0), np.clip(centre + half, 0.0, 1.0)


def paired(gained: ArrayLike, lost: ArrayLike, samples: ArrayLike, level: float = LEVEL) -> Interval:
    """Return Tango's score interval of the difference of two accuracies on the same samples.

    The interval holds every difference D whose score statistic

        (b - c - n D) / sqrt(n (2 q + D (1 - D)))

    is within ±z, where q is the likeliest share of samples that are right only with the second model, given D.

    Parameters
    ----------
    gained : array_like
        b: samples that only the first model gets right.
    lost : array_like
        c: samples that only the second model gets right.
    samples : array_like
        n: all samples.
    level : float
        The share of intervals that hold the true difference.

    Returns
    -------
    tuple of arrays
        Low and high ends; NaN where a count is not known.

    Examples
    --------
    >>> low, high = paired(6, 1, 40)
    >>> round(float(low), 3), round(float(high), 3)
    (0.02, 0.245)
    """
    b, c, n = np.broadcast_arrays(
        np.asarray(gained, dtype=np.float64), np.asarray(lost, dtype=np.float64), _positive(samples)
    )
    z, middle = _z(level), (b - c) / n

    def search(outside: Floats, target: float) -> Floats:
        """Return the difference between `outside` and the middle whose score, which falls as it grows, is `target`."""
        low, high = np.minimum(outside, middle), np.maximum(outside, middle)
        for _ in range(HALVINGS):
            tried = (low + high) / 2
            above = _score(b, c, n, tried) > target
            low, high = np.where(above, tried, low), np.where(above, high, tried)
        return np.where(np.isnan(middle), np.nan, (low + high) / 2)

    return search(np.full(middle.shape, -1.0), z), search(np.full(middle.shape, 1.0), -z)


def unpaired(
    right: ArrayLike, samples: ArrayLike, other_right: ArrayLike, other_samples: ArrayLike, level: float = LEVEL
) -> Interval:
    """Return Newcombe's interval of the difference of two accuracies on different samples.

    Parameters
    ----------
    right, samples : array_like
        How many samples the first model gets right, and of how many.
    other_right, other_samples : array_like
        The same of the second model.
    level : float
        The share of intervals that hold the true difference.

    Returns
    -------
    tuple of arrays
        Low and high ends.

    Examples
    --------
    >>> low, high = unpaired(36, 40, 31, 40)
    >>> round(float(low), 3), round(float(high), 3)
    (-0.013, 0.26)
    """
    first = np.asarray(right, dtype=np.float64) / _positive(samples)
    second = np.asarray(other_right, dtype=np.float64) / _positive(other_samples)
    (low, high), (other_low, other_high) = wilson(right, samples, level), wilson(other_right, other_samples, level)
    below = np.sqrt((first - low) ** 2 + (other_high - second) ** 2)
    above = np.sqrt((high - first) ** 2 + (second - other_low) ** 2)
    return first - second - below, first - second + above


def student(mean: ArrayLike, stderr: ArrayLike, samples: ArrayLike, level: float = LEVEL) -> Interval:
    """Return the interval of a mean: mean ± t(n - 1) stderr.

    Parameters
    ----------
    mean : array_like
        The mean.
    stderr : array_like
        Its standard error, from the standard deviation of the same samples.
    samples : array_like
        Of how many samples.
    level : float
        The share of intervals that hold the true mean.

    Returns
    -------
    tuple of arrays
        Low and high ends; NaN with fewer than two samples.

    Examples
    --------
    >>> low, high = student(0.5, 0.1, 10)
    >>> round(float(low), 3), round(float(high), 3)
    (0.317, 0.683)
    """
    from scipy.special import stdtrit  # type: ignore[import-untyped]

    n = np.asarray(samples, dtype=np.float64)
    half = stdtrit(np.where(n > 1, n - 1, np.nan), (1 + level) / 2) * np.asarray(stderr)
    return np.asarray(mean) - half, np.asarray(mean) + half


def accuracies(right: ArrayLike, samples: ArrayLike) -> Estimates:
    """Return each client's accuracy with its interval, and the mean over clients.

    Parameters
    ----------
    right : array_like
        How many test samples each client's model gets right; NaN where that is not known.
    samples : array_like
        How many test samples each client has.
    """
    x, n = np.asarray(right, dtype=np.float64), _positive(samples)
    extra = 1 / max(1, int(np.isfinite(x / n).sum()))
    share = (x + extra / 2) / (n + extra)
    stderr = np.sqrt(share * (1 - share) / (n + extra))
    low, high = wilson(x, n)
    return Estimates(x / n, stderr, low, high, average(x / n, stderr))


def accuracy_gains(
    first: ArrayLike, second: ArrayLike, both: ArrayLike, samples: ArrayLike, same: ArrayLike = False
) -> Estimates:
    """Return how much more accurate each client's first model is than its second, with intervals.

    Parameters
    ----------
    first, second : array_like
        How many test samples of each client the first and the second model get right.
    both : array_like
        How many both get right; NaN where that is not known: the interval is then that of different samples, which is
        wider.
    samples : array_like
        How many test samples each client has.
    same : array_like of bool
        Which clients' two models are one and the same: their gain is 0, for certain.
    """
    x, y, n = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64), _positive(samples)
    known = np.isfinite(np.asarray(both, dtype=np.float64))
    common = np.where(known, both, np.nan)
    gained, lost = x - common, y - common
    extra = 1 / (2 * max(1, int(np.isfinite((x - y) / n).sum())))
    b, c, of = gained + extra, lost + extra, n + 2 * extra
    with np.errstate(invalid="ignore", divide="ignore"):  # a client with one sample has no standard error
        together = np.sqrt(np.where(of > 1, (b + c - (b - c) ** 2 / of) / of / (of - 1), np.nan))
    apart = np.hypot(accuracies(x, n).stderr, accuracies(y, n).stderr)
    stderr = np.where(same, 0.0, np.where(known, together, apart))
    ends = zip(paired(gained, lost, n), unpaired(x, n, y, n), strict=True)
    low, high = (np.where(same, 0.0, np.where(known, *end)) for end in ends)
    return Estimates((x - y) / n, stderr, low, high, average((x - y) / n, stderr))


def means(mean: ArrayLike, stderr: ArrayLike, samples: ArrayLike) -> Estimates:
    """Return each client's mean loss, or difference of losses, with its interval, and the mean over clients.

    There is no interval of fewer than 40 samples: losses are skewed, and it would hold the true value too seldom.

    Parameters
    ----------
    mean, stderr : array_like
        The mean over each client's test samples and its standard error; NaN where they are not known.
    samples : array_like
        How many test samples each client has.
    """
    values, errors = np.asarray(mean, dtype=np.float64), np.asarray(stderr, dtype=np.float64)
    n = np.asarray(samples, dtype=np.float64)
    low, high = (np.where(n >= FEWEST, end, np.nan) for end in student(values, errors, n))
    enough = n[np.isfinite(values)].sum() >= FEWEST
    return Estimates(values, errors, low, high, average(values, errors if enough else np.full(errors.shape, np.nan)))


def average(mean: ArrayLike, stderr: ArrayLike, level: float = LEVEL) -> Estimate:
    """Return the plain mean of independent figures, with its interval.

    Parameters
    ----------
    mean, stderr : array_like
        The figures and their standard errors; a figure that is NaN does not count.
    level : float
        The share of intervals that hold the true mean.

    Returns
    -------
    Estimate
        Without an interval if a figure that counts has no standard error.

    Examples
    --------
    >>> average([0.1, 0.3], [0.03, 0.04])
    Estimate(mean=0.2, stderr=0.025, low=0.158..., high=0.241...)
    """
    values, errors = np.asarray(mean, dtype=np.float64), np.asarray(stderr, dtype=np.float64)
    known = np.isfinite(values)
    if not known.any():
        return Estimate(*[float("nan")] * 4)
    centre = float(values[known].mean())
    stderr = float(np.sqrt((errors[known] ** 2).sum()) / known.sum())
    half = _z(level) * stderr
    return Estimate(centre, stderr, centre - half, centre + half)


def _score(b: Floats, c: Floats, n: Floats, difference: Floats) -> Floats:
    """Return Tango's score statistic of a difference."""
    linear = -b - c + (2 * n - b + c) * difference
    rest = -c * difference * (1 - difference)
    likeliest = (np.sqrt(np.maximum(linear**2 - 8 * n * rest, 0)) - linear) / (4 * n)
    variance = n * (2 * likeliest + difference * (1 - difference))
    score: Floats = (b - c - n * difference) / np.sqrt(np.maximum(variance, 1e-300))
    return score


def _positive(samples: ArrayLike) -> Floats:
    """Return numbers of samples, with NaN for none."""
    n = np.asarray(samples, dtype=np.float64)
    return np.where(n > 0, n, np.nan)


def _z(level: float) -> float:
    """Return how many standard errors an interval reaches to either side."""
    return NormalDist().inv_cdf((1 + level) / 2)


def scaled(gain: Estimates, factor: Floats) -> Estimates:
    """Return gains in another unit: each client's figure times a factor of its own, which is not negative.

    Parameters
    ----------
    gain : Estimates
        The gains.
    factor : array
        One for each client.

    Examples
    --------
    >>> found = scaled(means(np.array([0.2, 0.4]), np.array([0.1, 0.1]), np.array([50.0, 50.0])), np.array([10.0, 5.0]))
    >>> found.mean.tolist(), round(found.average.mean, 3)
    ([2.0, 2.0], 2.0)
    """
    parts = (gain.mean * factor, gain.stderr * factor, gain.low * factor, gain.high * factor)
    return Estimates(*parts, average(parts[0], np.where(np.isnan(gain.average.stderr), np.nan, parts[1])))
