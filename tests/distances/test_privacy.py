"""Noise at the client, epsilon in the result: sensitivities hold, the accountant's figures stand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcollab.data import ClientData
from fedcollab.distances import Distances, estimate_distances, estimate_newcomer
from fedcollab.distances import privacy as privately
from fedcollab.distances.complete import complete
from fedcollab.distances.methods.few_round_client import fold_moments, hits, triangle_side
from fedcollab.distances.rows import measure, renewed
from fedcollab.errors import InputError
from fedcollab.federation.prepare import federate
from fedcollab.wire import Vectorised

pytest.importorskip("opacus", reason="opacus is not installed: pip install 'fedcollab[privacy]'")


def test_one_release_is_the_gaussian_mechanism() -> None:
    """Renyi accounting is never below the exact epsilon (Balle and Wang, 2018), and not far above."""
    from math import erf, exp, sqrt

    def delta(epsilon: float, noise: float) -> float:
        normal = lambda x: 0.5 * (1 + erf(x / sqrt(2)))  # noqa: E731
        return normal(0.5 / noise - epsilon * noise) - exp(epsilon) * normal(-0.5 / noise - epsilon * noise)

    for noise in (0.7, 2.0, 10.0):
        epsilon = privately.spent(noise, 1e-5, releases=1)
        assert delta(epsilon, noise) <= 1e-5
        assert delta(0.8 * epsilon, noise) > 1e-5


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0, 50.0])
def test_the_noise_spends_what_was_asked(epsilon: float) -> None:
    noise = privately.noise_for(epsilon, 1e-5)
    assert 0.99 * epsilon < privately.spent(noise, 1e-5) <= epsilon


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.1, 100), st.integers(2, 6))
def test_one_sample_moves_the_releases_by_no_more_than_their_sensitivity(seed: int, size: float, classes: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = size * rng.normal(size=(12, 3)), rng.integers(0, classes, 12)
    x[0, 0], y[:2] = 1e3, (0, 1)
    other, label = x.copy(), y.copy()
    place = rng.integers(2, 12)
    other[place], label[place] = -50 * size * rng.normal(size=3), rng.integers(0, classes)
    plan = {"seed": 0, "width": 3, "folds": 2, "classes": classes, "min_samples": 1, "label_counts": "set"}
    plan["privacy"] = {"noise": 1.0, "clip": 1.7}
    found, right = [], []
    w = rng.normal(size=(7, 2, classes, 4))
    for data in ((x, y), (other, label)):
        everything = list(range(classes))
        tests = (np.zeros((classes, 3)), everything)
        federation = federate([ClientData(n, *data, *tests) for n in "ab"], scale="none")
        assert isinstance(federation, Vectorised)
        found.append(fold_moments(plan, federation.silos["a"]))
        right.append(hits(plan, w, [1, 0, 1, 0, 1, 0, 1], federation.silos["a"]).mean(axis=1))
    upper = np.triu_indices(triangle_side(found[0].shape[2]))
    weight = np.where(upper[0] == upper[1], 1.0, np.sqrt(2.0))
    assert np.linalg.norm((found[0] - found[1]) * weight) <= privately.SENSITIVITY + 1e-5
    assert np.linalg.norm(right[0] - right[1]) <= privately.accuracy_sensitivity(7, 12) + 1e-9


@pytest.fixture(scope="module")
def large() -> list[ClientData]:
    rng = np.random.default_rng(0)
    clients = []
    for name, labels in (("a", (0, 1)), ("b", (0, 1)), ("c", (2, 3))):
        y = rng.choice(labels, 3000)
        clients.append(ClientData(name, rng.normal(size=(3000, 40)) + np.eye(40)[y], y))
    return clients


def test_large_clients_are_told_apart_and_the_result_says_what_was_spent(
    large: list[ClientData], tmp_path: Path
) -> None:
    found = estimate_distances(large, method="few-round", privacy=2.0)
    assert abs(found.raw[0, 1]) < 0.15
    assert found.raw[0, 2] > 0.9
    assert set(found.privacy) == {"a", "b", "c"}
    assert 1.98 < found.privacy["a"]["epsilon"] <= 2.0
    assert found.privacy["a"]["delta"] == 1e-5
    found.save(tmp_path / "d.json")
    assert Distances.load(tmp_path / "d.json").privacy == found.privacy


def test_the_noise_differs_from_run_to_run_and_has_the_scale_it_should(large: list[ClientData]) -> None:
    federation = federate(large)
    one, two = (estimate_distances(federation, method="few-round", privacy=1.0) for _ in range(2))
    assert not np.array_equal(one.raw, two.raw)
    drawn = privately.noise(3.0, (20_000,))
    assert 2.9 < drawn.std() < 3.1
    assert abs(drawn.mean()) < 0.15


def test_a_newcomer_adds_to_what_was_spent(large: list[ClientData]) -> None:
    federation = federate(large[:2])
    known = estimate_distances(federation, method="few-round", privacy={"noise": 3.0})
    grown = estimate_newcomer(known, large, "c", schema=None)
    assert grown.privacy["a"]["epsilon"] == pytest.approx(2 * known.privacy["a"]["epsilon"])
    assert grown.privacy["c"]["epsilon"] == pytest.approx(known.privacy["a"]["epsilon"])


def test_every_later_estimate_is_spent_too(large: list[ClientData]) -> None:
    """Pairs that were missing, a client that is measured again, and one whose new distances were not taken."""
    federation = federate(large, scale="none")
    options = {"method": "few-round", "privacy": {"noise": 3.0}}
    part = estimate_distances(federation, pairs=[("a", "b")], **options)
    once = part.privacy["a"]["epsilon"]
    whole = complete(part, federation)
    row = measure(whole, federation, "c")
    taken, left = renewed(whole, row, "c"), renewed(whole, row, "c", quantity_only=True)
    for found, times in ((part, (1, 1, 0)), (whole, (2, 2, 1)), (taken, (3, 3, 2)), (left, (3, 3, 2))):
        spent = [found.privacy.get(name, {}).get("epsilon", 0.0) for name in "abc"]
        assert spent == pytest.approx([once * count for count in times])


@pytest.mark.parametrize(
    ("privacy", "line"),
    [
        (0, r"`privacy epsilon` \(=0\) must be a finite number above 0"),
        ({"epsilom": 1}, "`privacy` .*did you mean 'epsilon'"),
        ({"delta": 1e-5}, "must give `epsilon` or `noise`"),
        ({"epsilon": 1, "delta": 2}, "`privacy delta`"),
    ],
)
def test_bad_privacy(large: list[ClientData], privacy: object, line: str) -> None:
    with pytest.raises(InputError, match=line):
        estimate_distances(large, method="few-round", privacy=privacy)
