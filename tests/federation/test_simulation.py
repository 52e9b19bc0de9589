"""Flower's Ray engine as a runtime gives what wire gives. Ray is an extra of its own; without it the test skips."""

from __future__ import annotations

import numpy as np
import pytest

from fedcollab.errors import InputError
from fedcollab.training import train
from fedcollab.wire import Wire, connect

from .conftest import blobs


@pytest.mark.federation
def test_simulation_equals_wire() -> None:
    pytest.importorskip("ray", reason="needs fedcollab[simulation]")
    clients = [blobs(name, 60, flip=name > "b") for name in "abcd"]
    groups = [["a", "b"], ["c", "d"]]
    simulation = connect(clients, "flower-simulation", "cpu")
    try:
        results = [train(each, groups, "ditto", "mlp", rounds=2, lr=0.1) for each in (simulation, Wire(clients))]
    finally:
        simulation.close()  # type: ignore[attr-defined]
    np.testing.assert_allclose(results[0].models["last"], results[1].models["last"], rtol=0, atol=1e-5)
    np.testing.assert_allclose(results[0].personal_accuracy, results[1].personal_accuracy, rtol=0, atol=1e-5)


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedcollab.flower import simulation

    monkeypatch.setattr(simulation, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"needs Ray: pip install 'fedcollab\[simulation\]'"):
        connect([blobs("a", 9, False), blobs("b", 9, False)], "flower-simulation")
    with pytest.raises(InputError, match="must be one of: flower-simulation, vectorised, wire"):
        connect([], "flowers")
