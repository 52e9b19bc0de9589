"""The number of rounds is chosen on training rows that a model has not seen, and on nothing else."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from msgspec.structs import replace
from numpy.typing import NDArray

from fedcollab.data import ClientData
from fedcollab.data.split import fold_of
from fedcollab.errors import InputError
from fedcollab.federation import federate
from fedcollab.training import TrainingResult, train
from fedcollab.training.alone_client import train_alone
from fedcollab.training.descend import Setting
from fedcollab.training.folds import parts_of
from fedcollab.training.folds_client import train_folds
from fedcollab.training.models import Network
from fedcollab.training.stopping import pick_rounds
from fedcollab.wire import Wire


def made(rows: int, noise: float, names: str, seed: int = 0, tests: int = 400) -> list[ClientData]:
    """Clients with one linear rule of two of ten features; a share of the labels is random."""
    rng = np.random.default_rng(seed)
    clients = []
    for name in names:
        x = rng.normal(size=(rows + tests, 10))
        y = (x[:, 0] - x[:, 1] > 0).astype(int)
        y = np.where(rng.random(len(y)) < noise, rng.integers(0, 2, len(y)), y)
        clients.append(ClientData(name, x[:rows], y[:rows], x[rows:], y[rows:]))
    return clients


def test_training_that_overfits_is_stopped_in_time() -> None:
    clients = made(40, 0.4, "abcdef")
    options: dict[str, Any] = {"rounds": 80, "lr": 0.2, "evaluate_every": None}
    stopped = train(clients, "local", **options)
    never = train(clients, "local", stopping="none", **options)
    assert max(stopped.rounds) < 40
    assert stopped.loss.mean() < never.loss.mean() - 0.3
    assert never.rounds == [80] * 6


def test_training_that_still_improves_goes_on() -> None:
    result = train(made(200, 0.0, "abc"), "global", model="logistic", rounds=12, lr=0.05)
    assert result.rounds == [12]
    assert (np.diff(np.mean(list(result.held_out.values()), axis=0)) < 0).all()


def test_test_rows_are_never_looked_at() -> None:
    clients = made(50, 0.3, "abcd", tests=30)
    rng = np.random.default_rng(9)
    others = [ClientData(c.name, c.x, c.y, rng.normal(size=(50, 10)) * 9, rng.integers(0, 2, 50)) for c in clients]
    for algorithm in ("fedavg", "ditto"):
        one, other = (train(each, [["a", "b"], ["c"], ["d"]], algorithm, rounds=15) for each in (clients, others))
        assert one.rounds == other.rounds
        for which, rows in one.models.items():
            np.testing.assert_array_equal(rows, other.models[which])


def test_each_coalition_has_its_own_rounds() -> None:
    quick, slow = made(3000, 0.8, "ab", tests=20), made(3000, 0.0, "cd", seed=1, tests=20)
    result = train([*quick, *slow], [["a", "b"], ["c", "d"]], rounds=20, lr=0.3)
    assert result.rounds[0] < result.rounds[1]
    last = {name: max(row["round"] for row in result.history if row["client"] == name and row["train_loss"])
            for name in "abcd"}  # fmt: skip
    assert [last[name] for name in "abcd"] == [rounds for rounds in result.rounds for _ in range(2)]


def test_a_model_does_not_depend_on_the_rows_that_it_is_measured_on() -> None:
    clients = made(30, 0.3, "ab")
    network = Network(Network.describe("logistic", {}, (10,), 2))
    setting = Setting("fedavg", {}, network.text, 0.1, 8, 1, 0)
    federation = federate(clients, runtime="vectorised")
    silo = federation.runtime.silos["a"]
    message = {"setting": json.dumps(asdict(setting)), "round": 1, "folds": 2, "train": True, "last": False,
               "coalition": ["a"], "w": np.stack([network.initial().numpy()] * 2)}  # fmt: skip
    before = train_folds(message, silo)
    parts = parts_of(silo, 2, 0)
    parts[0].y_held.copy_(1 - parts[0].y_held)
    after = train_folds(message, silo)
    np.testing.assert_array_equal(before["w"], after["w"])
    assert before["held_out"][0, 0] != after["held_out"][0, 0]
    assert sum(len(part.y_held) for part in parts) == 30
    for part in parts:
        assert not {tuple(row) for row in part.x.tolist()} & {tuple(row) for row in part.x_held.tolist()}


def test_each_division_of_the_rows_has_an_error_of_its_own() -> None:
    """Else the difference of two that divide one row otherwise would be exact, and that row's. Asking again averages
    nothing."""
    federation = federate(made(60, 0.3, "ab"), runtime="vectorised")
    silo = federation.runtime.silos["a"]
    network = Network(Network.describe("logistic", {}, (10,), 2))

    def measured(seed: int, folds: int) -> NDArray[np.float64]:
        setting = Setting("fedavg", {}, network.text, 0.1, 8, 1, seed)
        message = {"setting": json.dumps(asdict(setting)), "round": 1, "folds": folds, "train": False, "last": False,
                   "coalition": ["a"], "w": np.stack([network.initial().numpy()] * folds)}  # fmt: skip
        return np.asarray(train_folds(message, silo)["held_out"][0, :2])

    divisions = [(0, 2), (1, 2), (2, 2), (3, 2), (0, 3), (0, 4), (0, 5)]
    exact = [measured(*each) for each in divisions]
    for other in exact[1:]:
        np.testing.assert_allclose(other, exact[0], atol=1e-6)  # the same model in every fold
    silo.limits = replace(silo.limits, round_measures=True)
    shown = [measured(*each) for each in divisions]
    for some in (
        shown[:4],
        [shown[0], *shown[4:]],
    ):  # other seeds, other numbers of folds; errors are rounded, two may be equal
        assert len({float(loss) for loss, _ in some}) > 2
    assert [measured(*each).tolist() for each in divisions] == [each.tolist() for each in shown]


def test_training_alone_on_half_of_each_part_is_training_on_fewer_rows_of_the_same_kind() -> None:
    """Before the first round all models are alike; later, fewer rows are worse; the rest of the answer is the same."""
    clients = made(60, 0.1, "abcdef")
    network = Network(Network.describe("logistic", {}, (10,), 2))
    setting = Setting("fedavg", {}, network.text, 0.3, 8, 1, 0)
    federation = federate(clients, runtime="vectorised")
    message = {"setting": json.dumps(asdict(setting)), "rounds": 20, "folds": 2, "w": network.initial().numpy(),
               "training": "t"}  # fmt: skip
    plain = federation.call(train_alone, dict.fromkeys(federation.names, message))
    both = federation.call(train_alone, {name: {**message, "fewer": True} for name in federation.names})
    for name, answer in both.items():
        np.testing.assert_allclose(answer["held_out"], plain[name]["held_out"], atol=1e-6)
        np.testing.assert_allclose(answer["fewer"][0], answer["held_out"][0], atol=1e-6)
        assert "fewer" not in plain[name]
    assert np.mean([a["fewer"][-1, 0, 0] for a in both.values()]) > np.mean(
        [a["held_out"][-1, 0, 0] for a in both.values()]
    )


def test_held_out_is_the_loss_of_the_model_on_rows_outside_its_training() -> None:
    clients = made(24, 0.3, "ab")
    federation = federate(clients, runtime="vectorised")
    result = train(federation, "local", model="logistic", rounds=1, lr=0.1)
    silo = federation.runtime.silos["b"]
    network = Network(Network.describe("logistic", {}, (10,), 2))
    w, b = (part.numpy() for part in network.split(network.initial())[0])
    z = silo.arrays.x @ w.T + b
    loss = np.log(np.exp(z).sum(1)) - z[np.arange(24), silo.arrays.y]
    assert result.held_out["b"][0] == pytest.approx(loss.mean(), abs=1e-5)
    assert len(result.held_out["b"]) == 2


@settings(deadline=None, max_examples=50)
@given(
    curves=hnp.arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(2, 30)), elements=st.floats(0, 10)),
    rows=st.integers(1, 10**6),
)
def test_the_choice_is_within_the_ceiling_and_ignores_the_order_of_clients(curves: Any, rows: int) -> None:
    names = [str(n) for n in range(len(curves))]
    measured, ceiling = dict(zip(names, curves[:, :, None], strict=True)), curves.shape[1] - 1
    quantities = dict.fromkeys(names, rows)
    coalitions = [names[:1], names[1:]] if len(names) > 1 else [names]
    chosen = pick_rounds(measured, quantities, coalitions, ceiling)
    assert all(1 <= rounds <= ceiling for rounds, _ in chosen)
    turned = dict(reversed(measured.items()))
    assert pick_rounds(turned, quantities, [members[::-1] for members in coalitions], ceiling) == chosen


def test_nobody_measured_means_the_ceiling() -> None:
    assert pick_rounds({}, {"a": 3}, [["a"]], 7) == [(7, 0)]


def test_the_mean_over_rounds_is_used_where_it_is_better() -> None:
    """While the loss falls steeply the mean lags behind and the last round's model is taken; in noise the mean is."""
    falling = train(made(100, 0.0, "ab"), "global", model="logistic", rounds=8, lr=0.05)
    noisy = train(made(60, 0.5, "abcdef"), "global", rounds=40, lr=0.5, batch_size=4)
    assert (falling.averaged, noisy.averaged) == ([False], [True])
    for kind, column in ((0.0, 0.0), (0.8, 0.8)):
        forced = train(made(100, 0.0, "ab"), "global", model="logistic", rounds=8, lr=0.05, averaging=kind)
        assert forced.settings["averaging"] == column


def test_small_clients_follow_the_others_under_a_limit() -> None:
    """A silo that sends nothing made of fewer than 20 samples is not asked; its rounds come from the others."""

    class Strict(Wire):
        min_samples = 20

    clients = [*made(100, 0.4, "ab", tests=20), *made(30, 0.4, "c", seed=1, tests=20)]
    result = train(Strict(clients), "local", rounds=30, lr=0.2)
    assert set(result.held_out) == {"a", "b"}
    assert result.rounds[2] <= max(result.rounds[:2])
    assert not result.failures


@pytest.mark.parametrize(("rule", "best"), [("linear", "logistic"), ("xor", "mlp")])
def test_auto_takes_the_model_that_is_better_on_held_out_rows(rule: str, best: str) -> None:
    rng = np.random.default_rng(0)
    clients = []
    for name in "abcd":
        x = rng.normal(size=(250 if rule == "xor" else 60, 8))
        y = (x[:, 0] > 0) ^ (x[:, 1] > 0) if rule == "xor" else x[:, 0] + rng.normal(size=len(x)) > 0
        clients.append(ClientData(name, x, y.astype(int)))
    result = train(clients, "global", model="auto", rounds=30)
    assert result.model["name"] == best
    named = train(clients, "global", model=best, rounds=30)
    np.testing.assert_array_equal(result.models["last"], named.models["last"])


def test_a_training_that_diverges_says_so_as_before() -> None:
    clients = made(40, 0.2, "ab")
    wild = [ClientData(c.name, c.x * 1e25, c.y, c.x_test, c.y_test) for c in clients]
    with pytest.warns(UserWarning, match="became NaN or infinite"):
        result = train(wild, "global", rounds=4, lr=1e20, scale="none")
    assert list(result.stopped) == [0]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.integers(1, 5), st.integers(0, 9))
def test_folds_are_of_like_size_and_spread_every_label(labels: list[int], folds: int, seed: int) -> None:
    y = np.array(labels)
    fold = fold_of(y, folds, np.random.default_rng(seed))
    sizes = np.bincount(fold, minlength=folds)
    assert sizes.max() - sizes.min() <= 1
    for label in set(labels):
        counts = np.bincount(fold[y == label], minlength=folds)
        assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold", "fednova", "finetune", "perfedavg"])
@pytest.mark.parametrize("runtime", ["vectorised", "wire"])
def test_a_client_that_cannot_be_cut_in_two_has_no_say(algorithm: str, runtime: str) -> None:
    """All rows of `c` belong to one person: none of them can be held out while others train."""
    clients = made(40, 0.3, "ab", tests=20)
    one = made(12, 0.3, "c", seed=5, tests=20)[0]
    one = ClientData("c", one.x, one.y, one.x_test, one.y_test, groups=np.zeros(12, dtype=int))
    result = train([*clients, one], "global", algorithm, rounds=3, runtime=runtime)
    assert set(result.held_out) == {"a", "b"}
    assert not result.failures


def test_a_loss_that_is_not_finite_ends_its_curve_alone() -> None:
    t = np.arange(31.0)[:, None]
    broken = abs(t - 5)
    broken[20:] = np.inf
    curves = {"a": abs(t - 12), "b": broken}
    quantities = {"a": 10**6, "b": 10**6}
    assert pick_rounds(curves, quantities, [["a"], ["b"]], 30) == [(12, 0), (5, 0)]


def test_who_takes_part_is_drawn_in_the_folds_too() -> None:
    clients = made(30, 0.3, "abcdefghij", tests=20)
    trained: list[int] = []

    class Spied(Wire):
        def _call(self, action: Any, messages: Any) -> Any:
            if action.name == "train-folds":
                trained.append(sum(message["train"] for message in messages.values()))
            return super()._call(action, messages)

    train(Spied(clients), "global", model="logistic", rounds=4, participation=0.2)
    assert trained == [2, 2, 2, 2, 0]


def test_a_result_of_an_earlier_version_opens(tmp_path: Any) -> None:
    result = train(made(30, 0.2, "ab"), "local", rounds=2, stopping="none", run_dir=tmp_path)
    content = json.loads((tmp_path / "training.json").read_text())
    for key in ("rounds", "averaged", "held_out", "content_sha256"):
        del content[key]
    (tmp_path / "training.json").write_text(json.dumps(content))
    assert TrainingResult.load(tmp_path).rounds == result.rounds == [2, 2]


def test_adam_is_refused_where_steps_are_the_algorithms_own() -> None:
    with pytest.raises(InputError, match=r"`optimizer` \(='adam'\) must be 'sgd': the steps of 'scaffold' are its own"):
        train(made(30, 0.2, "ab"), "global", "scaffold", optimizer="adam")
