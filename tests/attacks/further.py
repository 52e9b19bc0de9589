"""Attacks of our own beside the published ones: what else a hostile coordinator could ask for."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace

import numpy as np

from fedcollab.silo import privacy

from .published import read_trap, trap_weights
from .target import NAME, Recovered, Refusal, Target, judge

TESTED = {"personal": False, "keep": False, "stay": False, "mean": False}


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
    return Recovered(right / len(asked), 0.5, target.messages)


def compare_thresholds(target: Target) -> Recovered:
    """`compare` of 200 threshold models in one message: counts of right test samples jump at every value."""
    guesses: list[float] = []
    column, grid = 1, np.linspace(-2.5, 2.5, 200)
    target.prepare()
    truth = target.silo.arrays.x_test.astype(np.float64)
    with suppress(Refusal):
        low = high = None
        for _ in range(2):  # once coarse, once inside the cells where counts jumped
            message = {"trainings": [f"t{place}" for place in range(len(grid))], "settings": [target.setting()] * len(grid)}
            for place, threshold in enumerate(grid):
                w = np.zeros(16, dtype=np.float32)
                w[5 + column], w[11] = 1e4, -1e4 * threshold
                message[f"w{place}"] = w
            right = np.diag(target.ask("compare", message)["right"])[:-1]
            jumps = np.flatnonzero(np.diff(right))
            low, high = grid[jumps], grid[jumps + 1]
            inner = max(2, 200 // max(len(jumps), 1))
            grid = np.unique(np.concatenate([np.linspace(a, b, inner) for a, b in zip(low, high, strict=True)]))[:200]
        assert low is not None
        guesses = ((low + high) / 2).tolist()
    return judge(target, guesses, column, truth)


def row_selector(target: Target) -> Recovered:
    """`train` a logistic model of huge weights: only misjudged rows have a gradient, so two thresholds give a row."""
    guesses = []
    with suppress(Refusal):
        target.prepare()
        updates = []
        for place, threshold in enumerate(np.linspace(-2.6, 2.6, 250)):
            w = np.zeros(12, dtype=np.float32)
            w[5 + 2], w[11] = 1e5, -1e5 * threshold
            updates.append(target.train(target.setting(lr=1e6 * 0.99), w, training=str(place)).astype(np.float64))
        for before, after in zip(updates, updates[1:], strict=False):
            moved = after - before
            if abs(moved[11]) > 1:
                guesses.append(moved[5:10] / moved[11])
    return judge(target, guesses)


def decay_as_eraser(target: Target) -> Recovered:
    """Weight decay that wipes out every step but the last, whose batch is one row: dW / db is that row."""
    guesses = []
    with suppress(Refusal):
        target.prepare()
        setting = target.setting(batch_size=47, weight_decay=9.99999)
        for number in range(1, 301):
            update = target.train(setting, np.zeros(12), number, training=str(number))
            guesses.append(update[:5] / update[10])
    return judge(target, guesses)


def small_rest(target: Target) -> Recovered:
    """47 rows a batch leave a last batch of one, which weighs as much as the 47; a round of 48 gives the mean."""
    guesses = []
    with suppress(Refusal):
        target.prepare()
        mean = target.train(target.setting(batch_size=48, lr=1e-3), np.zeros(12), 1, training="mean")
        for number in range(1, 301):
            setting = target.setting(batch_size=47, lr=1e-3)
            update = target.train(setting, np.zeros(12), number, training=str(number))
            alone = (update - 48 / 47 * mean).astype(np.float64)  # u = lr (m + x/1 - x/47), m of all rows
            guesses.append(alone[:5] / alone[10])
    return judge(target, guesses)


def many_folds(target: Target) -> Recovered:
    """`train-folds` with ten folds, asked again and again: differences of fold models are sums over four or five rows."""
    guesses = []
    with suppress(Refusal):
        target.prepare()
        for seed in range(200):
            message = {"setting": target.setting(lr=1.0, seed=seed), "round": 1, "folds": 10, "train": True}
            message |= {"last": False, "w": np.zeros((10, 16), dtype=np.float32), "coalition": [NAME, "ghost"]}
            moved = target.ask("train-folds", message)["w"].astype(np.float64)[:, :12]
            for rest in (43, 44):  # a fold has four or five of 48 rows
                sums = moved * rest
                total = sums.sum(axis=0) / 9
                alone = total - sums
                guesses += list(alone[:, :5] / alone[:, 10:11])
    return judge(target, guesses)


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
        for before, after in zip(updates, updates[1:], strict=False):
            moved = after - before
            if abs(moved[11]) > 1e-4:
                row = moved[5:10] / moved[11]
                guesses += [[*row[:2], value, *row[3:]] for value in np.linspace(-2.6, 2.6, 250)]
    return judge(target, guesses, truth=truth)


def other_run_ids(target: Target) -> Recovered:
    """The same noisy moments under 400 run ids: the mean of all has a twentieth of the noise of one."""
    answers = []
    noise = {"noise": privacy.noise_for(1.0, 1e-5), "epsilon": 1.0, "delta": 1e-5, "clip": 3.0}
    plan = {"seed": 0, "width": 9, "folds": 2, "classes": 1, "min_samples": 1, "label_counts": "drawn", "privacy": noise}
    with suppress(Refusal):
        target.prepare()
        for run in range(400):
            answers.append(target.ask("few-moments", plan, run=str(run))["m"])
    gained = 1 - 1 / np.sqrt(max(len(answers), 1))  # the share of the noise that averaging takes away
    return Recovered(float(gained), 0.0, target.messages)


def walking_trap(target: Target) -> Recovered:
    """Begin as honest training does, then move the weights towards the trap, a little each round, for 100 rounds."""
    guesses: list[np.ndarray] = []
    bins = np.linspace(-3, 3, 64)
    with suppress(Refusal):
        target.prepare()
        from fedcollab.training.models import Network

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
            w = w + gap * min(1.0, 0.99 * STRIDE * longest / max(float(np.linalg.norm(gap)), 1e-12))
    return judge(target, guesses)


STRIDE = 3.0  # how far one walks in a round, as a multiple of the longest update so far

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
    )
}
