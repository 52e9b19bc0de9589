"""Dirichlet skew, two clients, and the digits demo."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fedcollab.errors import InputError
from fedcollab.scenarios import Images, make
from fedcollab.scenarios.deal import label_distances

Counts = Callable[..., list[int]]
Pool = Callable[[int, int], Images]


def test_dirichlet_is_skewed_by_alpha(numbered: Pool) -> None:
    pool = numbered(10, 3000)
    means = []
    for alpha in (0.1, 1.0, 100.0):
        truth = make("dirichlet", dataset=pool, alpha=alpha, quantity=100, test=20).truth
        assert truth is not None
        means.append(truth[np.triu_indices(20, 1)].mean())
    assert means[0] > 0.7 > means[1] > 0.2 > means[2]


def test_dirichlet_clients_have_their_own_mix(numbered: Pool, label_counts: Counts) -> None:
    made = make("dirichlet", dataset=numbered(5, 5000), alpha=0.5, clients=6, quantity=1000, test=50)
    counts = np.array([label_counts(client, 5) for client in made.clients])
    assert np.allclose(label_distances(counts.astype(float)), made.truth, atol=0.005)
    assert made.types == tuple(range(6))
    more = make("dirichlet", dataset=numbered(5, 5000), alpha=0.5, clients=9, quantity=1000, test=50)
    assert np.allclose(more.truth[:6, :6], made.truth)  # type: ignore[index]


def test_dirichlet_quantity_skew(numbered: Pool) -> None:
    options = {"dataset": numbered(2, 40_000), "clients": 100, "alpha": 5.0, "quantity": 200, "test": 10}
    sizes = np.array([client.quantity for client in make("dirichlet", quantity_skew=0.8, **options).clients])
    assert np.log(sizes).std() == pytest.approx(0.8, rel=0.2)
    assert sizes.mean() == pytest.approx(200, rel=0.25)
    even = make("dirichlet", quantity_skew=0.0, **options)
    assert {client.quantity for client in even.clients} == {200}
    assert even.clients[7].name == "client-07"


@pytest.mark.parametrize("option", ["alpha", "quantity_skew", "clients"])
def test_dirichlet_refuses_what_is_not_a_positive_number(option: str) -> None:
    with pytest.raises(InputError, match=rf"`{option}` \(=-1\) must be a"):
        make("dirichlet", dataset="digits", **{option: -1})


@pytest.mark.parametrize("distance", [0.0, 0.35, 0.8, 1.0])
def test_two_clients_are_as_far_apart_as_asked(distance: float, label_counts: Counts) -> None:
    made = make("two-client", dataset="digits", distance=distance, quantity=200, test=60)
    assert made.truth is not None
    assert made.truth[0, 1] == pytest.approx(distance)
    a, b = (label_counts(client) for client in made.clients)
    assert sum(abs(i - j) for i, j in zip(a, b, strict=True)) / 400 == pytest.approx(distance, abs=0.02)


@pytest.mark.parametrize("distance", [0.0, 0.1, 1.0])
def test_two_clients_that_disagree_on_a_share_of_their_samples(distance: float, label_counts: Counts) -> None:
    made = make("two-client", dataset="digits", shift="concept", distance=distance, quantity=80, test=20)
    assert made.truth is not None
    assert made.truth[0, 1] == distance
    a, b = (label_counts(client) for client in made.clients)
    assert a[2:] == b[2:]
    assert a[:2] == b[1::-1]
    assert sum(a[:2]) == round(80 * distance)
    if distance == 1.0:  # what one calls 0 the other calls 1
        pixels = [client.x[client.y == label].mean(axis=0) for client, label in zip(made.clients, (0, 1), strict=True)]
        assert np.corrcoef(pixels[0].ravel(), pixels[1].ravel())[0, 1] > 0.95


def test_two_clients_with_other_quantities() -> None:
    made = make("two-client", dataset="digits", quantity=[300, 30], test=50)
    assert [client.quantity for client in made.clients] == [300, 30]
    with pytest.raises(InputError, match=r"`distance` \(=1.5\) must be a finite number of at least 0 and of at most 1"):
        make("two-client", dataset="digits", distance=1.5)
    with pytest.raises(InputError, match="`shift`"):
        make("two-client", dataset="digits", shift="feature")


@pytest.mark.parametrize("iid", [False, True])
def test_digits_tell_the_story_of_the_paper(iid: bool, label_counts: Counts) -> None:
    made = make("digits", iid=iid)
    assert [client.quantity for client in made.clients] == [42] * 10 + [14] * 10
    assert [len(client.y_test) for client in made.clients] == [17] * 10 + [45] * 10
    assert made.clients[0].x.shape == (42, 1, 8, 8)
    assert made.clients[0].x.dtype == np.float32
    assert made.truth is not None
    assert made.truth[0, [1, 5, 10]] == pytest.approx([0, 1 / 7, 1])
    if not iid:
        assert label_counts(made.clients[0]) == [6, 12, 12, 12, 0, 0, 0, 0, 0, 0]
        assert label_counts(made.clients[19]) == [0, 0, 0, 0, 0, 0, 4, 4, 4, 2]


def test_digits_have_the_right_coalitions_in_the_bound() -> None:
    """Eq. (collab_obj), its first line, at the scenario's C: 0-4, 5-9, 10-19 beats coarser and finer partitions."""
    made = make("digits")
    quantity = np.array([client.quantity for client in made.clients])
    truth = made.truth

    def cost(*coalitions: range) -> float:
        total = 0.0
        for coalition in coalitions:
            own = quantity[coalition]
            shift = (truth[np.ix_(coalition, coalition)] @ own).sum() / own.sum()  # type: ignore[index]
            total += len(coalition) * made.settings["C"] / np.sqrt(own.sum()) + shift
        return total

    best = cost(range(5), range(5, 10), range(10, 20))
    assert best < cost(range(10), range(10, 20))
    assert best < cost(range(5), range(5, 10), range(10, 15), range(15, 20))
    assert best < cost(range(20))
    assert best < cost(*(range(i, i + 1) for i in range(20)))
