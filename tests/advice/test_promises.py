"""A coalition that lost where a gain was expected is named; honest ones are not, and no member can hide the others."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcollab import Advice, ClientData, advise, estimate_distances, train
from fedcollab.advice.gains import Expected
from fedcollab.advice.promises import broken_promises
from fedcollab.errors import FedcollabWarning
from fedcollab.federation import federate
from fedcollab.report.judgement import Judgement
from fedcollab.training import compare
from fedcollab.wire import Wire
from fedcollab.wire.message import pack, unpack

from .conftest import clients_of

NAMES = ("a", "b", "c", "d")
CELLS = Path(__file__).parents[2] / "results" / "advice.jsonl"


def promise(
    mean: float,
    stderr: float,
    kind: str = "together",
    quantities: tuple[int, ...] = (1, 1, 1, 1),
    together: float = 0.0,
) -> Any:
    """An advice that everyone trains together, and what it expects; `together` is the error of the mean."""
    share = np.array(quantities) / sum(quantities)
    return SimpleNamespace(
        names=NAMES,
        candidate=SimpleNamespace(kind=kind, coalitions=[list(NAMES)], gain=Expected(mean, together)),
        gains={name: SimpleNamespace(loss=Expected(mean, stderr)) for name in NAMES},
        weights=np.tile(share, (4, 1)),
    )


def found(advice: Any, gains: list[float], stderr: float) -> list[Any]:
    return broken_promises(advice, NAMES, np.array(gains), np.full(4, stderr))


def test_by_hand() -> None:
    # three of four: 3 (-.1 - .02) / sqrt(3 (.03^2 + .04^2)) = -4.157; and -.3 / sqrt(3 .03^2) = -5.8
    (named,) = found(promise(0.02, 0.04, quantities=(1, 5, 1, 1)), [-0.1, -0.1, -0.1, -0.1], 0.03)
    assert named.errors == pytest.approx(3 * 0.12 / np.sqrt(3 * 0.0025))
    assert (named.heaviest, named.weight) == ("b", pytest.approx(5 / 8 * 3 / 3))
    assert (named.expected, named.measured) == (pytest.approx(0.02), pytest.approx(-0.1))
    assert "a, b, c and 1 more lost where a gain was expected: -0.100" in str(named)


def test_what_the_advice_was_not_sure_of_is_no_broken_promise() -> None:
    """The mean gain may err by more than what is told of single clients, and for all of them at once."""
    gains = [-0.1] * 4
    (named,) = found(promise(0.02, 0.04, together=0.01), gains, 0.03)  # 3 x .01 is less than sqrt(3) x .04
    assert named.errors == pytest.approx(3 * 0.12 / np.sqrt(3 * 0.0025))
    (named,) = found(promise(0.02, 0.04, together=0.03), gains, 0.03)
    assert named.errors == pytest.approx(3 * 0.12 / np.sqrt(3 * 0.03**2 + 0.09**2))
    assert not found(promise(0.02, 0.04, together=0.06), gains, 0.03)


def test_below_the_promise_but_no_loss_and_a_loss_that_was_expected() -> None:
    assert not found(promise(0.5, 0.01), [0.1] * 4, 0.01)
    assert not found(promise(-0.1, 0.01), [-0.1] * 4, 0.01)
    assert not found(promise(0.1, 0.01, kind="alone"), [-0.1] * 4, 0.01)


def test_clients_that_measured_nothing_are_left_out() -> None:
    assert found(promise(0.02, 0.01), [-0.1, np.nan, -0.1, -0.1], 0.01)[0].members == ("a", "c", "d")
    assert not found(promise(0.02, 0.01), [np.nan, np.nan, np.nan, -0.1], 0.01)


@given(said=st.floats(-1e6, 1e6), who=st.integers(0, 3))
def test_what_one_member_says_of_itself_hides_nothing(said: float, who: int) -> None:
    gains = [-0.1] * 4
    gains[who] = said
    assert found(promise(0.02, 0.01), gains, 0.01)


class Turned(Wire):
    """South trains honestly while it is measured, and sends reversed weights when it counts."""

    def _serve(self, action: Any, name: str, content: bytes) -> bytes:
        reply = super()._serve(action, name, content)
        if name == "south" and action.name == "train":
            message = unpack(reply)
            return pack({**message, "w": -message["w"]}) if "w" in message else reply
        return reply


HOW: dict[str, Any] = {"model": "logistic", "rounds": 20, "lr": 0.3}


@pytest.fixture(scope="module")
def measured() -> tuple[list[ClientData], Advice]:
    """Six clients of one rule, and the advice of the silo that turns only afterwards."""
    clients = clients_of("aaaaaa", rows=30)
    federation = federate(Turned(clients))
    distances = estimate_distances(federation, method="few-round")
    return clients, advise(federation, distances=distances, algorithms=("fedavg",), **HOW)


@pytest.mark.parametrize(("runtime", "named"), [(Wire, False), (Turned, True)])
def test_a_silo_that_turns_after_it_was_measured(
    measured: tuple[list[ClientData], Advice], runtime: type[Wire], named: bool
) -> None:
    clients, advice = measured
    assert advice.candidate.kind == "together"
    federation = federate(runtime(clients))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FedcollabWarning)
        results = {"coalitions": train(federation, advice), "local": train(federation, "local", **HOW)}
    judgement = Judgement.of(results, compare(federation, results), advice.names, advice=advice)
    assert bool(judgement.broken()) is named
    assert named == any("lost where a gain was expected" in line for line in judgement.remarks())


def test_no_honest_coalition_of_the_study_is_called_out() -> None:
    """Real federations, as measured by `benchmarks/advice.py`: those whose advice was to train with everyone."""
    cells = [json.loads(line) for line in CELLS.read_text().splitlines()]
    together = [cell for _, cell in cells if len(cell["coalitions"]) == 1]
    assert len(together) > 100
    for cell in together:
        names = [str(position) for position in range(len(cell["tests"]))]
        advice = promise(0.0, 0.0)
        advice.names, advice.candidate.coalitions = tuple(names), [names]
        advice.weights = np.full((len(names), len(names)), 1 / len(names))
        expected = zip(names, cell["expected"]["loss"], strict=True)
        advice.gains = {name: SimpleNamespace(loss=Expected(*gain)) for name, gain in expected}
        gains, stderr = np.array(cell["gain"]["loss"]), np.array(cell["stderr"]["loss"])
        assert not broken_promises(advice, names, gains, stderr)
        assert broken_promises(advice, names, gains - 1.0, stderr)  # had they all lost
