"""Attacks by what is told about errors, by measures that cost nothing, and on numeric targets."""

from __future__ import annotations

import json
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from fedcollab.data import ClientData
from fedcollab.silo.rounding import share_errors
from fedcollab.training.measures import COARSE
from fedcollab.training.models import size_of
from fedcollab.training.trees.forest import Forest, growing_of

from .crafted import COLUMN, hunt
from .target import NAME, Recovered, Refusal, Target, judge, patients
from .trees import edges_of, padded, size

#: a column by which patients are told apart
GLUCOSE = 2
#: up to which a sample's loss counts
CAP = 2 * (1 + np.log(2))


def numbers(seed: int, count: int = 60, name: str = NAME) -> ClientData:
    """Return a table of patients whose target is a number: how many days they stayed."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"age": rng.permutation(np.arange(20, 20 + count))})
    for column, mean, spread in (("pressure", 130, 15), ("glucose", 6, 1.5), ("weight", 75, 12), ("pulse", 70, 9)):
        table[column] = rng.normal(mean, spread, count)
    days = 9 + 2 * (table["glucose"] - 6) / 1.5 + (table["age"] - 50) / 20 + rng.normal(size=count)
    return ClientData(name, table, days.to_numpy())


def cell_forest(setting: str, low: float, high: float, inside: float, outside: float = 0.0, mark: float = 0.0) -> Any:
    """Return weights of a forest with one leaf for a cell of the attacked column; `mark` changes nothing it does."""
    how = growing_of(json.loads(setting)["model"])
    assert how is not None
    w = np.zeros(size(how.shape.parts), dtype=np.float32)
    forest = Forest.of(w, how.shape)
    forest.feature[0, 0, [0, 2]] = COLUMN + 1
    forest.threshold[0, 0, [0, 2]] = low, high
    right = forest.value.shape[2] // 2  # the first leaf right of the root
    forest.value[0, 0, right : right + right // 2] = inside - outside
    forest.base_score[-1] = outside
    forest.threshold[-1, 0, -1] = mark
    return padded(w)


def forest_errors(target: Target) -> Recovered:
    """`train-trees-folds` of a tree that is wrong by 10,000 in a cell: the standard error beside training alone."""
    target.prepare()
    setting = target.setting(model="xgboost", model_options={"rounds": 2, "max_depth": 2})
    plain = {"setting": setting, "folds": 2, **edges_of(np.zeros(0))}
    w = cell_forest(setting, 0, 0, 0)
    with suppress(Refusal):
        target.ask("train-alone", {**plain, "rounds": 1, "training": "a", "w": np.zeros_like(w[0])})

    def occupied(low: float, high: float) -> bool:
        w = np.concatenate([cell_forest(setting, low, high, 1e4)] * 2)
        message = {**plain, "round": 2, "level": 0, "w": w, "coalition": [NAME, "ghost"], "training": f"{low} {high}"}
        reply = target.ask("train-trees-folds", {**message, "train": True, "measure": True, "alone": [1, 0]})
        return bool(reply["held_out"][0, 2] > 5)

    return judge(target, hunt(occupied), COLUMN)


def free_levels(target: Target) -> Recovered:
    """`train-trees-folds` for the lower levels of a tree, which cost nothing, and measure the same tree each time."""
    target.prepare()
    setting = target.setting(model="xgboost", model_options={"rounds": 3, "max_depth": 8})
    plain = {"setting": setting, "folds": 2, **edges_of(np.zeros(0)), "round": 2, "coalition": [NAME, "ghost"]}
    number = iter(range(100_000))

    rows, share = len(target.rows), float(np.mean(target.silo.arrays.y == 0))  # `describe` tells both

    def occupied(low: float, high: float) -> bool:
        odds = 0.0  # logarithm: one patient of class 0 against nobody
        while abs(odds) < 5:
            training = str(next(number))
            for level in range(8):
                w = np.concatenate([cell_forest(setting, low, high, 6.0, mark=1.0 + next(number))] * 2)
                message = {**plain, "level": level, "w": w, "training": training, "train": True, "measure": True}
                loss, right = target.ask("train-trees-folds", message)["held_out"][0, :2]
                for answer, nobody, one, most in (
                    (loss, np.log(2), (CAP - np.log(2)) / rows, CAP),
                    (right, share, -1 / rows, 1),
                ):
                    error = COARSE * most / rows / np.sqrt(3)
                    odds += level and (2 * (answer - nobody) - one) * one / (2 * error**2)
        return odds > 0

    return judge(target, hunt(occupied, 25), COLUMN)


def opposite_cells(target: Target) -> Recovered:
    """`compare` two trees that say the opposite in a cell: how their losses go together tells if anyone is in it.

    Of 240 patients, 48 of them test samples; four parts of a column, each with the whole budget of a day.
    """
    clinic = Target(target.folder / "many", target.limits, partial(patients, count=240))
    clinic.prepare()
    setting = clinic.setting(model="xgboost", model_options={"rounds": 2, "max_depth": 2})
    truth = clinic.silo.arrays.x_test.astype(np.float64)
    number, guesses = iter(range(100_000)), list[float]()

    def occupied(low: float, high: float, day: Target) -> bool:
        together, known = 0.0, 0.0
        while known < 0.25:
            message: dict[str, Any] = {"trainings": ["a", "b"], "settings": [setting] * 2}
            pair = [cell_forest(setting, low, high, v, mark=1.0 + next(number))[0] for v in (6.0, -6.0)]
            spread = day.ask("compare", message | {"w0": pair[0], "w1": pair[1]})["spread"]
            coarse = 1 + day.limits.round_measures * day.guards[NAME].spent(None)["models"] / 20
            own = np.sqrt(spread[0, 0] * spread[1, 1]) / (
                1 + day.limits.round_measures * coarse**2 / 3
            )  # less the error of rounding
            together += (1 / 3 + spread[0, 1] / own) / coarse**2
            known += 1 / coarse**2
        return together < 0

    for place, ends in enumerate(((0.5, 0.8), (0.8, 1.2), (1.2, 1.8), (1.8, 3.0))):
        day = clinic.another_day(place)
        day.prepare()
        guesses += hunt(partial(occupied, day=day), ends=ends)
        target.messages, target.refusals = target.messages + day.messages, day.refusals
    clinic.messages = target.messages
    return judge(clinic, guesses, COLUMN, truth)


def twin_errors(target: Target) -> Recovered:
    """`evaluate` of a numeric target: RMSE and MAE have one error, so that their difference has none."""
    clinic = Target(target.folder / "numbers", target.limits, numbers)
    clinic.prepare()
    setting = clinic.setting(model="xgboost", model_options={"rounds": 2, "max_depth": 2})
    truth = clinic.silo.arrays.x_test.astype(np.float64)
    unit = clinic.schema.target[1]

    def occupied(low: float, high: float) -> bool:
        for inside in (0.0, 1.2, -1.2):
            w = cell_forest(setting, low, high, inside, 100.0)[0]
            message = {"setting": setting, "round": 1, "w": w, "personal": False, "keep": False, "stay": False}
            measures = clinic.ask("evaluate", {**message, "mean": False, "coalition": [NAME, "ghost"]})["measures"]
            if abs((measures[2] / unit) ** 2 / 2 - measures[3] / unit) > 1e-6:
                return True
        return False

    found = judge(clinic, hunt(occupied), COLUMN, truth)
    target.messages, target.refusals = clinic.messages, clinic.refusals
    return found


def alone_thresholds(target: Target) -> Recovered:
    """`train-alone` of trees that may split at one threshold: of two measures with one error the first is known.

    Before any tree the most frequent class is given, whose share is known; so the accuracy of the tree is exact, and
    changes by one patient where the threshold passes her.
    """
    target.prepare()
    options = {"rounds": 1, "max_depth": 1, "reg_lambda": 0.0, "min_child_weight": 0.0}
    setting = target.setting(model="xgboost", model_options=options, lr=1.0)
    w = np.zeros(size_of(json.loads(setting)["model"]), dtype=np.float32)
    rows, known = len(target.rows), dict[float, int]()
    shares = np.arange(rows + 1) / rows
    errors = share_errors(shares, rows)
    first = int(np.bincount(target.silo.arrays.y).max())  # `describe` tells it

    def right(threshold: float) -> int:
        if threshold not in known:
            cuts = edges_of(np.array([threshold]), GLUCOSE)
            asked = {"setting": setting, "folds": 2, "rounds": 1, "training": f"{threshold}", "w": w, **cuts}
            before, after = target.ask("train-alone", asked)["held_out"][:2, 0, 1]
            error = (before - shares[first]) / errors[first]
            known[threshold] = int(np.abs(shares + error * errors - after).argmin())
        return known[threshold]

    return judge(target, hunt(lambda low, high: right(low) != right(high), 50, (-1.0, 1.0)), GLUCOSE)


def outermost_rows(target: Target) -> Recovered:
    """Units that one patient alone activates, the outermost of a column: her row, but for the update's error.

    A trap in round 11 of one training after the other, so that the silo's own attack sees the mean of 48 rounds alone,
    and the attacker that of a day.
    """
    guesses: list[np.ndarray] = []
    target.prepare()
    cuts = np.linspace(1.2, 2.6, 8)
    sides = np.repeat(np.concatenate([np.eye(5), -np.eye(5)]), len(cuts), axis=0)
    units = len(sides)
    setting = target.setting(model="mlp", model_options={"widths": [units]}, lr=0.1, batch_size=64)
    trap = np.zeros(size_of(json.loads(setting)["model"]))
    trap[: 6 * units] = 0.05 * np.concatenate([sides.ravel(), np.tile(-cuts, 10)])
    trap[7 * units : 8 * units] = 0.05
    total = np.zeros_like(trap)
    for training in range(30):
        with suppress(Refusal):  # from one of them rows could be read: on to the next
            for number in range(11, 59):
                w, since = trap.copy(), {} if number == 11 else {"since": number - 1}
                w[0] += 1e-6 * number + 1e-4 * training
                total += target.train(setting, w, number, training=f"t{training}", **since)
    layer = np.concatenate([total[: 5 * units].reshape(units, 5), total[5 * units : 6 * units, None]], axis=1)
    guesses = [row[:5] / row[5] for row in (*layer, *np.diff(layer, axis=0)) if abs(row[5]) > 1e-9]
    return judge(target, guesses)


ATTACKS = {
    attack.__name__: attack
    for attack in (forest_errors, free_levels, opposite_cells, twin_errors, alone_thresholds, outermost_rows)
}
