"""The advice: right where the answer is known, from training rows alone, the same in every runtime and order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedcollab
from fedcollab import Advice, FedCollab, InputError, advise, train
from fedcollab.data import ClientData

Make = Callable[..., list[ClientData]]
QUICK: dict[str, Any] = {"model": "logistic", "rounds": 30, "lr": 0.3}


def test_clients_with_one_rule_train_together_though_they_differ_in_a_column(make_clients: Make) -> None:
    advice = advise(make_clients("aaaaaa", rows=80, shift=1.5), **QUICK)
    assert advice.verdict == "together"
    assert len(advice.coalitions) == 1
    assert advice.mean_gain.mean > 0
    assert np.mean([gain.probability for gain in advice.gains.values()]) > 0.7
    assert [row["column"] for row in advice.separates] == ["scanner"]
    assert not advice.separates[0]["matters"]
    assert "scanner" in str(advice)


def test_the_mean_gain_in_points_is_that_of_what_clients_are_told(make_clients: Make) -> None:
    small, large = make_clients("aaaa", rows=20), make_clients("aaaaaaaa", rows=150)[4:]
    advice = advise([*small, *large], model="logistic", rounds=20, metric="accuracy")
    told = np.mean([gain.accuracy.mean for gain in advice.gains.values()])
    assert advice.mean_gain.mean == pytest.approx(told)
    assert advice.candidate.accuracy_gain.mean == pytest.approx(told)


def test_clients_with_two_rules_are_not_put_into_one_model(make_clients: Make) -> None:
    clients = make_clients("aaabbb", rows=60)
    advice = advise(clients, **QUICK)
    place = {name: k for k, members in enumerate(advice.coalitions) for name in members}
    assert place["north"] != place["west"]
    followed = train(clients, advice, **QUICK)
    assert followed.reported_loss.mean() < train(clients, "local", **QUICK).reported_loss.mean()
    assert followed.reported_loss.mean() < train(clients, "global", **QUICK).reported_loss.mean() - 0.1


def test_test_rows_are_never_looked_at(make_clients: Make) -> None:
    clients = make_clients("aaab")
    rng = np.random.default_rng(3)
    others = [ClientData(c.name, c.x, c.y, c.x_test * 7, rng.integers(0, 2, len(c.y_test))) for c in clients]
    one, other = (advise(each, **QUICK) for each in (clients, others))
    assert str(one) == str(other)
    for name, gain in one.gains.items():
        assert (gain.mean, gain.stderr) == (other.gains[name].mean, other.gains[name].stderr)


def test_the_runtimes_agree(make_clients: Make) -> None:
    clients = make_clients("aabb", rows=40)
    how = {**QUICK, "rounds": 10}
    one, other = (advise(clients, runtime=runtime, **how) for runtime in ("vectorised", "wire"))
    assert (one.verdict, one.coalitions, one.algorithm) == (other.verdict, other.coalitions, other.algorithm)
    for mine, theirs in zip(one.candidates, other.candidates, strict=True):
        assert mine.label == theirs.label
        assert mine.rounds == theirs.rounds
        for name, row in mine.held_out.items():
            np.testing.assert_allclose(
                np.array(row, dtype=float), np.array(theirs.held_out[name], dtype=float), atol=2e-5
            )


def test_the_order_of_clients_does_not_matter(make_clients: Make) -> None:
    clients = make_clients("aab", rows=40)
    one, other = advise(clients, **QUICK), advise(clients[::-1], **QUICK)
    assert one.names == ("north", "south", "east")
    assert other.names == ("east", "south", "north")
    assert {frozenset(group) for group in one.coalitions} == {frozenset(group) for group in other.coalitions}
    for name in one.names:
        assert one.gains[name].mean == pytest.approx(other.gains[name].mean, abs=1e-6)
    np.testing.assert_allclose(one.weights, other.weights[::-1, ::-1], atol=1e-9)


def test_a_given_C_is_the_papers_procedure(make_clients: Make) -> None:
    clients = make_clients("aabb", rows=50)
    fitted = FedCollab(C=10.0).fit(clients)
    advice = advise(clients, C=10.0, distances=fitted.distances, **QUICK)
    assert {frozenset(c) for c in advice.coalitions} == {frozenset(c) for c in fitted.collaboration.coalitions}
    assert (advice.algorithm, advice.C) == ("fedavg", 10.0)


def test_it_saves_and_loads_itself(make_clients: Make, tmp_path: Path) -> None:
    advice = advise(make_clients("aab", rows=40), metric="accuracy", **QUICK)
    advice.save(tmp_path / "advice.json")
    again = Advice.load(tmp_path)
    assert str(again) == str(advice)
    assert again.explain("north") == advice.explain("north")
    np.testing.assert_allclose(again.weights, advice.weights)
    assert again.gains["east"].accuracy.stderr == pytest.approx(advice.gains["east"].accuracy.stderr)
    assert advice.gains["east"].mean == advice.gains["east"].accuracy.mean
    (tmp_path / "advice.json").write_text((tmp_path / "advice.json").read_text().replace('"north"', '"nobody"', 1))
    with pytest.raises(InputError, match="checksum"):
        Advice.load(tmp_path)


def test_training_as_advised_does_not_choose_the_rounds_again(make_clients: Make) -> None:
    clients = make_clients("aaa", rows=40)
    advice = advise(clients, **QUICK)
    followed = train(clients, advice, **QUICK)
    assert followed.rounds == advice.candidate.rounds
    assert followed.cost["calls"] < 2 * QUICK["rounds"]
    other = train(clients, advice, **{**QUICK, "lr": 0.1})  # other settings: chosen again
    assert other.cost["calls"] > QUICK["rounds"]


def test_constraints_are_kept(make_clients: Make) -> None:
    advice = advise(make_clients("aabb", rows=40), constraints={"cannot_link": [("north", "south")]}, **QUICK)
    place = {name: k for k, members in enumerate(advice.coalitions) for name in members}
    assert place["north"] != place["south"]
    for candidate in advice.candidates:
        together = {name: k for k, members in enumerate(candidate.coalitions) for name in members}
        assert together["north"] != together["south"]


def test_only_the_algorithms_that_are_allowed_are_advised(make_clients: Make) -> None:
    advice = advise(make_clients("aaa", rows=40), algorithms=["fedavg"], **QUICK)
    assert {candidate.algorithm for candidate in advice.candidates} == {"fedavg"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"metric": "auc"}, "`metric`"),
        ({"algorithms": ["magic"]}, "magic"),
        ({"algorithms": []}, "`algorithms`"),
        ({"rounds": 0}, "`rounds`"),
        ({"model": "auto"}, "depends on the model"),
    ],
)
def test_bad_input_is_one_clear_line(make_clients: Make, given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        advise(make_clients("aa", rows=30), **{**QUICK, **given})
    assert "\n" not in str(error.value)


def test_fit_is_quick_and_the_advice_comes_when_asked_for(make_clients: Make, tmp_path: Path) -> None:
    fitted = FedCollab(model="logistic", run_dir=tmp_path / "run").fit(make_clients("aab", rows=40))
    assert not (tmp_path / "run" / "advice.json").exists()
    advice = fitted.advise(rounds=20, lr=0.3)
    assert (tmp_path / "run" / "advice.json").exists()
    result = fitted.train(rounds=20, lr=0.3)
    assert result.method == advice.algorithm
    assert fedcollab.Advice.load(tmp_path / "run").verdict == advice.verdict


def test_training_follows_the_advice_that_was_given(make_clients: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is measured once, and its settings are those of the training, unless others are asked for."""
    measured: list[dict[str, Any]] = []

    def counted(*arguments: Any, **options: Any) -> Any:
        measured.append(options)
        return advise(*arguments, **options)

    monkeypatch.setattr("fedcollab.runs.fitted.advice_of.advise", counted)
    fitted = FedCollab(seed=0).fit(make_clients("aab", rows=40))
    advice = fitted.advise("logistic", rounds=20, lr=0.3)
    result = fitted.train()
    assert len(measured) == 1
    assert (result.method, result.model["name"]) == (advice.algorithm, "logistic")
    assert (result.settings["rounds"], result.settings["lr"]) == (20, 0.3)
    assert fitted.train("fedavg", "logistic").settings["rounds"] == 100, "not as advised: the defaults"
    fitted.train(model="logistic", rounds=20, local_epochs=2)
    assert [each.get("local_epochs") for each in measured] == [None, 2]
