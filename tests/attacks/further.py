"""Attacks of our own beside the published ones: what else a hostile coordinator could ask for."""

from __future__ import annotations

import itertools
import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from fedcollab.silo import privacy
from fedcollab.training.folds import parts_of
from fedcollab.training.models import Network

from .published import MOST, read_trap, trap_weights
from .target import NEAR_VALUE, NEVER, Recovered, Refusal, Target, chance_of, judge

LR = 1.0


def start_of(setting: str) -> np.ndarray:
    """Return the weights that honest training of a logistic model would start from."""
    described = json.loads(setting)
    return Network(described["model"], seed=described["seed"]).initial().numpy()[:12]


def fingerprint_oracle(target: Target) -> Recovered:
    """The checksum of prepared data is the same for two categories that nobody has: so it tells which ages exist."""
    right, asked = 0, [*range(20, 80), *range(90, 150)]
    present = set(target.data.x["age"].tolist())
    for age in asked:
        told = None
        with suppress(Refusal):
            prints = []
            for category in (str(age), "nobody"):
                crafted = json.loads(target.schema.to_json())
                crafted["columns"][0] |= {"categories": [category]}
                target.prepare(json.dumps(crafted))
                prints.append(target.ask("fingerprint", {})["fingerprint"])
            told = prints[0] != prints[1]
        right += told is not None and told == (age in present)
    return Recovered(right, len(asked), 0.5, target.messages)


def compare_thresholds(target: Target) -> Recovered:
    """`compare` of 200 threshold models in one message: counts of right test samples jump at every value."""
    guesses: list[float] = []
    column, grid = 1, np.linspace(-2.5, 2.5, 200)
    # with a budget of 300 models the second look is coarser
    target.prepare()
    truth = target.silo.arrays.x_test.astype(np.float64)
    with suppress(Refusal):
        low = high = None
        for _ in range(2):  # once coarse, once inside the cells where counts jumped
            message = {
                "trainings": [f"t{place}" for place in range(len(grid))],
                "settings": [target.setting()] * len(grid),
            }
            for place, threshold in enumerate(grid):
                w = np.zeros(16, dtype=np.float32)
                w[5 + column], w[11] = 1e4, -1e4 * threshold
                message[f"w{place}"] = w
            right = np.diag(target.ask("compare", message).get("right", np.zeros((1, 1))))[:-1]
            jumps = np.flatnonzero(np.diff(right))
            low, high = grid[jumps], grid[jumps + 1]
            inner = max(2, len(grid) // max(len(jumps), 1))
            cells = [np.linspace(a, b, inner) for a, b in zip(low, high, strict=True)]
            grid = np.unique(np.concatenate([*cells, [0.0]]))[: 200 if len(grid) == 200 else 100]
        assert low is not None
        guesses = ((low + high) / 2).tolist()[:MOST]
    return judge(target, guesses, column, truth)


def row_selector(target: Target) -> Recovered:
    """`train` a logistic model of huge weights: only misjudged rows have a gradient, so two thresholds give a row."""
    guesses = []
    with suppress(Refusal):
        target.prepare()
        updates = []
        for place, threshold in enumerate(np.linspace(-2.6, 2.6, 250)):
            w = np.zeros(12, dtype=np.float32)
            w[5 + 2], w[11] = 1e4, -1e4 * threshold
            updates.append(target.train(target.setting(lr=LR), w, training=str(place)).astype(np.float64))
        for before, after in itertools.pairwise(updates):
            moved = after - before
            if abs(moved[11]) > 1e-3 * LR:
                guesses.append(moved[5:10] / moved[11])
    return judge(target, guesses)


def decay_as_eraser(target: Target) -> Recovered:
    """Weight decay that wipes out every step but the last, whose batch is one row: dW / db is that row."""
    guesses = []
    target.prepare()
    for decay in (9.99, 0.5):
        with suppress(Refusal):
            for number in range(1, 61):
                setting = target.setting(batch_size=47, weight_decay=decay, seed=number)
                start = start_of(setting)
                update = target.train(setting, start, training=str(number)) + start * (1 - (1 - decay * 0.1) ** 2)
                guesses.append(update[:5] / update[10])
            break
    return judge(target, guesses)


def small_rest(target: Target) -> Recovered:
    """47 rows a batch leave a last batch of one, which weighs as much as the 47; a round of 48 gives the mean."""
    guesses = []
    with suppress(Refusal):
        target.prepare()
        for number in range(1, 51):
            setting, other = (target.setting(batch_size=size, lr=1e-3, seed=number) for size in (47, 48))
            start = start_of(setting)
            mean = target.train(other, start, training=f"mean {number}")
            update = target.train(setting, start, training=str(number))
            alone = (update - 48 / 47 * mean).astype(np.float64)  # u = lr (m + x/1 - x/47), m of all rows
            guesses.append(alone[:5] / alone[10])
    return judge(target, guesses)


def many_folds(target: Target) -> Recovered:
    """`train-folds` with ten folds: differences of the fold models are sums over the four or five rows of two folds.

    The statistic is of the 45 pairs of folds: for how many the sum of their rows' gradients is known, against sums over
    the same folds with the rows of strangers.
    """
    target.prepare()
    setting = target.setting(lr=1e-3)
    start = Network(json.loads(setting)["model"], seed=0).initial().numpy()  # with its padding
    known = np.zeros((0, 5))
    parts = parts_of(target.silo, 10, 0)
    with suppress(Refusal):
        message = {"setting": setting, "round": 1, "folds": 10, "train": True, "last": False}
        reply = target.update("train-folds", {**message, "w": np.stack([start] * 10)})
        moved = (reply["w"] - start)[:, :5].astype(np.float64) if "w" in reply else np.zeros((10, 5))
        sums = moved / 1e-3 * np.array([[len(part.y)] for part in parts])
        known = np.stack([sums[j] - sums[i] for i in range(10) for j in range(i)])
    w, bias = start[:10].reshape(2, 5), start[10:12]

    def folded(rows: np.ndarray) -> np.ndarray:
        place, gradients = 0, []
        for part in parts:
            x, y = rows[place : place + len(part.y_held)], part.y_held.numpy()
            place += len(y)
            scores = np.exp(x @ w.T + bias)
            residual = scores[:, 0] / scores.sum(axis=1) - (y == 0)
            gradients.append(-residual @ x)  # the sum over all less this fold's is what its model was moved by
        return np.stack([gradients[i] - gradients[j] for i in range(10) for j in range(i)])

    def close(rows: np.ndarray) -> np.ndarray:
        return np.abs(known - folded(rows)).max(axis=1) < 0.03 if len(known) else np.zeros(45, dtype=bool)

    own = np.concatenate([part.x_held.numpy() for part in parts]).astype(np.float64)
    chance = chance_of(np.concatenate([close(table) for table in target.stranger_tables()]))
    return Recovered(int(close(own).sum()), 45, chance, target.messages)


def crafted_scales(target: Target) -> Recovered:
    """A scale a million times too small turns a harmless model into a threshold that picks single rows."""
    guesses = []
    truth = target.schema.apply(target.data).x.astype(np.float64)
    with suppress(Refusal):
        columns = target.schema.columns
        assert columns is not None
        updates = []
        for place, threshold in enumerate(np.linspace(-2.6, 2.6, 250)):
            chosen = columns[2]
            steep = replace(chosen, mean=chosen.mean + threshold * chosen.std, std=chosen.std * 1e-6)
            target.prepare(replace(target.schema, columns=(*columns[:2], steep, *columns[3:])))
            w = np.zeros(12, dtype=np.float32)
            w[5 + 2] = 1
            updates.append(target.train(target.setting(), w, training=str(place)).astype(np.float64))
        for before, after in itertools.pairwise(updates):
            moved = after - before
            if abs(moved[11]) > 1e-4:
                row = moved[5:10] / moved[11]
                guesses += [[*row[:2], value, *row[3:]] for value in np.linspace(-2.6, 2.6, 250)]
    return judge(target, guesses, truth=truth)


def other_run_ids(target: Target) -> Recovered:
    """The same noisy moments under 400 run ids: the mean of all has a twentieth of the noise of one."""
    answers = []
    noise = {"noise": privacy.noise_for(1.0, 1e-5), "epsilon": 1.0, "delta": 1e-5, "clip": 3.0}
    plan = {
        "seed": 0,
        "width": 9,
        "folds": 2,
        "classes": 1,
        "min_samples": 1,
        "label_counts": "drawn",
        "privacy": noise,
    }
    with suppress(Refusal):
        target.prepare()
        for run in range(400):
            answers.append(target.ask("few-moments", {**plan, "seed": run % 2}, run=str(run))["m"])
    further = max(0, len({answer.tobytes() for answer in answers}) - 1)  # beside the one that the silo may give
    return Recovered(further, 399, NEVER, target.messages)


def walking_trap(target: Target) -> Recovered:
    """Begin as honest training does, then move the weights towards the trap, a little each round, for 100 rounds."""
    guesses: list[np.ndarray] = []
    bins = np.linspace(-3, 3, 64)
    with suppress(Refusal):
        target.prepare()
        setting = target.setting(model="mlp", model_options={"widths": [len(bins)]}, lr=0.1, batch_size=16)
        w = Network(json.loads(setting)["model"]).initial().numpy().astype(np.float64)
        goal = np.zeros_like(w)
        trap = trap_weights(5, bins, 3)
        goal[: len(trap)] = trap
        longest, since = 0.0, {}
        for number in range(1, 101):
            update = target.train(setting, w, number, training="walk", **since)
            since = {"since": number}
            guesses += read_trap(update, 5, len(bins))
            longest = max(longest, float(np.linalg.norm(update)))
            gap = goal - w
            step = (0.2 if target.limits.secure_aggregation else 0.99) * STRIDE * longest  # others may move less
            w = w + gap * min(1.0, step / max(float(np.linalg.norm(gap)), 1e-12))
    return judge(target, guesses)


STRIDE = 30.0  # how far one walks in a round, as a multiple of the longest update so far


def creeping_trap(target: Target) -> Recovered:
    """A trap of three bins in a layer of 64 honest units, which moves on each round: few rows at a time."""
    guesses: list[np.ndarray] = []
    units, grid = 64, np.linspace(-2.5, 2.5, 200)
    with suppress(Refusal):
        target.prepare()
        setting = target.setting(model="mlp", model_options={"widths": [units]}, lr=0.1, batch_size=64)
        w = Network(json.loads(setting)["model"]).initial().numpy().astype(np.float64)
        first, bias = w[: 5 * units].reshape(units, 5), w[5 * units : 6 * units]
        for number in range(1, 6):  # a little each round, until the units of the trap are empty
            since = {} if number == 1 else {"since": number - 1}
            target.train(setting, w, number, training="creep", **since)
            first[:4], bias[:4] = first[:4] * (1 - number / 5), bias[:4] * (1 - number / 5)
        for number in range(6, 73):
            bins = grid[3 * (number - 6) :][:4]
            first[: len(bins), 3], bias[: len(bins)] = 0.15, -0.15 * bins
            second = w[6 * units : 8 * units].reshape(2, units)
            second[0, :4], second[1, :4] = 0.0, 0.1
            update = target.train(setting, w, number, training="creep", since=number - 1).astype(np.float64)
            layer = np.concatenate([update[: 5 * units].reshape(units, 5), update[5 * units : 6 * units, None]], axis=1)
            moved = np.diff(layer[: len(bins)], axis=0)
            guesses += list(moved[:, :5] / np.where(moved[:, 5:] == 0, np.nan, moved[:, 5:]))
    return judge(target, guesses)


def patient_bisection(target: Target) -> Recovered:
    """Spend the whole budget of models on one patient: the largest value of a column among the test samples.

    Models that give one class below a threshold and the other above it are asked about ten at a time, each time at the
    median of what the attacker believes, and every answer is weighed by its error (probabilistic bisection, Horstein
    1963). The attacker even knows how many samples are right while the threshold is above all values. Tried for the
    largest and the smallest value of three columns, each with the whole budget of a day.
    """
    found, chances = 0, []
    tables = target.stranger_tables(500)
    for place, (column, sign) in enumerate(itertools.product((1, 2, 3), (1, -1))):
        fresh = target.another_day(place)
        guess, truth = _bisect(fresh, column, sign)
        target.messages += fresh.messages
        found += abs(guess - truth) < NEAR_VALUE
        drawn = np.array([(sign * table[:12, column]).max() for table in tables])
        chances.append(chance_of(np.abs(guess - drawn) < NEAR_VALUE))
    return Recovered(found, len(chances), float(np.mean(chances)), target.messages)


def _bisect(target: Target, column: int, sign: int, each: int = 10) -> tuple[float, float]:
    """Return where the attacker believes the largest value of a column (times a sign) to be, and where it is."""
    target.prepare()
    values = sign * target.silo.arrays.x_test[:, column].astype(np.float64)
    labels = target.silo.arrays.y_test
    label = int(labels[values.argmax()])
    count, right = len(values), int((labels == label).sum())
    grid = np.linspace(0.0, 4.0, 2001)
    belief = np.zeros(len(grid))  # logarithms of odds
    with suppress(Refusal):
        for number in range(300 // each):
            odds = np.exp(belief - belief.max())
            threshold = float(grid[np.searchsorted(np.cumsum(odds), odds.sum() / 2)])
            message: dict[str, Any] = {"trainings": [f"{number} {k}" for k in range(each)]}
            message["settings"] = [target.setting()] * each
            for k in range(each):
                w, steep = np.zeros(16, dtype=np.float32), 1e4 + number + k / each
                flip = -1 if label else 1
                w[5 + column], w[11] = flip * sign * steep, -flip * steep * threshold
                message[f"w{k}"] = w
            reply = target.ask("compare", message)
            answer = float(np.mean(np.diag(reply["right"])[:each]))
            error = max(np.sqrt(right * (1 - right / count)), 2.0) * (1 + each * (number + 1) / 20) / np.sqrt(3 * each)
            above = ((right - answer) ** 2 - (right - 1 - answer) ** 2) / (2 * error**2)  # one sample less is right
            belief[grid > threshold] += above
    odds = np.exp(belief - belief.max())
    return float(grid[np.searchsorted(np.cumsum(odds), odds.sum() / 2)]), float(values.max())


ATTACKS = {
    attack.__name__: attack
    for attack in (
        fingerprint_oracle,
        compare_thresholds,
        row_selector,
        decay_as_eraser,
        small_rest,
        many_folds,
        crafted_scales,
        other_run_ids,
        walking_trap,
        creeping_trap,
        patient_bisection,
    )
}
