"""On real pictures: the shortcut keeps to the plain loop's logits, and label shift comes out as it was planted."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
import torch

from fedcollab import scenarios
from fedcollab.distances import estimate_distances
from fedcollab.distances.methods import published, span
from fedcollab.distances.methods.published_loop import PublishedSettings
from fedcollab.distances.request import Request, all_pairs
from fedcollab.federation import federate
from fedcollab.progress import silent
from fedcollab.scenarios import Scenario
from fedcollab.wire import Vectorised

pytestmark = pytest.mark.dataset("fashion-mnist")


@pytest.fixture(scope="module")
def label_shift() -> Scenario:
    sizes = [280, 280, 280, 280, 14, 14, 14, 14]
    return scenarios.make("label-shift", seed=0, iid=True, clients=8, quantity=sizes, test=7)


def test_published_logits_after_50_rounds(label_shift: Scenario, plain: ModuleType) -> None:
    """784 features, 7 training samples a side: logits within 1e-4, at least 99.5 % equal predictions."""
    federation = federate([label_shift.clients[k] for k in (0, 2, 4, 6)], scale="none")
    assert isinstance(federation.runtime, Vectorised)
    request = Request(federation, all_pairs(federation.names), 0, silent)
    settings = PublishedSettings(published.train_size(request, None))
    assert settings.train == 7
    plans = published.client_plans(request, settings)
    state = span.Span(request, settings, plans, federation.runtime.silos)
    for round_ in range(50):
        state.advance(np.arange(len(request.pairs)), round_)
    ours, theirs = [], []
    for position, pair in enumerate(request.pairs):
        *_, expected = plain.published_pair(pair, federation.runtime.silos, plans[pair[0]], settings, rounds=50)
        at = [federation.names.index(name) for name in pair]
        ours += [state.held_out(at[k], np.array([at[1 - k]]), np.array([position]), k)[0] for k in (0, 1)]
        theirs.append(expected)
    first, second = torch.cat(ours), torch.cat(theirs)
    torch.testing.assert_close(first, second, atol=1e-4, rtol=0)
    assert ((first > 0) == (second > 0)).double().mean() >= 0.995


def test_default_finds_the_planted_distances(label_shift: Scenario) -> None:
    found = estimate_distances(label_shift.clients, scale="none", seed=1)
    truth = label_shift.truth
    assert truth is not None
    large = np.array([client.quantity > 14 for client in label_shift.clients])
    pairs = np.triu(np.ones_like(truth, dtype=bool), 1)
    for value in np.unique(truth.round(6)):
        for sizes in (large[:, None] & large, large[:, None] != large):
            chosen = pairs & sizes & (np.abs(truth - value) < 1e-6)
            if chosen.any():
                assert found.raw[chosen].mean() == pytest.approx(value, abs=0.1)
