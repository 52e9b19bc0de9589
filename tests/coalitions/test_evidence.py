"""A split that noise explains is not suggested."""

from __future__ import annotations

import numpy as np
import pytest

from fedcollab.coalitions import CPath, c_path
from fedcollab.coalitions.evidence import evidence, needed
from fedcollab.distances import Distances


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
    assert evidence(two, np.array([0, 1])) == pytest.approx(3.0)
    assert evidence(two, np.array([0, 0])) is None
    assert evidence(raw, np.array([0, 1])) is None


def test_means_are_weighted_by_quantity() -> None:
    raw = np.array([[0, 0, 0.2], [0, 0, 0.6], [0.2, 0.6, 0]])
    replicates = np.stack([raw + delta * (1 - np.eye(3)) for delta in (-0.1, 0.1)])
    three = Distances(raw, ("a", "b", "c"), np.array([30, 10, 5]), replicates=replicates)
    assert evidence(three, np.array([0, 0, 1])) == pytest.approx((0.75 * 0.2 + 0.25 * 0.6) / 0.1)


def test_noise_is_not_split_and_a_real_gap_is() -> None:
    assert len(c_path(noisy(0.05, sd=0.1)).suggested.coalitions) == 1
    assert len(c_path(noisy(0.6, sd=0.05)).suggested.coalitions) == 2


def test_more_clients_need_more_evidence() -> None:
    values = [needed(count) for count in range(1, 50)]
    assert values[0] == 0
    assert values == sorted(values)


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
    assert np.isfinite(evidence(partly, np.array([0, 0, 0, 1, 1, 1])))
