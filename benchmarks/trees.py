"""Are trees in a coalition of everyone as good as XGBoost on the pooled rows, and which way of boosting should do it?

    python benchmarks/trees.py

Real federations (benchmarks/federations.py), all clients in one coalition. Compared, with the rounds chosen on two
folds of the training rows by every way:

    pooled       the XGBoost library on the rows of all clients together: the ceiling
    histograms   fedcollab's model "xgboost": summed histograms
    bagging      each client boosts one tree with the library, all trees join with the weight of the client's rows, as
                 Flower's FedXgbBagging has it
    alone        fedcollab's model "xgboost", each client by itself
    logistic     fedcollab's logistic regression, everyone

Printed: mean test log loss over clients, what it is more than pooled, and CPU seconds; for pooled and histograms those
of one training of the chosen rounds, without the choice. Cells are kept in results/trees.jsonl: run again to go on.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import xgboost

from fedcollab import train
from fedcollab.data.split import fold_of
from fedcollab.errors import FedcollabWarning
from fedcollab.federation import federate
from fedcollab.seeds import generator
from federations import cached, load, names

WAYS = ("pooled", "histograms", "bagging", "alone", "logistic")
HERE = Path(__file__).resolve().parent
DEPTH, ETA = 3, 0.1


class Rows:
    """Prepared rows of all clients, and which client each is of."""

    def __init__(self, parts: list[tuple[Any, Any]]) -> None:
        self.x = np.concatenate([x.reshape(len(x), -1) for x, _ in parts])
        self.y = np.concatenate([y for _, y in parts])
        self.client = np.repeat(np.arange(len(parts)), [len(y) for _, y in parts])

    def part(self, kept: Any) -> Rows:
        """Return some of the rows."""
        chosen = object.__new__(Rows)
        chosen.x, chosen.y, chosen.client = self.x[kept], self.y[kept], self.client[kept]
        return chosen


def parameters(classes: int, depth: int = DEPTH, eta: float = ETA) -> dict[str, Any]:
    objective = (
        {"objective": "binary:logistic"} if classes == 2 else {"objective": "multi:softprob", "num_class": classes}
    )
    return {**objective, "max_depth": depth, "eta": eta, "tree_method": "hist", "nthread": 1}


def losses(margins: Any, y: Any) -> Any:
    """Return the log loss of each row."""
    scores = np.concatenate([np.zeros_like(margins), margins], 1) if margins.shape[1] == 1 else margins
    scores = scores - scores.max(1, keepdims=True)
    return np.log(np.exp(scores).sum(1)) - scores[np.arange(len(y)), y]


def pooled(training: Rows, testing: list[Rows], classes: int, rounds: int) -> list[list[Any]]:
    """Return for each set of test rows the losses after 1, 2, ... rounds of the library on all rows."""
    data = xgboost.DMatrix(training.x, training.y)
    booster = xgboost.train(parameters(classes), data, rounds)
    found = []
    for rows in testing:
        matrix = xgboost.DMatrix(rows.x)
        found.append([
            losses(booster.predict(matrix, output_margin=True, iteration_range=(0, t)).reshape(len(rows.y), -1), rows.y)
            for t in range(1, rounds + 1)
        ])  # fmt: skip
    return found


def bagging(training: Rows, testing: list[Rows], classes: int, rounds: int) -> list[list[Any]]:
    """Return the same of trees that each client boosts by itself and that join by the weight of its rows."""
    outputs = 1 if classes == 2 else classes
    counts = np.bincount(training.y, minlength=classes) + 0.5
    base = np.log(counts[1:] / counts[:1]) if classes == 2 else np.log(counts) - np.log(counts).mean()
    own = np.tile(base, (len(training.y), 1))
    held = [np.tile(base, (len(rows.y), 1)) for rows in testing]
    matrices = [xgboost.DMatrix(rows.x) for rows in testing]
    found: list[list[Any]] = [[] for _ in testing]
    options = {**parameters(classes), "base_score": 0.5}
    everyone = xgboost.DMatrix(training.x)
    for _ in range(rounds):
        grown = []
        for client in np.unique(training.client):
            mine = training.client == client
            data = xgboost.DMatrix(training.x[mine], training.y[mine])
            data.set_base_margin(own[mine].reshape(-1) if outputs == 1 else own[mine])
            grown.append((mine.mean(), xgboost.train(options, data, 1)))
        for margins, matrix in [(own, everyone), *zip(held, matrices, strict=True)]:
            matrix.set_base_margin(np.zeros(margins.size) if outputs == 1 else np.zeros(margins.shape))
            for share, booster in grown:
                margins += share * booster.predict(matrix, output_margin=True).reshape(margins.shape)
        for place, rows in enumerate(testing):
            found[place].append(losses(held[place], rows.y))
    return found


def by_library(way: Any, training: Rows, testing: Rows, classes: int, rounds: int, split: int) -> tuple[Any, int]:
    """Return each client's test loss after the rounds that are best on two folds, and how many those are."""
    fold = np.concatenate([
        fold_of(training.y[training.client == client], 2, generator(split, "benchmark folds", int(client)))
        for client in np.unique(training.client)
    ])  # fmt: skip
    curve = np.zeros(rounds)
    for held in (0, 1):
        rest = training.part(fold == held)
        (measured,) = way(training.part(fold != held), [rest], classes, rounds)
        curve += [by_client(each, rest).mean() for each in measured]
    best = int(curve.argmin()) + 1
    (measured,) = way(training, [testing], classes, best)
    return by_client(measured[-1], testing), best


def by_client(each: Any, rows: Rows) -> Any:
    return np.array([each[rows.client == client].mean() for client in np.unique(rows.client)])


def cell(name: str, split: int, way: str, rounds: int) -> dict[str, Any]:
    """Return the test losses of one way on one federation, and what they cost."""
    warnings.simplefilter("ignore", FedcollabWarning)
    clients = load(name, split)
    federation = federate(clients, seed=split)
    arrays = [federation.schema.apply(client) for client in clients]
    training = Rows([(each.x, each.y) for each in arrays])
    testing = Rows([(each.x_test, each.y_test) for each in arrays])
    classes, started = len(federation.schema.classes), time.process_time()
    if way in ("pooled", "bagging"):
        found, best = by_library(pooled if way == "pooled" else bagging, training, testing, classes, rounds, split)
        begun = time.process_time()
        if way == "pooled":
            xgboost.train(parameters(classes), xgboost.DMatrix(training.x, training.y), best)
    else:
        model = "logistic" if way == "logistic" else "xgboost"
        who, steps = ("local" if way == "alone" else "global"), ({"max_depth": DEPTH} if model == "xgboost" else {})
        result = train(
            federation, who, None, model, rounds=rounds, lr=ETA, seed=split, evaluate_every=None, model_options=steps
        )
        found, best = result.reported_loss, int(np.mean(result.rounds))
        begun = time.process_time()
        if way == "histograms":
            train(
                federation,
                who,
                None,
                model,
                rounds=best,
                lr=ETA,
                seed=split,
                evaluate_every=None,
                stopping="none",
                model_options=steps,
            )
    ended = time.process_time()
    return {
        "loss": [round(float(value), 6) for value in found],
        "rounds": best,
        "rows": len(training.y),
        "features": int(training.x.shape[1]),
        "cpu": round(begun - started, 2),
        "once": round(ended - begun, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", default="", help="Only these federations, with commas; by default all.")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--cells", type=Path, default=HERE.parent / "results" / "trees.jsonl")
    asked = parser.parse_args()
    wanted, ways = asked.names.split(",") if asked.names else names(), asked.ways.split(",")
    keys = [(name, split, way, asked.rounds) for name in wanted for split in range(asked.splits) for way in ways]
    cells = cached(asked.cells, keys, cell)
    print(f"\nmean test log loss over clients (against {ways[0]}; rounds; CPU seconds), {asked.splits} split(s)\n")
    print(f"| federation | rows | features | {' | '.join(ways)} |")
    print("|" + "---|" * (3 + len(ways)))
    for name in wanted:
        found = {way: [cells[name, split, way, asked.rounds] for split in range(asked.splits)] for way in ways}
        mean = {way: np.mean([np.mean(each["loss"]) for each in some]) for way, some in found.items()}
        told = [
            f"{mean[way]:.4f} ({100 * (mean[way] / mean[ways[0]] - 1):+.1f} %; "
            f"{np.mean([each['rounds'] for each in some]):.0f}; {sum(each['cpu'] for each in some):.0f} s, "
            f"once {sum(each['once'] for each in some):.2f} s)"
            for way, some in found.items()
        ]
        first = found[ways[0]][0]
        print(f"| {name} | {first['rows']} | {first['features']} | {' | '.join(told)} |")


if __name__ == "__main__":
    main()
