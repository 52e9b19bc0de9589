"""Attacks by sums that differ in one sample, and by numbers that overflow: rare values, nested splits, huge weights."""

from __future__ import annotations

import itertools
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from fedcollab.data import ClientData

from .target import NAME, NEAR_VALUE, Recovered, Refusal, Target, chance_of, matches, patients

MEASURED = 5  # the columns of `patients`, which stand first


def records(seed: int, name: str = NAME) -> ClientData:
    """Return a table of patients, three of whom are the only ones in something.

    One is in a ward of her own, one has an implant, and of one the dose is not known; one more column is known of two
    patients alone.
    """
    plain, rng = patients(seed, 120, name), np.random.default_rng(seed)
    count = len(plain.y)
    ward = np.where(np.arange(count) % 2 == 0, "east", "west").astype(object)
    implant, dose, marker = np.zeros(count), rng.normal(5, 1, count), np.full(count, np.nan)
    ward[20], implant[30], dose[40], marker[:2] = "isolation", 1.0, np.nan, rng.normal(100, 30, 2)
    table = plain.x.assign(dose=dose, implant=implant, marker=marker, ward=ward)
    return ClientData(name, table, plain.y)


def lone_values(target: Target) -> Recovered:
    """Sums of products with what one patient alone has are her row: an implant, an unknown dose, a ward.

    Who is in no ward of the schema is found as all patients less those of every ward. Both `few-moments` and
    `ridge-sums` are asked, of two folds, whose sums add up.
    """
    clinic = Target(target.folder / "clinic", target.limits, records)
    schema = clinic.schema
    assert schema.columns is not None
    width = sum(2 if column.categories is None else len(column.categories) + 1 for column in schema.columns)
    clinic.prepare(replace(schema, missing_indicators=True, shape=(width,)))
    sums = []
    with suppress(Refusal):
        plan = {"seed": 0, "width": 99, "folds": 2, "classes": 1, "min_samples": 1, "label_counts": "drawn"}
        for triangle in clinic.ask("few-moments", plan)["m"].astype(np.float64)[:, 0]:
            upper = np.zeros((width + 1, width + 1))
            upper[np.triu_indices(width + 1)] = triangle
            sums.append(upper + np.triu(upper, 1).T)
    with suppress(Refusal):
        sums += list(clinic.ask("ridge-sums", {"folds": 2, "most": 99, "seed": 0})["products"])
    measured = [place for place, _ in _places(schema)[:MEASURED]]
    guesses = [
        alone[measured] / alone[-1] for each in sums for alone in _lone_sums(each, schema) if abs(alone[-1]) > 1e-6
    ]
    patient = schema.features(clinic.data.x.iloc[[20, 30, 40]])[:, :MEASURED].astype(np.float64)
    strangers = np.concatenate(clinic.stranger_tables())[:, :MEASURED]
    target.messages += clinic.messages
    return Recovered(int(matches(guesses, patient).sum()), 3, chance_of(matches(guesses, strangers)), target.messages)


def _places(schema: Any) -> list[tuple[int, int]]:
    """Return where the features of each column begin, and where its indicator of missing values is."""
    found, start = [], 0
    for column in schema.columns:
        width = 1 if column.categories is None else len(column.categories)
        found.append((start, start + width))
        start += width + 1
    return found


def _lone_sums(products: np.ndarray, schema: Any) -> list[np.ndarray]:
    """Return the sums over the patients without a dose, with an implant, and without a ward."""
    names = [column.name for column in schema.columns]
    places = dict(zip(names, _places(schema), strict=True))
    implant = schema.columns[names.index("implant")]
    without, having = ((value - implant.mean) / implant.std for value in (0.0, 1.0))
    first, last = places["ward"]
    return [
        products[places["dose"][1]],
        (products[places["implant"][0]] - without * products[-1]) / (having - without),
        products[-1] - products[first:last].sum(axis=0),
    ]


def hair_apart(target: Target) -> Recovered:
    """`ridge-sums` under scales that differ by a hair: single values are rounded up in one and not in the other.

    The difference of the two sums is the row whose value was, times one unit in the last place; far from 0 all values
    have the same.
    """
    guesses: list[np.ndarray] = []
    columns = target.schema.columns
    assert columns is not None
    with suppress(Refusal):
        sums = []
        for place in range(8):
            moved = replace(columns[2], mean=columns[2].mean + (20 + place * 6e-8) * columns[2].std)
            target.prepare(replace(target.schema, columns=(*columns[:2], moved, *columns[3:])))
            sums.append(target.ask("ridge-sums", {"folds": 2, "most": 9, "seed": 0})["products"][:, 2])
        for before, after in itertools.pairwise(sums):
            guesses += [row[:5] / row[5] for row in after - before if abs(row[5]) > 1e-12]
    guesses = [np.delete(guess, 2) for guess in guesses]  # the column itself is moved as a whole
    rows, strangers = (np.delete(each, 2, axis=1) for each in (target.rows, target.strangers))
    hits = int(matches(guesses, rows).sum())
    return Recovered(hits, len(rows), chance_of(matches(guesses, strangers)), target.messages)


def two_schemas(target: Target) -> Recovered:
    """`few-moments` under a schema with all wards, and under one without the second: who has none is summed elsewhere.

    The sums over the first ward differ by the patient of a rare ward, if she counts among its patients in one of them.
    """
    clinic = Target(target.folder / "clinic", target.limits, records)
    schema = clinic.schema
    assert schema.columns is not None
    places = {column.name: place for place, (column) in enumerate(schema.columns)}
    ward = schema.columns[places["ward"]]
    sums = []
    with suppress(Refusal):
        for kept in (ward.categories, ("west",), ("east",)):
            assert kept is not None
            columns = tuple(replace(c, categories=kept) if c.name == "ward" else c for c in schema.columns)
            width = len(columns) - 1 + len(kept)
            clinic.prepare(replace(schema, columns=columns, shape=(width,)))
            plan = {"seed": 0, "width": 99, "folds": 2, "classes": 1, "min_samples": 1, "label_counts": "drawn"}
            for triangle in clinic.ask("few-moments", plan)["m"].astype(np.float64)[:, 0]:
                upper = np.zeros((width + 1, width + 1))
                upper[np.triu_indices(width + 1)] = triangle
                both, start = upper + np.triu(upper, 1).T, places["ward"]
                one_of = [both[start + place] for place in range(len(kept))]
                sums += [np.append(each[:MEASURED], each[-1]) for each in (*one_of, both[-1] - sum(one_of))]
    apart = [a - b for a, b in itertools.permutations(sums, 2) if abs(abs(a[-1] - b[-1]) - 1) < 0.01]
    guesses = [each[:MEASURED] / each[-1] for each in apart]
    patient = schema.features(clinic.data.x.iloc[[20]])[:, :MEASURED].astype(np.float64)
    strangers = np.concatenate(clinic.stranger_tables())[:, :MEASURED]
    target.messages += clinic.messages
    return Recovered(int(matches(guesses, patient).sum()), 1, chance_of(matches(guesses, strangers)), target.messages)


def sparse_column(target: Target) -> Recovered:
    """`describe` under ten splits: the sum of a column of two values is one of them where the other is held out."""
    clinic = Target(target.folder / "clinic", target.limits, records)
    guesses, truth = [], clinic.data.x["marker"].dropna().to_numpy()
    for seed in range(10):
        with suppress(Refusal):
            reply = clinic.ask("describe", {"scale": "none", "test_share": 0.2, "seed": seed})
            place = reply["shape"].index("marker")
            guesses.append(reply["sum"][place] / max(reply["present"][place], 1))
    hits = int((np.abs(np.subtract.outer(truth, guesses)) < NEAR_VALUE * 30).any(axis=1).sum())
    target.messages += clinic.messages
    strange = np.random.default_rng(0).normal(100, 30, 2000)
    chance = chance_of((np.abs(np.subtract.outer(strange, guesses)) < NEAR_VALUE * 30).any(axis=1))
    return Recovered(hits, 2, chance, target.messages)


def wards(seed: int, name: str = NAME) -> ClientData:
    """Return patients with ten diagnoses, 24 of each."""
    plain, rng = patients(seed, 240, name), np.random.default_rng(seed)
    return ClientData(name, plain.x, rng.permutation(np.repeat(np.arange(10), 24)))


def nested_splits(target: Target) -> Recovered:
    """Two splits of one seed, of which one holds out one sample more of every label: the means of labels differ by it.

    The splits differ by ten samples in all, which a silo lets pass that counts samples alone.
    """
    clinic = Target(target.folder / "wards", target.limits, wards)
    sums, guesses = [], np.zeros((0, 5))
    with suppress(Refusal):
        for held in (6, 7):
            clinic.prepare(replace(clinic.schema, test_share=held / 24))
            means = clinic.ask("prototype-means", {"classes": 10, "least": 2})["means"]
            sums.append(means.astype(np.float64) * (24 - held))
        guesses = sums[0] - sums[1]
    rows = clinic.schema.features(clinic.data.x).astype(np.float64)
    target.messages += clinic.messages
    chance = chance_of(matches(guesses, np.concatenate(clinic.stranger_tables(10))))
    return Recovered(int(matches(guesses, rows).sum()), len(rows), chance, target.messages)


def overflow(target: Target) -> Recovered:
    """`losses` of models that overflow where a value is above a threshold: the mean is a number, or it is none.

    The largest and the smallest value of three columns are found by bisection.
    """
    target.prepare()
    setting, most = target.setting(), float(np.finfo(np.float32).max)
    found, chances = 0, []
    tables = target.stranger_tables(500)
    for column in (1, 2, 3):
        for sign in (1, -1):
            low, high = 1.0, 4.0
            with suppress(Refusal):
                while high - low > NEAR_VALUE:
                    middle = (low + high) / 2
                    w = np.zeros(16, dtype=np.float32)
                    w[[column, 5 + column]] = 0.5 * sign * most / middle
                    w[[10, 11]] = 0.5 * most  # values of the other sign overflow at three times as much alone
                    question = {"setting": setting, "round": 1, "models": w[None]}
                    over = not np.isfinite(target.ask("losses", question)["losses"][0])
                    low, high = (middle, high) if over else (low, middle)
            guess, truth = (low + high) / 2, float((sign * target.rows[:, column]).max())
            found += abs(guess - truth) < NEAR_VALUE
            drawn = np.array([(sign * table[:48, column]).max() for table in tables])
            chances.append(chance_of(np.abs(guess - drawn) < NEAR_VALUE))
    return Recovered(found, len(chances), float(np.mean(chances)), target.messages)


ATTACKS = {
    attack.__name__: attack for attack in (lone_values, two_schemas, hair_apart, sparse_column, nested_splits, overflow)
}
