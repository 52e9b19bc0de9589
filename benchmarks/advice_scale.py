"""How the advice scales: memory, time and whether it is still right, with 10, 30 and 100 clients.

    python benchmarks/advice_scale.py

Clients of 200 rows are dealt from one real table (flights_carriers, benchmarks/federations.py); every second client has
its labels turned round, so that two coalitions are right. Each number of clients is measured in a process of its own.
Printed: CPU seconds and peak memory of `advise` (what was there before it included), what was advised, and whether the
coalitions are the two kinds.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
import warnings

import numpy as np
import pandas as pd

from fedcollab import ClientData, advise
from fedcollab.errors import FedcollabWarning
from fedcollab.seeds import generator
from federations import load

TABLE, ROWS = "flights_carriers", 200


def two_kinds(count: int, seed: int) -> list[ClientData]:
    """Return clients that were dealt from one table, every second one with its labels turned round."""
    parts = [client for split in range(4) for client in load(TABLE, split)]
    x = pd.concat([client.x for client in parts], ignore_index=True)
    y = np.concatenate([np.asarray(client.y) for client in parts])
    names = np.unique(y)
    order = generator(seed, "two kinds").permutation(len(y))[: count * ROWS].reshape(count, ROWS)
    return [
        ClientData(
            f"client {k:03d}",
            x.iloc[rows].reset_index(drop=True),
            np.where(y[rows] == names[0], names[k % 2], names[1 - k % 2]),
        )
        for k, rows in enumerate(order)
    ]


def measure(count: int, model: str, seed: int) -> dict[str, object]:
    """Ask for an advice and return what it cost and what it says."""
    warnings.simplefilter("ignore", FedcollabWarning)
    clients = two_kinds(count, seed)
    started = time.process_time()
    advice = advise(clients, model=model, seed=seed)
    kinds = [{int(name.split()[1]) % 2 for name in members} for members in advice.coalitions]
    return {
        "cpu": time.process_time() - started,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "advised": advice.candidate.label,
        "right": len(kinds) == 2 and all(len(kind) == 1 for kind in kinds),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", default="10,30,100")
    parser.add_argument("--models", default="logistic,mlp")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--one", nargs=2, metavar=("CLIENTS", "MODEL"), help="Measure one, and print it as JSON.")
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(int(arguments.one[0]), arguments.one[1], arguments.seed)))
        return
    print("| model | clients | CPU s | GiB | advised | the two kinds |")
    print("|---|---|---|---|---|---|")
    for model in arguments.models.split(","):
        for count in arguments.clients.split(","):
            command = [sys.executable, __file__, "--seed", str(arguments.seed), "--one", count, model]
            found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            print(
                f"| {model} | {count} | {found['cpu']:.0f} | {found['memory']:.1f} | {found['advised']} "
                f"| {'yes' if found['right'] else 'no'} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
