"""Intervals: by hand, against an independent computation, and by how often they hold the true value."""

from __future__ import annotations

from math import lgamma

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import binom
from scipy.stats import t as student_t

from fedcollab import uncertainty
from fedcollab.uncertainty import Estimate

Z = 1.6448536269514722


def test_wilson_by_hand() -> None:
    """All 10 of 10 right: the low end p solves (1 - p) = z sqrt(p (1 - p) / 10), so p = 10 / (10 + z^2)."""
    low, high = uncertainty.wilson([10, 0], [10, 10])
    np.testing.assert_allclose(low, [10 / (10 + Z**2), 0], atol=1e-12)
    np.testing.assert_allclose(high, [1, Z**2 / (10 + Z**2)], atol=1e-12)


def test_no_difference_at_all_by_hand() -> None:
    """No sample is judged differently: the ends solve n D = z sqrt(n D), within the score's variance n D (1 - D)."""
    low, high = uncertainty.paired(0, 0, 20)
    np.testing.assert_allclose([low, high], [-(Z**2) / (20 + Z**2), Z**2 / (20 + Z**2)], atol=1e-9)


def score(gained: int, lost: int, samples: int, difference: float) -> float:
    """Tango's statistic with the nuisance parameter found by maximising the trinomial likelihood numerically."""

    def minus_log_likelihood(q: float) -> float:
        shares = np.array([q + difference, q, 1 - 2 * q - difference])
        counts = np.array([gained, lost, samples - gained - lost])
        return -float(np.sum(counts * np.log(np.maximum(shares, 1e-300))))

    least, most = max(0.0, -difference), (1 - difference) / 2
    q = minimize_scalar(minus_log_likelihood, bounds=(least, most), method="bounded", options={"xatol": 1e-12}).x
    variance = samples * (2 * q + difference * (1 - difference))
    return float((gained - lost - samples * difference) / np.sqrt(variance))


@pytest.mark.parametrize(("gained", "lost", "samples"), [(6, 1, 40), (3, 3, 12), (2, 9, 30), (1, 5, 10), (20, 4, 200)])
def test_tango_equals_a_numerical_maximum_of_the_likelihood(gained: int, lost: int, samples: int) -> None:
    low, high = uncertainty.paired(gained, lost, samples)
    middle = (gained - lost) / samples
    expected_low = brentq(lambda d: score(gained, lost, samples, d) - Z, -0.999, middle)
    expected_high = brentq(lambda d: score(gained, lost, samples, d) + Z, middle, 0.999)
    np.testing.assert_allclose([low, high], [expected_low, expected_high], atol=1e-4)


@given(st.integers(1, 300), st.data())
def test_properties_of_paired_intervals(samples: int, data: st.DataObject) -> None:
    gained = data.draw(st.integers(0, samples))
    lost = data.draw(st.integers(0, samples - gained))
    low, high = (float(end) for end in uncertainty.paired(gained, lost, samples))
    assert -1 <= low <= (gained - lost) / samples <= high <= 1
    swapped = uncertainty.paired(lost, gained, samples)
    np.testing.assert_allclose([-swapped[1], -swapped[0]], [low, high], atol=1e-9)
    wider = uncertainty.paired(gained, lost, samples, level=0.99)
    assert wider[0] <= low + 1e-12
    assert wider[1] >= high - 1e-12


def test_newcombe_by_hand() -> None:
    """9 of 10 against 5 of 10, from the Wilson limits of each."""
    (l1, h1), (l2, h2) = uncertainty.wilson(9, 10), uncertainty.wilson(5, 10)
    low, high = uncertainty.unpaired(9, 10, 5, 10)
    assert low == pytest.approx(0.4 - np.sqrt((0.9 - l1) ** 2 + (h2 - 0.5) ** 2))
    assert high == pytest.approx(0.4 + np.sqrt((h1 - 0.9) ** 2 + (0.5 - l2) ** 2))


def test_student_and_average_by_hand() -> None:
    low, high = uncertainty.student([1.0, 2.0], [0.1, 0.1], [5, 1])
    assert (low[0], high[0]) == pytest.approx((1 - 0.1 * student_t.ppf(0.95, 4), 1 + 0.1 * student_t.ppf(0.95, 4)))
    assert np.isnan([low[1], high[1]]).all(), "one sample has no standard error"
    mean = uncertainty.average([0.2, np.nan, 0.4], [0.03, 9.0, 0.04])
    assert mean == Estimate(
        pytest.approx(0.3), pytest.approx(0.025), pytest.approx(0.3 - Z * 0.025), pytest.approx(0.3 + Z * 0.025)
    )


def test_what_is_not_known_is_nan_and_said() -> None:
    found = uncertainty.accuracy_gains([5, np.nan, 9], [5, 8, 1], [5, np.nan, np.nan], [10, 10, 10])
    assert found.verdicts == ["no clear difference", "not known", "better"]
    assert found.average.mean == pytest.approx(0.4)
    paired = uncertainty.accuracy_gains([8], [6], [6], [10])
    apart = uncertainty.accuracy_gains([8], [6], [np.nan], [10])
    assert apart.low[0] < paired.low[0], "without the same samples it is less sure"
    assert apart.stderr[0] > paired.stderr[0]
    certain = uncertainty.accuracy_gains([8], [8], [8], [10], same=[True])
    assert (certain.low[0], certain.high[0], certain.stderr[0]) == (0, 0, 0)


# How often intervals hold the true value: 85 to 95 % where so many intervals are possible that it can be near 90 %.


def exact_coverage(samples: int, only_first: float, only_second: float) -> float:
    """The probability that the interval holds the true difference, summed over all outcomes of a trinomial."""
    b, c = np.meshgrid(np.arange(samples + 1), np.arange(samples + 1), indexing="ij")
    b, c = b[b + c <= samples], c[b + c <= samples]
    log = np.array([lgamma(k + 1) for k in range(samples + 1)])
    chance = np.exp(
        log[samples] - log[b] - log[c] - log[samples - b - c]
        + b * np.log(only_first) + c * np.log(only_second) + (samples - b - c) * np.log(1 - only_first - only_second)
    )  # fmt: skip
    low, high = uncertainty.paired(b, c, samples)
    difference = only_first - only_second
    return float(chance[(low <= difference + 1e-12) & (difference - 1e-12 <= high)].sum())


@pytest.mark.parametrize("samples", [10, 15, 20, 30, 40, 100])
def test_paired_intervals_hold_the_truth(samples: int) -> None:
    """Where at least three samples are judged differently on average; with fewer, intervals are wide, never narrow."""
    shares = [(0.02, 0.02), (0.05, 0.05), (0.1, 0.1), (0.2, 0.2), (0.1, 0.05), (0.15, 0.05), (0.2, 0.1), (0.3, 0.1)]
    found = {pair: exact_coverage(samples, *pair) for pair in shares}
    assert min(found.values()) > 0.87
    enough = [value for pair, value in found.items() if sum(pair) * samples >= 3]
    assert min(enough) > 0.87
    assert max(enough) < 0.95
    assert 0.89 < np.mean(enough) < 0.92


@pytest.mark.parametrize("samples", [10, 20, 40, 100])
def test_intervals_of_accuracies_hold_the_truth(samples: int) -> None:
    """Over accuracies from 50 to 95 %, by exact sums."""
    right = np.arange(samples + 1)
    low, high = uncertainty.wilson(right, samples)
    found = []
    for truth in np.linspace(0.5, 0.95, 46):
        inside = (low <= truth) & (truth <= high)
        found.append(binom.pmf(right[inside], samples, truth).sum())
    assert 0.88 < np.mean(found) < 0.92
    assert min(found) > 0.78


@pytest.mark.parametrize(("clients", "samples"), [(5, 10), (5, 40), (10, 20), (20, 10)])
@pytest.mark.parametrize("changed", [0.05, 0.3])
def test_intervals_of_the_mean_gain_hold_the_truth(clients: int, samples: int, changed: float) -> None:
    """Clients with other chances each; `changed` is the share of samples that the two models judge differently."""
    rng = np.random.default_rng([clients, samples, int(100 * changed)])
    part = rng.uniform(0.2, 0.8, clients)
    inside, times = 0, 300
    truth = float((changed * (2 * part - 1)).mean())
    for _ in range(times):
        drawn = np.stack([rng.multinomial(samples, [changed * p, changed * (1 - p), 0.5, 0.5 - changed]) for p in part])
        gained, lost, both = drawn[:, 0], drawn[:, 1], drawn[:, 2]
        mean = uncertainty.accuracy_gains(both + gained, both + lost, both, np.full(clients, samples)).average
        inside += mean.low <= truth <= mean.high
    few = clients * samples * changed < 5  # hardly any sample is judged differently: intervals are wide, never narrow
    assert 0.85 <= inside / times <= (1.0 if few else 0.95)


@pytest.mark.parametrize("samples", [40, 100])
@pytest.mark.parametrize("sharpness", [0.5, 2.0])
def test_intervals_of_loss_gains_hold_the_truth(samples: int, sharpness: float) -> None:
    """Differences of log losses are skewed: here those of two logistic models, one of them sharper than the other."""

    def differences(*shape: int) -> np.ndarray:
        scores = rng.normal(0.8, 1.0, shape)
        return np.logaddexp(0, -scores) - np.logaddexp(0, -sharpness * (scores + rng.normal(0, 0.5, shape)))

    rng = np.random.default_rng(samples)
    drawn, truth = differences(4000, samples), float(differences(2_000_000).mean())
    stderr = drawn.std(axis=1, ddof=1) / np.sqrt(samples)
    found = uncertainty.means(drawn.mean(axis=1), stderr, np.full(len(stderr), samples))
    assert 0.85 <= np.mean((found.low <= truth) & (truth <= found.high)) <= 0.95


def test_few_samples_give_no_interval_of_a_loss() -> None:
    found = uncertainty.means([0.1, 0.2], [0.01, 0.01], [39, 40])
    assert found.verdicts == ["not known", "better"]
    assert found.average.verdict == "better"
    assert uncertainty.means([0.1, 0.2], [0.01, 0.01], [19, 20]).average.verdict == "not known"
