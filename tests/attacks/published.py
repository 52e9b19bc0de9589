"""The eight attacks by which silos were broken before: each returns what it recovered, whatever the silo refuses.

An attack that a limit stops is tried once more in the most that the limit allows.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace

import numpy as np

from fedcollab.data.schema import Column
from fedcollab.distances.sampling import folds as folding

from .target import NAME, Recovered, Refusal, Target, judge

MOST = 60  # guesses of values: with more, chance alone would match many


def personal_model(target: Target) -> Recovered:
    """`evaluate` with `personal` and `keep` after one step of fine-tuning on a batch of one: the row is dW / db."""
    guesses = []
    with suppress(Refusal):
        target.prepare()
        setting = target.setting(algorithm="finetune", options={"steps": 1}, batch_size=1)
        for number in range(400):
            message = {"setting": setting, "round": number, "w": np.zeros(16, dtype=np.float32), "personal": True}
            message |= {"keep": True, "stay": False, "mean": False}
            own = target.ask("evaluate", message)["personal"][:12]
            guesses.append(own[:5] / own[10])
    return judge(target, guesses)


def invented_categories(target: Target) -> Recovered:
    """`prepare` with every age as a category of its own, then `few-moments`: M[age, j] is that patient's value j."""
    guesses = []
    with suppress(Refusal):
        columns = target.schema.columns
        assert columns is not None
        ages = tuple(str(age) for age in range(18, 90))
        crafted = replace(
            target.schema, columns=(Column("age", categories=ages), *columns[1:]), shape=(len(ages) + len(columns) - 1,)
        )
        target.prepare(crafted)
        width = crafted.shape[0]
        plan = {"seed": 0, "width": width, "folds": 2, "classes": 1, "min_samples": 1, "label_counts": "drawn"}
        triangle = target.ask("few-moments", plan)["m"].sum(axis=(0, 1))
        matrix = np.zeros((width + 1, width + 1))
        matrix[np.triu_indices(width + 1)] = triangle
        scale = columns[0]
        for place, age in enumerate(ages):
            if matrix[place, -1]:
                guesses.append(
                    [(int(age) - scale.mean) / scale.std, *matrix[place, len(ages) : -1] / matrix[place, -1]]
                )
    return judge(target, guesses, truth=target.schema.apply(target.data).x.astype(np.float64))


def public_folds(target: Target) -> Recovered:
    """100 repeats of `cross`: each update is a sum over rows that follow from the seed; a linear solve gives them."""
    guesses = np.zeros((0, 5))
    target.prepare()
    for repeats in (100, 20):
        guesses = guesses if len(guesses) else _solve_folds(target, repeats)
    return judge(target, guesses)


def _solve_folds(target: Target, repeats: int) -> np.ndarray:
    """Return the rows that solve the sums of this many repeats, or none if the silo refuses."""
    with suppress(Refusal):
        size, count = 20, 48
        plan = {"head": "features", "classes": 2, "seed": 0, "folds": 2, "replicates": 0, "sizes": [size]}
        target.ask("cross-open", {**plan, "repeats": [repeats], "targets": [1], "scales": [1.0]})
        moved = target.ask("cross-step", {"w": np.zeros((2 * repeats, 1, 6), dtype=np.float32)})["w"]
        sums, member = moved[:, 0, :5].astype(np.float64) * size, np.zeros((2 * repeats, count))
        for place in range(2 * repeats):
            parts = folding.cut(0, NAME, place // 2, np.zeros(count, dtype=np.int64), 2, "drawn")
            member[place, folding.split(parts, place % 2, size)[0]] = 1  # step 2, residual 1/2
        return np.linalg.lstsq(member, sums, rcond=None)[0]
    return np.zeros((0, 5))


def _kinks(grid: np.ndarray, values: np.ndarray) -> list[float]:
    """Return where a piecewise linear function, known on a grid, changes its slope: inside which cell, and where."""
    slope = np.diff(values) / np.diff(grid)
    unit = np.median(np.diff(slope)[np.abs(np.diff(slope)) > 1e-9]) if len(slope) else 1.0
    found = []
    for cell in range(1, len(slope) - 1):
        jump = slope[cell + 1] - slope[cell - 1]
        if abs(jump) > 0.5 * abs(unit) and abs(slope[cell] - slope[cell - 1]) > 1e-9:
            share = (slope[cell + 1] - slope[cell]) / jump
            found.append(grid[cell] + share * (grid[cell + 1] - grid[cell]))
    return found


def many_losses(target: Target) -> Recovered:
    """`losses` of 2,001 models: as a threshold moves along a column, the loss bends at every value."""
    guesses: list[float] = []
    target.prepare()
    for count in (2001, 300):
        with suppress(Refusal):
            steep, column, grid = 1e3, 2, np.linspace(-3.0, 3.0, count)
            models = np.zeros((count, 16), dtype=np.float32)
            models[:, 5 + column], models[:, 11] = steep, -steep * grid
            message = {"setting": target.setting(), "round": 1, "models": models}
            guesses = _kinks(grid, target.ask("losses", message)["losses"] / steep)[: 3 * MOST]
            break
    return judge(target, guesses, 2)


def many_discriminators(target: Target) -> Recovered:
    """`few-validate` with 2,001 thresholds as discriminators: the accuracy jumps at every value of a column."""
    guesses: list[float] = []
    target.prepare()
    with suppress(Refusal):
        plan = {"seed": 0, "width": 9, "folds": 2, "classes": 1, "min_samples": 1, "label_counts": "drawn"}
        target.ask("few-moments", plan)
    for count in (2001, 300):
        with suppress(Refusal):
            grid = np.linspace(-3.0, 3.0, count)
            w = np.zeros((count, 2, 1, 6), dtype=np.float32)
            w[..., 3], w[..., 5] = 1, -grid[:, None, None]
            shares = target.ask("few-validate", {"w": w, "targets": [1] * count, "replicates": 0})["found"][:, 0]
            steps = np.abs(np.diff(shares))
            places = np.argsort(-steps, kind="stable")[:MOST]
            guesses = [float(grid[place : place + 2].mean()) for place in places if steps[place] > 1e-9]
            break
    return judge(target, guesses, 3)


def one_test_sample(target: Target) -> Recovered:
    """A test split of one sample, and `evaluate` with a model for each column: the loss is a function of the value."""
    guesses, truth = [], target.rows[:1]
    with suppress(Refusal):
        target.prepare(replace(target.schema, test_share=1 / 60, seed=5))
        found = []
        for column in range(5):
            w = np.zeros(16, dtype=np.float32)
            w[5 + column] = 1
            message = {"setting": target.setting(), "round": 1, "w": w, "personal": False}
            measures = target.ask("evaluate", {**message, "keep": False, "stay": False, "mean": False})["measures"]
            found.append(np.log(np.expm1(measures[1])))  # softplus(x), or softplus(-x), by the label
        guesses = [found, [-value for value in found]]
        truth = target.silo.arrays.x_test.astype(np.float64)
    return judge(target, guesses, truth=truth)


def trap_weights(inputs: int, bins: np.ndarray, column: int) -> np.ndarray:
    """Return weights of an MLP whose hidden unit i is active where the column is above bins[i]."""
    count = len(bins)
    first = np.zeros((count, inputs))
    first[:, column] = 1
    second = np.zeros((2, count))
    second[1] = 1e-3
    return np.concatenate([first.ravel(), -bins, second.ravel(), np.zeros(2)])


def read_trap(update: np.ndarray, inputs: int, count: int) -> list[np.ndarray]:
    """Return the rows that fell between two neighbouring bins: differences of neighbouring units' updates."""
    weights, bias = update[: inputs * count].reshape(count, inputs), update[inputs * count : (inputs + 1) * count]
    weights, bias = np.diff(weights.astype(np.float64), axis=0), np.diff(bias.astype(np.float64))
    filled = np.abs(bias) > 1e-3 * np.abs(bias).max()
    return list(weights[filled] / bias[filled, None])


def trap_layer(target: Target) -> Recovered:
    """A first layer of parallel units with rising thresholds in `train`, with a partner that does not exist."""
    guesses: list[np.ndarray] = []
    with suppress(Refusal):
        target.prepare()
        bins = np.linspace(-3, 3, 400)
        setting = target.setting(model="mlp", model_options={"widths": [len(bins)]}, lr=1.0)
        guesses = read_trap(target.train(setting, trap_weights(5, bins, 3)), 5, len(bins))
    return judge(target, guesses)


def presence_by_norm(target: Target) -> Recovered:
    """`prepare` with one age as the only category, then `cross-norm`: the mean length says whether anyone has it."""
    right, asked = 0, range(20, 80)
    target.schema.apply(target.data)
    present = set(target.data.x["age"].tolist())
    for age in asked:
        told = None
        with suppress(Refusal):
            lengths = []
            for category in (str(age), "nobody"):
                crafted = json.loads(target.schema.to_json())
                crafted["columns"][0] |= {"categories": [category]}
                for column in crafted["columns"][1:]:
                    column["std"] = 1e12
                target.prepare(json.dumps(crafted))
                lengths.append(float(target.ask("cross-norm", {"head": "free"})["norm"][0]))
            told = lengths[0] > lengths[1] + 1e-9
        right += told is not None and told == (age in present)
    return Recovered(right, len(asked), 0.5, target.messages)


ATTACKS = {
    attack.__name__: attack
    for attack in (
        personal_model,
        invented_categories,
        public_folds,
        many_losses,
        many_discriminators,
        one_test_sample,
        trap_layer,
        presence_by_norm,
    )
}
