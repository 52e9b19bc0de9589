"""Are clients with one rule put together, like clients of one table and clients that differ in what does not matter?

    python benchmarks/like_clients.py --seeds 20

    like        six clients of 100 rows, dealt at random from one real table (benchmarks/federations.py)
    scanner     six clients of 150 rows with one rule, whose columns scanner, temperature and humidity differ and decide
                nothing; a tenth of the labels is flipped

For each seed the advice is asked for. Printed is how often everyone is to train together, with which verdict, and how
often in coalitions or alone.
"""

from __future__ import annotations

import argparse
import warnings
from collections import Counter

import numpy as np
import pandas as pd

from fedcollab import ClientData, advise
from fedcollab.errors import FedcollabWarning
from fedcollab.seeds import generator
from federations import load

TABLES = ("flights_carriers", "loans_states", "arrests_years")
CLIENTS, ROWS, SCANNED = 6, 100, 150


def like(table: str, seed: int) -> list[ClientData]:
    """Return clients that were dealt at random from one table."""
    clients = load(table, 0)
    x = pd.concat([client.x for client in clients], ignore_index=True)
    y = np.concatenate([np.asarray(client.y) for client in clients])
    order = generator(seed, "like clients", table).permutation(len(y))[: CLIENTS * ROWS].reshape(CLIENTS, ROWS)
    return [ClientData(f"client {k}", x.iloc[rows].reset_index(drop=True), y[rows]) for k, rows in enumerate(order)]


def scanner(seed: int) -> list[ClientData]:
    """Return clients with one rule that differ in three columns that decide nothing."""
    draw = generator(seed, "scanner")
    clients = []
    for k in range(CLIENTS):
        table = pd.DataFrame(
            draw.normal(size=(SCANNED, 6)), columns=["age", "dose", "weight", "scanner", "temperature", "humidity"]
        )
        table[["scanner", "temperature", "humidity"]] += draw.normal(scale=2, size=3)
        y = (table["age"] + table["dose"] > 0).to_numpy() ^ (draw.random(SCANNED) < 0.1)
        clients.append(ClientData(f"client {k}", table, y.astype(int)))
    return clients


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--models", default="logistic,mlp")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", FedcollabWarning)
    makers = {table: (lambda seed, table=table: like(table, seed)) for table in TABLES} | {"scanner": scanner}
    print("| clients | model | together | verdicts |")
    print("|---|---|---|---|")
    for model in arguments.models.split(","):
        for name, make in makers.items():
            found = [advise(make(seed), model=model, seed=seed) for seed in range(arguments.seeds)]
            together = sum(len(advice.coalitions) == 1 for advice in found)
            verdicts = Counter(f"{advice.verdict} ({advice.candidate.label})" for advice in found)
            told = "; ".join(f"{verdict}: {count}" for verdict, count in verdicts.most_common())
            print(f"| {name} | {model} | {together} of {arguments.seeds} | {told} |", flush=True)


if __name__ == "__main__":
    main()
