"""Attacks that put answers together: of two actions, of two days, of two tables, of two columns, of two schemas."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from fedcollab.data import ClientData
from fedcollab.encoders import register_encoder
from fedcollab.inspection.profile import _checksum, _row_hashes
from fedcollab.wire.silo import Silo

from .deviations import numbers
from .state import doses
from .target import NAME, Recovered, Refusal, Target, chance_of, judge, matches, patients

Floats = np.ndarray
#: the measured columns of `patients`, which stand first, and the one by which patients are told apart
MEASURED, GLUCOSE = 5, 2


def products(triangle: Any) -> Floats:
    """Return the whole matrix of sums of products whose upper triangle this is."""
    side = int((np.sqrt(8 * len(triangle) + 1) - 1) / 2)
    upper = np.zeros((side, side))
    upper[np.triu_indices(side)] = triangle
    return upper + np.triu(upper, 1).T


def moments(clinic: Target, seed: int = 0, classes: int = 1, **more: Any) -> Floats:
    """Return the sums of products of `few-moments`, [folds, labels, columns, columns]."""
    plan = {"seed": seed, "width": 99, "folds": 2, "classes": classes, "min_samples": 1, "label_counts": "drawn"}
    found = clinic.ask("few-moments", {**plan, **more})["m"].astype(np.float64)
    return np.array([[products(triangle) for triangle in fold] for fold in found])


def one_of(target: Target, clinic: Target, guesses: Any, row: Floats) -> Recovered:
    """Return whether one of the guesses is the measured values of one patient."""
    target.messages, target.refusals = target.messages + clinic.messages, clinic.refusals
    strangers = np.concatenate(clinic.stranger_tables())[:, :MEASURED]
    hits = int(matches(guesses, row[None]).sum())
    return Recovered(hits, 1, chance_of(matches(guesses, strangers)), target.messages)


def lone_means(target: Target) -> Recovered:
    """`prototype-means` of a column that is 0 for all but one patient: so many times a label's mean is her value."""
    found = 0
    for place in range(4):
        clinic = Target(target.folder / f"doses {place}", target.limits, partial(doses, further=200 * place))
        clinic.prepare()
        assert clinic.schema.columns is not None
        (column,) = [each for each in clinic.schema.columns if each.name == "one"]
        guesses = []
        with suppress(Refusal):
            means = clinic.ask("prototype-means", {"classes": 2, "least": 2})["means"].astype(np.float64)
            counts = np.bincount(clinic.silo.arrays.y)  # `describe` tells them
            guesses = (counts * (means[:, clinic.schema.columns.index(column)] * column.std + column.mean)).tolist()
        found += bool(np.any(np.abs(np.array(guesses) - clinic.data.x["one"].max()) < 0.03))
        target.messages += clinic.messages
    return Recovered(found, 4, 2 * 0.06 / 60, target.messages)


def scans(seed: int, name: str = NAME) -> ClientData:
    """Return pictures of 8 x 8, one pixel of which is dark in all but one."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(1, 16, (60, 1, 8, 8)).astype(np.float32)
    x[:, 0, 0, 0] = 0
    x[rng.integers(60), 0, 0, 0] = rng.uniform(1, 16)
    return ClientData(name, x, rng.integers(0, 2, 60))


def lone_features(target: Target) -> Recovered:
    """`encode` sums features, one of which is 0 for all but one picture."""
    register_encoder("pixels as they are", lambda batch: batch.flatten(1))
    found = 0
    for place in range(4):
        clinic = Target(
            target.folder / f"scans {place}", target.limits, lambda seed, name=NAME, p=place: scans(seed + 50 * p, name)
        )
        clinic.prepare()
        dark, scale = -clinic.schema.mean[0] / clinic.schema.std[0], clinic.schema.std[0]
        with suppress(Refusal):
            summed = float(clinic.ask("encode", {"encoder": "pixels as they are"})["sum"][0])
            guess = (summed - len(clinic.silo.arrays.y) * dark) * scale
            found += abs(guess - float(clinic.data.x[:, 0, 0, 0].max())) < 0.003
        target.messages += clinic.messages
    return Recovered(found, 4, 0.006 / 15, target.messages)


def diagnoses(seed: int, name: str = NAME) -> ClientData:
    """Return 120 patients, one of whom alone has a third diagnosis."""
    plain = patients(seed, 120, name)
    y = np.random.default_rng(seed).permutation(np.arange(120) % 2)
    y[20] = 2
    return ClientData(name, plain.x, y)


def rare_label(target: Target) -> Recovered:
    """`describe` sums all patients, `prototype-means` those of each frequent label: what is left is the rare one's."""
    clinic = Target(target.folder / "diagnoses", target.limits, diagnoses)
    schema = clinic.prepare()
    assert schema.columns is not None
    guesses: list[Any] = []
    with suppress(Refusal):
        asked = {"scale": "features", "test_share": schema.test_share, "seed": schema.seed}
        reply = clinic.ask("describe", asked)
        shift, scale = (np.array([getattr(c, part) for c in schema.columns]) for part in ("mean", "std"))
        left = (reply["sum"] - reply["quantity"] * shift) / scale
        found = clinic.ask("prototype-means", {"classes": 3, "least": 2})
        counts = np.array([reply["label_counts"].get(str(label), 0) for label in range(3)])
        guesses = [left - (counts * found["known"]) @ found["means"].astype(np.float64)]
    return one_of(target, clinic, guesses, schema.features(clinic.data.x.iloc[[20]])[0].astype(np.float64))


def pooled_labels(target: Target) -> Recovered:
    """`few-moments` again and again: a rare label's sums are pooled now with one label, now with the other."""
    clinic = Target(target.folder / "diagnoses", target.limits, diagnoses)
    schema = clinic.prepare()
    alone: dict[int, Floats] = {}
    guesses: list[Any] = []
    with suppress(Refusal):
        for seed in range(8):
            sums = moments(clinic, seed, 3)[:, :, -1]  # sums of columns, and the number of rows
            shared = sums[:, 2] / np.maximum(sums[:, 2, -1:], 1e-9)
            for label in (0, 1):
                mean = sums[:, label] / np.maximum(sums[:, label, -1:], 1e-9)
                if np.abs(mean - shared).max(axis=1).min() > 1e-4:
                    alone[label] = sums[:, label].sum(axis=0)
            if len(alone) == 2:
                left = sums.sum(axis=(0, 1)) - alone[0] - alone[1]
                guesses.append(left[:MEASURED])
    return one_of(target, clinic, guesses, schema.features(clinic.data.x.iloc[[20]])[0].astype(np.float64))


def _grown(target: Target, rows: int) -> Silo:
    """Return the silo with so many of its last rows gone, and test data of its own."""
    data, count = target.data, len(target.data.y) - 12 - rows
    test = slice(-12, None)
    assert isinstance(data.x, pd.DataFrame)
    part = ClientData(NAME, data.x.iloc[:count], data.y[:count], data.x.iloc[test], data.y[test])
    return replace(target.silos[NAME], data=part, _rows=None, _arrays=None, _features=None)


def added_rows(target: Target) -> Recovered:
    """`describe` whenever a patient has been added: her row is the difference of two sums."""
    columns, sums = target.schema.columns, []
    assert columns is not None
    rows = target.schema.features(target.data.x).astype(np.float64)[-22:-12]
    for left in range(10, -1, -1):
        target.silos[NAME] = _grown(target, left)
        sums.append(target.ask("describe", {"scale": "features", "test_share": 0.2, "seed": 0})["sum"])
    shift, scale = (np.array([getattr(c, part) for c in columns]) for part in ("mean", "std"))
    guesses = (np.diff(sums, axis=0) - shift) / scale
    hits = int(matches(guesses, rows).sum())
    return Recovered(hits, len(rows), chance_of(matches(guesses, target.strangers)), target.messages)


def added_measures(target: Target) -> Recovered:
    """`losses` of 1,200 models in four days, before and after a patient is added: the same questions had one error.

    So n times the mean loss grows by the loss of the new patient, but for what is rounded; her row is what fits best.
    """
    draw, setting = np.random.default_rng(0), target.setting()
    w = draw.normal(size=(4, 300, 5))
    w *= 0.9 / np.linalg.norm(w, axis=2, keepdims=True)
    models = np.concatenate([np.zeros_like(w), w, np.zeros((4, 300, 6))], axis=2).astype(np.float32)
    rows = target.schema.features(target.data.x).astype(np.float64)[-22:-12]
    summed, guesses = [], []
    for left in range(10, -1, -1):
        answers = []
        for place in range(4):
            day = target.another_day(10 * left + place)
            day.silos[NAME] = _grown(target, left)
            day.prepare()
            answers.append(day.ask("losses", {"setting": setting, "round": 1, "models": models[place]})["losses"])
            target.messages += day.messages
        found = np.concatenate(answers)
        summed.append(np.where(found > 0, found * (len(target.data.y) - 12 - left), np.nan))
    signs = 1 - 2 * target.data.y[-22:-12]  # counts of labels tell them
    for losses, sign in zip(np.diff(summed, axis=0), signs, strict=True):
        known = np.isfinite(losses)
        slopes, losses, row = sign * w.reshape(-1, 5)[known], losses[known], np.zeros(5)
        for _ in range(20):
            score = slopes @ row
            row = row + np.linalg.lstsq(slopes / (1 + np.exp(-score))[:, None], losses - np.log1p(np.exp(score)))[0]
        guesses.append(row)
    hits = int(matches(guesses, rows).sum())
    return Recovered(hits, len(rows), chance_of(matches(guesses, target.strangers)), target.messages)


def _thresholds(target: Target, counts: Callable[[Floats, int], Floats]) -> Recovered:
    """Return what 600 thresholds find, sixty a day, the second half inside the cells where counts have changed."""
    grid, guesses = np.linspace(-2.2, 2.2, 300), list[float]()
    with suppress(Refusal):
        for half in range(2):
            above = np.concatenate([counts(part, 5 * half + day) for day, part in enumerate(grid.reshape(5, 60))])
            known = np.isfinite(above)
            grid, above = grid[known], above[known]
            jumps = np.flatnonzero((np.abs(np.diff(above)) > 0.5) & (np.diff(grid) < 0.1))
            low, high = grid[jumps], grid[jumps + 1]
            guesses = ((low + high) / 2).tolist()
            cells = [np.linspace(a, b, 7) for a, b in zip(low, high, strict=True)]
            grid = np.sort(np.resize(np.unique(np.concatenate([*cells, [0.0]])), 300))
    return judge(target, guesses[:60], GLUCOSE)


def flipped_targets(target: Target) -> Recovered:
    """`few-validate` on two days, with the sides of all pairs exchanged: accuracies a and 1 - a had one error."""

    def counts(grid: Floats, place: int) -> Floats:
        w = np.zeros((60, 2, 1, 6), dtype=np.float32)
        w[..., GLUCOSE], w[..., 5] = 1.0, -grid[:, None, None]
        found = []
        for side in (1, 0):
            day = target.another_day(10 * place + side)
            day.prepare()
            moments(day)
            found.append(day.ask("few-validate", {"w": w, "targets": [side] * 60, "replicates": 0})["found"][:, 0])
            target.messages += day.messages
        inside = (np.minimum(*found) > 0) & (np.maximum(*found) < 1)
        return np.where(inside, len(target.rows) * (1 + found[0] - found[1]) / 2, np.nan)

    return _thresholds(target, counts)


def known_losses(target: Target) -> Recovered:
    """`losses` of the same weights as another model, on another day: that one only guesses, which gives the error away.

    Both models have sixteen numbers; the loss of guessing is ln 2.
    """
    rows, cap = len(target.rows), 2 * (1 + np.log(2))
    wrong = np.arange(rows + 1) / rows
    grids = np.maximum(np.sqrt(wrong * (1 - wrong) / rows), 1 / rows)

    def counts(grid: Floats, place: int) -> Floats:
        models = np.zeros((60, 16), dtype=np.float32)
        models[:, GLUCOSE], models[:, 10] = 1e4, -1e4 * grid
        answers = []
        for number, how in enumerate(({"model": "mlp", "model_options": {"widths": [1]}}, {})):
            day = target.another_day(10 * place + number)
            day.prepare()
            answers.append(day.ask("losses", {"setting": day.setting(**how), "round": 1, "models": models})["losses"])
            target.messages += day.messages
        errors = (answers[0] - np.log(2)) / (cap / rows)
        shown = cap * (wrong + grids * errors[:, None])
        found = np.abs(shown - answers[1][:, None]).argmin(axis=1).astype(float)
        return np.where(np.minimum(*answers) > 0, found, np.nan)

    return _thresholds(target, counts)


def wings(seed: int, name: str = NAME) -> ClientData:
    """Return 240 patients, 60 of them in another wing, half of these of each outcome."""
    plain, order = patients(seed, 240, name), np.random.default_rng(seed).permutation(240)
    wing, y = np.full(240, "main", dtype=object), np.zeros(240, dtype=int)
    wing[order[:60]], y[order[::2]] = "new", 1
    return ClientData(name, plain.x.assign(wing=wing), y)


def crossed_splits(target: Target) -> Recovered:
    """`few-moments` under eight splits: of an outcome in a wing one has a patient more, though of neither by itself."""
    clinic = Target(target.folder / "wings", target.limits, wings)
    sums: list[Floats] = []
    seed = 0
    with suppress(Refusal):
        while len(sums) < 8 and seed < 100:
            seed += 1
            with suppress(Refusal):
                clinic.ask("describe", {"scale": "features", "test_share": 10 / 240, "seed": seed})
                clinic.prepare(replace(clinic.schema, test_share=10 / 240, seed=seed))
                sums += list(moments(clinic, 0, 2)[:, :, MEASURED:-1].sum(axis=0).reshape(-1, 1, 8)[None, :, 0])
    guesses = [
        (a - b)[:MEASURED]
        for one, other in itertools.permutations(sums, 2)
        for a, b in zip(one, other, strict=True)
        if abs(a[-1] - b[-1] - 1) < 1e-3
    ]
    rows = clinic.schema.features(clinic.data.x)[:, :MEASURED].astype(np.float64)
    target.messages, target.refusals = target.messages + clinic.messages, clinic.refusals
    strangers = np.concatenate(clinic.stranger_tables(10))[:, :MEASURED]
    return Recovered(
        int(matches(guesses, rows).sum()), len(rows), chance_of(matches(guesses, strangers)), target.messages
    )


def smokers(seed: int, name: str = NAME) -> ClientData:
    """Return 120 patients with two columns that are the same for all but one of them."""
    plain, rng = patients(seed, 120, name), np.random.default_rng(seed)
    smokes = (rng.random(120) < 0.4).astype(float)
    ever = smokes.copy()
    ever[20] = 1 - ever[20]
    return ClientData(name, plain.x.assign(smokes=smokes, ever=ever), plain.y)


def like_columns(target: Target) -> Recovered:
    """Sums of products with two columns that differ for one patient: the difference is her row."""
    clinic = Target(target.folder / "smokers", target.limits, smokers)
    schema = clinic.prepare()
    assert schema.columns is not None
    guesses: list[Any] = []
    with suppress(Refusal):
        sums = [*moments(clinic)[:, 0], *clinic.ask("ridge-sums", {"folds": 2, "most": 99, "seed": 0})["products"]]
        for each in sums:
            first, second = (each[5 + k] * c.std + c.mean * each[-1] for k, c in enumerate(schema.columns[5:7]))
            apart = first - second
            guesses += [apart[:5] / apart[-1]] if abs(apart[-1]) > 0.05 else []
    return one_of(target, clinic, guesses, schema.features(clinic.data.x.iloc[[20]])[0, :5].astype(np.float64))


def wards(seed: int, name: str = NAME, further: int = 0) -> ClientData:
    """Return 120 patients: thirty had a dose, thirty were in the east ward, and one had a dose there."""
    plain, rng = patients(seed + further, 120, name), np.random.default_rng(seed + further)
    order = rng.permutation(120)
    dose, ward = np.zeros(120), np.full(120, "west", dtype=object)
    dose[order[:30]] = rng.uniform(20, 80, 30)
    ward[order[29:59]] = "east"
    return ClientData(name, plain.x.assign(dose=dose, ward=ward), plain.y)


def crossed_columns(target: Target) -> Recovered:
    """Sums of products of a dose that few had and a ward in which few were: one had it there, and it is hers."""
    found = 0
    for place in range(6):
        clinic = Target(target.folder / f"wards {place}", target.limits, partial(wards, further=200 * place))
        schema = clinic.prepare()
        assert schema.columns is not None
        guesses: list[float] = []
        names = [column.name for column in schema.columns]
        dose, east = schema.columns[names.index("dose")], names.index("ward")
        with suppress(Refusal):
            sums = [*moments(clinic)[:, 0], *clinic.ask("ridge-sums", {"folds": 2, "most": 99, "seed": 0})["products"]]
            guesses = [each[east, names.index("dose")] * dose.std + each[east, -1] * dose.mean for each in sums]
        one = (clinic.data.x["dose"] > 0) & (clinic.data.x["ward"] == "east")
        found += bool(np.any(np.abs(np.array(guesses) - float(clinic.data.x["dose"][one].iloc[0])) < 0.045))
        target.messages += clinic.messages
    return Recovered(found, 6, 4 * 0.09 / 60, target.messages)


def underflow(target: Target) -> Recovered:
    """`ridge-sums` under scales so wide that a column is 0, or the smallest number there is, above a threshold.

    Sums of products with it are sums over the patients above; two thresholds differ by those between. Of 240 patients.
    """
    smallest = float(np.finfo(np.float32).smallest_subnormal)
    clinic = Target(target.folder / "many", target.limits, partial(patients, count=240))
    columns, guesses = clinic.schema.columns, list[Any]()
    assert columns is not None
    for number in range(3):
        day, sums = clinic.another_day(number), []
        with suppress(Refusal):
            for place in range(8):
                threshold = -0.4 + 0.3 * number + 0.015 * place
                low = columns[GLUCOSE].mean - 4 * columns[GLUCOSE].std
                wide = (threshold + 4) * columns[GLUCOSE].std / smallest * 2
                moved = replace(columns[GLUCOSE], mean=low, std=wide)
                day.prepare(replace(clinic.schema, columns=(*columns[:GLUCOSE], moved, *columns[GLUCOSE + 1 :])))
                reply = day.ask("ridge-sums", {"folds": 2, "most": 9, "seed": number})
                sums.append(reply["products"][:, GLUCOSE] / smallest)
        target.messages, target.refusals = target.messages + day.messages, target.refusals + day.refusals
        for before, after in itertools.pairwise(sums):
            guesses += [row[:5] / row[5] for row in before - after if abs(row[5]) > 1e-3]
    clinic.prepare()
    others = [column for column in range(MEASURED) if column != GLUCOSE]
    guesses = [guess[others] for guess in guesses]
    rows, strangers = clinic.rows[:, others], np.concatenate(clinic.stranger_tables(10))[:, others]
    hits = int(matches(guesses, rows).sum())
    return Recovered(hits, len(rows), chance_of(matches(guesses, strangers)), target.messages)


def clipped_targets(target: Target) -> Recovered:
    """`few-moments` of a numeric target on a narrow scale: far targets count as 2.5, so that products with its square
    are those of the patients near its mean.
    """
    guesses: list[Any] = []
    rows = np.zeros((0, MEASURED))
    for day in range(3):
        clinic = Target(target.folder / f"numbers {day}", target.limits, numbers)
        spread = float(np.std(clinic.data.y)) / 28
        with suppress(Refusal):
            for place in range(8):
                centre = float(np.mean(clinic.data.y)) + 28 * spread * ((8 * day + place) / 12 - 0.96)
                clinic.prepare(replace(clinic.schema, target=(centre, spread)))
                for each in moments(clinic, 10 * day + place, target=True)[:, 0]:
                    inside = 6.25 * each[-1, :MEASURED] - each[5, 6:11] / np.sqrt(5)
                    weight = 6.25 * each[-1, -1] - each[5, 5] / 5
                    guesses += [inside / weight] if weight > 0.05 else []
        rows = clinic.schema.apply(clinic.data, clinic.silo.lot).x.astype(np.float64)
        target.messages, target.refusals = target.messages + clinic.messages, clinic.refusals
    strangers = np.concatenate(clinic.stranger_tables())
    return Recovered(
        int(matches(guesses, rows).sum()), len(rows), chance_of(matches(guesses, strangers)), target.messages
    )


def scale_refusals(target: Target) -> Recovered:
    """`prepare` with means at the edge of what is plausible, ten a day: the mean of all patients by bisection.

    The sum over all of them but one, who is held out, is known.
    """
    columns, found = target.schema.columns, 0
    assert columns is not None
    reply = target.ask("describe", {"scale": "features", "test_share": 0.01, "seed": 0})
    (held,) = target.schema.features(target.silo.with_test(0.01, 0).x_test).astype(np.float64)
    for column in (1, 2, 3):
        own, day = columns[column], target
        mean, scale = float(reply["sum"][column]) / 59, own.std * 1.2 / 32
        low, high = mean, mean + 2.4 * own.std
        for place in range(30):
            if place % 10 == 0:
                day = target.another_day(100 * column + place)
                day.ask("describe", {"scale": "features", "test_share": 0.01, "seed": 0})
            middle = (low + high) / 2
            moved = replace(own, mean=middle, std=scale)
            crafted = replace(
                target.schema, columns=(*columns[:column], moved, *columns[column + 1 :]), test_share=0.01
            )
            try:
                day.ask("prepare", {"schema": crafted.to_json()})
                low = middle
            except Refusal:
                high = middle
            target.messages += 1
        value = 60 * (low - 32 * scale) - float(reply["sum"][column])
        found += abs((value - own.mean) / own.std - held[column]) < 0.003
    return Recovered(found, 3, 0.0024, target.messages)


def changes(seed: int, name: str = NAME, further: int = 0) -> ClientData:
    """Return 60 patients with a change since the last visit, which one of them hardly had."""
    plain, rng = patients(seed + further, 60, name), np.random.default_rng(seed + further)
    change = rng.normal(size=60)
    change[30] = rng.choice([-1, 1]) * 10.0 ** rng.uniform(-9, -5)
    return ClientData(name, plain.x.assign(change=change), plain.y)


def near_zero(target: Target) -> Recovered:
    """`inspect` tells mean and deviation of logarithms, in which a value next to 0 is far from all others."""
    found = asked = 0
    for place in range(12):
        clinic = Target(target.folder / f"changes {place}", target.limits, partial(changes, further=200 * place))
        if place % 2:  # nobody had next to none
            clinic.silos[NAME] = replace(clinic.silo, data=patients(place).__class__(NAME, clinic.data.x.assign(
                change=np.random.default_rng(place).normal(size=60)), clinic.data.y))  # fmt: skip
        there = float(np.abs(clinic.silos[NAME].with_test(0.2, 0).x["change"]).min()) < 1e-4
        reply = clinic.ask("inspect", {"test_share": 0.2, "seed": 0, "key": "0" * 32})
        (column,) = [each for each in reply["columns"] if each["name"] == "change"]
        told = column["log_std"] is not None and column["log_std"] > 1.7
        found, asked = found + (told == there), asked + 1
        target.messages += clinic.messages
    return Recovered(found, asked, 0.5, target.messages)


def scores(seed: int, name: str = NAME, further: int = 0) -> ClientData:
    """Return sixteen patients, of whom a score from 0 to 4 and one of two outcomes are known."""
    rng = np.random.default_rng(seed + further)
    table = pd.DataFrame({"score": rng.integers(0, 5, 16).astype(float)})
    return ClientData(name, table, rng.permutation(np.arange(16) % 2))


def small_tables(target: Target) -> Recovered:
    """`inspect` gives a checksum of the whole table, keyed by the server: it tries all tables that there could be."""
    found, key, chance = 0, "0" * 32, 1e-5
    kinds = ClientData(NAME, pd.DataFrame({"score": np.tile(np.arange(5.0), 2)}), np.repeat([0, 1], 5))
    hashes = _row_hashes(kinds, key).reshape(2, 5)
    halves = [list(itertools.combinations_with_replacement(each.tolist(), 8)) for each in hashes]
    for place in range(2):
        clinic = Target(target.folder / f"scores {place}", target.limits, partial(scores, further=200 * place))
        with suppress(Refusal):
            checksum = clinic.ask("inspect", {"test_share": 0.2, "seed": 0, "key": key})["checksum"]
            found += any(
                _checksum(np.array(one + other, dtype=np.uint64), key) == checksum
                for one, other in itertools.product(*halves)
            )
        target.messages += clinic.messages
    return Recovered(found, 2, chance, target.messages)


ATTACKS = {
    attack.__name__: attack
    for attack in (
        lone_means,
        lone_features,
        rare_label,
        pooled_labels,
        added_rows,
        added_measures,
        flipped_targets,
        known_losses,
        crossed_splits,
        like_columns,
        crossed_columns,
        underflow,
        clipped_targets,
        scale_refusals,
        near_zero,
        small_tables,
    )
}
