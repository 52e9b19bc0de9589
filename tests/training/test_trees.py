"""Boosted trees: equal to the library's, in every runtime; what may not leave does not; its JSON is the library's."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedcollab import InputError, advise, baselines, train
from fedcollab.data import ClientData
from fedcollab.federation import federate
from fedcollab.training import TrainingResult, load_model, retrain
from fedcollab.training.trees.client import MOST_EDGES
from fedcollab.training.trees.cuts import Cuts, agree
from fedcollab.training.trees.files import booster_of, to_json
from fedcollab.training.trees.forest import Forest, Growing, Shape, growing_of
from fedcollab.training.trees.groups import group_rows
from fedcollab.training.trees.growth import grow_level, open_nodes
from fedcollab.training.trees.histograms import bin_rows, nodes_at, sum_bins
from fedcollab.training.trees.objectives import OBJECTIVES, own_base
from fedcollab.training.trees.places import Places
from fedcollab.training.trees.rows import Margins, Rows, histograms

xgboost = pytest.importorskip("xgboost", reason="the extra `trees` is not installed")


def clients_of(classes: int, *, sizes: tuple[int, ...] = (150, 60, 240), values: int = 12) -> list[ClientData]:
    """Clients whose features have few values, so that the library's bins are those values; 1 class: a number."""
    made = []
    for index, size in enumerate(sizes):
        rng = np.random.default_rng(index)
        x = rng.integers(0, values, size=(size + 40, 5)).astype(np.float32)
        y = x[:, 0] + x[:, 1] + rng.normal(0, 3, len(x))
        if classes > 1:
            y = (y > values).astype(int) + (classes > 2) * (x[:, 2] > values / 2)
        made.append(ClientData("abcdef"[index], x[:size], y[:size], x[size:], y[size:]))
    return made


def forest_of(result: TrainingResult, coalition: int = 0) -> tuple[Forest, Growing]:
    how = growing_of(json.dumps({key: result.model[key] for key in ("name", "options", "shape", "classes")}))
    assert how is not None
    return Forest.of(result.models["last"][coalition], how.shape), how


def by_library(x: Any, y: Any, base: NDArray[np.float64], rounds: int, **options: Any) -> Any:
    """Return the margins of the library's `hist` trees, boosted from the given base scores."""
    data = xgboost.DMatrix(x, y)
    data.set_base_margin(np.tile(base, (len(x), 1)) if len(base) > 1 else np.full(len(x), base[0]))
    booster = xgboost.train({"tree_method": "hist", "nthread": 1, **options}, data, rounds)
    return booster.predict(data, output_margin=True).reshape(len(x), -1)


@pytest.mark.parametrize("classes", [1, 2, 3])
@pytest.mark.parametrize("options", [{}, {"max_depth": 5, "reg_lambda": 3.0, "min_child_weight": 4.0, "gamma": 0.5}])
def test_trees_of_a_coalition_are_the_librarys_on_all_rows(classes: int, options: dict[str, Any]) -> None:
    clients = clients_of(classes)
    result = train(clients, "global", model="xgboost", rounds=12, lr=0.3, scale="none", stopping="none",
                   model_options=options)  # fmt: skip
    forest, how = forest_of(result)
    x, y = np.concatenate([c.x for c in clients]), np.concatenate([c.y for c in clients])
    if classes == 1:
        y = (y - result.schema["target"][0]) / result.schema["target"][1]
    objective = {1: {"objective": "reg:squarederror"}, 2: {"objective": "binary:logistic"}}.get(
        classes, {"objective": "multi:softprob", "num_class": classes}
    )
    names = {"max_depth": 3, **options}
    theirs = by_library(x, y, forest.base, 12, eta=0.3, **objective, **names)
    np.testing.assert_allclose(forest.sums(x, 0, 12) + forest.base, theirs, atol=2e-5)
    assert how.shape.depth == names["max_depth"]


@given(
    st.integers(0, 10**6),
    st.integers(1, 5),
    st.lists(st.integers(2, 60), min_size=2, max_size=12),
    st.integers(2, 20),
    st.fixed_dictionaries(
        {
            "max_depth": st.integers(1, 8),
            "reg_lambda": st.sampled_from([0.0, 1e-3, 1.0, 100.0]),
            "min_child_weight": st.sampled_from([0.0, 1e-3, 1.0, 5.0, 1e6]),
            "gamma": st.sampled_from([0.0, 0.1, 5.0, 1e6]),
        }
    ),
    st.sampled_from([0.1, 0.3, 1.0]),
)
@example(421, 2, [2, 14, 58, 32], 5, {"max_depth": 3, "reg_lambda": 1.0, "min_child_weight": 1e6, "gamma": 0.0}, 0.3)
@settings(max_examples=30, deadline=None)
@pytest.mark.filterwarnings("ignore:client .* has one class only")
def test_whatever_the_options_trees_are_the_librarys(
    seed: int, classes: int, sizes: list[int], values: int, options: dict[str, Any], lr: float
) -> None:
    """Clients of few rows, most of which have rows of one or two classes."""
    rng = np.random.default_rng(seed)
    clients = []
    for index, size in enumerate(sizes):
        x = rng.integers(0, values, (size + 2, 3)).astype(np.float32)
        y = x[:, 0] + rng.normal(0, 1, len(x)) if classes == 1 else (x[:, 0] > values / 2) * (index % classes)
        clients.append(ClientData(f"client {index:02}", x[:size], y[:size], x[size:], y[size:]))
    x, y = np.concatenate([c.x for c in clients]), np.concatenate([c.y for c in clients])
    assume(len(np.unique(y)) > 1)
    result = train(clients, "global", model="xgboost", rounds=4, lr=lr, scale="none", stopping="none",
                   model_options=options)  # fmt: skip
    forest, how = forest_of(result)
    outputs = how.shape.classes
    mean, scale = result.schema.get("target", (0.0, 1.0))
    y = (y - mean) / scale if outputs == 1 else np.searchsorted(result.schema["classes"], y)
    objective = {1: {"objective": "reg:squarederror"}, 2: {"objective": "binary:logistic"}}.get(
        outputs, {"objective": "multi:softprob", "num_class": outputs}
    )
    theirs = by_library(x, y, forest.base, 4, eta=lr, **objective, **options)
    ours = forest.sums(x, 0, 4) + forest.base
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3 * max(1.0, np.abs(theirs).max()))


def test_squared_error_is_the_librarys_too() -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 9, (300, 4)).astype(np.float32)
    y = x[:, 0] * x[:, 1] + rng.normal(0, 1, 300)
    cuts = Cuts.joined([np.arange(1, 9, dtype=np.float32)] * 4)
    shape = Shape(rounds=6, trees=1, depth=3, classes=2)
    how = Growing(shape, 4, 1.0, 1.0, 0.0, 256)
    forest = Forest.of(np.zeros(sum(int(np.prod(sides)) for _, sides in shape.parts), dtype=np.float32), shape)
    objective, bins = OBJECTIVES["reg:squarederror"], bin_rows(x, cuts)
    start = np.array([objective.base(*(part.sum(axis=0) for part in objective.gradients(np.zeros((300, 1)), y)))])
    np.testing.assert_allclose(start, y.mean())
    for position in range(6):
        g, h = objective.gradients(forest.sums(x, 0, position) + y.mean(), y)
        for level in range(3):
            node, _ = nodes_at(forest, position, 0, level, bins, cuts)
            places = [each + 1 - 2**level for _, each in open_nodes(forest, position, level)]
            sums = sum_bins(bins, node, [g[:, 0], h[:, 0]], 2**level, int(cuts.offsets[-1]))[places]
            grow_level(forest, position, level, sums, cuts, how, 0.3)
    theirs = by_library(x, y, np.array([y.mean()]), 6, eta=0.3, max_depth=3, objective="reg:squarederror")
    np.testing.assert_allclose(forest.sums(x, 0, 6) + y.mean(), theirs, rtol=1e-5, atol=1e-4)


def losses(name: str, margins: NDArray[np.float64], y: Any) -> Any:
    if name == "reg:squarederror":
        return (margins[:, 0] - y) ** 2 / 2
    scores = margins if name == "multi:softprob" else np.concatenate([np.zeros_like(margins), margins], axis=1)
    return np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(y)), y]


@pytest.mark.parametrize(("name", "width", "scale"), [("binary:logistic", 1, 1), ("multi:softprob", 3, 2),
                                                      ("reg:squarederror", 1, 1)])  # fmt: skip
def test_objectives_by_finite_differences(name: str, width: int, scale: int) -> None:
    rng, small = np.random.default_rng(0), 1e-4
    margins, y = rng.normal(size=(20, width)), rng.integers(0, max(2, width), 20)
    g, h = OBJECTIVES[name].gradients(margins, y)
    for column in range(width):
        step = small * (np.arange(width) == column)
        up, here, down = (losses(name, margins + side * step, y) for side in (1, 0, -1))
        np.testing.assert_allclose(g[:, column], (up - down) / (2 * small), atol=1e-6)
        np.testing.assert_allclose(h[:, column], scale * (up - 2 * here + down) / small**2, atol=1e-5)


@pytest.mark.parametrize("name", ["binary:logistic", "multi:softprob", "reg:squarederror"])
def test_base_score_is_the_best_constant(name: str) -> None:
    classes = 3 if name == "multi:softprob" else 2
    y = np.random.default_rng(0).integers(0, classes, 5000)
    zero = np.zeros((5000, 3 if classes == 3 else 1))
    objective = OBJECTIVES[name]
    base = objective.base(*(part.sum(axis=0) for part in objective.gradients(zero, y)))
    left = objective.gradients(zero + base, y)[0].sum(axis=0)
    assert np.abs(left).max() < 1.0  # of 5,000 rows: half a row of each class is added
    np.testing.assert_allclose(own_base(objective, zero, y, base, 1.0), base, atol=1e-2)


@pytest.mark.parametrize("margin", [0.0, 4.0, 10.0])
@pytest.mark.parametrize("reg_lambda", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize("rows", [5, 1000])
def test_own_base_score_of_one_class_alone_is_the_best_one(margin: float, reg_lambda: float, rows: int) -> None:
    """Also where the trees are sure of the other class: full Newton steps jump over the minimum and back there."""
    found = own_base(OBJECTIVES["binary:logistic"], np.full((rows, 1), margin), np.zeros(rows), np.zeros(1), reg_lambda)
    p = 1 / (1 + np.exp(-margin - found))
    assert np.abs(rows * p + reg_lambda * found).max() < 1e-3 * min(1.0, reg_lambda * np.abs(found).max())


@pytest.mark.parametrize("reg_lambda", [1.0, 10.0])
def test_own_base_scores_of_three_classes_are_the_best_ones(reg_lambda: float) -> None:
    trees = 4 * np.random.default_rng(0).normal(size=(300, 3)) + [8.0, 0.0, 0.0]
    objective, targets = OBJECTIVES["multi:softprob"], np.full(300, 2)
    found = own_base(objective, trees, targets, np.zeros(3), reg_lambda)
    left = objective.gradients(trees + found, targets)[0].sum(axis=0) + reg_lambda * found
    assert np.abs(left).max() < 0.02 * reg_lambda


def test_own_base_scores_of_another_training_are_not_taken() -> None:
    """Trees that do nothing are alike in both: the own base scores are what `reg_lambda` changes."""
    clients = clients_of(2)
    federation = federate(clients, scale="none")
    settings: dict[str, Any] = {"model": "xgboost", "rounds": 1, "stopping": "none"}
    for reg_lambda in (0.1, 50.0):
        options = {"reg_lambda": reg_lambda, "min_child_weight": 1e6}
        found, fresh = (
            train(who, "global", "own-intercept", model_options=options, **settings)
            for who in (federation, federate(clients, scale="none"))
        )
        np.testing.assert_array_equal(found.models["personal"], fresh.models["personal"])


@pytest.mark.parametrize("classes", [1, 2, 3])
@pytest.mark.parametrize("algorithm", ["fedavg", "own-intercept", "local"])
def test_vectorised_equals_wire(classes: int, algorithm: str) -> None:
    clients = clients_of(classes, sizes=(150, 9, 60))
    results = [
        train(clients, [["a", "b"], ["c"]], algorithm, "xgboost", rounds=4, lr=0.3, runtime=runtime)
        for runtime in ("vectorised", "wire")
    ]
    for which in results[0].models:
        np.testing.assert_array_equal(results[0].models[which], results[1].models[which])
    np.testing.assert_array_equal(results[0].reported_loss, results[1].reported_loss)
    assert results[0].rounds == results[1].rounds
    for name, curve in results[0].held_out.items():
        np.testing.assert_array_equal(curve, results[1].held_out[name])


def test_order_of_clients_and_other_coalitions_change_nothing() -> None:
    clients = clients_of(2)
    settings: dict[str, Any] = {"model": "xgboost", "rounds": 5, "stopping": "none", "scale": "none"}
    one = train(clients, [["a", "b"], ["c"]], **settings)
    two = train(clients[::-1], [["c"], ["b", "a"]], **settings)
    np.testing.assert_array_equal(one.models["last"], two.models["last"][::-1])


def test_a_training_that_was_interrupted_goes_on(tmp_path: Path) -> None:
    clients = clients_of(2)

    class Stop(Exception):
        pass

    def stop(done: int, total: int) -> None:
        if done == 4:
            raise Stop

    whole = train(clients, "global", model="xgboost", rounds=6, stopping="none")
    with pytest.raises(Stop):
        train(clients, "global", model="xgboost", rounds=6, stopping="none", run_dir=tmp_path, progress=stop)
    seen: list[int] = []
    rest = train(clients, "global", model="xgboost", rounds=6, stopping="none", run_dir=tmp_path,
                 progress=lambda done, total: seen.append(done))  # fmt: skip
    assert seen
    assert seen[0] > 1
    np.testing.assert_array_equal(whole.models["last"], rest.models["last"])


def test_own_base_scores_take_a_label_shift_in() -> None:
    rng, clients = np.random.default_rng(0), []
    for name, shift in (("low", -1.5), ("high", 1.5)):
        x = rng.normal(size=(800, 4)).astype(np.float32)
        y = (rng.random(800) < 1 / (1 + np.exp(-2 * np.abs(x[:, 0]) + 1.5 - shift))).astype(int)
        clients.append(ClientData(name, x[:400], y[:400], x[400:], y[400:]))
    plain, own = (train(clients, "global", how, "xgboost", rounds=40) for how in ("fedavg", "own-intercept"))
    assert own.reported_loss.mean() < 0.9 * plain.reported_loss.mean()
    bases = [own.weights(client=name, which="personal")["base_score"][1] for name in ("low", "high")]
    assert bases[0] < own.weights(coalition=0)["base_score"][1] < bases[1]


@pytest.mark.parametrize("classes", [2, 3])
def test_the_library_predicts_the_same_from_its_own_json(classes: int, tmp_path: Path) -> None:
    clients = clients_of(classes)
    train(clients, [["a", "b"], ["c"]], "own-intercept", "xgboost", rounds=6, stopping="none", run_dir=tmp_path)
    for client in clients:
        model = load_model(tmp_path, client=client.name)
        prepared = xgboost.DMatrix(model.schema.features(client.x_test))
        theirs = model.booster().predict(prepared)
        theirs = np.stack([1 - theirs, theirs], axis=1) if classes == 2 else theirs
        np.testing.assert_allclose(model.predict_proba(client.x_test), theirs, atol=1e-5)
    saved = xgboost.Booster(model_file=tmp_path / "training.1.xgboost.json")
    whole = load_model(tmp_path, coalition=1)
    matrix = xgboost.DMatrix(whole.schema.features(clients[2].x_test))
    ours = whole.predict_proba(clients[2].x_test)
    np.testing.assert_allclose(ours[:, 1] if classes == 2 else ours, saved.predict(matrix), atol=1e-5)


@pytest.mark.parametrize("base", [-40.0, -9.0, 0.5, 9.0, 40.0])
@pytest.mark.parametrize("grown", [False, True])
def test_the_library_takes_any_base_score_also_without_a_tree(base: float, grown: bool) -> None:
    shape = Shape(rounds=2, trees=1, depth=2, classes=2)
    forest = Forest.of(np.zeros(sum(int(np.prod(sides)) for _, sides in shape.parts), dtype=np.float32), shape)
    forest.with_base(np.array([base]))
    if grown:
        forest.feature[0, 0, 0], forest.threshold[0, 0, 0], forest.value[0, 0] = 2, 0.5, [-0.25, 0, 0.75, 0]
    before = forest.value.copy()
    x = np.array([[0.0, 0.0], [0.0, 1.0]], dtype=np.float32)
    theirs = booster_of(to_json(forest, shape, 2)).predict(xgboost.DMatrix(x), output_margin=True)
    np.testing.assert_allclose(theirs, base + np.array([-0.25, 0.75]) * grown, atol=1e-5)
    np.testing.assert_array_equal(forest.value, before)


def test_without_the_library_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    train(clients_of(2), "global", model="xgboost", rounds=2, stopping="none", run_dir=tmp_path)
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(InputError, match=r"pip install 'fedcollab\[trees\]'"):
        load_model(tmp_path).booster()


def test_the_library_predicts_a_numeric_target_in_its_own_units_from_the_json(tmp_path: Path) -> None:
    clients = clients_of(1)
    train(clients, "global", "own-intercept", "xgboost", rounds=6, stopping="none", run_dir=tmp_path)
    for client in clients:
        model = load_model(tmp_path, client=client.name)
        theirs = model.booster().predict(xgboost.DMatrix(model.schema.features(client.x_test)))
        np.testing.assert_allclose(model.predict(client.x_test), model.schema.in_units(theirs), rtol=1e-5)


def test_only_trees_have_a_booster(tmp_path: Path) -> None:
    train(clients_of(2), "global", model="logistic", rounds=1, stopping="none", run_dir=tmp_path)
    with pytest.raises(InputError, match="no trees"):
        load_model(tmp_path).booster()


@pytest.mark.parametrize(("given", "says"), [
    ({"algorithm": "ditto"}, "`algorithm`"),
    ({"algorithm": "fedprox"}, "must be one of local, fedavg, own-intercept"),
    ({"optimizer": "adam"}, "`optimizer`"),
    ({"averaging": 0.5}, "`averaging`"),
    ({"keep": ["feature"]}, "`keep`"),
    ({"secure_aggregation": True}, "`secure_aggregation`"),
    ({"model_options": {"max_depth": 9}}, "`max_depth`"),
    ({"model_options": {"depth": 3}}, "`option`"),
])  # fmt: skip
def test_what_trees_cannot_do_is_one_line(given: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        train(clients_of(2), "global", **{"model": "xgboost", "rounds": 2, **given})


def test_clustered_baselines_have_no_trees() -> None:
    with pytest.raises(InputError, match="coalitions that change"):
        baselines.run("ifca", clients_of(2), k=2, model="xgboost", rounds=1, lr=0.1)


def test_a_client_joins_trees_that_are_grown_anew() -> None:
    clients = clients_of(2)
    first = train(clients[:2], "global", model="xgboost", rounds=5, stopping="none")
    joined = retrain(clients, first, ["a", "b", "c"])
    assert joined.rounds == [5]
    assert forest_of(joined)[0].rounds == 5


def test_advice_pilots_trees_and_training_follows_it() -> None:
    clients = clients_of(2)
    advice = advise(clients, model="xgboost", rounds=8)
    assert {each.algorithm for each in advice.candidates} <= {"fedavg", "own-intercept"}
    assert {len(each.held_out) for each in advice.candidates} == {3}
    result = train(clients, advice, model="xgboost", rounds=8)
    assert result.method == advice.algorithm
    assert result.rounds == list(advice.candidates[advice.chosen].rounds)
    with pytest.raises(InputError, match="must be one of local"):
        advise(clients, model="xgboost", algorithms=["ditto"], rounds=2)


@given(st.lists(st.integers(-3, 3), min_size=3, max_size=60), st.integers(2, 8), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_few_values_get_a_bin_each_and_many_get_equal_ones(values: list[int], bins: int, clients: int) -> None:
    column = np.array(values, dtype=np.float32)
    parts = np.array_split(column, clients)

    def count(edges: Cuts) -> NDArray[np.int64]:
        return sum(np.bincount(bin_rows(part[:, None], edges)[0], minlength=int(edges.offsets[-1])) for part in parts)

    cuts = agree(count, 1, bins)
    found = np.bincount(np.searchsorted(cuts.values, column, side="right"))
    different = np.unique(column)
    assert len(cuts.values) <= bins - 1
    assert np.all(np.diff(cuts.values) > 0)
    if len(different) <= bins:
        assert sorted(found[found > 0]) == sorted(np.unique(column, return_counts=True)[1])


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e9])
@pytest.mark.parametrize("bins", [32, 256])
def test_bins_of_a_skewed_feature_have_like_many_rows(scale: float, bins: int) -> None:
    column = (scale * np.exp(2 * np.random.default_rng(0).normal(size=20_000))).astype(np.float32)

    def count(edges: Cuts) -> NDArray[np.int64]:
        assert len(edges.values) <= MOST_EDGES
        return np.bincount(bin_rows(column[:, None], edges)[0], minlength=int(edges.offsets[-1]))

    cuts = agree(count, 1, bins)
    rows = np.bincount(np.searchsorted(cuts.values, column, side="right"))
    assert 0.8 * bins <= len(rows) <= bins
    assert rows.max() < 2.5 * 20_000 / bins


@pytest.mark.parametrize("code", [1e4, -999_999.0, 99_999_999.0])
def test_a_code_far_from_all_values_hides_none_of_them(code: float) -> None:
    """A few rows have a code for "missing", beside which all values are nearly the same once they are scaled."""
    column = np.random.default_rng(0).integers(0, 100, 2000).astype(np.float64)
    column[:20] = code
    column = ((column - column.mean()) / column.std()).astype(np.float32)

    def count(edges: Cuts) -> NDArray[np.int64]:
        assert len(edges.values) <= MOST_EDGES
        return np.bincount(bin_rows(column[:, None], edges)[0], minlength=int(edges.offsets[-1]))

    rows = np.bincount(np.searchsorted(agree(count, 1, 256).values, column, side="right"))
    assert sorted(rows[rows > 0]) == sorted(np.unique(column, return_counts=True)[1])


@given(st.integers(0, 10_000), st.integers(2, 25), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_no_sum_and_no_difference_of_levels_is_of_few_rows(seed: int, least: int, depth: int) -> None:
    """Whatever tree a server sends: cells have `least` rows or none, and lie whole in cells of the level above."""
    rng = np.random.default_rng(seed)
    rows, features = 120, 3
    x = rng.integers(0, 9, (rows, features)).astype(np.float32)
    cuts = Cuts.joined([np.arange(1, 9, dtype=np.float32)] * features)
    shape = Shape(rounds=1, trees=1, depth=depth, classes=2)
    forest = Forest.of(np.zeros(sum(int(np.prod(sides)) for _, sides in shape.parts), dtype=np.float32), shape)
    forest.feature[:] = rng.integers(0, features + 1, forest.feature.shape)
    forest.threshold[:] = rng.choice(cuts.values, forest.threshold.shape)
    groups, width = group_rows(x, least), int(cuts.offsets[-1])
    before: tuple[NDArray[np.intp], NDArray[np.intp]] | None = None
    for level in range(depth):
        node, joined = nodes_at(forest, 0, 0, level, groups.places, groups)
        counts = sum_bins(groups.bins(cuts)[joined], node, [np.ones(rows)], 2**level, width)[..., 0]
        assert np.all((counts == 0) | (counts >= least))
        if before is not None:  # rows that share a cell go on sharing one, and cells are joined alike in both halves
            above, cells = before
            for feature in range(features):
                for parent in range(2 ** (level - 1)):
                    kept = {}
                    for half in (2 * parent, 2 * parent + 1):
                        for cell in np.unique(cells[feature, inside := (above == parent) & (node == half)]):
                            (kept[half, cell],) = np.unique(joined[feature, inside & (cells[feature] == cell)])
                    both = [cell for half, cell in kept if half % 2 and (half - 1, cell) in kept]
                    for one, other in itertools.combinations(both, 2):
                        same = [kept[half, one] == kept[half, other] for half in (2 * parent, 2 * parent + 1)]
                        assert same[0] == same[1]
        before = node, joined


@given(
    st.lists(st.floats(-100, 100, width=32) | st.integers(-3, 3).map(float), min_size=8, max_size=200),
    st.integers(2, 8),
    st.sampled_from(["", "drawn"]),
)
@settings(max_examples=100, deadline=None)
def test_a_group_has_enough_rows_and_the_value_of_none(column: list[float], least: int, lot: str) -> None:
    x = np.array(column, dtype=np.float32)[:, None]
    groups = group_rows(x, least, lot)
    assert np.all(np.bincount(groups.places[0]) >= min(least, len(x)))
    table = groups.table[:, 0]
    assert np.all(np.diff(groups.values) > 0)
    order = np.argsort(x[:, 0], kind="stable")
    assert np.all(np.diff(table[order]) >= 0)  # in the same order as the rows
    for group in np.unique(groups.places[0]):
        inside = x[groups.places[0] == group, 0]
        assert inside.min() <= groups.values[group] <= inside.max()
        shared, counts = np.unique(inside, return_counts=True)
        if counts.max() >= least:
            assert groups.values[group] == shared[counts.argmax()]


def test_groups_follow_from_rows_and_lot_alone_and_move_with_the_scale() -> None:
    x = np.random.default_rng(0).normal(size=(500, 2)).astype(np.float32)
    one, other, scaled = group_rows(x, 10, "a"), group_rows(x, 10, "b"), group_rows(4 * x + 2, 10, "a")
    np.testing.assert_array_equal(one.places, scaled.places)
    np.testing.assert_allclose(scaled.values, 4 * one.values + 2, atol=1e-5)
    assert not np.isclose(one.values, other.values).any()
    assert not np.isin(one.values, x).any()


def test_what_is_drawn_for_groups_depends_on_which_rows_there_are() -> None:
    """With the same draw, the values of many parts of the rows would tell where the quarters of groups lie."""
    column = np.linspace(0, 1, 40, dtype=np.float32)[:, None]
    shares = []
    for left_out in range(20):
        groups = group_rows(
            np.delete(column, left_out, axis=0)[np.random.default_rng(left_out).permutation(39)], 39, "a"
        )
        shares.append(float(groups.values[0]))
    assert np.std(shares) > 0.1
    assert np.array_equal(group_rows(column, 39, "a").values, group_rows(column, 39, "a").values)


def test_other_rows_get_the_values_of_the_groups_to_which_they_are_nearest() -> None:
    groups = group_rows(np.array([[1], [2], [3], [7], [8], [9]], dtype=np.float32), 3)
    held = np.array([[-5], [2.5], [4.9], [5.1], [7.5], [99]], dtype=np.float32)
    assert groups.alike(held)[:, 0].tolist() == [2, 2, 2, 8, 8, 8]


def test_errors_of_sums_of_a_numeric_target_are_as_large_in_every_scale_of_it() -> None:
    """A server that chooses a scale of which the target's deviation is 32 would else have errors a 32nd as large."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 2)).astype(np.float32), rng.normal(size=60)
    cuts = Cuts.joined([np.zeros(1, dtype=np.float32)] * 2)
    shape = Shape(rounds=1, trees=1, depth=1, classes=1)
    spreads = []
    for scale in (1.0, 32.0):
        target = scale * y
        rows = Rows(x, target, 60)
        forest = Forest.of(np.zeros(sum(int(np.prod(sides)) for _, sides in shape.parts), dtype=np.float32), shape)
        fitted = Margins(rows, target[:, None] + 0.01, 1, Places(x))  # trees that fit: gradients all but vanish
        sums = [histograms(fitted, forest, 0, 0, cuts, lot=f"{draw}")[0, :, 0] for draw in range(100)]
        spreads.append(np.std(sums) / scale)
    assert spreads[1] == pytest.approx(spreads[0], rel=0.05)


def test_many_rows_have_no_more_groups_than_bins() -> None:
    x = np.random.default_rng(0).normal(size=(20_000, 1)).astype(np.float32)
    assert 200 < len(group_rows(x, 10).values) <= 256


def test_base_scores_of_a_coalition_follow_from_its_labels() -> None:
    result = train(clients_of(2), "global", model="xgboost", rounds=1, stopping="none")
    ones = np.concatenate([client.y for client in clients_of(2)])
    expected = np.log((ones.sum() + 0.5) / ((1 - ones).sum() + 0.5))
    assert forest_of(result)[0].base[0] == pytest.approx(expected, abs=1e-6)
