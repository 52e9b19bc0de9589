"""Does the advice keep up with the paper's coalitions where clients were planted in types?

    python benchmarks/planted_advice.py --scenarios digits,label-shift,concept-shift

For each scenario the advice is asked for and followed, and FedAvg is trained in the coalitions of the paper's procedure
(its C, `solve`), once by the same rule for the number of rounds and once for all of them, as the paper does. Distances,
models and step sizes are those of docs/results.md (concept shift: a head on a frozen encoder). Printed: whether the
paper's coalitions are the planted types (clients of too few samples may be anywhere), what was advised, and mean
accuracies over clients.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np

from fedcollab import Collaboration, advise, estimate_distances, solve, train
from fedcollab.errors import FedcollabWarning
from fedcollab.federation import encode_clients
from fedcollab.reproduce.setups import full
from fedcollab.scenarios import make

#: clients of fewer samples may be anywhere
FEW = 40


def clients_of(name: str, seed: int) -> tuple[list[Any], dict[str, int], dict[str, Any], Collaboration]:
    """Return clients, their planted types, how they are trained, and the coalitions of the paper's procedure."""
    scenario = make(name, seed=seed)
    types = dict(zip((client.name for client in scenario.clients), scenario.types, strict=True))
    clients, setup = list(scenario.clients), full().get(name)
    chosen = {key: scenario.settings[key] for key in ("model", "lr", "rounds", "C") if key in scenario.settings}
    encoder = None if setup is None else setup.encoder
    distances = estimate_distances(clients, encoder=encoder, scale=scenario.scale, seed=seed)
    paper = solve(distances, C=chosen.pop("C", 10.0))
    if setup is not None and setup.features:
        clients = list(encode_clients(clients, setup.features, scale=scenario.scale))
        chosen |= {"model": setup.model, "lr": setup.lr}
    return clients, types, {**chosen, "scale": scenario.scale}, paper


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenarios", default="digits,label-shift,concept-shift")
    parser.add_argument("--rounds", type=int, default=100, help="The most rounds.")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", FedcollabWarning)
    print(
        "| scenario | the paper's coalitions | are the types | advised | alone | paper, all rounds "
        "| paper, rounds chosen | as advised | CPU s |"
    )
    print("|" + "---|" * 9)
    for name in arguments.scenarios.split(","):
        started = time.process_time()
        clients, types, chosen, paper = clients_of(name, arguments.seed)
        how = {
            **chosen,
            "rounds": min(arguments.rounds, chosen.get("rounds", arguments.rounds)),
            "seed": arguments.seed,
        }
        large = {client.name for client in clients if client.quantity >= FEW}
        mixed = [{types[member] for member in group if member in large} for group in paper.coalitions]
        pure = all(len(kinds) <= 1 for kinds in mixed) and sum(map(len, mixed)) == len({types[n] for n in large})
        advice = advise(clients, **how)
        results = {
            "alone": train(clients, "local", evaluate_every=None, **how),
            "paper, all rounds": train(clients, paper, evaluate_every=None, stopping="none", **how),
            "paper": train(clients, paper, evaluate_every=None, **how),
            "advised": train(clients, advice, evaluate_every=None, **how),
        }
        means = " | ".join(f"{100 * np.nanmean(result.reported):.2f}" for result in results.values())
        spent = time.process_time() - started
        print(
            f"| {name} | {len(paper.coalitions)} | {'yes' if pure else 'no'} | {advice.candidate.label} "
            f"({advice.verdict}) | {means} | {spent:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
