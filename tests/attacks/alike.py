"""Attacks by units of a first layer that are alike, or that nobody activates: by many small questions in one update.

Both begin a training in round 11, from a layer that one row alone activates in many directions.
"""

from __future__ import annotations

import json
from contextlib import suppress

import numpy as np

from fedcollab.training.displaced import TAU
from fedcollab.training.models import size_of

from .target import Recovered, Refusal, Target, judge

COLUMNS = 5


def _directions(count: int) -> np.ndarray:
    """Return directions of length 1."""
    drawn = np.random.default_rng(0).normal(size=(count, COLUMNS))
    return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True))


def silent_units(target: Target) -> Recovered:
    """`train`: which units of a layer have no gradient at all says exactly how far the rows reach in each direction.

    All thresholds are halved in one message. How far rows reach in six directions that differ by a hair is the
    outermost row.
    """
    target.prepare()
    apart = 0.02
    sides = (_directions(200)[:, None] + apart * np.eye(COLUMNS + 1, COLUMNS, -1)).reshape(-1, COLUMNS)
    units = len(sides)
    setting = target.setting(model="mlp", model_options={"widths": [units]}, lr=0.5, batch_size=64)
    w = np.zeros(size_of(json.loads(setting)["model"]))
    w[: COLUMNS * units] = 0.005 * sides.ravel()
    w[(COLUMNS + 2) * units : (COLUMNS + 3) * units] = 0.05
    bias = slice(COLUMNS * units, (COLUMNS + 1) * units)
    low, high = np.zeros(units), np.full(units, 5.0)
    with suppress(Refusal):
        for number in range(11, 29):
            since = {} if number == 11 else {"since": number - 1}
            middle = (low + high) / 2
            w[bias] = -0.005 * middle
            reached = np.abs(target.train(setting, w, number, training="t", **since)[bias]) > 1e-9
            low, high = np.where(reached, middle, low), np.where(reached, high, middle)
    reach = ((low + high) / 2).reshape(-1, COLUMNS + 1)
    rows = (reach[:, 1:] - reach[:, :1]) / apart
    return judge(target, [*rows, *rows * (1 + TAU**2)])


def copied_units(target: Target) -> Recovered:
    """`train` of eight copies of each unit, in 26 trainings of 48 rounds: the errors of nearly 10,000 updates average.

    In each of 60 directions the unit is active for the outermost row, if it lies that far out.
    """
    target.prepare()
    sides, copies = _directions(60), 8
    units = copies * len(sides)
    setting = target.setting(model="mlp", model_options={"widths": [units]}, lr=0.1, batch_size=64)
    trap = np.zeros(size_of(json.loads(setting)["model"]))
    trap[: COLUMNS * units] = np.repeat(sides, copies, axis=0).ravel()
    trap[COLUMNS * units : (COLUMNS + 1) * units] = -1.9
    trap[(COLUMNS + 2) * units : (COLUMNS + 3) * units] = 1
    trap *= 0.05 / np.sqrt(copies)
    total = np.zeros_like(trap)
    for training in range(26):
        with suppress(Refusal):
            for number in range(11, 59):
                w, since = trap.copy(), {} if number == 11 else {"since": number - 1}
                w[0] += 1e-6 * number + 1e-4 * training
                total += target.train(setting, w, number, training=f"t{training}", **since)
    weights = total[: COLUMNS * units].reshape(len(sides), copies, COLUMNS).sum(axis=1)
    bias = total[COLUMNS * units : (COLUMNS + 1) * units].reshape(len(sides), copies).sum(axis=1)
    rows = weights[bias != 0] / bias[bias != 0, None]
    return judge(target, [*rows, *rows * (1 + TAU**2)])


ATTACKS = {attack.__name__: attack for attack in (silent_units, copied_units)}
