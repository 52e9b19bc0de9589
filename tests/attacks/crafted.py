"""Attacks by crafted models and plans: exact zeros, refusals, what is not measured, and traps that nobody looks for."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from fedcollab.training.measures import COARSE
from fedcollab.training.models import Network, size_of

from .published import read_trap, trap_weights
from .target import NEAR_VALUE, NEVER, Recovered, Refusal, Target, chance_of, judge

COLUMN = 3
#: where the values that are hunted lie, and how narrow a cell must be for its middle to be a guess
LOW, HIGH, NARROW = 0.5, 3.0, 1.5 * NEAR_VALUE

Oracle = Callable[[float, float], bool]


def hunt(occupied: Oracle, parts: int = 1, ends: tuple[float, float] = (LOW, HIGH)) -> list[float]:
    """Return the middles of narrow cells that hold a value: halve every cell that is not empty, until refused."""
    found: list[float] = []
    cells = list(itertools.pairwise(np.linspace(*ends, parts + 1).tolist()))
    with suppress(Refusal):
        while cells:
            low, high = cells.pop()
            if not occupied(low, high):
                continue
            if high - low < NARROW:
                found.append((low + high) / 2)
                continue
            middle = (low + high) / 2
            cells += [(low, middle), (middle, high)]
    return found


def box(low: float, high: float, height: float, bias: float = 0.0) -> np.ndarray:
    """Return weights of an MLP of three units that gives class 1 `height` more between two values of a column."""
    first = np.zeros((3, 5))
    middle = (low + high) / 2
    first[:, COLUMN] = 1
    second = np.zeros((2, 3))
    second[1] = height / (middle - low) * np.array([1.0, -2.0, 1.0])
    return np.concatenate([first.ravel(), -np.array([low, middle, high]), second.ravel(), [0, bias]])


def boxes_of(target: Target) -> tuple[str, int]:
    """Return the setting of the model of `box`, and its padded size."""
    setting = target.setting(model="mlp", model_options={"widths": [3]})
    return setting, size_of(json.loads(setting)["model"])


def padded(w: np.ndarray, size: int) -> np.ndarray:
    """Return flat weights with zeros behind."""
    full = np.zeros(size, dtype=np.float32)
    full[: len(w)] = w
    return full


def empty_losses(target: Target) -> Recovered:
    """`losses` of a model that differs from guessing inside a cell alone: exactly ln 2 where nobody is in it."""
    target.prepare()
    setting, size = boxes_of(target)

    def occupied(low: float, high: float) -> bool:
        models = padded(box(low, high, 4.0), size)[None]
        answer = target.ask("losses", {"setting": setting, "round": 1, "models": models})["losses"][0]
        return abs(float(answer) - np.log(2)) > 1e-6

    return judge(target, hunt(occupied), COLUMN)


def outlier_losses(target: Target) -> Recovered:
    """`losses` of a model that fails by a loss of 10,000 in a cell alone: rounding grows with the loss, so it shows."""
    target.prepare()
    setting, size = boxes_of(target)

    def occupied(low: float, high: float) -> bool:
        models = padded(box(low, high, 1e4), size)[None]
        return float(target.ask("losses", {"setting": setting, "round": 1, "models": models})["losses"][0]) > 5

    return judge(target, hunt(occupied), COLUMN)


def same_outcomes(target: Target) -> Recovered:
    """`compare` a model that differs inside a cell alone with guessing: counts and losses are the same if it is empty.

    The values are those of test samples.
    """
    target.prepare()
    setting, size = boxes_of(target)
    truth = target.silo.arrays.x_test.astype(np.float64)

    def occupied(low: float, high: float) -> bool:
        message: dict[str, Any] = {"trainings": ["a", "b"], "settings": [setting] * 2}
        message |= {"w0": padded(box(low, high, 4.0), size), "w1": padded(box(low, high, 1e-30), size)}
        reply = target.ask("compare", message)
        return abs(reply["loss"][0] - reply["loss"][1]) > 1e-9 or abs(np.diff(np.diag(reply["spread"])[:2])[0]) > 1e-9

    return judge(target, hunt(occupied), COLUMN, truth)


def replicate_changes(target: Target) -> Recovered:
    """`few-validate` with replicates: less the accuracy, they are the same for discriminators that do the same.

    So a half-space that ends in a cell tells exactly whether anyone is in it.
    """
    target.prepare()
    plan = {"seed": 0, "width": 9, "folds": 2, "classes": 1, "min_samples": 1, "label_counts": "drawn"}
    with suppress(Refusal):
        target.ask("few-moments", plan)

    def occupied(low: float, high: float) -> bool:
        w = np.zeros((2, 2, 1, 6), dtype=np.float32)
        w[..., COLUMN], w[0, ..., 5], w[1, ..., 5] = 1, -low, -high
        found = target.ask("few-validate", {"w": w, "targets": [1, 1], "replicates": 8})["found"]
        moved = found[:, 2:] - found[:, :1]
        return float(np.abs(moved[0] - moved[1]).max()) > 1e-9

    return judge(target, hunt(occupied), COLUMN)


def refused_training(target: Target) -> Recovered:
    """`train` from weights that a refusal tells apart: a loss out of this world if anyone is in the cell.

    A silo that is first asked in a later round takes weights that as many rounds could have reached; refusals are free
    unless they are counted.
    """
    target.prepare()
    setting, size = boxes_of(target)
    number = iter(range(10_000))

    def occupied(low: float, high: float) -> bool:
        w = box(low, high, 1e4 * (high - low))
        message = {"setting": setting, "round": 11, "training": str(next(number)), "w": padded(w, size)}
        try:
            target.update("train", message)
        except Refusal as error:
            if any(word in str(error) for word in ("allows", "start from")):  # no refusal by the samples
                raise
            return True
        return False

    return judge(target, hunt(occupied), COLUMN)


def late_trap(target: Target) -> Recovered:
    """A trap in the first message of a training, said to be of round 11, and 80 rounds parked there: their mean.

    The trap is as large as the silo lets it be, and moves by next to nothing each round.
    """
    return _parked(target, np.ones(64), {})


def turned_trap(target: Target) -> Recovered:
    """A late trap whose units count differently in the next layer, so that differences of two units show nothing.

    The attacker, who chose the factors, takes them out.
    """
    return _parked(target, np.random.default_rng(0).uniform(0.3, 3.0, 64) * np.resize([1, -1], 64), {})


def kept_bias(target: Target) -> Recovered:
    """A late trap whose biases stay with the silo: no ratio shows rows, but the attacker knows the gradients' sizes."""
    return _parked(target, np.ones(64), {"keep": ["0.bias"]})


def _parked(target: Target, factors: np.ndarray, more: dict[str, Any]) -> Recovered:
    """Return what a trap of 64 units with these factors of outgoing weights gives away in the mean of 80 rounds."""
    units, bins = 64, np.linspace(-2.6, 2.6, 64)
    guesses: list[np.ndarray] = []
    target.prepare()
    setting = target.setting(model="mlp", model_options={"widths": [units]}, lr=0.1, batch_size=64, **more)
    start = Network(json.loads(setting)["model"]).initial().numpy().astype(np.float64)
    total, rounds = np.zeros_like(start), 0
    for share in (1.0, 0.3, 0.1, 0.03):  # as large as it is let
        trap = np.zeros_like(start)
        small = trap_weights(5, bins, COLUMN) * share
        trap[: len(small)] = small
        outgoing = trap[6 * units : 8 * units].reshape(2, units)
        outgoing[0], outgoing[1] = 0.0, 0.05 * factors
        with suppress(Refusal):
            for number in range(11, 91):
                w = trap.copy()
                w[0] += 1e-6 * number
                since = {} if number == 11 else {"since": number - 1}
                total += target.train(setting, w, number, training=f"late {share}", **since)
                rounds += 1
        if rounds:
            break
    if rounds:
        mean = total / rounds
        layer = np.concatenate([mean[: 5 * units].reshape(units, 5), mean[5 * units : 6 * units, None]], axis=1)
        layer /= factors[:, None]
        if not np.any(layer[:, 5]):  # the size of a gradient follows from the weights that were sent
            layer[:, 5] = 1
            moved = np.diff(layer[:, :5], axis=0)
            sizes = [0.1 * 0.05 * p / 48 for p in (-0.5, 0.5)]
            guesses = [row / size for row in moved for size in sizes]
        else:
            flat = np.concatenate([layer[:, :5].ravel(), layer[:, 5]])
            guesses = read_trap(flat, 5, units)
    return judge(target, guesses)


def folds_as_measures(target: Target) -> Recovered:
    """`train-folds` without training: measures of models, of which a plan has as many as rounds. Twelve for a cell."""
    target.prepare()
    setting, size = boxes_of(target)
    number = iter(range(100_000))
    base = np.log(2)

    def occupied(low: float, high: float) -> bool:
        answers = []
        for _ in range(12):
            w = np.stack([padded(box(low, high, 4.0, 1e-6 * next(number)), size)] * 2)
            message = {"setting": setting, "round": 11, "folds": 2, "w": w, "train": False, "last": True}
            reply = target.update("train-folds", {**message, "training": str(next(number))})
            answers.append(reply["held_out"][0, 0])
        return abs(float(np.mean(answers)) - base) > 0.5 * 3.3 / 48

    return judge(target, hunt(occupied), COLUMN)


def walked_measures(target: Target) -> Recovered:
    """Begin `train-folds` as honest training does, walk to a step at a threshold, then spend all rounds on measures.

    A step of the loss that is as narrow as a guess: each answer says, within its error, whether anyone is above it. The
    largest value of one column and the smallest of another are looked for by probabilistic bisection, each with the
    whole budget of a day; the attacker even knows the label of the patient.
    """
    found, chances = 0, []
    tables = target.stranger_tables(500)
    for place, (column, sign) in enumerate(((1, 1), (2, -1))):
        fresh = target.another_day(place)
        guess, truth = _step_bisection(fresh, column, sign)
        target.messages += fresh.messages
        found += abs(guess - truth) < NEAR_VALUE
        drawn = np.array([(sign * table[:48, column]).max() for table in tables])
        chances.append(chance_of(np.abs(guess - drawn) < NEAR_VALUE))
    return Recovered(found, len(chances), float(np.mean(chances)), target.messages)


def step_model(column: int, sign: int, threshold: float, height: float) -> np.ndarray:
    """Return weights of an MLP of three units whose class 1 gains `height` where a column passes a threshold."""
    steep, width = 30.0, NEAR_VALUE
    first, second = np.zeros((3, 5)), np.zeros((2, 3))
    first[:2, column] = sign * steep
    second[1, :2] = height / (steep * width) * np.array([1.0, -1.0])
    bias = -steep * np.array([threshold, threshold + width, 0.0])
    return np.concatenate([first.ravel(), bias, second.ravel(), [0, 0]])


def _step_bisection(target: Target, column: int, sign: int) -> tuple[float, float]:
    """Return where the attacker believes the largest value of a column (times a sign) to be, and where it is."""
    target.prepare()
    values = sign * target.rows[:, column]
    label, truth = int(target.silo.arrays.y[values.argmax()]), float(values.max())
    setting = target.setting(model="mlp", model_options={"widths": [3]}, lr=1.0, batch_size=8, epochs=3)
    size = size_of(json.loads(setting)["model"])
    w = Network(json.loads(setting)["model"]).initial().numpy().astype(np.float64)
    grid = np.linspace(1.0, 4.0, 1501)
    belief = np.zeros(len(grid))  # logarithms of odds
    height = 6.0 * (1 - 2 * label)  # wrong for the patient
    goal = padded(step_model(column, sign, 2.5, height), size).astype(np.float64)
    message: dict[str, Any] = {"setting": setting, "folds": 2, "last": False, "training": "walk"}
    number, longest = 1, 0.0
    with suppress(Refusal):
        while np.abs(goal - w).max() > 1e-9 and number < 60:
            since = {} if number == 1 else {"since": number - 1}
            sent = np.stack([w.astype(np.float32)] * 2)
            reply = target.update("train-folds", {**message, "round": number, "train": True, "w": sent, **since})
            longest = max(longest, float(np.linalg.norm(reply["w"] - sent, axis=1).max()))
            gap = goal - w
            w = w + gap * min(1.0, 20 * longest / max(float(np.linalg.norm(gap)), 1e-12))
            number += 1
        for asked in range(2000):
            odds = np.exp(belief - belief.max())
            threshold = float(grid[np.searchsorted(np.cumsum(odds), odds.sum() / 2)])
            again = padded(step_model(column, sign, threshold, height), size)
            again[0] += 1e-5 * asked
            more = {"round": number + asked, "train": True, "w": np.stack([again] * 2), "since": number + asked - 1}
            loss = float(target.update("train-folds", {**message, **more})["held_out"][0, 0])
            gained, error = 2.7 / 48, COARSE * 3.39 / 48 / np.sqrt(3) * (1 + (number + asked) / 208)
            belief[grid > threshold] += ((loss - np.log(2)) ** 2 - (loss - np.log(2) - gained) ** 2) / (2 * error**2)
    odds = np.exp(belief - belief.max())
    return float(grid[np.searchsorted(np.cumsum(odds), odds.sum() / 2)]), truth


def other_schemas(target: Target) -> Recovered:
    """The same sums under schemas that differ in the split alone: what is the same question costs nothing.

    What is found is whether a day gives as many different sums over rows as there are rows: then their span holds every
    row's own products, by which rows are found.
    """
    found = set()
    for split in range(10):
        for folds in (2, 3, 4):
            for seed in range(5):
                with suppress(Refusal):
                    target.prepare(replace(target.schema, seed=split))
                    sums = target.ask("ridge-sums", {"folds": folds, "most": 9, "seed": seed})["products"]
                    found |= {matrix.tobytes() for matrix in sums}
                with suppress(Refusal):
                    plan = {"seed": seed, "width": 9, "folds": folds, "classes": 1, "min_samples": 1}
                    sums = target.ask("few-moments", {**plan, "label_counts": "drawn"})["m"]
                    found |= {matrix.tobytes() for matrix in sums.reshape(-1, sums.shape[-1])}
    return Recovered(int(len(found) >= len(target.rows)), 1, NEVER, target.messages)


def cross_thresholds(target: Target) -> Recovered:
    """`cross-step` of 300 steep discriminators: the updates of neighbouring thresholds differ by a row."""
    guesses: list[np.ndarray] = []
    with suppress(Refusal):
        target.prepare()
        grid = np.linspace(-2.6, 2.6, 300)
        plan: dict[str, Any] = {"head": "features", "classes": 2, "seed": 0, "folds": 2, "replicates": 0}
        plan |= {"sizes": [24] * 300, "repeats": [1] * 300, "targets": [0] * 300, "scales": [1.0] * 300}
        target.ask("cross-open", plan)
        w = np.zeros((600, 1, 6), dtype=np.float32)
        w[:, 0, COLUMN], w[:, 0, 5] = 1e4, -1e4 * np.repeat(grid, 2)
        moved = (target.ask("cross-step", {"w": w})["w"] - w).astype(np.float64)[::2, 0]
        between = np.diff(moved, axis=0)
        guesses = [row[:5] / row[5] for row in between if abs(row[5]) > 1e-6]
    return judge(target, guesses)


ATTACKS = {
    attack.__name__: attack
    for attack in (
        empty_losses,
        outlier_losses,
        same_outcomes,
        replicate_changes,
        refused_training,
        late_trap,
        turned_trap,
        kept_bias,
        folds_as_measures,
        walked_measures,
        other_schemas,
        cross_thresholds,
    )
}
