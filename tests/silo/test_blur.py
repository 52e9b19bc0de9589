"""The error of an update: that of the samples it is made of, and where these are few, as if they were more."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedcollab.training.blur import FEWEST, errors
from fedcollab.training.models import Network


@pytest.mark.parametrize("active", [0, 1, 5, 40])
def test_the_error_of_a_unit_is_that_of_at_least_twenty_samples(active: int) -> None:
    """All samples for which the first unit is active have one gradient there; what the others would have counts too."""
    count = 40
    network = Network(Network.describe("mlp", {"widths": [2]}, [1], 2))
    x = torch.ones(count, 1)
    x[active:] = -1
    w = torch.zeros(network.size)
    w[:6] = torch.tensor([1.0, 0.0, 0.0, 1.0, 0.5, -0.5])  # weights, biases; the first unit's outgoing ones
    w[6] = 0.0
    mean, error = errors(network, w, x, torch.zeros(count, dtype=torch.int64))
    here, elsewhere = 0.5 * 0.5 / count, 0.5 / (1 + np.exp(-0.5)) / count  # a sample's gradient, if it is let through
    own = max(active, FEWEST if active else 0) * here**2
    any_twenty = FEWEST * (active * here**2 + (count - active) * elsewhere**2) / count
    wanted = max(own, any_twenty) - (active * here) ** 2 / count
    np.testing.assert_allclose(float(mean[0]), -active * here, rtol=1e-4)
    np.testing.assert_allclose(float(error[0].square()), wanted, rtol=1e-4, atol=1e-8)
