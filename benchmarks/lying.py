"""How far can one lying silo of twenty move the others' coalitions and gains, where every reply of it is possible?

    python benchmarks/lying.py [--seeds 3]

Twenty clients of four types (the digits scenario). One of them answers honestly, or says that it is like everyone
(`near`), like nobody (`far`), like the others but with 100 times its samples (`near, 100 x samples`), sends the
negated weights in training (`reversed weights`, and `100 x samples` too), or sends them also while the advice is
measured (`always`). For the nineteen others, twice: in the coalitions of the distances alone (FedAvg, no advice), and
as advised after measuring. How many have other partners than with an honest client (the liar left out of the count),
how their accuracies change, and whether the training is called out afterwards (`advice.promises`).
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from fedcollab import advise, c_path, scenarios, solve
from fedcollab.data import ClientData
from fedcollab.distances import estimate_distances
from fedcollab.errors import FedcollabWarning
from fedcollab.federation import federate
from fedcollab.report.judgement import Judgement
from fedcollab.training import compare, train
from fedcollab.wire import Wire
from fedcollab.wire.action import Action
from fedcollab.wire.message import Message, pack, unpack

Lie = Callable[[str, Message], Message]


class Lying(Wire):
    """The first client answers with what `lie` makes of its honest replies."""

    def __init__(self, clients: Iterable[ClientData], lie: Lie) -> None:
        super().__init__(clients)
        self.lie = lie

    def _serve(self, action: Action, name: str, content: bytes) -> bytes:
        reply = super()._serve(action, name, content)
        return pack(self.lie(action.name, unpack(reply))) if name == self.names[0] else reply


def honest(action: str, reply: Message) -> Message:
    return reply


def accuracy_of(value: float) -> Lie:
    def lie(action: str, reply: Message) -> Message:
        if action != "few-validate":
            return reply
        found = reply["found"].copy()
        found[:, 0], found[:, 2:] = value, value
        found[:, 1] = 1e-6
        return {**reply, "found": found}

    return lie


def more_samples(then: Lie, times: int = 100) -> Lie:
    def lie(action: str, reply: Message) -> Message:
        if action in ("describe", "prepare"):
            reply = {**reply, "quantity": times * reply["quantity"]}
        if action == "describe":
            reply["label_counts"] = {label: times * count for label, count in reply["label_counts"].items()}
            reply["sum"] = times * reply["sum"]
        if action == "spread":
            reply = {**reply, "squares": times * reply["squares"]}
        if action == "few-moments":
            reply = {**reply, "m": np.float32(times) * reply["m"]}
        return then(action, reply)

    return lie


def reversed_weights(action: str, reply: Message) -> Message:
    return {**reply, "w": -reply["w"]} if action == "train" and "w" in reply else reply


def always_reversed(action: str, reply: Message) -> Message:
    return {**reply, "w": -reply["w"]} if action in ("train", "train-folds") and "w" in reply else reply


LIES: dict[str, Lie] = {
    "honest": honest,
    "near": accuracy_of(0.0),
    "far": accuracy_of(1.0),
    "100 x samples": more_samples(honest),
    "near, 100 x samples": more_samples(accuracy_of(0.0)),
    "reversed weights": reversed_weights,
    "reversed weights, 100 x samples": more_samples(reversed_weights),
    "always reversed, 100 x samples": more_samples(always_reversed),
}


Outcome = tuple[dict[str, frozenset[str]], dict[str, float], bool]


def outcome(clients: list[ClientData], lie: Lie, rounds: int, advised: bool) -> Outcome:
    """Return the partners and accuracies of the honest clients, and whether the liar or its coalition was called out.

    Without advice, a liar is called out by being left out (an absence); with it, by `broken_promises` too.
    """
    liar = clients[0].name
    federation = federate(Lying(clients, lie), scale="none")
    how: dict[str, Any] = {"model": "logistic", "rounds": rounds, "lr": 0.1}
    distances = estimate_distances(federation, method="few-round")
    called_out = not distances.observed[distances.names.index(liar)].all()
    if advised:
        advice = advise(federation, distances=distances, **how)
        coalitions = advice.candidate.coalitions
        results = {"coalitions": train(federation, advice), "local": train(federation, "local", **how)}
        judgement = Judgement.of(results, compare(federation, results), advice.names, advice=advice)
        called_out |= any(liar in promise.members for promise in judgement.broken())
    else:
        coalitions = solve(distances, C=c_path(distances).suggested.C).coalitions
        results = {"coalitions": train(federation, coalitions, stopping="none", **how)}
    result = results["coalitions"]
    partners = {name: frozenset(members) - {liar} for members in coalitions for name in members if name != liar}
    accuracy = {name: value for name, value in zip(result.names, result.reported.tolist(), strict=True) if name != liar}
    return partners, accuracy, called_out or bool(result.failures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    print(
        "| the lie | followed | honest clients with other partners, of 19 | their mean accuracy | the worst of them "
        "| called out |\n|---|---|---|---|---|---|"
    )
    for advised, words in ((False, "distances"), (True, "advice")):
        rows: dict[str, list[tuple[int, float, float, bool]]] = {name: [] for name in LIES}
        for seed in range(given.seeds):
            clients = sorted(scenarios.make("digits", seed=seed).clients, key=lambda client: client.name)
            reference: Outcome | None = None
            for name, lie in LIES.items():
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", FedcollabWarning)
                    partners, accuracy, called_out = outcome(clients, lie, given.rounds, advised)
                reference = reference or (partners, accuracy, called_out)
                moved = sum(partners[client] != reference[0][client] for client in partners)
                lost = [accuracy[client] - reference[1][client] for client in accuracy]
                rows[name].append((moved, float(np.mean(lost)), float(np.min(lost)), called_out))
                print(f"seed {seed}, {words}, {name}: {moved}, {np.mean(lost):+.3f}", file=sys.stderr, flush=True)
        for name, found in rows.items():
            moved, mean, worst, out = (np.array(column, dtype=float) for column in zip(*found, strict=True))
            shown = f"{moved.mean():.1f} | {mean.mean():+.3f} | {worst.min():+.3f} | {int(out.sum())} of {len(out)}"
            print(f"| {name} | {words} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
