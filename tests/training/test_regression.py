"""A numeric target: losses and measures by hand, the task that clients decide, runtimes, limits, comparisons."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.metrics import mean_absolute_error, mean_squared_error

from fedcollab import ClientData, InputError, train
from fedcollab.data.rare import alike_columns
from fedcollab.data.schema import Schema
from fedcollab.data.split import fold_of, stratified
from fedcollab.federation import federate
from fedcollab.federation.prepare_client import describe
from fedcollab.federation.task import decide
from fedcollab.silo.rounding import with_errors
from fedcollab.training import compare, load_model
from fedcollab.training.batches import Batch, shares
from fedcollab.training.gradient import Automatic, Dense
from fedcollab.training.losses import LOSSES
from fedcollab.training.measures import measure
from fedcollab.training.models import Network
from fedcollab.training.outcomes import of_outputs
from fedcollab.training.plausible import impossible_measures
from fedcollab.training.result import TrainingResult
from fedcollab.training.scores import SCORES
from fedcollab.wire.action import Refused
from fedcollab.wire.limits import Limits
from fedcollab.wire.silo import Silo

Floats = NDArray[np.float64]
NUMERIC = [name for name, loss in LOSSES.items() if loss.task == "regression"]


def client(name: str, w: list[float], rows: int = 60, test: int = 50, offset: float = 10.0) -> ClientData:
    """Return a client with y = 3 w'x + offset + noise."""
    rng = np.random.default_rng(sum(map(ord, name)))
    x = rng.normal(size=(rows + test, len(w)))
    y = 3 * (x @ np.array(w)) + offset + rng.normal(size=len(x))
    return ClientData(name, x[:rows], y[:rows], x[rows:], y[rows:])


@pytest.fixture(scope="module")
def five() -> list[ClientData]:
    return [*(client(name, [1, 2, 0]) for name in ("a", "b", "c")), *(client(name, [-1, 0, 2]) for name in ("d", "e"))]


# What is predicted.


def test_numbers_with_fractions_mean_regression_and_agree_on_a_scale(five: list[ClientData]) -> None:
    schema = federate(five).schema
    y = np.concatenate([each.y for each in five])
    assert (schema.task, schema.classes, schema.outputs) == ("regression", (), 1)
    np.testing.assert_allclose(schema.target, (y.mean(), y.std()))
    scaled = schema.targets(five[0].y)
    assert scaled.dtype == np.float32
    np.testing.assert_allclose(schema.in_units(scaled), five[0].y, rtol=1e-5)
    assert Schema.from_json(schema.to_json()) == schema


def test_a_schema_of_classes_says_nothing_about_a_target() -> None:
    text = Schema(("no", "yes"), (3,)).to_json()
    assert "target" not in text
    assert "task" not in text
    assert Schema.from_json(text).task == "classification"


@pytest.mark.parametrize("scale", ["none", "features"])
def test_scales_of_the_features_are_those_of_a_classification(five: list[ClientData], scale: str) -> None:
    classes = [ClientData(each.name, each.x, each.y > 10, each.x_test, each.y_test > 10) for each in five]
    numbers, labels = federate(five, scale=scale).schema, federate(classes, scale=scale).schema
    assert (numbers.mean, numbers.std, numbers.shape) == (labels.mean, labels.std, labels.shape)


def test_whole_numbers_stay_classes_unless_asked_or_very_many() -> None:
    x = np.arange(40.0)[:, None]
    few = {"a": (x, np.arange(40) % 5), "b": (x, np.arange(40) % 4)}
    assert federate(few).schema.task == "classification"
    assert federate(few, task="regression").schema.task == "regression"
    x = np.arange(150.0)[:, None]
    assert federate({"a": (x, np.arange(150)), "b": (x, np.arange(150) + 7)}).schema.task == "regression"
    spread = {name: (x[:60], 1000 * place + np.arange(60)) for place, name in enumerate("abc")}
    assert federate(spread).schema.task == "regression"


def test_whole_numbers_beside_fractions_are_numbers_too() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2))
    mixed = {"a": (x, rng.normal(size=40)), "b": (x, np.arange(40))}
    federation = federate(mixed)
    assert federation.schema.task == "regression"
    assert [reply["labels"] for reply in federation.described.values()] == [[], []]


@pytest.mark.parametrize(
    ("labels", "task", "line"),
    [
        (["x", "y"], None, "client `a` has a numeric target and client `b` has text as labels"),
        (["x", "y"], "regression", "`task` (='regression') needs numbers; client `b` has text"),
        ([0, 1], None, "client `b` only 2 whole numbers; `task` ('regression') would take all as numbers"),
        ([0, 1], "classification", "`task` (='classification') needs classes; client `a` has numbers with fractions"),
        ([0, 1], "regressio", "did you mean 'regression'?"),
    ],
)
def test_contradictions_are_one_line(labels: list[object], task: str | None, line: str) -> None:
    x = np.arange(20.0)[:, None]
    with pytest.raises(InputError) as caught:
        federate({"a": (x, x[:, 0] / 3), "b": (x, labels * 10)}, task=task)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_description_lists_no_value_of_a_target(five: list[ClientData]) -> None:
    silo = Silo(five[0], limits=Limits(min_samples=5))
    reply = describe({"scale": "none", "test_share": 0.2, "seed": 0}, silo)
    assert reply["labels"] == []
    assert reply["label_counts"] == {}
    assert reply["sum"][-1] == pytest.approx(with_errors(alike_columns(five[0].y, 5), silo).sum())
    assert reply["sum"][-1] != pytest.approx(alike_columns(five[0].y, 5).sum())
    with pytest.raises(Refused, match="no classes"):
        describe({"scale": "none", "test_share": 0.2, "seed": 0, "task": "classification"}, silo)


def test_one_far_value_moves_no_sum_of_a_silo(five: list[ClientData]) -> None:
    message = {"scale": "none", "test_share": 0.2, "seed": 0}
    y = five[0].y.copy()
    sums = []
    for far in (1e3, 1e6):
        y[3] = far
        changed = ClientData("a", five[0].x, y, five[0].x_test, five[0].y_test)
        sums.append(describe(message, Silo(changed, limits=Limits(min_samples=10)))["sum"][-1])
    assert sums[0] == sums[1]


def test_decide_leaves_room_for_nothing_else() -> None:
    counted = {"a": {"labels": [1, 2], "quantity": 10}}
    assert decide("classification", counted) == "classification"


def test_splits_spread_a_target_evenly() -> None:
    y = np.random.default_rng(0).normal(size=200)
    held = stratified(y, 0.2, np.random.default_rng(1))
    assert held.sum() == 40
    assert abs(y[held].mean() - y.mean()) < 0.05
    folds = fold_of(y, 4, np.random.default_rng(1))
    assert np.bincount(folds).tolist() == [50] * 4
    assert max(abs(y[folds == fold].mean() - y.mean()) for fold in range(4)) < 0.1
    other = fold_of(y, 4, np.random.default_rng(2))  # a draw, not the ranks alone
    assert len({tuple(np.bincount(other[folds == fold], minlength=4)) for fold in range(4)}) > 1


# Losses and measures.


@pytest.mark.parametrize("name", LOSSES)
def test_backward_is_the_derivative(name: str) -> None:
    loss, rng = LOSSES[name], np.random.default_rng(0)
    width = 3 if loss.task == "classification" else 1
    outputs = torch.tensor(rng.normal(size=(2, 5, width)), requires_grad=True)
    y = torch.tensor(rng.integers(0, 3, (2, 5)) if width == 3 else rng.normal(size=(2, 5)))
    share = torch.full((2, 5, 1), 0.2, dtype=torch.float64)
    each, delta = loss.backward(outputs.detach().clone(), y, share, -share)
    torch.testing.assert_close(each.squeeze(-1), loss.each(outputs, y).detach())
    (loss.each(outputs, y) * 0.2).sum().backward()
    torch.testing.assert_close(delta, outputs.grad)
    torch.testing.assert_close(loss.mean(outputs[0], y[0]), loss.each(outputs, y)[0].mean())


@pytest.mark.parametrize("loss", NUMERIC)
@pytest.mark.parametrize("widths", [(), (5,)])
def test_dense_gradients_are_those_of_autograd(loss: str, widths: tuple[int, ...]) -> None:
    network = Network(Network.describe("mlp", {"widths": list(widths)}, (4,), 1, loss), seed=3)
    rng = np.random.default_rng(0)
    x = torch.tensor(rng.normal(size=(1, 6, 4)), dtype=torch.float32)
    batch = Batch(x, torch.tensor(rng.normal(size=(1, 6)), dtype=torch.float32), shares([6], 6), (6,))
    w = network.initial()[None]
    dense, automatic = Dense(network, 0.1), Automatic(network, 0.1)
    torch.testing.assert_close(dense(w, batch), automatic(w, batch), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(dense.mean_loss, automatic.mean_loss, atol=1e-6, rtol=1e-5)


def test_measures_by_hand() -> None:
    outputs, y = torch.tensor([[1.0], [2.0], [5.0]]), torch.tensor([1.0, 4.0, 5.0])
    squared, absolute = (of_outputs(LOSSES[name], outputs, y, 4.0) for name in ("squared", "absolute"))
    assert squared.loss.tolist() == [0.0, 2.0, 0.0]
    assert absolute.loss.tolist() == [0.0, 2.0, 0.0]
    assert squared.right.tolist() == absolute.right.tolist() == [1.0, 0.0, 1.0]
    assert SCORES["regression"].spread(np.array([1.0, 3.0, 5.0])) == pytest.approx(8 / 3)
    assert SCORES["regression"].spread(np.array([2.0, 2.0])) == 1.0


def test_measures_are_those_of_the_predictions(five: list[ClientData], tmp_path: Path) -> None:
    result = train(five, [["a", "b", "c"], ["d", "e"]], model="logistic", rounds=15, lr=0.05, run_dir=tmp_path)
    for place, each in enumerate(five):
        model = load_model(tmp_path, client=each.name)
        errors = model.predict(each.x_test) - each.y_test
        assert result.rmse[place] == pytest.approx(np.sqrt((errors**2).mean()), rel=1e-5)
        assert result.mae[place] == pytest.approx(np.abs(errors).mean(), rel=1e-5)
        assert result.r2[place] == pytest.approx(1 - (errors**2).mean() / each.y.var(), rel=1e-5)
        assert result.loss[place] == pytest.approx((errors**2).mean() / 2 / result.schema["target"][1] ** 2, rel=1e-5)
    assert result.r2.min() > 0.7
    assert (result.accuracy == result.r2).all()
    again = TrainingResult.load(tmp_path)
    assert again.task == "regression"
    assert (again.reported == result.reported).all()
    with pytest.raises(InputError, match="no probabilities"):
        load_model(tmp_path, client="a").predict_proba(five[0].x)


@pytest.mark.parametrize("model", ["logistic", "mlp", "xgboost"])
@pytest.mark.parametrize("values", [lambda y: 1e12 * y, lambda y: 1e-18 * y, lambda y: y**5, lambda y: 1e9 + y])
def test_errors_are_scikit_learns_whatever_the_values(five: list[ClientData], model: str, values: Any) -> None:
    """In any unit, and with errors of many deviations, where the loss that is trained with is no square any more."""
    clients = [ClientData(each.name, each.x, values(each.y), each.x_test, values(each.y_test)) for each in five]
    result = train(clients, "global", model=model, rounds=6, lr=0.1, stopping="none")
    assert result.schema["target"][1] == pytest.approx(np.std(np.concatenate([each.y for each in clients])))
    fitted = load_model(result)
    for place, each in enumerate(clients):
        predicted = fitted.predict(each.x_test)
        mean_square, spread = mean_squared_error(each.y_test, predicted), np.var(each.y)
        np.testing.assert_allclose(result.rmse[place], np.sqrt(mean_square), rtol=1e-4)
        np.testing.assert_allclose(result.mae[place], mean_absolute_error(each.y_test, predicted), rtol=1e-4)
        np.testing.assert_allclose(1 - result.r2[place], mean_square / spread, rtol=1e-4)


def test_the_absolute_loss_minds_far_values_less() -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(400, 2))
    y = x @ np.array([2.0, 1.0]) + 0.1 * rng.normal(size=400)
    far = y[:200].copy()
    far[:10] += 300.0
    clients = {"a": (x[:100], far[:100], x[200:300], y[200:300]), "b": (x[100:200], far[100:], x[300:], y[300:])}
    errors = {
        loss: train(clients, "global", model="logistic", rounds=60, loss=loss, stopping="none").mae.mean()
        for loss in NUMERIC
    }
    assert errors["absolute"] < errors["squared"] / 2


@pytest.mark.parametrize("model", ["logistic", "mlp"])
def test_far_values_of_a_feature_blow_no_model_up(model: str) -> None:
    """Every twentieth row has a feature a hundred times the others': steps on its squared error overshoot."""
    rng = np.random.default_rng(0)
    clients = {}
    for name in "abc":
        x = rng.normal(size=(300, 3))
        y = x @ np.array([1.0, -1.0, 0.0]) + 0.3 * rng.normal(size=300)
        x[::20, 2] *= 100
        clients[name] = (x[:200], y[:200], x[200:], y[200:])
    result = train(clients, "global", model=model, rounds=40, stopping="none")
    assert not result.stopped
    assert result.r2.min() > 0.7


def test_squared_loss_beyond_three_deviations_by_hand() -> None:
    """e = 1, 3, 5: 1 / 2, 9 / 2, 3 * 5 - 9 / 2; the derivative ends at 3."""
    outputs, y = torch.tensor([[[1.0], [-3.0], [5.0]]]), torch.zeros(1, 3)
    loss, delta = LOSSES["squared"].backward(outputs, y, torch.ones(1, 3, 1), -torch.ones(1, 3, 1))
    assert loss.flatten().tolist() == LOSSES["squared"].each(outputs, y).flatten().tolist() == [0.5, 4.5, 10.5]
    assert delta.flatten().tolist() == [1.0, -3.0, 3.0]


def test_losses_belong_to_tasks(five: list[ClientData]) -> None:
    with pytest.raises(InputError, match=r"`loss` .*is not for a regression; expected 'squared', 'absolute'"):
        train(five, "local", loss="cross-entropy")
    x = np.arange(20.0)[:, None]
    with pytest.raises(InputError, match="is not for a classification"):
        train({"a": (x, x[:, 0] > 9), "b": (x, x[:, 0] > 5)}, "local", loss="squared")
    with pytest.raises(InputError, match="one number for each"):
        train(five, "local", model=torch.nn.Linear(3, 2))


# Runtimes and silos.


@pytest.mark.parametrize("algorithm", ["ditto", "fedadam", "fedavg", "fednova", "fedprox", "finetune", "local",
                                       "own-intercept", "own-weights", "perfedavg", "pfedme", "scaffold"])  # fmt: skip
def test_vectorised_equals_wire(five: list[ClientData], algorithm: str) -> None:
    weights = (np.eye(5) + np.arange(1, 6)) / 16 if algorithm == "own-weights" else None
    results = [
        train(five, [["a", "b"], ["c", "d", "e"]], algorithm, rounds=3, lr=0.05, model_options={"widths": [8, 6]},
              runtime=runtime, weights=weights)
        for runtime in ("vectorised", "wire")
    ]  # fmt: skip
    assert results[0].rounds == results[1].rounds
    for which in results[0].models:
        np.testing.assert_allclose(results[0].models[which], results[1].models[which], atol=2e-6)
    for key in ("r2", "loss", "rmse", "mae"):
        np.testing.assert_allclose(results[0].used[key], results[1].used[key], atol=1e-5)


def test_a_silo_rounds_measures_and_its_replies_are_plausible(five: list[ClientData]) -> None:
    schema = federate(five).schema
    network = Network(Network.describe("logistic", {}, schema.shape, 1, "squared"))
    found = {}
    for rounds in (False, True):
        silo = Silo(five[0], limits=Limits(round_measures=rounds), key=b"k" * 32)
        silo.state["prepare"] = {"schema": schema.to_json()}
        outputs = network.module(torch.from_numpy(silo.arrays.x_test)).detach()
        y = torch.from_numpy(silo.arrays.y_test)
        found[rounds] = measure(network.loss, outputs, y, silo, "model", "w")
        np.testing.assert_array_equal(measure(network.loss, outputs, y, silo, "model", "w"), found[rounds])
        assert (
            impossible_measures({"setting": json.dumps({"model": network.text})}, {"measures": found[rounds]}) is None
        )
    exact, told = found[False], found[True]
    wrong = exact.copy()
    wrong[0] = 1.5
    setting = json.dumps({"model": network.text})
    assert impossible_measures({"setting": setting}, {"measures": wrong}) == "`measures` has an R2 above 1"
    assert (exact[:4] != told[:4]).all()
    assert told[2] == pytest.approx(schema.target[1] * np.sqrt(2 * told[1]))  # the loss and RMSE say the same


def test_comparisons_are_paired(five: list[ClientData]) -> None:
    federation = federate(five)
    ways = {"alone": train(federation, "local", model="logistic", rounds=15),
            "all": train(federation, "global", model="logistic", rounds=15)}  # fmt: skip
    found = compare(federation, ways)
    gain = found.accuracy_gain("alone", "all")
    for row, each in enumerate(five):
        parts = []
        for result in ways.values():
            arrays = result.weights(client=each.name)
            prediction = (each.x_test - np.array(federation.schema.mean)) / np.array(federation.schema.std)
            weight, bias = (value for key, value in sorted(arrays.items(), key=lambda item: -item[1].ndim))
            scaled = prediction @ weight[0] + bias[0]
            errors = scaled - federation.schema.targets(each.y_test)
            parts.append(1 - errors**2 / federation.schema.targets(each.y).var())
        change = parts[0] - parts[1]
        assert gain.mean[row] == pytest.approx(change.mean(), abs=1e-4)
        assert gain.stderr[row] == pytest.approx(change.std(ddof=1) / np.sqrt(len(change)), abs=1e-4)
        constant = 1 - ((each.y_test - each.y.mean()) ** 2).mean() / each.y.var()
        assert found.accuracy("majority").mean[row] == pytest.approx(constant, abs=1e-4)
