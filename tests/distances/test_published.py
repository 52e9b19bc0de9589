"""Algorithm 1 as published: the counts of the paper's table, the plain loop as oracle, messages and shortcut equal."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
import torch

from fedcollab.data import ClientData
from fedcollab.distances import estimate_distances
from fedcollab.distances.methods import discriminator, published, span
from fedcollab.distances.methods import published_client as algorithm1
from fedcollab.distances.methods.published_loop import PublishedSettings
from fedcollab.distances.request import Request, all_pairs
from fedcollab.errors import InputError
from fedcollab.federation import federate
from fedcollab.progress import silent
from fedcollab.wire import Vectorised


def test_complexity_table() -> None:
    assert (discriminator.parameters(512, 10), discriminator.macs(512, 10)) == (105_001, 104_600)
    assert (discriminator.parameters(512, 20), discriminator.macs(512, 20)) == (107_001, 106_600)
    assert len(discriminator.initial(0, 512, 10)) == 105_001


def test_forward_is_the_formula() -> None:
    """One hidden unit by hand: relu(2 x + 1 + 2 (3 s + 0.5)) * 2 - 1 with s = 2 / sqrt(1) for two classes."""
    flat = torch.tensor([[2.0, 1.0, 3.0, -3.0, 0.5, 2.0, -1.0]])  # w, b, v_0, v_1, a, out, c
    logits, _ = discriminator.forward(flat, torch.tensor([[1.0], [1.0]]), torch.tensor([0, 1]), 2, 1)
    assert logits.tolist() == [[2.0 * (2 + 1 + 2 * (6 + 0.5)) - 1, -1.0]]


@pytest.mark.parametrize("classes", [0, 3])
def test_descend_is_the_gradient(classes: int) -> None:
    torch.manual_seed(0)
    flat = torch.randn(2, discriminator.parameters(4, classes, 5), dtype=torch.float64, requires_grad=True)
    x, y = torch.randn(6, 4, dtype=torch.float64), torch.randint(0, 3, (6,))
    target = torch.tensor([1.0, 0.0], dtype=torch.float64)
    logits, _ = discriminator.forward(flat, x, y, classes, 5)
    loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, target[:, None].expand(2, 6), reduction="none")
    (gradient,) = torch.autograd.grad(loss.mean(dim=1).sum(), flat)
    stepped = discriminator.descend(flat.detach(), x, y, target, 0.3, classes, 5)
    torch.testing.assert_close(stepped, flat.detach() - 0.3 * gradient)


@pytest.mark.parametrize(
    "options", [{}, {"labels": False}, {"local_steps": 2}, {"batch": 4}, {"train": 3}, {"rounds": 25}]
)
def test_shortcut_equals_the_messages(mixed: list[ClientData], options: dict[str, int]) -> None:
    given = {"rounds": 40, "hidden": 16, "patience": 2, "lr": 0.1, **options}
    found = [estimate_distances(mixed, method="published", runtime=kind, **given) for kind in ("vectorised", "wire")]
    np.testing.assert_allclose(found[0].raw, found[1].raw, atol=1e-9)
    assert found[0].cost == found[1].cost


def test_span_equals_the_plain_loop_after_50_rounds(mixed: list[ClientData], plain: ModuleType) -> None:
    """Logits of held-out samples equal to 1e-4, predictions equal."""
    federation = federate(mixed)
    assert isinstance(federation.runtime, Vectorised)
    request = Request(federation, all_pairs(federation.names), 0, silent)
    settings = PublishedSettings(published.train_size(request, None))
    plans = published.client_plans(request, settings)
    state = span.Span(request, settings, plans, federation.runtime.silos)
    for round_ in range(50):
        state.advance(np.arange(len(request.pairs)), round_)
    for position, pair in enumerate(request.pairs):
        *_, expected = plain.published_pair(pair, federation.runtime.silos, plans["a"], settings, rounds=50)
        at = [federation.names.index(name) for name in pair]
        ours = [state.held_out(at[k], np.array([at[1 - k]]), np.array([position]), k)[0] for k in (0, 1)]
        torch.testing.assert_close(torch.cat(ours), expected, atol=1e-4, rtol=0)


def test_best_validation_and_rounds_equal_the_plain_loop(mixed: list[ClientData], plain: ModuleType) -> None:
    federation = federate(mixed)
    assert isinstance(federation.runtime, Vectorised)
    request = Request(federation, all_pairs(federation.names), 0, silent)
    settings = PublishedSettings(published.train_size(request, None), rounds=300)
    best, taken = span.run(request, settings, published.client_plans(request, settings))
    for position, pair in enumerate(request.pairs):
        plan = published.client_plans(request, settings)[pair[0]]
        value, rounds, _ = plain.published_pair(pair, federation.runtime.silos, plan, settings)
        assert value == pytest.approx(best[position], abs=1e-9)
        assert rounds == taken[position]


def test_split_is_half_of_the_smallest_and_stratified(mixed: list[ClientData]) -> None:
    federation = federate(mixed)
    assert isinstance(federation.runtime, Vectorised)
    request = Request(federation, all_pairs(federation.names), 0, silent)
    settings = PublishedSettings(published.train_size(request, None))
    assert settings.train == 7
    plan = published.client_plans(request, settings)["a"]
    train, valid = algorithm1.split(plan, federation.runtime.silos["a"])
    assert (len(train), len(valid)) == (7, 33)
    y = federation.runtime.silos["a"].arrays.y
    expected = 7 * np.bincount(y, minlength=3) / 40
    assert np.abs(np.bincount(y[train], minlength=3) - expected).max() < 1


def test_batches_pass_over_the_training_set_in_random_order() -> None:
    plan = algorithm1.ClientPlan(0, 10, 0.1, 4, 1, 5, 2, [1])
    steps = [algorithm1.batch(plan, "a", step).tolist() for step in range(6)]
    assert [len(step) for step in steps] == [4, 4, 2] * 2
    passes = [sorted(place for step in part for place in step) for part in (steps[:3], steps[3:])]
    assert passes == [list(range(10))] * 2
    assert steps[:3] != steps[3:]


def test_train_must_leave_validation_samples(mixed: list[ClientData]) -> None:
    with pytest.raises(InputError, match=r"`train` \(=14\) must leave validation samples .* client `b` has 14"):
        estimate_distances(mixed, method="published", train=14)
