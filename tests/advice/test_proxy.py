"""Proxies equal ridge regression done by hand; own weights and the fit of the bound on cases worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fedcollab.advice.candidates import Plan
from fedcollab.advice.decide import CATCH_UP, decide
from fedcollab.advice.fit import fit_bound
from fedcollab.advice.pilot import Measured, clearly_behind
from fedcollab.advice.proxy import FOLDS, STRENGTHS, Sums, coalition_weights
from fedcollab.advice.sums import folds_of, ridge_sums
from fedcollab.data import ClientData
from fedcollab.federation import federate

Make = Callable[..., list[ClientData]]


def rows_by_fold(federation: object, name: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return a client's rows with the intercept's column, and its one-hot labels, in the folds that it would draw."""
    from fedcollab import seeds
    from fedcollab.data.split import fold_of

    silo = federation.runtime.silos[name]  # type: ignore[attr-defined]
    fold = fold_of(silo.arrays.y, FOLDS, seeds.generator(0, "sums", silo.secret))
    z = np.concatenate([silo.arrays.x.astype(float), np.ones((len(fold), 1))], axis=1)
    t = np.eye(2)[silo.arrays.y]
    return [(z[fold == k], t[fold == k]) for k in range(FOLDS)]


def test_the_error_is_that_of_ridge_regression_on_rows_left_out(make_clients: Make) -> None:
    federation = federate(make_clients("aab", rows=60), runtime="vectorised")
    sums = Sums.ask(federation, 0)
    weights = coalition_weights([["east", "north"], ["south"]], federation.quantities)
    parts = {name: rows_by_fold(federation, name) for name in sums.names}
    by_strength = []
    for strength in STRENGTHS:
        errors = np.zeros(3)
        for fold in range(FOLDS):
            for i, name in enumerate(sums.names):
                a, b, worth = 0.0, 0.0, 0.0
                for j, other in enumerate(sums.names):
                    z = np.concatenate([part[0] for k, part in enumerate(parts[other]) if k != fold])
                    t = np.concatenate([part[1] for k, part in enumerate(parts[other]) if k != fold])
                    a = a + weights[i, j] * z.T @ z / len(z)
                    b = b + weights[i, j] * z.T @ t / len(z)
                    worth += weights[i, j] ** 2 / len(z)
                fitted = np.linalg.solve(a + strength * worth * np.eye(len(a)), b)
                z, t = parts[name][fold]
                errors[i] += ((z @ fitted - t) ** 2).sum() / len(z) / FOLDS
        by_strength.append(errors)
    best = min(by_strength, key=lambda errors: errors.mean())
    np.testing.assert_allclose(sums.held_out(weights), best, rtol=1e-8)


def test_an_own_intercept_takes_label_shift_in(make_clients: Make) -> None:
    rng = np.random.default_rng(0)
    shifted = [
        ClientData(c.name, c.x, np.where(rng.random(len(c.y)) < 0.6, position % 2, c.y))
        for position, c in enumerate(make_clients("aaaa", rows=100))
    ]
    federation = federate(shifted, runtime="vectorised")
    sums = Sums.ask(federation, 0)
    everyone = coalition_weights([list(federation.names)], federation.quantities)
    assert sums.held_out(everyone, own=(-1,)).mean() < sums.held_out(everyone).mean() - 0.05


def test_sums_are_the_same_in_every_runtime_and_made_of_enough_rows(make_clients: Make) -> None:
    clients = make_clients("ab", rows=40)
    vectorised, wire = (Sums.ask(federate(clients, runtime=runtime), 0) for runtime in ("vectorised", "wire"))
    for one, other in zip(vectorised.products, wire.products, strict=True):
        np.testing.assert_array_equal(one, other)
    assert all(rows.min() >= 8 for rows in vectorised.rows)
    assert ridge_sums.name == "ridge-sums"
    assert folds_of(15, 4, 8) == 0


def test_the_fit_finds_what_the_gains_were_made_of() -> None:
    rng = np.random.default_rng(0)
    more, apart = rng.random(200) * 0.2, rng.random(200) * 0.5
    fit = fit_bound(2.0 * more - 0.3 * apart + rng.normal(size=200) * 0.01, more, apart, np.full(200, 1e-4))
    assert fit.a == pytest.approx(2.0, abs=0.1)
    assert fit.b == pytest.approx(0.3, abs=0.02)
    assert pytest.approx(2.0 / 0.3, rel=0.1) == fit.C
    assert fit.explained > 0.9


def test_noise_in_the_distances_is_allowed_for() -> None:
    rng = np.random.default_rng(1)
    more, true = rng.random(2000) * 0.2, rng.random(2000) * 0.5
    seen = true + rng.normal(size=2000) * 0.1
    gains = 1.0 * more - 0.5 * true
    plain = fit_bound(gains, more, seen, np.full(2000, 1e-4))
    mended = fit_bound(gains, more, seen, np.full(2000, 1e-4), np.full(2000, 0.01))
    assert plain.b < 0.45
    assert abs(mended.b - 0.5) < abs(plain.b - 0.5)


def measured(kind: str, algorithm: str, losses: list[float], error: float = 0.01, dropped: bool = False) -> Measured:
    names = [f"c{k}" for k in range(len(losses))]
    groups = [[name] for name in names] if kind == "alone" else [names]
    table = {name: np.array([loss, 0.8, error, 0.01]) for name, loss in zip(names, losses, strict=True)}
    return Measured(Plan(kind, groups, algorithm), (10,), (True,), table, dropped)


def choose(*plans: Measured) -> int:
    names = sorted(plans[0].table)
    weights = [np.eye(len(names))] * len(plans)
    return decide(plans, weights, names, dict.fromkeys(names, 100), np.zeros((len(names),) * 2)).chosen


def test_the_plan_with_the_lowest_loss_is_chosen_and_the_simplest_on_a_tie() -> None:
    alone = measured("alone", "fedavg", [0.5] * 6)
    assert choose(alone, measured("together", "fedavg", [0.6] * 6)) == 0
    assert choose(alone, measured("together", "fedavg", [0.45] * 6)) == 1
    fedavg, ditto = measured("together", "fedavg", [0.451] * 6), measured("together", "ditto", [0.45] * 6)
    assert choose(alone, ditto, fedavg) == 2
    assert choose(alone, measured("together", "ditto", [0.40] * 6), fedavg) == 1


def test_proposed_coalitions_must_be_clearly_better_and_dropped_plans_are_never_chosen() -> None:
    alone, everyone = measured("alone", "fedavg", [0.5] * 6), measured("together", "fedavg", [0.45] * 6)
    assert choose(alone, everyone, measured("coalitions", "fedavg", [0.44] * 6)) == 1
    assert choose(alone, everyone, measured("coalitions", "fedavg", [0.3] * 6)) == 2
    assert choose(alone, everyone, measured("coalitions", "fedavg", [0.3] * 6, dropped=True)) == 1


def test_noisy_gains_are_drawn_to_the_mean_and_sure_ones_are_not() -> None:
    names = [f"c{k}" for k in range(6)]
    alone = measured("alone", "fedavg", [0.5] * 6)
    losses = [0.4, 0.4, 0.4, 0.4, 0.4, 0.8]
    spreads = {}
    for error in (0.001, 0.5):
        one = measured("together", "fedavg", losses, error)
        found = decide([alone, one], [np.eye(6)] * 2, names, dict.fromkeys(names, 100), np.zeros((6, 6)))
        gains = [found.loss[1].clients[name].mean for name in names]
        spreads[error] = max(gains) - min(gains)
    assert spreads[0.001] > 0.25
    assert spreads[0.5] < 0.01


def test_a_client_that_could_not_be_measured_gets_the_gain_of_the_others_and_a_wide_interval() -> None:
    alone, one = measured("alone", "fedavg", [0.5] * 5), measured("together", "fedavg", [0.4, 0.3, 0.45, 0.4, 0.35])
    names = [*sorted(alone.table), "tiny"]
    found = decide([alone, one], [np.eye(6)] * 2, names, dict.fromkeys(names, 100), np.zeros((6, 6)))
    gains = found.loss[1].clients
    assert gains["tiny"].mean == pytest.approx(found.loss[1].mean.mean, abs=0.02)
    assert gains["tiny"].stderr > max(gains[name].stderr for name in alone.table)


def test_what_training_alone_wins_with_more_rows_is_taken_off_every_gain() -> None:
    names = [f"c{k}" for k in range(6)]
    everyone = measured("together", "fedavg", [0.45] * 6)
    alone = replace(measured("alone", "fedavg", [0.5] * 6), fewer={"c0": np.array([0.6, 0.7, np.nan, np.nan])})
    found = decide([alone, everyone], [np.eye(6)] * 2, names, dict.fromkeys(names, 100), np.zeros((6, 6)))
    assert found.loss[1].mean.mean == pytest.approx(0.05 - CATCH_UP * 0.1)
    assert found.accuracy[1].mean.mean == pytest.approx(-CATCH_UP * 0.1)
    assert found.chosen == 1
    steep = replace(alone, fewer={"c0": np.array([0.8, 0.7, np.nan, np.nan])})
    assert choose(steep, everyone) == 0
    assert choose(replace(alone, fewer={"c0": np.array([0.4, 0.9, np.nan, np.nan])}), everyone) == 1  # noise: no bonus


def test_small_clients_are_told_wider_intervals() -> None:
    names, sizes = [f"c{k}" for k in range(6)], {f"c{k}": 25 * 4**k for k in range(6)}
    alone, one = measured("alone", "fedavg", [0.5] * 6), measured("together", "fedavg", [0.4] * 6)
    gains = decide([alone, one], [np.eye(6)] * 2, names, sizes, np.zeros((6, 6))).loss[1].clients
    errors = [gains[name].stderr for name in names]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 1.5 * errors[-1]


def test_groupings_are_dropped_only_if_clearly_behind() -> None:
    near = {0: {"a": 0.5, "b": 0.6}, 1: {"a": 0.6, "b": 0.5}}
    assert clearly_behind(near, 2) == []
    assert clearly_behind(near, 1) == [1]
    assert clearly_behind({0: {"a": 0.5, "b": 0.6}, 1: {"a": 0.7, "b": 0.81}}, 2) == [1]
