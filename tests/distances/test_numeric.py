"""Distances of clients with a numeric target: the same in every runtime, and right where the answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from fedcollab.data import ClientData
from fedcollab.distances import estimate_distances
from fedcollab.errors import InputError

#: settings that make every method quick
QUICK = {
    "cross": {"rounds": 10, "repeats": 2, "replicates": 4},
    "few-round": {"replicates": 4},
    "hypothesis": {"rounds": 10, "repeats": 2, "replicates": 4},
    "published": {"rounds": 20},
}


def linear(name: str, count: int, slope: float, *, offset: float = 0.0, noise: float = 0.5) -> ClientData:
    """Return a client whose target is `slope` times the first of four features, plus `offset` and noise."""
    rng = np.random.default_rng(list(name.encode()))
    x = rng.normal(size=(count, 4))
    return ClientData(name, x, slope * x[:, 0] + offset + noise * rng.normal(size=count))


@pytest.fixture
def rising() -> list[ClientData]:
    """Three clients: the target rises with the first feature at two of them, and falls at the third."""
    return [linear("a", 60, 1.0), linear("b", 31, 1.0), linear("c", 45, -1.0)]


@pytest.mark.parametrize("method", list(QUICK))
def test_runtimes_agree(rising: list[ClientData], method: str) -> None:
    vectorised, wired = (
        estimate_distances(rising, method=method, runtime=kind, **QUICK[method]) for kind in ("vectorised", "wire")
    )
    # counts of samples are equal; bounded losses are sums of numbers of single precision, in another order
    np.testing.assert_allclose(vectorised.raw, wired.raw, atol=1e-6 if method == "hypothesis" else 1e-9)
    assert vectorised.cost == wired.cost


@pytest.mark.parametrize("method", list(QUICK))
def test_who_has_another_slope_is_far(method: str) -> None:
    clients = [linear("a", 200, 1.0), linear("b", 200, 1.0), linear("c", 200, -1.0)]
    options = {"rounds": 300} if method == "published" else {}
    found = estimate_distances(clients, method=method, **options)
    assert found.raw[0, 1] < 0.15
    assert min(found.raw[0, 2], found.raw[1, 2]) > 0.3


@pytest.mark.parametrize("method", list(QUICK))
def test_who_has_another_level_is_far(method: str) -> None:
    clients = [linear("a", 200, 1.0), linear("b", 200, 1.0), linear("c", 200, 1.0, offset=3.0)]
    found = estimate_distances(clients, method=method)
    assert found.raw[0, 1] < 0.15
    assert min(found.raw[0, 2], found.raw[1, 2]) > 0.4


@pytest.mark.parametrize(("method", "option"), [("cross", {"head": "features"}), ("few-round", {"labels": False})])
def test_without_the_target_slopes_do_not_show(method: str, option: dict[str, object]) -> None:
    clients = [linear(f"{place}", 200, 1.0 - 2 * (place % 2)) for place in range(8)]
    found = estimate_distances(clients, method=method, **option)
    assert abs(found.raw[np.triu_indices(8, 1)].mean()) < 0.05


def test_hypothesis_by_hand() -> None:
    """Two clients of one feature that is 0, targets +a and -a, which scaling makes +1 and -1.

    A regression is a constant c there: the distance is the largest l(c + 1) - l(c - 1).
    """
    names = ("up", "down")
    clients = [
        ClientData(name, np.zeros((50, 1)), np.full(50, s * 7.5)) for name, s in zip(names, (1, -1), strict=True)
    ]
    at = np.linspace(0, 3, 3001)
    exact = (np.exp(-((at - 1) ** 2) / 2) - np.exp(-((at + 1) ** 2) / 2)).max()
    found = estimate_distances(clients, method="hypothesis", rounds=200)
    assert found.raw[0, 1] == pytest.approx(exact, abs=1e-3)


def test_units_do_not_matter(rising: list[ClientData]) -> None:
    """Dollars or cents, degrees Celsius or Fahrenheit: the same distances."""
    other = [ClientData(each.name, each.x, 1000 * np.asarray(each.y) + 32) for each in rising]
    for method, options in QUICK.items():
        first, second = (estimate_distances(c, method=method, **options) for c in (rising, other))
        np.testing.assert_allclose(first.raw, second.raw, atol=0.02)


def test_far_values_do_not_drown_the_rest() -> None:
    """One sample that is a million times the others: still near who is alike."""
    clients = [linear("a", 200, 1.0), linear("b", 200, 1.0), linear("c", 200, 1.0)]
    y = np.array(clients[2].y)
    y[0] = 30.0
    clients[2] = ClientData("c", clients[2].x, y)
    assert estimate_distances(clients).raw.max() < 0.2


@pytest.mark.parametrize("method", ["label", "prototype"])
def test_methods_for_classes_say_so(rising: list[ClientData], method: str) -> None:
    with pytest.raises(InputError, match=f"`method` \\(='{method}'\\).*the target is numeric"):
        estimate_distances(rising, method=method)


def test_heads_say_what_they_are_for(rising: list[ClientData]) -> None:
    with pytest.raises(InputError, match="`head` \\(='hypothesis'\\) is not for a regression"):
        estimate_distances(rising, method="cross", head="hypothesis")
    classes = [ClientData(each.name, each.x, np.asarray(each.y) > 0) for each in rising]
    with pytest.raises(InputError, match="`head` \\(='bounded'\\) is not for a classification"):
        estimate_distances(classes, method="cross", head="bounded")
