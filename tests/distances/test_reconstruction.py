"""Attacks on our own messages (benchmarks/reconstruction.py) succeed where they should; the floor keeps them off."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from fedcollab import seeds
from fedcollab.data import ClientData
from fedcollab.distances import estimate_distances
from fedcollab.distances.sampling.uncertainty import summary
from fedcollab.errors import InputError
from fedcollab.federation import federate
from fedcollab.wire import Vectorised


@pytest.fixture(scope="module")
def attacks() -> ModuleType:
    folder = str(Path(__file__).resolve().parents[2] / "benchmarks")
    sys.path.insert(0, folder)
    try:
        return import_module("reconstruction")
    finally:
        sys.path.remove(folder)


def made(name: str, count: int) -> ClientData:
    rng = np.random.default_rng([count, *name.encode()])
    x, y = rng.normal(size=(count, 30)), np.arange(count) % 2
    return ClientData(name, x, y, x[:2], y[:2])


def test_cross_gives_the_samples_of_a_client_of_14_away(attacks: ModuleType) -> None:
    clients = [made("a", 14), made("b", 14)]
    heard = attacks.listen(clients, "a", method="cross", rounds=1, replicates=0, label_counts="drawn")
    np.testing.assert_allclose(attacks.from_cross(heard, "a", 14), np.asarray(clients[0].x), atol=1e-3)


def test_an_update_of_one_sample_is_that_sample(attacks: ModuleType) -> None:
    clients = [made("a", 4), made("b", 4)]
    heard = attacks.listen(clients, "a", method="published", train=1, rounds=1)
    found = attacks.from_published(heard, 30, 2)
    closest = min(np.abs(found[:, None] - np.asarray(clients[0].x)).max(axis=2).ravel())
    assert closest < 1e-2


def test_moments_of_one_sample_are_that_sample_and_pooled_ones_are_not(attacks: ModuleType) -> None:
    clients = [made("a", 60), made("b", 60)]
    y = np.array([2] + [0, 1] * 29 + [0])  # one sample of a label
    clients = [ClientData(c.name, c.x, y, c.x_test, [2, 0]) for c in clients]
    rare = np.asarray(clients[0].x)[:1]
    best = []
    for least in (1, 10):
        heard = attacks.listen(clients, "a", method="few-round", min_samples=least, replicates=0)
        best.append(attacks.score(attacks.from_few_round(heard), rare, np.zeros_like(rare)))
    assert best[0] > 0.9
    assert best[1] < 0.75


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            {"method": "cross"},
            r"client `a` would send updates of 5 folds of 14 samples: sums over 2 .*`min_samples` \(=5",
        ),
        ({"method": "hypothesis"}, "client `a` would send updates of 5 folds of 14 samples"),
        ({"method": "published", "train": 4}, "client `a` would send updates from batches of 4 samples"),
        ({"method": "few-round"}, "client `a` would send moments of 5 folds of 14 samples"),
    ],
)
@pytest.mark.parametrize("runtime", ["vectorised", "wire"])
def test_every_method_refuses_below_the_floor(options: dict[str, object], line: str, runtime: str) -> None:
    with pytest.raises(InputError, match=line):
        estimate_distances([made("a", 14), made("b", 60)], runtime=runtime, min_samples=5, **options)  # type: ignore[arg-type]


def test_the_floor_is_the_silos_own_whatever_the_server_asks() -> None:
    from fedcollab.wire.limits import Limits

    federation = federate([made("a", 14), made("b", 60)])
    assert isinstance(federation.runtime, Vectorised)
    federation.runtime.silos["a"].limits = Limits()
    for method in ("cross", "published", "few-round"):
        with pytest.raises(InputError, match=r"client `a` .*`min_samples` \(=10\)"):
            estimate_distances(federation, method=method, min_samples=1)


def test_training_sizes_never_differ_by_less_than_the_floor() -> None:
    """Partners of 50, 52 and 54 samples would train the largest client on 40, 41 and 43: differences of 1 and 2."""
    federation = federate([made("a", 100), made("b", 50), made("c", 52), made("d", 54)])
    assert isinstance(federation.runtime, Vectorised)
    estimate_distances(federation, min_samples=10, rounds=2, replicates=0)
    from fedcollab.wire.limits import Limits

    federation.runtime.silos["a"].limits = Limits()
    with pytest.raises(InputError, match="from 40 and from 41 samples"):
        estimate_distances(federation, min_samples=1, rounds=2, replicates=0)


def test_prototypes_leave_out_labels_below_the_floor() -> None:
    clients = [made("a", 14), made("b", 60)]
    assert estimate_distances(clients, method="prototype", min_samples=8, scale="none").raw[0, 1] == 0


def test_replicates_cannot_be_repeated_by_the_server() -> None:
    """Weights drawn from seed and name alone would give away every single hit: R equations, n unknowns."""
    federation = federate([made("a", 14), made("b", 14)])
    assert isinstance(federation.runtime, Vectorised)
    hits = np.random.default_rng(0).integers(0, 2, (1, 1, 14)).astype(float)
    found = summary(hits, np.ones(1), 50, 0, federation.runtime.silos["a"], hits)["replicates"][0, 0]
    again = summary(hits, np.ones(1), 50, 0, federation.runtime.silos["a"], hits)["replicates"][0, 0]
    np.testing.assert_array_equal(found, again)
    guessed = seeds.generator(0, "replicates", "a").exponential(size=(50, 14))
    guessed /= guessed.sum(axis=1, keepdims=True)
    solved = np.linalg.lstsq(guessed, found, rcond=None)[0]
    assert np.abs(solved - hits[0, 0]).max() > 0.5
