"""The five stages together: both runtimes agree, order does not matter, what is there is not computed again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedcollab import ClientData, FedCollab
from fedcollab.errors import InputError


@pytest.fixture
def consortium(clients: list[ClientData]) -> list[ClientData]:
    return clients


def test_both_runtimes_give_one_answer(consortium: list[ClientData]) -> None:
    fast, wire = (FedCollab(C=2.0, runtime=kind, seed=3).fit(consortium) for kind in ("vectorised", "wire"))
    np.testing.assert_allclose(fast.distances.raw, wire.distances.raw, atol=1e-6)
    assert fast.collaboration.coalitions == wire.collaboration.coalitions
    one, other = (fit.train(model="logistic", rounds=4, lr=0.1) for fit in (fast, wire))
    np.testing.assert_allclose(one.models["last"], other.models["last"], atol=1e-5)


def test_the_order_of_clients_does_not_matter(consortium: list[ClientData]) -> None:
    forward, backward = (FedCollab(seed=1).fit(order) for order in (consortium, consortium[::-1]))
    assert forward.distances.names == backward.distances.names
    np.testing.assert_array_equal(forward.distances.raw, backward.distances.raw)
    assert forward.collaboration.coalitions == backward.collaboration.coalitions


def test_the_same_seed_gives_the_same_bytes(consortium: list[ClientData], tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        fitted = FedCollab(seed=5, run_dir=tmp_path / name).fit(consortium)
        fitted.train(model="logistic", rounds=3, lr=0.1)
    for file in ("distances.json", "path.json", "collaboration.json", "training/coalitions/training.safetensors"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes(), file


def test_a_finished_stage_is_read_back(consortium: list[ClientData], tmp_path: Path) -> None:
    first = FedCollab(C=2.0, run_dir=tmp_path).fit(consortium)
    before = first.train(model="logistic", rounds=3, lr=0.1)
    again = FedCollab(C=2.0, run_dir=tmp_path).fit(consortium)
    np.testing.assert_allclose(again.distances.raw, first.distances.raw, atol=1e-6)
    assert again.collaboration.coalitions == first.collaboration.coalitions
    np.testing.assert_array_equal(again.train(model="logistic", rounds=3, lr=0.1).accuracy, before.accuracy)


def test_the_two_ends_are_there_too(consortium: list[ClientData]) -> None:
    fitted = FedCollab(C=2.0).fit(consortium)
    assert len(fitted.train(model="logistic", way="local", rounds=2, lr=0.1).coalitions) == len(consortium)
    assert len(fitted.train(model="logistic", way="global", rounds=2, lr=0.1).coalitions) == 1
    with pytest.raises(InputError, match="`way`"):
        fitted.train(way="both", rounds=2, lr=0.1)


@pytest.mark.parametrize("C", [0, -1, float("nan"), "ten"])
def test_a_bad_C_is_found_before_anything_runs(C: object) -> None:
    with pytest.raises(InputError, match="`C`"):
        FedCollab(C=C)  # type: ignore[arg-type]
