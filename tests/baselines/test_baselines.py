"""Clustered baselines: each recovers planted clusters on an easy problem, and never loses a client."""

from __future__ import annotations

import numpy as np
import pytest

from fedcollab import baselines
from fedcollab.baselines.fedcluster import bipartition
from fedcollab.data import ClientData
from fedcollab.errors import InputError

PLANTED = [{"a0", "a1", "a2"}, {"b0", "b1", "b2"}]
EASY = {"rounds": 15, "lr": 0.1, "model": "logistic"}


@pytest.fixture(scope="module")
def planted() -> list[ClientData]:
    """Two types whose labels are opposite functions of the same feature."""
    made = []
    for index, name in enumerate(["a0", "b0", "a1", "b1", "a2", "b2"]):
        rng = np.random.default_rng(index)
        y = np.arange(160) % 2
        x = rng.normal(0, 1, (160, 3)) + np.outer(2 * y - 1, [3.0, 0, 0])
        y = 1 - y if name.startswith("b") else y
        made.append(ClientData(name, x[:100], y[:100], x[100:], y[100:]))
    return made


@pytest.mark.parametrize("name", ["ifca", "fedcluster", "fesem", "kmeans"])
def test_recovers_planted_clusters(planted: list[ClientData], name: str) -> None:
    result = baselines.run(name, planted, k=2, **EASY)
    assert sorted(map(set, result.coalitions), key=min) == PLANTED
    assert result.accuracy.min() > 0.95
    assert result.method == name
    assert result.assignment.tolist() == [0, 1, 0, 1, 0, 1]
    if name == "ifca":
        assert result.distances is None
    else:
        assert result.distances.shape == (6, 6)
        same = result.assignment[:, None] == result.assignment
        off = ~np.eye(6, dtype=bool)
        assert result.distances[same & off].max() < result.distances[~same].min()


@pytest.mark.parametrize("name", ["ifca", "fedcluster", "fesem", "kmeans"])
def test_order_of_clients_does_not_matter_and_wire_agrees(planted: list[ClientData], name: str) -> None:
    first = baselines.run(name, planted, k=2, **EASY)
    again = baselines.run(name, planted[::-1], k=2, runtime="wire", **EASY)
    assert sorted(map(sorted, first.coalitions)) == sorted(map(sorted, again.coalitions))
    np.testing.assert_allclose(first.loss, again.loss[::-1], atol=1e-5)
    if first.distances is not None:
        np.testing.assert_allclose(first.distances, again.distances[::-1, ::-1], atol=1e-5)


def test_second_split_of_fedcluster_keeps_every_client() -> None:
    """Three types: two splits are needed, and positions inside a cluster are not positions among all clients."""
    made = []
    turn = {"a": [3.0, 0, 0], "b": [-3.0, 0, 0], "c": [0, 3.0, 0]}
    for index, name in enumerate(["a0", "b0", "c0", "a1", "b1", "c1", "a2", "b2", "c2"]):
        rng = np.random.default_rng(index)
        y = np.arange(160) % 2
        x = rng.normal(0, 1, (160, 3)) + np.outer(2 * y - 1, turn[name[0]])
        made.append(ClientData(name, x[:100], y[:100], x[100:], y[100:]))
    result = baselines.run("fedcluster", made, k=3, **EASY | {"rounds": 30}, baseline_options={"eps1": 0.9})
    assert sorted(name for members in result.coalitions for name in members) == sorted(c.name for c in made)
    assert sorted(map(sorted, result.coalitions)) == [["a0", "a1", "a2"], ["b0", "b1", "b2"], ["c0", "c1", "c2"]]


def test_bipartition_minimises_the_largest_similarity_across() -> None:
    similarity = np.array([[1, 0.9, -0.5, -0.4], [0.9, 1, -0.3, -0.2], [-0.5, -0.3, 1, 0.7], [-0.4, -0.2, 0.7, 1]])
    assert bipartition(1 - similarity).tolist() == [False, False, True, True]


def test_random_centres_of_fesem_keep_whom_they_were_dealt(planted: list[ClientData]) -> None:
    """Far from each other, they never meet: clients of both types stay together, whom centres of clients tell apart."""
    options = {"centres": "random"}
    runs = [baselines.run("fesem", planted, k=2, **EASY | {"rounds": n}, baseline_options=options) for n in (1, 15)]
    assert runs[0].coalitions == runs[1].coalitions
    assert sorted(map(set, runs[1].coalitions), key=min) != PLANTED
    assert runs[1].settings["grouping"] == {"k": 2, "centres": "random"}
    with pytest.raises(InputError, match=r"`centres` \(='far'\) must be one of: clients, random"):
        baselines.run("fesem", planted, k=2, **EASY, baseline_options={"centres": "far"})


def test_bad_input(planted: list[ClientData]) -> None:
    with pytest.raises(InputError, match=r"`name` \(='ifc'\) must be one of: fedcluster, fesem, ifca, kmeans; did you"):
        baselines.run("ifc", planted, **EASY)
    with pytest.raises(InputError, match=r"`k` \(=7\) must be a whole number of at least 1 and of at most 6"):
        baselines.run("ifca", planted, k=7, **EASY)
    with pytest.raises(InputError, match=r"baseline 'fedcluster': `option` \(='eps'\) must be one of: eps1, eps2"):
        baselines.run("fedcluster", planted, baseline_options={"eps": 1}, **EASY)
