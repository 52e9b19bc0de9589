"""Label counts that were drawn and label counts that were set: told apart, and each judged without bias."""

from __future__ import annotations

import math
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcollab.data import ClientData
from fedcollab.distances import complete, estimate_distances
from fedcollab.distances.sampling import folds
from fedcollab.distances.sampling.resample import _log_bound, log_chance, resolve
from fedcollab.errors import InputError
from fedcollab.federation import federate

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
try:
    made = import_module("distances_sampling").clients
finally:
    sys.path.pop(0)


def clients(kind: str, count: int, each: int, seed: int = 0) -> list[ClientData]:
    """The benchmark's: alike, label counts drawn or set."""
    alike: list[ClientData] = made(kind, seed, count, each)
    return alike


def counts(members: list[ClientData]) -> list[dict[str, int]]:
    return [{str(label): int(n) for label, n in Counter(client.y.tolist()).items()} for client in members]


@given(st.lists(st.integers(1, 6), min_size=2, max_size=3), st.lists(st.floats(0.05, 1), min_size=3, max_size=3))
def test_no_distribution_gives_counts_more_often_than_the_bound(found: list[int], weights: list[float]) -> None:
    p = np.array(weights[: len(found)]) / sum(weights[: len(found)])
    chance = math.factorial(sum(found)) * math.prod(q**c / math.factorial(c) for q, c in zip(p, found, strict=True))
    assert math.log(chance) <= _log_bound(tuple((str(k), c) for k, c in enumerate(found))) + 1e-12


def test_counts_that_were_drawn_are_hardly_ever_taken_for_set() -> None:
    taken = sum(
        resolve("auto", counts(clients("drawn", 6, each, seed))) == "set" for seed in range(100) for each in (1, 5)
    )
    assert taken == 0
    rng = np.random.default_rng(0)  # two labels: chance makes many clients' counts equal
    halves = [[{"a": int(a), "b": 20 - int(a)} for a in rng.binomial(20, 0.5, 50)] for _ in range(100)]
    assert sum(resolve("auto", each) == "set" for each in halves) == 0


def test_counts_that_were_set_are_seen_where_there_is_proof() -> None:
    assert resolve("auto", counts(clients("set", 2, 3))) == "set"
    assert resolve("auto", [*counts(clients("set", 9, 3)), {"0": 24}]) == "drawn"  # one has counts of its own
    assert resolve("auto", [{"a": 5, "b": 5}] * 2) == "drawn"  # no proof: one time in four, that is chance
    assert resolve("auto", [{"a": 5, "b": 5}] * 9) == "set"
    assert log_chance([]) == 0
    assert log_chance([{str(label): 50 for label in range(1000)}] * 2) < -2000  # its exponential is 0
    with pytest.raises(InputError, match=r"`label_counts` \(='random'\) must be 'auto', 'drawn' or 'set'"):
        resolve("random", [])


@given(st.integers(2, 6), st.lists(st.integers(0, 7), min_size=2, max_size=40), st.integers(0, 99))
def test_folds_of_clients_with_the_same_counts_have_the_same(parts: int, labels: list[int], seed: int) -> None:
    y = np.array(labels)
    mixed = np.random.default_rng(seed).permutation(y)
    tables = []
    for name, own in (("a", y), ("b", mixed)):
        cut = folds.cut(seed, name, 0, own, parts, "set")
        assert sorted(np.concatenate(cut)) == list(range(len(y)))
        held = [folds.split(cut, fold, len(y))[1] for fold in range(parts)]
        tables.append([np.bincount(own[part], minlength=8).tolist() for part in held])
    assert tables[0] == tables[1]


@pytest.mark.parametrize(("method", "options"), [("cross", {"rounds": 20}), ("few-round", {})])
def test_like_clients_are_at_0_either_way(method: str, options: dict[str, int]) -> None:
    """45 pairs of small clients, four times: the standard error is .02. Folds of the wrong kind are far off."""

    def mean(kind: str, told: str) -> float:
        federations = [clients(kind, 10, 5, seed) for seed in range(4)]
        found = [
            estimate_distances(each, method=method, label_counts=told, replicates=0, **options).raw  # type: ignore[arg-type]
            for each in federations
        ]
        return float(np.mean(found, axis=0)[np.triu_indices(10, 1)].mean())

    for kind in ("drawn", "set"):
        assert abs(mean(kind, "auto")) < 0.06
    assert mean("set", "drawn") < -0.1
    assert mean("drawn", "set") > 0.06


def test_vectorised_equals_wire_and_a_newcomer_is_measured_alike() -> None:
    members = clients("set", 4, 3)
    options = {"rounds": 5, "repeats": 2, "replicates": 3}
    found = {kind: estimate_distances(members, runtime=kind, **options) for kind in ("vectorised", "wire")}  # type: ignore[arg-type]
    np.testing.assert_allclose(found["vectorised"].raw, found["wire"].raw, atol=1e-9)
    assert found["wire"].settings["label_counts"] == "set"
    known = estimate_distances(members[:3], scale="none", **options)  # type: ignore[arg-type]
    larger = complete(known, federate(members, scale="none"))
    whole = estimate_distances(members, scale="none", **options)  # type: ignore[arg-type]
    np.testing.assert_allclose(larger.raw, whole.raw, atol=1e-9)


def test_privacy_takes_random_folds() -> None:
    pytest.importorskip("opacus")
    members = clients("set", 3, 4)
    assert estimate_distances(members, method="few-round", privacy=8.0).settings["label_counts"] == "drawn"
    with pytest.raises(InputError, match=r"`label_counts` \(='set'\) does not go with privacy"):
        estimate_distances(members, method="few-round", privacy=8.0, label_counts="set")
