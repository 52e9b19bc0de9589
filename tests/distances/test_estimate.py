"""The stage's door: order, names, pairs on their own, newcomers, bad input, and the test split that is never read."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from fedcollab.data import ClientData
from fedcollab.distances import METHODS, Distances, complete, estimate_distances
from fedcollab.distances.methods.heads import HEADS
from fedcollab.distances.methods.prototype import class_costs, transport
from fedcollab.errors import FedcollabWarning, InputError
from fedcollab.federation import federate
from fedcollab.metrics import total_variation

QUICK = {
    "auto": {"rounds": 5, "repeats": 2, "replicates": 4},
    "cross": {"rounds": 5, "repeats": 2, "replicates": 4},
    "few-round": {"replicates": 4},
    "hypothesis": {"rounds": 5, "repeats": 2, "replicates": 4},
    "published": {"rounds": 20, "hidden": 8},
    "label": {},
    "prototype": {},
}


def test_every_method_is_in_the_table() -> None:
    assert set(QUICK) == set(METHODS)


@pytest.mark.parametrize("method", sorted(METHODS))
def test_order_of_clients_reorders_the_answer_and_no_more(clients: list[ClientData], method: str) -> None:
    one = estimate_distances(clients, method=method, **QUICK[method])
    assert one.names == ("a", "b", "c", "d", "e", "f")
    assert one.quantities.tolist() == [60, 40, 25, 60, 40, 25]
    turned = [4, 2, 0, 5, 1, 3]
    two = estimate_distances([clients[k] for k in turned], method=method, **QUICK[method])
    assert two.names == tuple("ecafbd")
    np.testing.assert_allclose(two.raw, one.raw[np.ix_(turned, turned)], atol=1e-12)
    assert np.isfinite(one.raw).all()
    if one.replicates is not None:
        np.testing.assert_allclose(two.replicates, one.replicates[:, turned][:, :, turned], atol=1e-12)


@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_pair_is_the_same_alone_and_with_all(clients: list[ClientData], method: str) -> None:
    federation = federate(clients)
    everything = estimate_distances(federation, method=method, **QUICK[method])
    one = estimate_distances(federation, method=method, only="c", **QUICK[method])
    assert one.observed.sum() == 6 + 2 * 5
    np.testing.assert_allclose(one.raw[2], everything.raw[2], atol=1e-12)
    assert np.isnan(one.raw[0, 1])
    assert one.matrix[0, 1] == 1


@pytest.mark.parametrize("method", sorted(METHODS))
def test_the_test_split_is_never_used(clients: list[ClientData], method: str) -> None:
    other = [ClientData(c.name, c.x, c.y, np.asarray(c.x_test)[:7] * -3 + 100, c.y_test[:7]) for c in clients]
    before, after = (estimate_distances(part, method=method, **QUICK[method]) for part in (clients, other))
    np.testing.assert_array_equal(before.raw, after.raw)


def test_two_runs_are_equal_and_seeds_differ(clients: list[ClientData]) -> None:
    first, again, other = (estimate_distances(clients, seed=seed, **QUICK["cross"]) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.raw, again.raw)
    assert not np.array_equal(first.raw, other.raw)


@pytest.mark.parametrize("method", ["cross", "few-round", "published", "label"])
def test_newcomer_gets_the_numbers_of_a_full_estimate(clients: list[ClientData], method: str) -> None:
    federation = federate(clients[:5])
    options = {**QUICK[method], **({"train": 12} if method == "published" else {})}
    known = estimate_distances(federation, method=method, **options)
    grown = complete(known, federate(clients, schema=federation.schema))
    assert grown.names == tuple("abcdef")
    np.testing.assert_array_equal(grown.raw[:5, :5], known.raw)
    full = federate(clients, schema=federation.schema)
    np.testing.assert_allclose(grown.raw, estimate_distances(full, method=method, **options).raw, atol=1e-12)
    if known.replicates is not None:
        assert grown.replicates is not None
        assert grown.replicates.shape[1:] == (6, 6)


def test_saved_and_loaded(clients: list[ClientData], tmp_path: Path) -> None:
    found = estimate_distances(clients, **QUICK["cross"])
    found.save(tmp_path / "d.json")
    again = Distances.load(tmp_path / "d.json")
    np.testing.assert_allclose(again.raw, found.raw, atol=1e-6)
    assert again.method == "cross"
    assert again.settings["seed"] == 0
    assert again.cost == found.cost


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"method": "crosss"}, r"`method` \(='crosss'\) must be one of: .*did you mean 'cross'"),
        ({"fold": 3}, r"`option of method 'auto'` \(='fold'\) must be one of: .*did you mean 'folds'"),
        ({"folds": 1}, r"`folds` \(=1\) must be a whole number of at least 2"),
        ({"only": "z"}, r"`only` \(='z'\) must be one of: a, b"),
        ({"pairs": [("a", "zzz")]}, r"`pairs` \(='zzz'\) must be one of: a, b"),
        ({"pairs": [("a", "a")]}, r"`pairs` \(=\('a', 'a'\)\) must hold pairs of two different clients"),
        ({"pairs": ["ab"]}, r"`pairs` \(='ab'\) must hold pairs"),
        ({"head": "fre"}, r"`head` \(='fre'\) must be one of: bounded, features, free, hypothesis"),
        ({"method": "published", "lr": 0}, r"`lr` \(=0\) must be a finite number above 0"),
    ],
)
def test_bad_arguments(clients: list[ClientData], given: dict[str, object], line: str) -> None:
    with pytest.raises(InputError, match=line):
        estimate_distances(clients[:2], **given)  # type: ignore[arg-type]


def test_progress_ends_at_the_total(clients: list[ClientData]) -> None:
    seen: list[tuple[int, int]] = []
    estimate_distances(clients, progress=lambda done, total: seen.append((done, total)), **QUICK["cross"])
    assert seen[-1][0] == seen[-1][1]


@pytest.mark.parametrize("method", sorted(METHODS))
def test_awkward_clients_get_finite_distances(method: str) -> None:
    """Two samples, five samples, one class only, a constant feature, disjoint labels, and 300 samples beside them."""
    rng = np.random.default_rng(0)

    def make(name: str, count: int, labels: list[int]) -> ClientData:
        x = rng.normal(size=(count, 3))
        x[:, 1] = 4.0
        y = np.array([labels[k % len(labels)] for k in range(count)])
        return ClientData(name, x, y, x[:1], y[:1])

    clients = [
        make("two", 2, [0, 1]), make("five", 5, [0, 1]), make("one-class", 9, [0]),
        make("disjoint", 20, [2, 3]), make("large", 300, [0, 1]),
    ]  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FedcollabWarning)
        for scale in ("auto", "none"):
            found = estimate_distances(clients, method=method, scale=scale, **QUICK[method])
            assert np.isfinite(found.raw).all()
            assert (np.abs(found.raw) <= 1).all()
            if found.stderr is not None:
                assert np.isfinite(found.stderr).all()
    if method in ("auto", "cross", "label", "prototype"):
        assert found.between("disjoint", "large") > 0.9


@pytest.mark.parametrize("method", ["cross", "few-round", "hypothesis", "published"])
def test_features_that_are_all_zero(method: str) -> None:
    clients = [ClientData(name, np.zeros((12, 2)), np.arange(12) % 2) for name in "ab"]
    found = estimate_distances(clients, method=method, scale="none", **QUICK[method])
    assert np.isfinite(found.raw).all()


def test_wild_scales_do_not_diverge() -> None:
    """Unscaled features of 1e4 and 1e-4: the step follows the features' length."""
    rng = np.random.default_rng(0)
    for size in (1e-4, 1e4):
        clients = [ClientData(n, size * (rng.normal(size=(40, 3)) + (n == "b")), np.arange(40) % 2) for n in "ab"]
        found = estimate_distances(clients, scale="none")
        assert 0.3 < found.between("a", "b") <= 1


def test_tables_and_missingness_as_a_feature() -> None:
    """Only whether a value is missing differs: unseen by default (missing is the mean), seen where it is asked for."""
    import pandas as pd

    rng = np.random.default_rng(0)
    clients = []
    for name, share in (("a", 0.0), ("b", 0.9)):
        frame = pd.DataFrame({"v": np.zeros(80), "w": rng.normal(size=80), "k": rng.choice(["p", "q"], 80)})
        frame["v"] = frame["v"].where(rng.random(80) >= share)
        clients.append(ClientData(name, frame, rng.integers(0, 2, 80)))
    assert estimate_distances(clients).between("a", "b") < 0.25
    assert estimate_distances(clients, missing_indicators=True).between("a", "b") > 0.6


def test_hypothesis_ignores_what_does_not_matter_to_the_task() -> None:
    """A feature that only tells the clients apart is far for a free discriminator, and near for a classifier."""
    rng = np.random.default_rng(0)
    clients = []
    for name, offset in (("a", -4.0), ("b", 4.0)):
        y = rng.integers(0, 2, 120)
        x = np.stack([rng.normal(2.0 * (2 * y - 1)), rng.normal(offset, 1, 120)], axis=1)
        clients.append(ClientData(name, x, y))
    far = estimate_distances(clients).between("a", "b")
    near = estimate_distances(clients, method="hypothesis").between("a", "b")
    assert far > 0.95
    # a linear h may still be right on one side of the second feature and wrong on the other, but no better than that
    assert near < far


def test_label_distance_by_hand() -> None:
    clients = [
        ClientData("a", np.zeros((4, 1)), [0, 0, 1, 1], [[0.0]], [0]),
        ClientData("b", np.zeros((4, 1)), [0, 1, 1, 2], [[0.0]], [0]),
    ]
    found = estimate_distances(clients, method="label", scale="none")
    assert found.raw[0, 1] == pytest.approx(0.25)
    assert found.replicates is not None
    assert total_variation(np.array([1.0, 0]), np.array([0.0, 1])) == 1


def test_prototype_costs_by_hand() -> None:
    first = {"means": np.array([[0.0], [0.0]]), "known": np.array([True, False]), "spread": np.array([0.5])}
    second = {"means": np.array([[2.0], [9.0]]), "known": np.array([True, True]), "spread": np.array([1.5])}
    cost = class_costs(first, second)
    np.testing.assert_allclose(cost, [[1 - np.exp(-2), 1], [1, 0]])
    assert transport(np.array([1.0, 0]), np.array([0.0, 1]), cost) == pytest.approx(1)


@pytest.mark.parametrize("name", sorted(HEADS))
def test_residuals_are_gradients(name: str) -> None:
    import torch

    head = HEADS[name]
    torch.manual_seed(0)
    y, target = torch.tensor([[0, 2, 1, 1]]), torch.tensor([[1.0, 0.0, 1.0, 0.0]])
    z = torch.randn(1, 4, head.width(3), requires_grad=True)
    if name == "hypothesis":
        share = torch.softmax(z, dim=-1).gather(-1, y[..., None])[..., 0]
        loss = -torch.where(target > 0.5, share.log(), (1 - share).log()).sum()
    elif name == "bounded":
        bounded = 1 - torch.exp(-((z[..., 0] - y) ** 2) / 2)
        loss = torch.where(target > 0.5, bounded, -bounded).sum()
    else:
        loss = torch.nn.functional.binary_cross_entropy_with_logits(z[..., 0], target, reduction="sum")
    (gradient,) = torch.autograd.grad(loss, z)
    torch.testing.assert_close(head.residual(z.detach(), y, target), gradient)
