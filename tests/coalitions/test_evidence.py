"""A split that noise explains is not suggested."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcollab.coalitions import CPath, c_path
from fedcollab.coalitions.evidence import evidence, needed, normal
from fedcollab.coalitions.path import Segment
from fedcollab.distances import Distances


def z(tail: float) -> float:
    """The standard normal value beyond which so much lies."""
    return -NormalDist().inv_cdf(tail)


def noisy(between: float, sd: float, count: int = 6, seed: int = 0) -> Distances:
    """Two halves at distance `between`; replicates of every pair are normal with the given spread."""
    rng = np.random.default_rng(seed)
    half = np.arange(count) < count // 2
    raw = np.where(half[:, None] == half, 0.0, between)
    noise = rng.normal(0, sd, (200, count, count))
    noise = np.triu(noise, 1) + np.transpose(np.triu(noise, 1), (0, 2, 1))
    names = tuple(f"c{i}" for i in range(count))
    stderr = np.full((count, count), sd) * (1 - np.eye(count))
    return Distances(raw, names, np.full(count, 100), stderr=stderr, replicates=raw + noise)


def test_by_hand() -> None:
    raw = np.array([[0.0, 0.3], [0.3, 0.0]])
    replicates = np.stack([raw + delta * (1 - np.eye(2)) for delta in (-0.1, 0.1)])
    two = Distances(raw, ("a", "b"), np.array([10, 30]), replicates=replicates)
    assert evidence(two, np.array([0, 1])) == pytest.approx(normal(3.0, 9) / z(0.01 / 2))
    assert evidence(two, np.array([0, 0])) is None
    assert evidence(raw, np.array([0, 1])) is None


def test_means_are_weighted_by_quantity() -> None:
    raw = np.array([[0, 0, 0.2], [0, 0, 0.6], [0.2, 0.6, 0]])
    replicates = np.stack([raw + delta * (1 - np.eye(3)) for delta in (-0.1, 0.1)])
    three = Distances(raw, ("a", "b", "c"), np.array([30, 10, 5]), replicates=replicates)
    assert evidence(three, np.array([0, 0, 1])) == pytest.approx(
        normal((0.75 * 0.2 + 0.25 * 0.6) / 0.1, 4) / z(0.01 / 4)
    )


def test_a_split_is_one_of_the_cuts_of_the_groups_without_it() -> None:
    """Of [a, b], [c], [d] the weakest split is c | d: without it [a, b] or [c, d] could have been cut in 2 ways."""
    raw = np.full((4, 4), 0.9)
    raw[2, 3] = raw[3, 2] = 0.3
    np.fill_diagonal(raw, 0)
    replicates = np.stack([raw + delta * (1 - np.eye(4)) for delta in (-0.1, 0.1)])
    four = Distances(raw, tuple("abcd"), np.full(4, 10), replicates=replicates)
    assert evidence(four, np.array([0, 0, 1, 2])) == pytest.approx(normal(3.0, 9) / z(0.01 / 4))


def test_noise_is_not_split_and_a_real_gap_is() -> None:
    assert len(c_path(noisy(0.05, sd=0.1)).suggested.coalitions) == 1
    assert len(c_path(noisy(0.6, sd=0.05)).suggested.coalitions) == 2


def test_more_clients_need_more_evidence() -> None:
    values = [needed([count]) for count in range(1, 50)]
    assert values == sorted(values)
    assert needed([1, 1, 2, 10]) < needed([14]) < needed([1000]) < 40


@given(st.floats(0.1, 6), st.integers(3, 1000))
def test_few_samples_count_for_less(t: float, freedom: int) -> None:
    """Against the tail of Student's distribution, integrated."""
    steps = np.linspace(np.arctan(t / np.sqrt(freedom)), np.pi / 2, 20001)
    density = np.cos(steps) ** (freedom - 1)
    whole = np.cos(np.linspace(0, np.pi / 2, 20001)) ** (freedom - 1)
    tail = np.trapezoid(density, steps) / np.trapezoid(whole, dx=np.pi / 2 / 20000) / 2
    assert normal(t, freedom) == pytest.approx(z(tail), rel=0.02)
    assert normal(-t, freedom) == -normal(t, freedom)


def segment(low: float, high: float, evidence: float | None) -> Segment:
    return Segment(low, high, np.array([0, 1]), [["a"], ["b"]], 1.0, 1.0, True, np.sqrt(low * high), evidence)


@pytest.mark.parametrize(
    ("finer", "evident", "suggested"),
    [(4.0, 1.2, 0), (4.0, 0.9, 1), (4.0, None, 1), (1.9, 1.2, 1)],
    ids=["a third as wide, with evidence", "no evidence", "not known", "too narrow"],
)
def test_the_finer_of_two_steps_that_are_nearly_as_wide(finer: float, evident: float | None, suggested: int) -> None:
    """From 1 to `finer`, from there ten times as far: log 4 is more than a third of log 10, log 1.9 is not."""
    path = CPath((segment(1.0, finer, evident), segment(finer, 10 * finer, 5.0)), (0.5, 1000.0))
    assert path.suggested is path[suggested]


def test_evidence_survives_saving(tmp_path) -> None:
    path = c_path(noisy(0.6, sd=0.05))
    path.save(tmp_path / "path.json")
    assert [part.evidence for part in CPath.load(tmp_path / "path.json")] == [part.evidence for part in path]


def test_what_was_never_measured_needs_no_evidence() -> None:
    whole = noisy(0.6, sd=0.05)
    observed = np.ones((6, 6), dtype=bool)
    observed[0, 5] = observed[5, 0] = False
    raw = np.where(observed, whole.raw, np.nan)
    partly = Distances(raw, whole.names, whole.quantities, replicates=whole.replicates, observed=observed)
    assert evidence(partly, np.array([0, 0, 0, 1, 1, 1])) is None
    assert evidence(partly, np.array([0, 0, 0, 0, 0, 1])) is None
    thirds = np.array([0, 0, 1, 2, 3, 3])
    assert evidence(partly, thirds) == pytest.approx(evidence(whole, thirds))


def test_constraints_need_no_evidence_and_do_not_switch_it_off() -> None:
    """Six like clients: a cannot-link pair parts two of them, and noise must not part more."""
    like = noisy(0.0, sd=0.1)
    assert len(c_path(like, cannot_link=[("c0", "c5")]).suggested.coalitions) == 2
    assert len(c_path(like, max_size=3).suggested.coalitions) == 2
    path = c_path(noisy(0.6, sd=0.05), must_link=[("c0", "c1")])
    assert path.suggested.coalitions == [["c0", "c1", "c2"], ["c3", "c4", "c5"]]
