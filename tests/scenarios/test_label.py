"""Label shift: the paper's counts to the sample, no overlap, and the closed-form distances."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import chisquare

from fedcollab.errors import InputError
from fedcollab.scenarios import Images, make

Positions = Callable[[np.ndarray], np.ndarray]
Counts = Callable[..., list[int]]
PAPER = {"quantity": (2100, 2100, 14, 14), "test": 350}
Pool = Callable[[int, int], Images]


def test_paper_counts_per_client_and_label(numbered: Pool, label_counts: Counts) -> None:
    made = make("label-shift", dataset=numbered(10, 7000), **PAPER)
    assert [client.name for client in made.clients] == [f"client-{i:02d}" for i in range(20)]
    assert made.types == (0,) * 5 + (1,) * 5 + (2,) * 5 + (3,) * 5
    expected = {
        0: [300, 600, 600, 600, 0, 0, 0, 0, 0, 0],
        1: [0, 600, 600, 600, 300, 0, 0, 0, 0, 0],
        2: [0, 0, 0, 0, 0, 2, 4, 4, 4, 0],
        3: [0, 0, 0, 0, 0, 0, 4, 4, 4, 2],
    }
    held = {
        0: [50, 100, 100, 100, 0, 0, 0, 0, 0, 0],
        1: [0, 100, 100, 100, 50, 0, 0, 0, 0, 0],
        2: [0, 0, 0, 0, 0, 50, 100, 100, 100, 0],
        3: [0, 0, 0, 0, 0, 0, 100, 100, 100, 50],
    }
    for client, kind in zip(made.clients, made.types, strict=True):
        assert label_counts(client) == expected[kind]
        assert np.bincount(client.y_test, minlength=10).tolist() == held[kind]


def test_no_image_is_given_twice(numbered: Pool, positions: Positions) -> None:
    pool = numbered(10, 7000)
    made = make("label-shift", dataset=pool, **PAPER)
    given = np.concatenate([positions(x) for client in made.clients for x in (client.x, client.x_test)])
    assert len(given) == len(np.unique(given)) == 10 * 2450 + 10 * 364
    for client in made.clients:
        assert (pool.labels[positions(client.x)] == client.y).all()
        assert (pool.labels[positions(client.x_test)] == client.y_test).all()


def test_truth_has_the_levels_of_the_paper(numbered: Pool) -> None:
    truth = make("label-shift", dataset=numbered(10, 7000), **PAPER).truth
    assert truth is not None
    assert truth[0, 1:5] == pytest.approx(0)
    assert truth[0, 5:10] == pytest.approx(1 / 7)
    assert truth[0, 10:] == pytest.approx(1)
    assert truth[12, 17] == pytest.approx(1 / 7)


def test_iid_labels_are_drawn_from_the_mix(numbered: Pool) -> None:
    made = make("label-shift", iid=True, seed=3, dataset=numbered(10, 7000), **PAPER)
    assert [client.quantity for client in made.clients] == [2100] * 10 + [14] * 10
    mixes = {0: [1, 2, 2, 2], 1: [2, 2, 2, 1], 2: [1, 2, 2, 2], 3: [2, 2, 2, 1]}
    first = {0: 0, 1: 1, 2: 5, 3: 6}
    varied = set()
    for client, kind in zip(made.clients, made.types, strict=True):
        for y in (client.y, client.y_test):
            counts = np.bincount(y, minlength=10)[first[kind] : first[kind] + 4]
            assert counts.sum() == len(y)
            if len(y) > 14:
                assert chisquare(counts, len(y) * np.array(mixes[kind]) / 7).pvalue > 1e-4
                varied.add(tuple(counts))
    assert len(varied) > 20


def test_iid_test_images_are_never_trained_on(numbered: Pool, positions: Positions) -> None:
    made = make("label-shift", iid=True, dataset=numbered(10, 7000), **PAPER)
    held = np.concatenate([positions(client.x_test) for client in made.clients])
    own = np.concatenate([positions(client.x) for client in made.clients])
    assert len(held) == len(np.unique(held))
    assert not np.isin(own, held).any()
    assert len(own) - len(np.unique(own)) < 0.01 * len(own)


def test_seed_decides_the_samples(numbered: Pool, positions: Positions) -> None:
    pool = numbered(10, 700)
    sizes = {"quantity": (210, 210, 14, 14), "test": 35}
    one, same, other = (make("label-shift", seed=seed, dataset=pool, **sizes) for seed in (1, 1, 2))
    for a, b, c in zip(one.clients, same.clients, other.clients, strict=True):
        assert (a.x == b.x).all()
        assert (a.y == b.y).all()
        assert not np.array_equal(positions(a.x), positions(c.x))


def test_any_mixes_and_number_of_clients(numbered: Pool, label_counts: Counts) -> None:
    made = make(
        "label-shift", dataset=numbered(4, 100), mixes=[[3, 1, 0, 0], [0, 0, 1, 1]], clients=5, quantity=8, test=4
    )
    assert made.types == (0, 0, 0, 1, 1)
    assert label_counts(made.clients[0], 4) == [6, 2, 0, 0]
    assert label_counts(made.clients[4], 4) == [0, 0, 4, 4]
    by_client = make(
        "label-shift", dataset=numbered(4, 100), mixes=[[1] * 4], clients=3, quantity=[4, 8, 12], test=[0, 4, 8]
    )
    assert [client.quantity for client in by_client.clients] == [4, 8, 12]
    assert by_client.clients[0].x_test is None
    assert len(by_client.clients[2].y_test) == 8


@pytest.mark.dataset("fashion-mnist")
def test_fashion_mnist_is_normalised() -> None:
    made = make("label-shift", dataset="fashion-mnist")
    first = made.clients[0]
    assert first.x.shape == (2100, 1, 28, 28)
    assert first.x.dtype == np.float32
    assert first.x.min() == pytest.approx(-0.2860 / 0.3530, abs=1e-4)
    assert first.x.max() == pytest.approx((1 - 0.2860) / 0.3530, abs=1e-4)
    assert made.settings["C"] == 10
    assert made.settings["classes"] == 10
    assert made.settings["rounds"] == 200


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"mixes": [[1, 2]]}, r"`mixes` has shape \(1, 2\); expected one row a type with 4 numbers"),
        ({"mixes": [[1, 1, 1, -1]]}, "`mixes` must hold numbers of at least 0"),
        ({"mixes": [[0, 0, 0, 0]]}, "every row must have one above 0"),
        ({"clients": 1}, r"`clients` \(=1\) must be a whole number of at least 2"),
        ({"quantity": [4, 4, 4]}, r"`quantity` \(=\[4, 4, 4\]\) must be one number, one per type \(2\)"),
        ({"quantity": 1}, r"`quantity` \(=1\) must be a whole number of at least 2"),
        ({"quantity": "many"}, r"`quantity` \(='many'\) must be a whole number"),
        ({"quantity": [4, [4]]}, r"`quantity` \(=\[4\]\) must be a whole number"),
        ({"mixes": [[1, 1], [1]]}, r"`mixes` has shape \(0,\)"),
        ({"test": None}, "`test` must be given for 2 types on `numbered`"),
        ({"quantity": 4000}, "lower `quantity`, `test` or `clients`"),
        ({"aplha": 1}, r"scenario label-shift: `option` \(='aplha'\) must be one of: clients, mixes, quantity, test"),
        ({"iid": 1}, r"`iid` \(=1\) must be true or false"),
        ({"seed": 0.5}, r"`seed` \(=0.5\) must be a whole number"),
    ],
)
def test_bad_options_are_named(numbered: Pool, options: dict[str, object], line: str) -> None:
    usual: dict[str, object] = {"mixes": [[1, 1, 0, 0], [0, 0, 1, 1]], "clients": 4, "quantity": 8, "test": 4}
    with pytest.raises(InputError, match=line) as caught:
        make("label-shift", dataset=numbered(4, 100), **{**usual, **options})  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_unknown_names_list_the_choices() -> None:
    with pytest.raises(InputError, match=r"must be one of: concept-shift, digits, .*; did you mean 'label-shift'"):
        make("labelshift")
    with pytest.raises(InputError, match="must be one of: cifar-10, cifar-100, digits, fashion-mnist"):
        make("label-shift", dataset="mnist")
