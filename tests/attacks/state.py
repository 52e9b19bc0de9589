"""Attacks over several messages: by what a silo keeps, what it answers again for nothing, and where errors cancel."""

from __future__ import annotations

import itertools
import json
from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np

from fedcollab.data import ClientData
from fedcollab.training.models import Network

from .crafted import padded
from .target import NAME, NEAR_VALUE, Recovered, Refusal, Target, chance_of, judge, matches, patients

RARE = 12  # patients with a dose in `doses`


def kept_comparisons(target: Target) -> Recovered:
    """`compare` of a kept model, the same message again and again, while `evaluate` puts other models in its place.

    The same message costs nothing and is answered with the same error, so that answers are the same if nobody is on the
    other side of a threshold. The largest and the smallest value of three columns of the test split, by bisection.
    """
    target.prepare()
    setting = target.setting()
    found, chances = 0, []
    tables = target.stranger_tables(500)

    def answer(column: int, sign: int, threshold: float) -> bytes:
        w = np.zeros(16, dtype=np.float32)
        w[5 + column], w[11] = sign * 1e4, -1e4 * threshold
        model = {"setting": setting, "round": 1, "w": w, "training": "t", "coalition": [NAME, "ghost"]}
        target.ask("evaluate", {**model, "personal": False, "keep": False, "stay": True, "mean": False})
        reply = target.ask("compare", {"trainings": ["t"], "settings": [setting]})
        return bytes(reply["right"].tobytes()[:8] + reply["loss"].tobytes()[:8])

    for column, sign in itertools.product((1, 2, 3), (1, -1)):
        low, high = 0.0, 4.0
        with suppress(Refusal):
            nobody = answer(column, sign, high)
            while high - low > NEAR_VALUE:
                middle = (low + high) / 2
                low, high = (low, middle) if answer(column, sign, middle) == nobody else (middle, high)
        guess, truth = (low + high) / 2, float((sign * target.silo.arrays.x_test[:, column]).max())
        found += abs(guess - truth) < NEAR_VALUE
        drawn = np.array([(sign * table[:12, column]).max() for table in tables])
        chances.append(chance_of(np.abs(guess - drawn) < NEAR_VALUE))
    return Recovered(found, len(chances), float(np.mean(chances)), target.messages)


def fading_weights(target: Target) -> Recovered:
    """`train-alone` for 2,500 rounds from a crafted model that the silo has kept, with decay and next to no steps.

    Weights shrink as the server has chosen, and a threshold moves over a column. All rounds are told with one error, so
    that the accuracy changes where a patient is passed, and nowhere else.
    """
    target.prepare()
    column, rounds, decay, units = 3, 2500, 1e-3, 3
    setting = target.setting(model="mlp", model_options={"widths": [units]}, lr=1.0, seed=1)
    start = Network(json.loads(setting)["model"], seed=1).initial().numpy()
    first, second = np.zeros((units, 5)), np.zeros((2, units))
    first[0, column], second[1, 0] = 1.0, 1.0
    crafted = padded(np.concatenate([first.ravel(), [4.0, 0, 0], second.ravel(), [1.0, 0.0]]), len(start))
    guesses: list[float] = []
    with suppress(Refusal):
        target.train(setting, start, training="t")
        model = {"setting": setting, "round": 1, "w": crafted, "training": "t", "coalition": [NAME, "ghost"]}
        target.ask("evaluate", {**model, "personal": False, "keep": False, "stay": True, "mean": False})
        alone = {**json.loads(setting), "lr": 1e-8, "weight_decay": decay * 1e8}
        asked = {"setting": json.dumps(alone), "rounds": rounds, "folds": 4, "w": crafted, "training": "a"}
        shown = target.ask("train-alone", asked)["held_out"][:, 0, 1]
        share = (1 - decay) ** np.arange(len(shown))
        passed = 1 / share - 4  # s^2 (x + 4) > s
        guesses = passed[1:][np.diff(shown) != 0].tolist()
    return judge(target, guesses[:48], column)


def variate_trap(target: Target) -> Recovered:
    """A trap that opens with SCAFFOLD's control variate: the weights that are sent give its units no gradient.

    So their updates had no error, which was that of the gradient at the weights that were sent; the variate gives each
    unit another outgoing weight in the first step, and the second step's batch is read.
    """
    units, lr, guesses = 64, 0.5, list[np.ndarray]()
    bins = np.linspace(-2.0, 0.0, units)
    plain = {"model": "mlp", "model_options": {"widths": [units]}, "lr": lr, "batch_size": 24}
    with suppress(Refusal):
        target.prepare()
        setting = target.setting(algorithm="scaffold", **plain)
        w = Network(json.loads(setting)["model"]).initial().numpy().astype(np.float64)
        first, goal = np.zeros((units, 5)), np.zeros_like(w)
        first[:, 3] = 0.15
        goal[: 6 * units] = np.concatenate([first.ravel(), -0.15 * bins])
        factors = np.random.default_rng(0).uniform(0.5, 2.0, units) * 0.5
        opening = np.zeros_like(w)
        opening[6 * units : 8 * units] = np.concatenate([-factors, factors])
        longest, own, since = 0.0, np.zeros_like(w), {}
        for number in range(1, 41):
            gap = goal - w
            if number > 1:
                step = 29 * longest
                w = w + gap * min(1.0, step / max(float(np.linalg.norm(gap)), 1e-12))
            opened = number > 1 and float(np.abs(goal - w).max()) < 1e-6
            c = (own - opening / lr if opened else np.zeros_like(w)).astype(np.float32)
            if opened and lr * 2 * float(np.linalg.norm(c)) > 29 * longest:
                c *= np.float32(29 * longest / (lr * 2 * float(np.linalg.norm(c))))
            update = target.train(setting, w, number, training="v", c=c, **since).astype(np.float64)
            own, since = own - c - update / (2 * lr), {"since": number}
            longest = max(longest, float(np.linalg.norm(update)))
            if opened:
                layer = np.concatenate([update[: 5 * units].reshape(units, 5), update[5 * units : 6 * units, None]], 1)
                each = np.diff(layer / factors[:, None], axis=0)
                guesses += [row[:5] / row[5] for row in each if abs(row[5]) > 1e-9]
    return judge(target, guesses)


def hair_fingerprints(target: Target) -> Recovered:
    """`fingerprint` under two scales between which one value of a column is rounded to another number, and no other.

    The checksums differ if a patient has that value: 20 values that are there, 20 that are not.
    """
    columns = target.schema.columns
    assert columns is not None
    scale = columns[1]
    there = target.data.x["pressure"].to_numpy()[:20]
    asked = [(float(v), True) for v in there] + [(float(v), False) for v in patients(50).x["pressure"].to_numpy()[:20]]
    right, fresh = 0, target
    for place, (value, present) in enumerate(asked):
        if place % 5 == 0:  # ten schemas a day
            fresh = target.another_day(place)
        told = None
        with suppress(Refusal):
            prints = []
            for mean in _around(value, float(scale.mean), float(scale.std)):
                moved = replace(scale, mean=mean)
                fresh.prepare(replace(target.schema, columns=(columns[0], moved, *columns[2:])))
                prints.append(fresh.ask("fingerprint", {})["fingerprint"])
            target.messages += 4
            told = prints[0] != prints[1]
        right += told is not None and told == present
    return Recovered(right, len(asked), 0.5, target.messages)


def _around(value: float, mean: float, std: float) -> tuple[float, float]:
    """Return two means next to each other between which the scaled value is rounded to another number."""
    low = np.float32((value - mean) / std)
    middle = (float(low) + float(np.nextafter(low, np.float32(np.inf)))) / 2
    means = [value - middle * std]
    for _ in range(200):
        means.append(float(np.nextafter(means[-1], np.inf)))
        means.insert(0, float(np.nextafter(means[0], -np.inf)))
    scaled = ((value - np.array(means)) / std).astype(np.float32)
    (turns,) = np.nonzero(np.diff(scaled))
    return means[turns[0]], means[turns[0] + 1]


def doses(seed: int, name: str = NAME, further: int = 0) -> ClientData:
    """Return a table of 120 patients: twelve had a dose of one drug, one of another, the others none."""
    plain, rng = patients(seed + further, 120, name), np.random.default_rng(seed + further)
    some, one = np.zeros(120), np.zeros(120)
    some[rng.permutation(120)[:RARE]] = rng.uniform(20, 80, RARE)
    one[rng.permutation(120)[0]] = rng.uniform(20, 80)
    return ClientData(name, plain.x.assign(some=some, one=one), plain.y)


def lone_sums(target: Target) -> Recovered:
    """`describe` and `inspect` of a column that is 0 for all but one patient: its sum, or n times its mean, is hers."""
    found = 0
    for place in range(4):
        clinic = Target(target.folder / f"doses {place}", target.limits, partial(doses, further=200 * place))
        value, guesses = clinic.data.x["one"].max(), []
        for seed in range(3):
            with suppress(Refusal):
                asked = {"test_share": 0.2, "seed": seed}
                reply = clinic.ask("describe", {"scale": "none", **asked})
                guesses.append(reply["sum"][reply["shape"].index("one")])
            with suppress(Refusal):
                reply = clinic.ask("inspect", {"key": "0" * 32, **asked})
                (column,) = [each for each in reply["columns"] if each["name"] == "one"]
                guesses.append((column["mean"] or 0.0) * reply["quantity"])
        found += bool(np.any(np.abs(np.array(guesses) - value) < 0.03))
        target.messages += clinic.messages
    return Recovered(found, 4, 6 * 0.06 / 60, target.messages)


def sparse_splits(target: Target) -> Recovered:
    """Sums of a column that is 0 for most, under ten splits: one dose apart if its square is the difference."""
    clinic = Target(target.folder / "doses", target.limits, doses)
    sums, guesses = [], list[float]()
    for seed in range(10):
        with suppress(Refusal):
            asked = {"scale": "features", "test_share": 0.1 + 0.02 * seed, "seed": seed}
            reply = clinic.ask("describe", asked)
            place = reply["shape"].index("some")
            squares = clinic.ask("spread", {**asked, "mean": np.zeros(len(reply["shape"]))})["squares"]
            sums.append((float(reply["sum"][place]), float(squares[place])))
    for (a, squares_a), (b, squares_b) in itertools.permutations(sums, 2):
        if a > b and abs((a - b) ** 2 - (squares_a - squares_b)) < 1e-6 * squares_a:
            guesses.append(a - b)
    truth = clinic.data.x["some"].to_numpy()
    truth = truth[truth > 0]
    strangers = np.random.default_rng(9).uniform(20, 80, 2000)
    target.messages += clinic.messages
    hits = int(matches(guesses, truth).sum())
    return Recovered(hits, RARE, chance_of(matches(guesses, strangers)), target.messages)


ATTACKS = {
    attack.__name__: attack
    for attack in (
        kept_comparisons,
        fading_weights,
        variate_trap,
        hair_fingerprints,
        lone_sums,
        sparse_splits,
    )
}
