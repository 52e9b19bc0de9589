"""Every algorithm against its formula: hand-computed one-dimensional cases, and the identities between algorithms.

The hand-computed cases use an oracle with F(w; batch) = 1/2 (w - target)^2, so that every gradient is w - target.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from fedcollab.data import ClientData
from fedcollab.errors import InputError
from fedcollab.training import ALGORITHMS, Algorithm, register, train
from fedcollab.training.algorithms import (
    Ditto,
    FedAdam,
    FedAvg,
    FedNova,
    FedProx,
    Finetune,
    Local,
    PerFedAvg,
    PFedMe,
    Scaffold,
)
from fedcollab.training.hooks import State

LR = 0.1
SMALL = {"model_options": {"widths": [8]}, "rounds": 4, "lr": 0.1, "stopping": "none"}


@dataclass
class Target:
    """A batch whose loss is 1/2 (w - target)^2; parts have the target moved by 1 each."""

    target: float

    def part(self, index: int, parts: int, at_least: int = 0) -> Target:
        return Target(self.target + index)


class Quadratic:
    lr = LR
    network = SimpleNamespace(parameters=1)

    def __call__(self, w: Tensor, batch: Target) -> Tensor:
        return w - batch.target

    def descend(self, w: Tensor, batch: Target, extra: Tensor | None = None, *, lr: float | None = None) -> None:
        w -= (self.lr if lr is None else lr) * (self(w, batch) + (0 if extra is None else extra))


def client_round(algorithm: Algorithm, message: State, targets: list[float], state: State | None = None):
    """One client's round: its reply, its state, and its personal model."""
    state = algorithm.client_init(message) if state is None else state
    w = algorithm.begin(message, state)
    for target in targets:
        algorithm.step(w, message, state, Quadratic(), Target(target))
    reply = algorithm.reply(w, message, state, torch.tensor([[float(len(targets))]]), LR)
    personal = algorithm.personal(message, state, Quadratic(), lambda count: [Target(targets[0])] * count)
    return reply, state, personal.item()


def at(value: float) -> Tensor:
    return torch.tensor([[value]])


def test_fedavg_and_local() -> None:
    for algorithm in (FedAvg(), Local()):
        reply, _, personal = client_round(algorithm, {"w": at(1.0)}, [3.0, 3.0])
        assert reply["w"].item() == pytest.approx(3 - 2 * 0.9**2)
        assert personal == 1.0
    server = FedAvg().aggregate({"w": at(1.0)}, [{"w": at(2.0)}, {"w": at(4.0)}], [0.25, 0.75])
    assert server["w"].item() == pytest.approx(3.5)
    assert Local.alone
    assert not FedAvg.alone


def test_fedprox() -> None:
    """w1 = 1 - .1 (1 - 3) = 1.2; w2 = 1.2 - .1 (1.2 - 3 + .5 (1.2 - 1)) = 1.37."""
    reply, _, _ = client_round(FedProx(mu=0.5), {"w": at(1.0)}, [3.0, 3.0])
    assert reply["w"].item() == pytest.approx(1.37)


def test_fednova() -> None:
    """Updates 2 in 4 steps and 3 in 1 step, shares 1/4 and 3/4: tau = 1.75, w = 1 + 1.75 (.25 .5 + .75 3)."""
    replies = [{"w": at(3.0), "steps": at(4.0)}, {"w": at(4.0), "steps": at(1.0)}]
    server = FedNova().aggregate({"w": at(1.0)}, replies, [0.25, 0.75])
    assert server["w"].item() == pytest.approx(1 + 1.75 * (0.25 * 0.5 + 0.75 * 3))
    reply, _, _ = client_round(FedNova(), {"w": at(1.0)}, [3.0, 3.0, 3.0])
    assert reply["steps"].item() == 3


def test_finetune() -> None:
    reply, _, personal = client_round(Finetune(steps=2), {"w": at(1.0)}, [3.0])
    assert reply["w"].item() == pytest.approx(1.2)
    assert personal == pytest.approx(3 - 2 * 0.9**2)


def test_perfedavg_first_order() -> None:
    """w' = 1 - .1 (1 - 3) = 1.2; w = 1 - .1 (1.2 - 4) = 1.28; personal = 1 - .1 (1 - 3)."""
    reply, _, personal = client_round(PerFedAvg(), {"w": at(1.0)}, [3.0])
    assert reply["w"].item() == pytest.approx(1.28)
    assert personal == pytest.approx(1.2)


def test_perfedavg_hessian_free() -> None:
    """The Hessian is 1, so h = v and w = 1 - .1 (1 - .1) (1.2 - 4)."""
    reply, _, _ = client_round(PerFedAvg(variant="hessian-free"), {"w": at(1.0)}, [3.0])
    assert reply["w"].item() == pytest.approx(1 - 0.1 * 0.9 * (1.2 - 4), abs=1e-4)


def test_pfedme() -> None:
    """theta = 1 -> 1 - .2 (1 - 3) = 1.4 -> 1.4 - .2 (1.4 - 3 + 2 (1.4 - 1)) = 1.56; w = 1 - .1 2 (1 - 1.56)."""
    reply, state, personal = client_round(PFedMe(lam=2.0, K=2, personal_lr=0.2), {"w": at(1.0)}, [3.0])
    assert personal == pytest.approx(1.56)
    assert reply["w"].item() == pytest.approx(1.112)
    _, state, _ = client_round(PFedMe(lam=2.0, K=0), {"w": at(5.0)}, [3.0], state)
    assert state["theta"].item() == 5.0, "a round's personal model starts from what was sent"
    _, _, personal = client_round(PFedMe(lam=2.0, K=1, personal_lr=0.2), {"w": at(1.0)}, [3.0, 3.0])
    assert personal == pytest.approx(1.08 + 0.2 * (3 - 1.08)), "each batch starts from w, which is 1 + .1 2 (1.4 - 1)"


def test_ditto() -> None:
    """Round 1: v = 1.2; round 2 with w = 2: v = 1.2 - .1 (1.2 - 3 + .5 (1.2 - 2)) = 1.42."""
    reply, state, personal = client_round(Ditto(lam=0.5), {"w": at(1.0)}, [3.0])
    assert reply["w"].item() == personal == pytest.approx(1.2)
    reply, _, personal = client_round(Ditto(lam=0.5), {"w": at(2.0)}, [3.0], state)
    assert reply["w"].item() == pytest.approx(2.1)
    assert personal == pytest.approx(1.42)


def test_scaffold() -> None:
    """With c = .5, c_i = 0: y = 1 - .1 (-2 + .5) = 1.15; c_i+ = -.5 + (1 - 1.15) / .1 = -2, the gradient itself."""
    algorithm = Scaffold()
    reply, state, _ = client_round(algorithm, {"w": at(1.0), "c": at(0.5)}, [3.0])
    assert reply["w"].item() == pytest.approx(1.15)
    assert state["c"].item() == reply["change"].item() == pytest.approx(-2.0)
    server = algorithm.aggregate({"w": at(1.0), "c": at(0.5)}, [reply], [1.0])
    assert server["c"].item() == pytest.approx(-1.5)


def test_fedadam() -> None:
    algorithm = FedAdam(server_lr=0.5, b1=0.9, b2=0.99, tau=0.1)
    server = algorithm.aggregate(algorithm.server_init(at(1.0)), [{"w": at(3.0)}], [1.0])
    m, v = 0.1 * 2, 0.99 * 0.01 + 0.01 * 4
    assert server["w"].item() == pytest.approx(1 + 0.5 * m / (v**0.5 + 0.1))


@pytest.mark.parametrize(
    ("algorithm", "options", "rounds"),
    [("fedprox", {"mu": 0.0}, 4), ("finetune", {"steps": 0}, 4), ("ditto", {"lam": 1.0}, 4), ("scaffold", {}, 1)],
)
def test_equals_fedavg(clients: list[ClientData], algorithm: str, options: dict, rounds: int) -> None:
    settings = SMALL | {"rounds": rounds}
    expected = train(clients, "global", **settings)
    result = train(clients, "global", algorithm, options=options, **settings)
    np.testing.assert_allclose(result.models["last"], expected.models["last"], atol=1e-6)
    if algorithm == "finetune":
        np.testing.assert_allclose(result.personal_accuracy, result.accuracy)


def test_fednova_with_equal_steps_is_fedavg(clients: list[ClientData]) -> None:
    settings = SMALL | {"batch_size": 60}
    expected = train(clients, "global", **settings)
    result = train(clients, "global", "fednova", **settings)
    np.testing.assert_allclose(result.models["last"], expected.models["last"], atol=1e-6)


def test_different_where_they_should_be(clients: list[ClientData]) -> None:
    """The identities above are not empty: with their usual options the algorithms differ from FedAvg."""
    expected = train(clients, "global", **SMALL).models["last"]
    for algorithm in ("fedprox", "fednova", "scaffold", "perfedavg", "pfedme", "fedadam"):
        result = train(clients, "global", algorithm, **SMALL)
        assert np.abs(result.models["last"] - expected).max() > 1e-5, algorithm


def test_users_register_their_own(clients: list[ClientData]) -> None:
    @register("half-step")
    @dataclass(frozen=True)
    class HalfStep(Algorithm):
        share: float = 0.5

        def aggregate(self, server: State, replies, weights) -> State:
            mean = super().aggregate(server, replies, weights)["w"]
            return {"w": server["w"] + self.share * (mean - server["w"])}

    try:
        whole = train(clients, "global", "half-step", options={"share": 1.0}, **SMALL)
        np.testing.assert_allclose(whole.models["last"], train(clients, "global", **SMALL).models["last"], atol=1e-6)
        by_object = train(clients, "global", HalfStep(0.25), runtime="wire", **SMALL)
        by_name = train(clients, "global", "half-step", options={"share": 0.25}, **SMALL)
        np.testing.assert_allclose(by_object.models["last"], by_name.models["last"], atol=1e-6)
    finally:
        del ALGORITHMS["half-step"]


def test_object_of_an_unregistered_class(clients: list[ClientData]) -> None:
    class Mine(FedAvg):
        pass

    result = train(clients, "global", Mine(), **SMALL)
    assert result.method == "Mine"
    del ALGORITHMS["Mine"]


@pytest.mark.parametrize(
    ("algorithm", "options", "message"),
    [
        ("fedavgg", None, r"`algorithm` \(='fedavgg'\) must be one of: .*; did you mean 'fedavg'\?"),
        ("fedprox", {"mew": 1}, r"algorithm 'fedprox': `option` \(='mew'\) must be one of: mu"),
        ("fedprox", {"mu": "x"}, r"`mu` \(='x'\) must be a finite number of at least 0"),
        ("fedavg", {"mu": 1}, r"algorithm 'fedavg': `option` \(='mu'\): it has none"),
        ("perfedavg", {"variant": "second"}, r"`variant` \(='second'\) must be one of: first-order, hessian-free"),
        (FedProx(), {"mu": 1}, "the object has its own"),
        (3, None, r"`algorithm` \(=3\) must be a name or an object"),
    ],
)
def test_bad_algorithms(clients: list[ClientData], algorithm, options, message: str) -> None:
    with pytest.raises(InputError, match=message):
        train(clients, "global", algorithm, options=options, **SMALL)
