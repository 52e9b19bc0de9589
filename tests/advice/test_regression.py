"""Advice for a numeric target: proxies against closed forms, the plan that was planted, gains in units."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedcollab import Advice, ClientData, advise, inspect
from fedcollab.advice.gains import Expected, in_units
from fedcollab.advice.proxy import FOLDS, STRENGTHS, Sums
from fedcollab.data.split import fold_of
from fedcollab.federation import federate


def planted(rules: str, rows: int = 100, offset: float = 0.0) -> list[ClientData]:
    """Return a client for each letter: y follows the letter's rule, plus an offset of each client's own."""
    rng = np.random.default_rng(0)
    found = []
    for position, rule in enumerate(rules):
        x = rng.normal(size=(rows, 4))
        w = np.array([1.0, 2, 0, 0]) * (1 if rule == "a" else -1)
        y = 50 + 4 * (x @ w + rng.normal(size=rows)) + offset * position
        found.append(ClientData(f"c{position}", pd.DataFrame(x, columns=list("pqrs")), y))
    return found


def test_sums_are_those_of_the_rows_and_errors_those_of_ridge_regression() -> None:
    federation = federate(planted("aab"))
    sums = Sums.ask(federation, seed=0)
    arrays = {name: federation.runtime.silos[name].arrays for name in sums.names}
    for place, name in enumerate(sums.names):
        x, y = arrays[name].x.astype(np.float64), arrays[name].y.astype(np.float64)
        assert sums.squares[place].sum() == pytest.approx((y**2).sum())
        np.testing.assert_allclose(sums.labelled[place].sum(axis=0)[:-1, 0], x.T @ y, atol=1e-6)
    everyone = np.full((3, 3), 1 / 3)
    found = sums.held_out(everyone)
    best = np.inf
    for strength in STRENGTHS:
        errors = np.zeros(3)
        for fold in range(FOLDS):
            parts = [(g.sum(0) - g[fold], b.sum(0) - b[fold], n.sum() - n[fold])
                     for g, b, n in zip(sums.products, sums.labelled, sums.rows, strict=True)]  # fmt: skip
            worth = 1 / sum((1 / 9) / n for _, _, n in parts)
            g, b = (sum(part[k] / part[2] for part in parts) / 3 for k in (0, 1))
            w = np.linalg.solve(g + strength / worth * np.eye(len(g)), b)
            for client in range(3):
                gram, cross, n, squares = (each[client][fold] for each in (sums.products, sums.labelled, sums.rows,
                                                                           sums.squares))  # fmt: skip
                errors[client] += ((w.T @ gram @ w)[0, 0] - 2 * (w.T @ cross)[0, 0] + squares) / n / FOLDS
        best = min(best, errors.mean())
    assert found.mean() == pytest.approx(best)


def test_folds_of_sums_are_spread_over_the_target() -> None:
    y = np.random.default_rng(0).normal(size=80).astype(np.float32)
    assert np.bincount(fold_of(y, 4, np.random.default_rng(0))).tolist() == [20] * 4


def test_planted_rules_are_found_and_gains_told_in_units(tmp_path: Path) -> None:
    clients = planted("aaabbb", rows=60)
    advice = advise(clients, model="logistic", rounds=30)
    assert advice.candidate.kind in ("coalitions", "own weights")
    assert {frozenset(members) for members in advice.coalitions} == {
        frozenset({"c0", "c1", "c2"}), frozenset({"c3", "c4", "c5"})}  # fmt: skip
    assert advice.target["loss"] == "squared"
    mean = advice.mean_error_gain
    assert mean is not None
    assert 0 < mean.mean < 4.0
    assert "RMSE" in str(advice)
    assert "points of R²" in str(advice)
    assert "RMSE" in advice.explain("c0")
    advice.save(tmp_path / "advice.json")
    assert Advice.load(tmp_path / "advice.json").error_gains == advice.error_gains


def test_one_rule_with_own_offsets_means_together_with_an_own_intercept() -> None:
    advice = advise(planted("aaaaaa", rows=40, offset=30.0), model="logistic", rounds=40)
    assert advice.candidate.kind == "together"
    assert advice.algorithm == "own-intercept" or advice.candidate.keep == ("0.bias",) or advice.candidate.keep


def test_runtimes_advise_the_same() -> None:
    found = [advise(planted("aab", rows=40), model="logistic", rounds=6, runtime=way) for way in ("vectorised", "wire")]
    labels = [[each.label for each in advice.candidates] for advice in found]
    assert labels[0] == labels[1]
    for name in found[0].names:
        assert found[0].gains[name].loss.mean == pytest.approx(found[1].gains[name].loss.mean, abs=1e-5)
        assert found[0].gains[name].accuracy.mean == pytest.approx(found[1].gains[name].accuracy.mean, abs=1e-4)


def test_units_of_a_gain() -> None:
    half = in_units(Expected(0.375, 0.01), 0.5, {"loss": "squared", "scale": 2.0})
    assert half.mean == pytest.approx(1.0)  # RMSE 2 alone, 1 after
    assert half.stderr == pytest.approx(0.01 * 2 * 4 / 3)
    plain = in_units(Expected(0.1, 0.02), 0.5, {"loss": "absolute", "scale": 2.0})
    assert (plain.mean, plain.stderr) == (0.2, 0.04)


def flaws(**changed: Any) -> set[tuple[str | None, str]]:
    """Return what is found about the targets of four clients, some of which are changed by functions of y."""
    rng = np.random.default_rng(0)
    clients = []
    for name in ("north", "south", "east", "west"):
        y = changed.get(name, lambda y: y)(np.exp(rng.normal(size=100) / 5) * 80)
        clients.append(ClientData(name, pd.DataFrame({"age": rng.normal(50, 9, size=100)}), y))
    return {(found.client, found.kind) for found in inspect(clients).findings if found.column == "label"}


def test_flaws_of_a_target_are_found() -> None:
    assert flaws() == set()
    assert flaws(south=lambda y: 1000 * y) == {("south", "units")}
    assert flaws(east=lambda y: np.full(100, 80.5)) == {("east", "constant-target")}
    assert flaws(west=lambda y: np.where(np.arange(100) < 6, 400.0, y)) == {("west", "far-targets")}
    assert flaws(west=lambda y: y - 200) == {("west", "other-range")}


def test_a_check_lists_no_value_of_a_target() -> None:
    clients = planted("aab")
    profiles = inspect(clients).profiles
    assert all(profile["labels"] == {} for profile in profiles.values())
    assert all(profile["target"]["categories"] == {} for profile in profiles.values())
