"""Proxies equal ridge regression done by hand; own weights and the fit of the bound on cases worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fedcollab.advice.candidates import Plan, best_partition
from fedcollab.advice.decide import CATCH_UP, INFLATION, decide
from fedcollab.advice.fit import BoundFit, fit_bound
from fedcollab.advice.gains import Expected, Gain
from fedcollab.advice.pilot import Measured, clearly_behind
from fedcollab.advice.proxy import FOLDS, STRENGTHS, Sums, coalition_weights
from fedcollab.advice.result import Advice, Candidate
from fedcollab.advice.sums import folds_of, ridge_sums
from fedcollab.coalitions import c_path, place, solve
from fedcollab.data import ClientData
from fedcollab.distances import Distances, estimate_distances
from fedcollab.errors import InputError
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


def test_the_fit_tells_of_coalitions_that_were_not_tried() -> None:
    """Three clients of 100 rows: two together halve the variance, 1/10 - 1/sqrt(200), and are .2 / 2 apart."""
    fit = BoundFit(a=2.0, b=0.5, explained=0.4, pairs=9)
    distances = Distances(0.2 * (1 - np.eye(3)), tuple("abc"), np.full(3, 100), method="given")
    pair = 2.0 * (0.1 - 200**-0.5) - 0.5 * 0.1
    advice = replace(_unmeasured(tuple("abc")), fit=fit.as_dict())
    assert advice.bound == fit
    assert advice.predict(distances, [["c"], ["b", "a"]]) == pytest.approx({"a": pair, "b": pair, "c": 0.0})
    with pytest.raises(InputError, match="every client of `distances` once"):
        advice.predict(distances, [["a", "b"], ["b", "c"]])
    for fitted in (BoundFit.from_dict({}), fit_bound(*np.empty((4, 0)))):
        assert fitted == BoundFit(0.0, 0.0, 0.0, 0)
        assert not fitted.tells


def test_a_newcomers_gain_is_that_of_the_coalition_with_it() -> None:
    """Placed with c, 50 rows beside 100: as if the fit were asked about the coalition of both."""
    matrix = np.array([[0, 0.1, 0.9], [0.1, 0, 0.9], [0.9, 0.9, 0]])
    placement = place(solve(matrix, [100, 100, 100], C=5), [0.9, 0.8, 0.05], 50)
    fit = BoundFit(a=2.0, b=0.5, explained=0.4, pairs=9)
    both = fit.partition_gain(np.array([0, 0]), np.array([[0, 0.05], [0.05, 0]]), np.array([100.0, 50.0]))
    assert placement.gain(fit.a, fit.b) == pytest.approx(both[1])
    assert place(solve(matrix, [100, 100, 100], C=5), [1.0, 1.0, 1.0], 5000).gain(fit.a, fit.b) == 0


def _unmeasured(names: tuple[str, ...]) -> Advice:
    """Return an advice to stay alone that nobody measured."""
    none, groups = Expected(0.0, 0.0), [[name] for name in names]
    alone = Candidate("alone", "alone", "fedavg", {}, (), groups, None, none, none, {}, [1] * len(names), [])
    gains = {name: Gain(0.0, 0.0, none, none) for name in names}
    return Advice(names, np.ones(len(names)), "alone", 0, groups, np.eye(len(names)), 1.0, [alone], gains, none)


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


def test_steady_coalitions_are_believed_and_those_that_follow_noise_are_not() -> None:
    """The same gain of 4 % of the loss: enough for coalitions that every sample would show, too little for others."""
    alone, everyone = measured("alone", "fedavg", [0.5] * 6), measured("together", "fedavg", [0.6] * 6)
    found = measured("coalitions", "fedavg", [0.48] * 6)
    assert choose(alone, everyone, found) == 0
    assert choose(alone, everyone, replace(found, plan=replace(found.plan, noisy=0.0))) == 2


def test_clients_of_opposite_rules_are_proposed_as_steady_coalitions_and_like_ones_are_not(make_clients: Make) -> None:
    proposed = {}
    for kinds in ("aaaabbbb", "aaaaaaaa"):
        federation = federate(make_clients(kinds, rows=80))
        distances = estimate_distances(federation, method="hypothesis")
        quantities = {name: federation.quantities[name] for name in distances.names}
        sums = Sums.ask(federation, 0)
        proposed[kinds] = best_partition([distances], [c_path(distances)], sums, quantities)
    steady, chance = proposed["aaaabbbb"], proposed["aaaaaaaa"]
    assert steady is not None
    assert sorted(map(len, steady.coalitions)) == [4, 4]
    assert steady.noisy < 0.1
    assert chance is None or chance.noisy > 0.5


def test_clients_without_sums_go_where_the_widest_range_of_c_puts_them(make_clients: Make) -> None:
    """Two large kinds, and a third of small clients that no proxy sees: they are not lumped with a large kind."""
    clients = make_clients("aaabbb", rows=100)
    federation = federate(clients)
    groups = [[client.name for client in clients[:3]], [client.name for client in clients[3:]], ["tiny 1", "tiny 2"]]
    kind = {name: number for number, members in enumerate(groups) for name in members}
    names = [*federation.names, "tiny 1", "tiny 2"]
    matrix = np.array([[0.0 if one == other else 0.02 if kind[one] == kind[other] else 0.8 for one in names]
                       for other in names])  # fmt: skip
    quantities = {**dict.fromkeys(federation.names, 100), "tiny 1": 5, "tiny 2": 5}
    distances = Distances(matrix, tuple(names), np.array(list(quantities.values())), method="given")
    found = best_partition([distances], [c_path(distances)], Sums.ask(federation, 0), quantities)
    assert found is not None
    assert {frozenset(members) for members in found.coalitions} == {frozenset(members) for members in groups}


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
    everyone = measured("together", "fedavg", [0.45] * 6, 0.06)
    alone = replace(measured("alone", "fedavg", [0.5] * 6), fewer={"c0": np.array([0.6, 0.7, np.nan, np.nan])})
    found = decide([alone, everyone], [np.eye(6)] * 2, names, dict.fromkeys(names, 100), np.zeros((6, 6)))
    assert found.loss[1].mean.mean == pytest.approx(0.05 - CATCH_UP * 0.1)
    assert found.accuracy[1].mean.mean == pytest.approx(-INFLATION * 0.01 / np.sqrt(6))  # its limit: one standard error
    assert found.chosen == 1
    steep = replace(alone, fewer={"c0": np.array([0.8, 0.7, np.nan, np.nan])})
    assert choose(steep, everyone) == 0
    assert choose(replace(alone, fewer={"c0": np.array([0.4, 0.9, np.nan, np.nan])}), everyone) == 1  # noise: no bonus


def test_what_more_rows_win_is_taken_off_clients_in_proportion_to_one_over_their_rows() -> None:
    names = ["c0", "c1"]
    fewer = dict.fromkeys(names, np.array([0.67, 0.7, np.nan, np.nan]))
    alone = replace(measured("alone", "fedavg", [0.5] * 2), fewer=fewer)
    everyone = measured("together", "fedavg", [0.3] * 2, 1e-6)
    for rows, shares in (((100, 100), (1, 1)), ((30, 480), (32 / 17, 2 / 17))):  # 16 to 1, and 1 on average
        quantities = dict(zip(names, rows, strict=True))
        found = decide([alone, everyone], [np.eye(2)] * 2, names, quantities, np.zeros((2, 2))).loss[1]
        assert found.mean.mean == pytest.approx(0.2 - CATCH_UP * 0.17)
        taken = [0.2 - found.clients[name].mean for name in names]
        assert taken == pytest.approx([CATCH_UP * 0.17 * share for share in shares], rel=1e-3)


def test_half_of_a_clear_gain_is_left_however_much_one_tiny_client_wins_with_more_rows() -> None:
    names = [f"c{k}" for k in range(6)]
    everyone = measured("together", "fedavg", [0.45] * 6, 0.01)
    alone = replace(measured("alone", "fedavg", [0.5] * 6), fewer={"c0": np.array([2.0, 0.7, np.nan, np.nan])})
    found = decide([alone, everyone], [np.eye(6)] * 2, names, dict.fromkeys(names, 100), np.zeros((6, 6)))
    error = INFLATION * 0.01 / np.sqrt(6)
    assert found.loss[1].mean.mean == pytest.approx((0.05 - 2 * error) / 2)
    assert found.chosen == 1


def test_one_client_of_ten_does_not_decide_what_more_rows_win() -> None:
    names = [f"c{k}" for k in range(10)]
    everyone = measured("together", "fedavg", [0.4] * 10, 0.001)
    alone = measured("alone", "fedavg", [0.5] * 10)
    fewer = {name: np.array([0.55, 0.7, np.nan, np.nan]) for name in names}
    expected = 0.1 - CATCH_UP * 0.05
    for odd in (0.55, 5.0, 0.2):
        told = replace(alone, fewer={**fewer, "c3": np.array([odd, 0.7, np.nan, np.nan])})
        found = decide([told, everyone], [np.eye(10)] * 2, names, dict.fromkeys(names, 100), np.zeros((10, 10)))
        assert found.loss[1].mean.mean == pytest.approx(expected)


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
