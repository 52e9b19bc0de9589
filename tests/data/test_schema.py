"""Federated preprocessing equals preprocessing of the pooled rows, without pooling them."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

from fedcollab.data import ClientData
from fedcollab.data.schema import Schema
from fedcollab.data.split import stratified, with_test
from fedcollab.errors import FedcollabWarning, InputError
from fedcollab.federation import federate
from fedcollab.wire import Vectorised, Wire


def table(name: str, seed: int, count: int = 30) -> ClientData:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": np.where(rng.random(count) < 0.2, np.nan, rng.normal(1e6 + 10 * seed, 5, count)),
            "sex": rng.choice(["f", "m", None], count),
            "constant": 3,
        }
    )
    return ClientData(name, frame, rng.choice(["ill", "well"], count), frame[:9], ["ill", "well", "ill"] * 3)


@pytest.mark.parametrize("kind", ["wire", "vectorised"])
def test_tables_equal_the_pooled_computation(kind: str) -> None:
    clients = [table("a", 1), table("b", 2, 12), table("c", 3, 50)]
    federation = federate(clients, runtime=kind)
    pooled = pd.concat([client.x for client in clients])
    age, sex, constant = federation.schema.columns
    assert age.mean == pytest.approx(pooled["age"].mean(), rel=1e-12)
    assert age.std == pytest.approx(pooled["age"].std(ddof=0), rel=1e-9), "large means must not cost precision"
    assert sex.categories == ("f", "m")
    assert constant.std == 1.0
    assert federation.schema.classes == ("ill", "well")
    assert federation.runtime.cost.rounds == 3


def test_encoding_by_hand() -> None:
    frame = pd.DataFrame({"age": [40.0, np.nan, 60.0], "sex": ["f", None, "m"]})
    client = ClientData("a", frame, [7, 8, 7], frame, [7, 8, 7])
    other = ClientData("b", frame, [7, 8, 9], frame, [7, 8, 7])
    arrays = federate([client, other], missing_indicators=True).runtime.silos["a"].arrays  # type: ignore[attr-defined]
    np.testing.assert_array_equal(arrays.x, [[-1, 0, 1, 0, 0], [0, 1, 0, 0, 1], [1, 0, 0, 1, 0]])
    assert arrays.y.tolist() == [0, 1, 0]
    assert federate([client, other]).schema.shape == (3,)


@pytest.mark.parametrize(("shape", "parts"), [((5,), 5), ((4, 4), 1), ((3, 4, 4), 3)])
def test_arrays_are_scaled_by_feature_or_channel(shape: tuple[int, ...], parts: int) -> None:
    rng = np.random.default_rng(0)
    clients = [ClientData(name, rng.normal(7, 3, (40, *shape)), rng.integers(0, 2, 40)) for name in "ab"]
    federation = federate(clients)
    x = np.concatenate([federation.runtime.silos[name].arrays.x for name in "ab"])  # type: ignore[attr-defined]
    axes = {5: 0, 1: None, 3: (0, 2, 3)}[parts]
    assert len(federation.schema.mean) == parts
    np.testing.assert_allclose(x.mean(axis=axes, dtype=float), 0, atol=1e-5)
    np.testing.assert_allclose(x.std(axis=axes, dtype=float), 1, atol=1e-5)
    unscaled = federate(clients, scale="none")
    np.testing.assert_array_equal(
        unscaled.runtime.silos["a"].arrays.x,  # type: ignore[attr-defined]
        with_test(clients[0], 0.2, 0).x.astype(np.float32),
    )


def test_arrays_with_large_means_lose_no_precision() -> None:
    x = np.random.default_rng(0).normal(size=(50, 2))
    apart = {0.0: x, 1.7e9: 1.7e9 + x}  # times in seconds
    near, far = (
        federate([ClientData("a", each, np.arange(50) % 2), ClientData("b", each + 1, np.arange(50) % 2)]).schema
        for each in apart.values()
    )
    np.testing.assert_allclose(far.features(apart[1.7e9]), near.features(x), atol=1e-5)


def test_both_runtimes_agree_to_the_byte_and_order_does_not_matter() -> None:
    clients = [table(name, seed) for seed, name in enumerate("abc")]
    texts = {
        kind([*order]) and federate(kind([*order])).schema.to_json()
        for kind in (Wire, Vectorised)
        for order in (clients, clients[::-1])
    }
    assert len(texts) == 1


def test_schema_survives_text() -> None:
    schema = federate([table("a", 1), table("b", 2)]).schema
    assert Schema.from_json(schema.to_json()) == schema


def test_hold_out_is_stratified_and_repeats() -> None:
    y = np.array([0] * 50 + [1] * 25 + [2] * 5)
    client = ClientData("a", np.arange(80.0), y)
    first, again, other = (with_test(client, 0.2, seed) for seed in (0, 0, 1))
    assert np.bincount(first.y_test).tolist() == [10, 5, 1]
    np.testing.assert_array_equal(first.x_test, again.x_test)
    assert not np.array_equal(first.x_test, other.x_test)
    assert sorted([*first.x.ravel(), *first.x_test.ravel()]) == list(range(80))


def test_stratified_shares_remainders() -> None:
    mask = stratified(np.array([0, 0, 0, 1, 1, 1, 2, 2, 2]), 1 / 3, np.random.default_rng(0))
    assert mask.reshape(3, 3).sum(axis=1).tolist() == [1, 1, 1]


def test_the_test_split_never_enters_the_schema() -> None:
    a, b = table("a", 1), table("b", 2)
    changed = ClientData("a", a.x, a.y, a.x.assign(age=0.0), a.y)
    assert federate([a, b]).schema.to_json() == federate([changed, b]).schema.to_json()


def test_only_aggregates_cross_the_line() -> None:
    seen: list[tuple[str, str, bytes, bytes]] = []
    secret = table("a", 1)
    secret.x.loc[3, "age"] = 123456.789
    federate(Wire([secret, table("b", 2)], spy=lambda *call: seen.append(call)))
    assert {action for action, *_ in seen} == {"describe", "spread", "prepare"}
    needle = np.float64(123456.789).tobytes()
    assert not any(needle in content for *_, message, reply in seen for content in (message, reply))
    assert max(len(reply) for *_, reply in seen) < 2000, "replies do not grow with the rows"


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda x: x.drop(columns="sex"), "lacks sex"),
        (lambda x: x.assign(more=1), "has also more"),
        (lambda x: x[["sex", "age", "constant"]], "in another order"),
        (lambda x: x.assign(age="old"), "column `age` is numeric at client `a` and text at client `b`"),
        (lambda x: x.assign(sex=[f"person {i}" for i in range(len(x))]), "at most 100"),
        (lambda x: x.assign(age=pd.Timestamp("2020-01-01")), "holds dates"),
        (lambda x: x.select_dtypes("number").fillna(0).to_numpy(), "one has a table, the other an array"),
    ],
)
def test_clients_that_do_not_fit_together(change, line: str) -> None:
    good, other = table("a", 1, 130), table("b", 2, 130)
    bad = ClientData("b", change(other.x), other.y)
    with pytest.raises(InputError) as caught:
        federate([good, bad])
    assert line in str(caught.value)


def test_labels_that_do_not_fit_together() -> None:
    x = np.zeros((4, 2))
    with pytest.raises(InputError, match="labels are numbers at client `a` and text at client `b`"):
        federate([ClientData("a", x, [0, 1, 0, 1]), ClientData("b", x, list("uvuv"))])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FedcollabWarning)
        with pytest.raises(InputError, match="one class in all"):
            federate([ClientData("a", x, [1, 1, 1, 1]), ClientData("b", x, [1, 1, 1, 1])])


def test_one_class_only_is_taken_with_a_warning() -> None:
    x = np.zeros((4, 2))
    with pytest.warns(FedcollabWarning, match="client `b` has one class only: 1"):
        federate([ClientData("a", x, [0, 1, 0, 1]), ClientData("b", x, [1, 1, 1, 1])])


def test_shapes_must_agree() -> None:
    with pytest.raises(InputError, match=r"shape \(3,\); client `a` has \(2,\)"):
        federate([ClientData("a", np.zeros((4, 2)), [0, 1, 0, 1]), ClientData("b", np.zeros((4, 3)), [0, 1, 0, 1])])


def test_too_few_rows_to_hold_out() -> None:
    with pytest.raises(InputError, match="too few to hold out"):
        federate([ClientData("a", np.zeros((2, 2)), [0, 1]), ClientData("b", np.zeros((4, 2)), [0, 1, 0, 1])])
