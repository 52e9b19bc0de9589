"""Does training stop in time? Rounds chosen on held-out training rows against every fixed number of rounds.

    python benchmarks/stopping.py --splits 5

Seventeen real federations (benchmarks/federations.py), MLP and logistic regression; policies: each alone, everyone
together, Ditto with everyone. "best fixed" is the number of rounds of 10, 20, 50 and 100
with the lowest mean test loss in hindsight, once for all federations and once for each. Cells are kept in
results/stopping.jsonl: run again to go on.
"""

from __future__ import annotations

import argparse
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from fedcollab import train
from fedcollab.errors import FedcollabWarning
from federations import ASIDE, cached, load, names

FIXED = (10, 20, 50, 100)
POLICIES = {
    "alone": ("local", "fedavg"),
    "everyone": ("global", "fedavg"),
    "ditto": ("global", "ditto"),
}
MODELS = ("mlp", "logistic")
HERE = Path(__file__).resolve().parent


def cell(name: str, split: int, model: str, policy: str) -> dict[str, Any]:
    """Train once to the last round, measured on the way, and once with the rounds that are chosen."""
    warnings.simplefilter("ignore", FedcollabWarning)
    coalitions, algorithm = POLICIES[policy]
    clients = load(name, split)
    full = train(
        clients, coalitions, algorithm, model, rounds=FIXED[-1], stopping="none", evaluate_every=10, seed=split
    )
    prefix = "personal_" if full.personal else ""
    fixed = {}
    for rounds in FIXED:
        rows = [row for row in full.history if row["round"] == rounds]
        fixed[rounds] = [float(np.mean([row[f"{prefix}{key}"] for row in rows])) for key in ("loss", "accuracy")]
    chosen = train(clients, coalitions, algorithm, model, rounds=FIXED[-1], evaluate_every=None, seed=split)
    return {
        "fixed": fixed,
        "chosen": [float(chosen.reported_loss.mean()), float(chosen.reported.mean())],
        "rounds": float(np.mean(chosen.rounds)),
        "cost": [full.cost["seconds"], chosen.cost["seconds"]],
        "clients": {
            "names": list(chosen.names),
            "loss": chosen.reported_loss.tolist(),
            "accuracy": chosen.reported.tolist(),
            "full_accuracy": full.reported.tolist(),
        },
    }


def against_the_last(cells: dict[Any, Any], wanted: list[str]) -> None:
    """Print where the choice is less accurate than the last round by more than .3 points, and how sure that is.

    The standard error is over splits, of the difference that each split gives.
    """
    print("\nLess accurate than 100 rounds by more than .3 points (difference ± standard error over splits):")
    for model in MODELS:
        for policy in POLICIES:
            told = []
            for name in wanted:
                values = [value for (n, _, m, p), value in cells.items() if (n, m, p) == (name, model, policy)]
                change = 100 * np.array([v["chosen"][1] - v["fixed"][str(FIXED[-1])][1] for v in values])
                if change.mean() < -0.3:
                    error = change.std(ddof=1) / np.sqrt(len(change)) if len(change) > 1 else np.nan
                    told.append(f"{name} {change.mean():+.1f} ± {error:.1f}")
            print(f"- {model}, {policy}: {', '.join(told) or 'none'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--names", default="", help="Only these federations, with commas; `aside` for the five.")
    parser.add_argument("--cells", type=Path, default=HERE.parent / "results" / "stopping.jsonl")
    arguments = parser.parse_args()
    wanted = list(ASIDE) if arguments.names == "aside" else arguments.names.split(",") if arguments.names else names()
    keys = [(n, s, m, p) for s in range(arguments.splits) for n in wanted for m in MODELS for p in POLICIES]
    cells = cached(arguments.cells, keys, cell)
    print(f"\n{len(wanted)} federations, {arguments.splits} splits; mean test loss / accuracy over clients\n")
    print(
        "| model | policy | "
        + " | ".join(f"{r} rounds" for r in FIXED)
        + " | best fixed of each | chosen | rounds | worst against 100 |"
    )
    print("|" + "---|" * (len(FIXED) + 6))
    for model in MODELS:
        for policy in POLICIES:
            by: dict[str, list[Any]] = defaultdict(list)
            for (name, _, m, p), value in cells.items():
                if (m, p) == (model, policy):
                    by[name].append(value)
            means = {name: {r: np.mean([v["fixed"][str(r)] for v in values], axis=0) for r in FIXED}
                     for name, values in by.items()}  # fmt: skip
            chosen = {name: np.mean([v["chosen"] for v in values], axis=0) for name, values in by.items()}
            each = np.mean([min(mean[r][0] for r in FIXED) for mean in means.values()])
            rounds = np.mean([v["rounds"] for values in by.values() for v in values])
            worst = min((100 * (chosen[name][1] - means[name][FIXED[-1]][1]), name) for name in by)
            columns = [np.mean([mean[r] for mean in means.values()], axis=0) for r in FIXED]
            total = np.mean(list(chosen.values()), axis=0)
            print(f"| {model} | {policy} | " + " | ".join(f"{c[0]:.4f} / {100 * c[1]:.2f}" for c in columns)
                  + f" | {each:.4f} | **{total[0]:.4f} / {100 * total[1]:.2f}** | {rounds:.0f} "
                  f"| {worst[0]:+.2f} ({worst[1]}) |")  # fmt: skip
    against_the_last(cells, wanted)
    ratio = sum(v["cost"][1] for v in cells.values()) / sum(v["cost"][0] for v in cells.values())
    print(f"\nTime with the choice, against training to the last round: {ratio:.2f} times.")


if __name__ == "__main__":
    main()
