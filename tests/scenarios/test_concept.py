"""Concept shift: the permutation tables, counts, and the share of labels that two clients disagree on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fedcollab.errors import InputError
from fedcollab.scenarios import Images, make
from fedcollab.scenarios.concept import paper_permutations

Positions = Callable[[np.ndarray], np.ndarray]
Counts = Callable[..., list[int]]
Pool = Callable[[int, int], Images]


def test_permutation_tables_of_the_paper() -> None:
    identity, swapped, reverse, both = paper_permutations(20, 6).tolist()
    assert identity == list(range(20))
    assert swapped == [5, 4, 3, 2, 1, 0, *range(6, 20)]
    assert reverse == list(range(19, -1, -1))
    assert both == [14, 15, 16, 17, 18, 19, *range(13, -1, -1)]


def test_fourteen_of_twenty_labels_agree_between_neighbour_types() -> None:
    tables = paper_permutations(20, 6)
    agree = (tables[:, None] == tables[None]).sum(axis=2)
    assert agree.tolist() == [[20, 14, 0, 0], [14, 20, 0, 0], [0, 0, 20, 14], [0, 0, 14, 20]]


@pytest.mark.parametrize(("classes", "swapped"), [(10, 4), (20, 6), (7, 0), (5, 5), (4, 1)])
def test_every_table_is_a_permutation(classes: int, swapped: int) -> None:
    for table in paper_permutations(classes, swapped):
        assert sorted(table) == list(range(classes))


def test_paper_counts_fit_the_subset(numbered: Pool, positions: Positions, label_counts: Counts) -> None:
    """1,810 of each coarse label are used: 10 x (125 + 25) + 10 x (6 + 25)."""
    pool = numbered(20, 1810)
    made = make("concept-shift", dataset=pool, quantity=(2500, 2500, 120, 120), test=500)
    given = np.concatenate([positions(x) for client in made.clients for x in (client.x, client.x_test)])
    assert sorted(given) == list(range(20 * 1810))
    tables = paper_permutations(20, 6)
    for i, (client, kind) in enumerate(zip(made.clients, made.types, strict=True)):
        assert label_counts(client, 20) == [125 if i < 10 else 6] * 20
        assert (client.y == tables[kind][pool.labels[positions(client.x)]]).all()
        assert (client.y_test == tables[kind][pool.labels[positions(client.x_test)]]).all()
    assert made.truth is not None
    assert made.truth[0, [1, 5, 10, 15]] == pytest.approx([0, 0.3, 1, 1])
    with pytest.raises(InputError, match="the data set has 1809"):
        make("concept-shift", dataset=numbered(20, 1809), quantity=(2500, 2500, 120, 120), test=500)


@pytest.mark.dataset("fashion-mnist")
def test_fashion_mnist_pixels(label_counts: Counts) -> None:
    made = make("concept-shift", dataset="fashion-mnist")
    assert [client.quantity for client in made.clients] == [2100] * 10 + [120] * 10
    assert label_counts(made.clients[0]) == [210] * 10
    assert label_counts(made.clients[19]) == [12] * 10
    assert made.truth is not None
    assert made.truth[0, [1, 5, 10]] == pytest.approx([0, 0.4, 1])
    assert made.settings["model"] == "mlp"


@pytest.mark.dataset("cifar-100")
def test_cifar_100_as_in_the_paper() -> None:
    made = make("concept-shift", dataset="cifar-100")
    assert made.clients[0].x.shape == (2500, 3, 32, 32)
    assert made.clients[19].quantity == 120
    assert made.settings["C"] == 8
    assert made.settings["discriminator_lr"] == 0.05
    assert made.settings["classes"] == 20


def test_own_permutations(numbered: Pool) -> None:
    made = make(
        "concept-shift", dataset=numbered(3, 50), permutations=[[0, 1, 2], [1, 2, 0]], clients=2, quantity=9, test=3
    )
    assert made.truth is not None
    assert made.truth[0, 1] == 1


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"swapped": 4}, r"`swapped` \(=4\) must be a whole number of at least 0 and of at most 3"),
        ({"permutations": [[0, 1, 1]]}, r"`permutations` has the row \[0, 1, 1\]; expected each of 0 to 2 once"),
        ({"permutations": [[0, 1, 2]], "swapped": 2}, "must not be given together"),
        ({"permutations": [[0, "a", 2]]}, r"`permutations` has the row \[0, 'a', 2\]"),
        ({"permutations": [[0, 1], [0]]}, r"`permutations` has the row \[0, 1\]"),
        ({"permutations": 3}, r"`permutations` \(=3\) must be a list of rows"),
        ({"permutations": []}, r"`permutations` \(=\[\]\) must be a list of rows"),
    ],
)
def test_bad_options_are_named(numbered: Pool, options: dict[str, object], line: str) -> None:
    with pytest.raises(InputError, match=line):
        make("concept-shift", dataset=numbered(3, 50), quantity=6, test=3, **options)  # type: ignore[arg-type]
