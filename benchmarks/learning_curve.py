"""Is a gain worth as many rows as is said? Clients that really get twice and four times their rows.

    python benchmarks/learning_curve.py --splits 2

Of the real federations (benchmarks/federations.py), clients with 400 training rows train alone on 100 of them, then on
200 and on 400. The gain is put into rows by the learning curve of the 100 rows (`fedcollab.training.learning_curve`)
for p = 0, 1/2 and 1; the truth is 2 and 4. Cells are kept in results/learning_curve.jsonl: run again to go on.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedcollab import ClientData, train
from fedcollab.errors import FedcollabWarning
from fedcollab.federation import federate
from fedcollab.training import compare, measure_learning_curve
from fedcollab.training.learning_curve import equivalent, times_rows
from federations import TRAINING, cached, load, names

ROWS, FACTORS, POWERS = 100, (2, 4), (0.0, 0.5, 1.0)
MODELS = ("logistic", "mlp")
FILE = Path(__file__).resolve().parent / "results" / "learning_curve.jsonl"


def with_rows(clients: list[ClientData], count: int) -> list[ClientData]:
    """Return the clients with their first training rows only."""
    return [replace(client, x=client.x[:count], y=client.y[:count]) for client in clients]


def cell(name: str, split: int, model: str) -> dict[str, Any]:
    """Return what each factor of rows gained, and what it is said to be worth."""
    warnings.simplefilter("ignore", FedcollabWarning)
    clients = [client for client in load(name, split) if client.quantity == TRAINING]
    if len(clients) < 2:
        return {}
    schema = federate(clients).schema
    few = federate(with_rows(clients, ROWS), schema=schema)
    alone = train(few, "local", model=model, seed=split, evaluate_every=None)
    halving = measure_learning_curve(few, alone, model=model, seed=split).loss_gain
    found: dict[str, Any] = {"halving": [halving.mean, halving.low]}
    for factor in FACTORS:
        many = federate(with_rows(clients, factor * ROWS), schema=schema)
        more = train(many, "local", model=model, seed=split, evaluate_every=None)
        gain = compare(few, {"local": alone, "more": more}).loss_gain("more", "local").average
        said = equivalent(gain, halving)
        told = not np.isnan(said.factor)
        found[str(factor)] = {
            "gain": gain.mean,
            "told": told,
            "held": bool(said.low <= factor <= said.high) if told else None,
            "said": [min(times_rows(gain.mean / halving.mean, power), 99.0) for power in POWERS] if told else None,
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=2)
    splits = parser.parse_args().splits
    keys = [(name, split, model) for split in range(splits) for name in names() for model in MODELS]
    cells = [value for value in cached(FILE, keys, cell).values() if value]
    print(f"\n{len(cells)} cells; of the factor that is said (p = 0, 1/2, 1): median and quartiles")
    for factor in FACTORS:
        told = [value[str(factor)] for value in cells if value[str(factor)]["told"]]
        said = np.array([value["said"] for value in told])
        held = np.mean([value["held"] for value in told])
        print(f"true factor {factor}: told in {len(told)} of {len(cells)}; the interval holds it in {100 * held:.0f} %")
        for power, values in zip(POWERS, said.T, strict=True):
            low, middle, high = np.quantile(values, (0.25, 0.5, 0.75))
            far = np.mean(np.abs(np.log2(values / factor)) > 1)
            print(f"  p = {power}: {middle:.2f} ({low:.2f} to {high:.2f}); off by more than 2 times: {100 * far:.0f} %")


if __name__ == "__main__":
    main()
