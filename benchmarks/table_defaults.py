"""Which step size, batch size, weight decay and optimiser suit tables, once the rounds are chosen on held-out rows?

    python benchmarks/table_defaults.py

Each setting changes one default. The twelve federations that choices are made on (benchmarks/federations.py), one
split; each alone and everyone together; MLP and logistic regression. Printed: mean test log loss / accuracy over
clients, then federations; the paired difference in loss from the defaults with its standard error over federations;
and the same by the size of the clients, to see whether small ones want other batches. Cells are kept in
results/table_defaults.jsonl: run again to go on.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from fedcollab import train
from fedcollab.errors import FedcollabWarning
from federations import ASIDE, cached, load, names

SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "step .03": {"lr": 0.03},
    "step .3": {"lr": 0.3},
    "batch 16": {"batch_size": 16},
    "batch 64": {"batch_size": 64},
    "decay .001": {"weight_decay": 0.001},
    "decay .01": {"weight_decay": 0.01},
    "Adam .001": {"optimizer": "adam", "lr": 0.001},
    "Adam .01": {"optimizer": "adam", "lr": 0.01},
}
MODELS = ("logistic", "mlp")
POLICIES = {"alone": "local", "everyone": "global"}
#: clients of fewer training rows are small
SMALL = 100
HERE = Path(__file__).resolve().parent


def cell(name: str, split: int, model: str, policy: str, setting: str) -> dict[str, Any]:
    """Train once with the rounds chosen, and return what each client's test rows say."""
    warnings.simplefilter("ignore", FedcollabWarning)
    clients = load(name, split)
    started = time.process_time()
    result = train(clients, POLICIES[policy], "fedavg", model, evaluate_every=None, seed=split, **SETTINGS[setting])
    return {
        "loss": [round(float(value), 6) for value in result.reported_loss],
        "accuracy": [round(float(value), 6) for value in result.reported],
        "rows": [len(client.y) for client in clients],
        "rounds": float(np.mean(result.rounds)),
        "cpu": round(time.process_time() - started, 2),
    }


def differences(cells: dict[Any, Any], wanted: list[str], key: tuple[str, str, str], small: bool | None) -> str:
    """Return the mean difference in loss from the defaults, over federations, with its standard error."""
    model, policy, setting = key
    found = []
    for name in wanted:
        one, default = (cells[name, 0, model, policy, which] for which in (setting, "defaults"))
        pick = [small is None or (rows < SMALL) == small for rows in one["rows"]]
        change = (np.array(one["loss"]) - np.array(default["loss"]))[pick]
        if len(change):
            found.append(float(change.mean()))
    return f"{np.mean(found):+.4f} ± {np.std(found, ddof=1) / np.sqrt(len(found)):.4f}" if len(found) > 1 else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", default="", help="Only these federations, with commas; by default the twelve.")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--settings", default=",".join(SETTINGS), help="Only these settings, with commas.")
    parser.add_argument("--cells", type=Path, default=HERE.parent / "results" / "table_defaults.jsonl")
    arguments = parser.parse_args()
    wanted = arguments.names.split(",") if arguments.names else [name for name in names() if name not in ASIDE]
    settings = list(dict.fromkeys(["defaults", *arguments.settings.split(",")]))
    models = arguments.models.split(",")
    keys = [(n, 0, m, p, s) for m in models for s in settings for n in wanted for p in POLICIES]
    cells = cached(arguments.cells, keys, cell)
    print(f"\n{len(wanted)} federations, one split; mean test loss / accuracy over clients\n")
    print(
        f"| model | policy | setting | loss / accuracy | against the defaults | clients under {SMALL} rows "
        "| larger ones | rounds | CPU s |"
    )
    print("|" + "---|" * 9)
    for model in models:
        for policy in POLICIES:
            for setting in settings:
                these = [cells[name, 0, model, policy, setting] for name in wanted]
                loss, accuracy = (np.mean([np.mean(one[metric]) for one in these]) for metric in ("loss", "accuracy"))
                told = [differences(cells, wanted, (model, policy, setting), small) for small in (None, True, False)]
                rounds, cpu = np.mean([one["rounds"] for one in these]), sum(one["cpu"] for one in these)
                print(
                    f"| {model} | {policy} | {setting} | {loss:.4f} / {100 * accuracy:.2f} | {' | '.join(told)} "
                    f"| {rounds:.0f} | {cpu:.0f} |"
                )


if __name__ == "__main__":
    main()
