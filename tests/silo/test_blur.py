"""The error of an update: that of the samples it is made of, and where these are few, as if they were more."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedcollab.training.blur import FEWEST, errors
from fedcollab.training.models import Network


@pytest.mark.parametrize("active", [1, 5, 40])
def test_the_error_of_a_unit_is_that_of_at_least_twenty_samples(active: int) -> None:
    """All samples have one gradient at each unit, but where it is not active."""
    count = 40
    network = Network(Network.describe("mlp", {"widths": [2]}, [1], 2))
    x = torch.ones(count, 1)
    x[active:] = -1
    w = torch.zeros(network.size)
    w[:6] = torch.tensor([1.0, 0.0, 0.0, 1.0, 0.5, -0.5])  # weights, biases; the first unit's outgoing ones
    w[6] = 0.0
    mean, error = errors(network, w, x, torch.zeros(count, dtype=torch.int64))
    exact = active * (1 - active / count) * (mean[0] / active).square()  # sum of squares, less the square of the sum
    more = max(1.0, FEWEST / active)
    wanted = (exact + (more - 1) * active * (mean[0] / active).square()).sqrt()
    assert float(mean[0]) != 0
    np.testing.assert_allclose(float(error[0]), float(wanted), rtol=1e-4, atol=1e-4)
