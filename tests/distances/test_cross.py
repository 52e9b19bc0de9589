"""The default estimator: equal to the messages, equal to the plain loop, honest about a true 0."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from fedcollab.data import ClientData
from fedcollab.distances import estimate_distances
from fedcollab.distances.methods import cross, stacked
from fedcollab.distances.methods.cross_design import CrossSettings
from fedcollab.distances.request import Request, all_pairs
from fedcollab.distances.sampling import folds
from fedcollab.federation import federate
from fedcollab.progress import silent
from fedcollab.wire import Vectorised, Wire

SMALL = {"rounds": 6, "repeats": 2, "replicates": 5}


def both(clients: list[ClientData], **options: object) -> tuple[object, object]:
    return tuple(estimate_distances(clients, runtime=kind, **options) for kind in ("vectorised", "wire"))  # type: ignore


@pytest.mark.parametrize("head", ["free", "features", "hypothesis"])
def test_stacked_equals_the_messages(mixed: list[ClientData], head: str) -> None:
    stacked_, wired = both(mixed, head=head, **SMALL)
    np.testing.assert_allclose(stacked_.raw, wired.raw, atol=1e-9)
    np.testing.assert_allclose(stacked_.stderr, wired.stderr, atol=1e-9)
    np.testing.assert_allclose(stacked_.replicates, wired.replicates, atol=1e-9)
    assert stacked_.cost == wired.cost
    assert stacked_.cost["rounds"] == 3 + 6  # norms, plan, six steps, one validation


@pytest.mark.parametrize("head", ["free", "features", "hypothesis"])
def test_span_equals_direct_steps(mixed: list[ClientData], head: str) -> None:
    federation = federate(mixed)
    assert isinstance(federation.runtime, Vectorised)
    request = Request(federation, [("a", "c")], 3, silent)
    design = cross.make_design(request, CrossSettings(head=head, rounds=20))
    span, direct = (
        stacked._train(design, federation.runtime.silos, spanned, stacked.Within()) for spanned in (True, False)
    )
    np.testing.assert_allclose(span.numpy(), direct.numpy(), atol=2e-5)


def test_equals_the_plain_loop(mixed: list[ClientData], plain: ModuleType) -> None:
    federation = federate(mixed)
    assert isinstance(federation.runtime, Vectorised)
    found = estimate_distances(federation, rounds=10, repeats=2)
    request = Request(federation, all_pairs(federation.names), 0, silent)
    design = cross.make_design(request, CrossSettings(rounds=10, repeats=2))
    for position, (a, b) in enumerate(design.pairs):
        value = plain.cross_pair(design, position, federation.runtime.silos)
        assert value == pytest.approx(found.raw[found.index(a), found.index(b)], abs=1e-9)


def test_disjoint_labels_are_far_and_twins_are_near() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(150, 5))
    clients = [
        ClientData("a", x[:50], rng.integers(0, 2, 50)),
        ClientData("b", x[50:100], rng.integers(0, 2, 50)),
        ClientData("c", x[100:], rng.integers(2, 4, 50)),
    ]
    found = estimate_distances(clients)
    assert abs(found.between("a", "b")) < 0.25
    assert found.between("a", "c") > 0.95
    assert found.between("b", "c") > 0.95


def test_a_true_zero_is_zero_on_average_and_covered() -> None:
    """Twenty clients of 12 samples with one distribution: signed values, no bias, intervals that hold."""
    rng = np.random.default_rng(1)
    clients = []
    for number in range(20):
        y = rng.integers(0, 3, 12)
        x = rng.normal(size=(12, 6)) + 2 * np.eye(6)[y]
        clients.append(ClientData(f"{number:02}", x, y, x[:1], y[:1]))
    found = estimate_distances(clients, replicates=50)
    upper = np.triu_indices(20, 1)
    assert abs(found.raw[upper].mean()) < 0.08  # the pairs share 20 clients: the mean itself has an error of .04
    assert (found.raw[upper] < 0).mean() > 0.3
    assert found.stderr is not None
    covered = np.abs(found.raw[upper]) <= 1.645 * found.stderr[upper]
    assert 0.8 <= covered.mean() <= 0.99
    assert found.replicates is not None
    ratio = found.replicates.std(axis=0)[upper].mean() / found.stderr[upper].mean()
    assert ratio == pytest.approx(1, abs=0.1)


def test_flipped_labels_are_seen_without_any_shift_of_features_or_labels(clients: list[ClientData]) -> None:
    found = estimate_distances(clients)
    assert found.between("a", "d") > 0.6
    assert found.between("a", "b") < 0.2
    blind = estimate_distances(clients, head="features")
    assert blind.between("a", "d") < 0.2


def test_replicates_of_a_client_are_joint() -> None:
    """A client's resampling moves all of its pairs: pairs that share a client correlate, others do not."""
    rng = np.random.default_rng(2)
    clients = [ClientData(name, rng.normal(size=(30, 2)), rng.integers(0, 2, 30)) for name in "abcd"]
    found = estimate_distances(clients, replicates=400, rounds=3)
    assert found.replicates is not None
    assert found.replicates.shape == (400, 4, 4)
    np.testing.assert_array_equal(found.replicates, found.replicates.transpose(0, 2, 1))
    moves = found.replicates - found.raw
    apart = np.corrcoef(moves[:, 0, 1], moves[:, 2, 3])[0, 1]
    assert abs(apart) < 0.2


def test_folds_hold_every_sample_out_once() -> None:
    parts = folds.cut(0, "a", 0, np.zeros(14), 5, "drawn")
    held = [folds.split(parts, fold, 11) for fold in range(5)]
    assert sorted(np.concatenate([part for _, part in held]).tolist()) == list(range(14))
    for train, out in held:
        assert len(train) == 11
        assert not set(train.tolist()) & set(out.tolist())


def test_training_sizes_follow_the_smaller_client_of_the_pair() -> None:
    rng = np.random.default_rng(3)
    clients = [ClientData(n, rng.normal(size=(s, 2)), np.arange(s) % 2, [[0.0, 0]], [0]) for n, s in
               {"a": 2000, "b": 1000, "c": 10, "d": 2}.items()]  # fmt: skip
    design = cross.make_design(Request(federate(clients), all_pairs("abcd"), 0, silent), CrossSettings())
    assert dict(zip(design.pairs, design.sizes, strict=True)) == {
        ("a", "b"): 256, ("a", "c"): 8, ("a", "d"): 1, ("b", "c"): 8, ("b", "d"): 1, ("c", "d"): 1,
    }  # fmt: skip
    assert design.repeats == [1, 4, 4, 4, 4, 4]


def test_nothing_per_sample_crosses_the_line(mixed: list[ClientData]) -> None:
    """No reply grows with a client's samples, and none holds a sample's features or predictions."""
    sizes: dict[str, dict[str, list[tuple[int, ...]]]] = {}
    for extra in (0, 60):
        clients = [
            ClientData(c.name, np.tile(c.x, (1 + extra // 20, 1)), np.tile(c.y, 1 + extra // 20), c.x_test, c.y_test)
            for c in mixed
        ]
        for method in ("cross", "hypothesis", "published", "prototype", "label"):
            seen: list[tuple[str, str, bytes]] = []
            runtime = Wire(clients, spy=lambda action, name, sent, got, seen=seen: seen.append((action, name, got)))
            options = {"rounds": 2} if method not in ("prototype", "label") else {}
            options |= {"repeats": 1, "cap": 5} if method in ("cross", "hypothesis") else {}
            options |= {"train": 5} if method == "published" else {}
            estimate_distances(federate(runtime, scale="none"), method=method, **options)
            check_replies(clients, seen)
            shapes = [shape for action, _, got in seen if "-" in action for shape in array_shapes(got)]
            sizes.setdefault(method, {}).setdefault(str(extra), []).extend(shapes)
    for method, shapes_of in sizes.items():
        assert shapes_of["0"] == shapes_of["60"], method


def array_shapes(content: bytes) -> list[tuple[int, ...]]:
    from fedcollab.wire.message import unpack

    return [value.shape for value in unpack(content).values() if isinstance(value, np.ndarray)]


def check_replies(clients: list[ClientData], seen: list[tuple[str, str, bytes]]) -> None:
    from fedcollab.wire.message import unpack

    samples = {client.name: np.asarray(client.x, dtype=np.float32) for client in clients}
    for action, name, got in seen:
        for key, value in unpack(got).items():
            if isinstance(value, list | dict):
                assert len(value) <= 31, (action, key)
            if isinstance(value, np.ndarray) and value.size:
                width = samples[name].shape[1]
                flat = value.astype(np.float32).reshape(-1)
                for sample in samples[name]:
                    hits = np.flatnonzero(np.isclose(flat, sample[0], atol=1e-6))
                    assert not any(np.allclose(flat[h : h + width], sample, atol=1e-5) for h in hits if h + width <= len(flat)), (action, key)  # fmt: skip  # noqa: E501
