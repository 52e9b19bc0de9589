"""One silo lies: it is absent with a line that names it, nobody else is blamed, and the others go on as without it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedcollab.advice import advise
from fedcollab.advice.proxy import Sums
from fedcollab.data import ClientData
from fedcollab.distances import estimate_distances
from fedcollab.errors import FedcollabWarning, InputError, Paused
from fedcollab.federation import federate
from fedcollab.federation.fingerprint import fingerprints
from fedcollab.inspection import inspect
from fedcollab.runs.pipeline import FedCollab
from fedcollab.secure.keys import Certificate, certify, draw_identity
from fedcollab.training import compare, train
from fedcollab.wire import Wire
from fedcollab.wire.action import Action
from fedcollab.wire.message import Message, pack, unpack

SMALL: dict[str, Any] = {"model_options": {"widths": [4]}, "lr": 0.1, "stopping": "none", "rounds": 3}
NARROW: dict[str, Any] = {"lr": 0.1, "stopping": "none", "rounds": 2}
TYPES = [["a", "b", "c"], ["d", "e", "f"]]
Lie = Callable[[dict[str, Any]], dict[str, Any]]


class Lying(Wire):
    """`b` answers one action with what `lie` makes of its honest reply."""

    def __init__(self, clients: Iterable[ClientData], action: str, lie: Lie) -> None:
        super().__init__(clients)
        self.policy = type(self.policy)(quorum=0.5, retries=0)
        self.about, self.lie = action, lie

    def _serve(self, action: Action, name: str, content: bytes) -> bytes:
        reply = super()._serve(action, name, content)
        return pack(self.lie(unpack(reply))) if name == "b" and action.name == self.about else reply


def put(**values: Any) -> Lie:
    """Replace fields; a function is called with the honest value."""

    def lie(reply: Message) -> Message:
        known = {key: new for key, new in values.items() if key in reply}
        return {**reply, **{key: new(reply[key]) if callable(new) else new for key, new in known.items()}}

    return lie


def without(key: str) -> Lie:
    return lambda reply: {name: value for name, value in reply.items() if name != key}


def many_labels(count: int) -> Lie:
    names = [f"label {i}" for i in range(count)]
    return put(labels=names, label_counts=dict.fromkeys(names, 1), quantity=count)


def claim(quantity: int) -> Lie:
    return put(quantity=quantity, label_counts={"0": quantity - 1, "1": 1})


@pytest.mark.parametrize(
    ("action", "lie", "why"),
    [
        ("describe", claim(10**12), "quantity"),
        ("describe", claim(2**62), "quantity"),
        ("describe", put(test_quantity=2**40), "test_quantity"),
        ("describe", many_labels(20_000), "labels"),
        ("describe", put(labels=list(range(200)), label_counts=lambda old: old), "200 labels; there are 80 samples"),
        ("describe", put(labels=[0, 1, 1]), "twice"),
        ("describe", put(labels=[0, "1" * 300]), "labels"),
        ("describe", put(sum=lambda old: old + 1e300), "values beyond 1e"),
        ("describe", put(sum=lambda old: old * 1e9), "has the mean"),
        ("describe", put(sum=lambda old: np.full_like(old, np.inf)), "NaN or infinite"),
        ("spread", put(squares=lambda old: old + 1e308), "has the deviation"),
        ("spread", put(squares=lambda old: old * 1e12), "has the deviation"),
        ("spread", put(squares=lambda old: -old), "outside 0"),
        ("prepare", put(quantity=41), "`quantity` was 40 before and is 41 now"),
    ],
)
def test_a_description_that_cannot_be(clients: list[ClientData], action: str, lie: Lie, why: str) -> None:
    runtime = Lying(clients, action, lie)
    with pytest.warns(FedcollabWarning, match="left out: `b`") as noted:
        federation = federate(runtime)
    assert why in str(noted[0].message)
    assert federation.names == ("a", "c", "d", "e", "f")
    if action != "prepare":
        assert federation.schema == federate(Wire([c for c in clients if c.name != "b"])).schema


def test_squares_that_contradict_the_sums() -> None:
    """Far from the others' mean, but no deviation from it: by Jensen's inequality that cannot be."""
    rng = np.random.default_rng(0)
    y = np.arange(30) % 2
    made = [ClientData(name, rng.normal(100.0 if name == "b" else 0.0, 1, (30, 2)), y) for name in "abc"]
    runtime = Lying(made, "spread", put(squares=lambda old: old * 0))
    with pytest.warns(FedcollabWarning, match="left out: `b` .*`squares` contradict the sums"):
        assert federate(runtime).names == ("a", "c")


@pytest.mark.parametrize(
    ("lie", "why"),
    [
        (put(present=lambda old: old + 100), "more values than there are samples"),
        (put(kinds=["numeric", "numeric"]), "`kinds` and `categories` contradict"),
        (put(categories=[["x"], ["rome"]]), "`kinds` and `categories` contradict"),
        (put(categories=[[], [f"c{i}" for i in range(40)]]), "more texts than the column has values"),
        (put(sum=np.array([1.0, 1.0])), "a column without numbers"),
    ],
)
def test_a_table_that_cannot_be(lie: Lie, why: str) -> None:
    def made(name: str) -> ClientData:
        rng = np.random.default_rng(ord(name))
        return ClientData(name, pd.DataFrame({"age": rng.normal(50, 9, 30), "town": ["rome", "oslo"] * 15}),
                          np.arange(30) % 2)  # fmt: skip

    with pytest.warns(FedcollabWarning, match="left out: `b`") as noted:
        assert federate(Lying([made(name) for name in "abc"], "describe", lie)).names == ("a", "c")
    assert why in str(noted[0].message)


def negative(m: Any) -> Any:
    """Moments with a negative product of a feature with itself: not positive semidefinite."""
    changed = m.copy()
    changed[..., 0] = -10
    return changed


@pytest.mark.parametrize(
    ("method", "action", "lie", "why"),
    [
        ("few-round", "few-moments", put(m=negative), "positive semidefinite"),
        ("few-round", "few-moments", put(m=lambda old: old * 100), "counts"),
        ("few-round", "few-moments", put(m=lambda old: np.where(np.arange(old.shape[-1]) == old.shape[-1] - 1, old,
                                                                 old * np.float32(1e6))), "times as long"),
        ("few-round", "few-validate", put(found=lambda old: old + 50), "outside 0 to 1"),
        ("few-round", "few-validate", put(found=lambda old: old[:, :1].copy()), "has shape"),
        ("prototype", "prototype-means", put(means=lambda old: np.zeros((2, 9), dtype=np.float32)), "has shape"),
        ("prototype", "prototype-means", put(spread=lambda old: -old - 1), "outside 0"),
        ("cross", "cross-norm", put(norm=np.array([-3.0])), "outside 0"),
        ("cross", "cross-step", put(w=lambda old: old + np.float32(3e38)), "outside -1"),
        ("cross", "cross-validate", put(accuracy=lambda old: old + 50), "outside 0 to 1"),
        ("cross", "cross-validate", put(replicates=lambda old: old + 50), "outside -5 to 6"),
    ],
)  # fmt: skip
def test_statistics_that_cannot_be(clients: list[ClientData], method: str, action: str, lie: Lie, why: str) -> None:
    options = {"rounds": 4, "repeats": 1} if method == "cross" else {}
    whole = estimate_distances(Wire(clients), method=method, **options)
    with pytest.warns(FedcollabWarning, match="`b` .*left unobserved") as noted:
        found = estimate_distances(Lying(clients, action, lie), method=method, **options)
    assert any(why in str(note.message) for note in noted)
    others = [i for i, name in enumerate(found.names) if name != "b"]
    assert not found.observed[found.names.index("b"), others].any()
    np.testing.assert_array_equal(found.raw[np.ix_(others, others)], whole.raw[np.ix_(others, others)])


@pytest.mark.parametrize(
    ("algorithm", "action", "lie", "why"),
    [
        ("fedavg", "train", put(w=lambda old: old + np.float32(3e38)), "beyond 1e"),
        ("fedavg", "train", put(finite=False), "not finite has `diverged`"),
        ("fedavg", "train", put(loss=np.array([1e300])), "beyond 1e"),
        ("scaffold", "train", without("change"), "`change` is missing"),
        ("scaffold", "train", put(change=np.zeros(3, dtype=np.float32)), "`change` has shape"),
        ("scaffold", "train", put(change=lambda old: old + np.float32(1e30)), "beyond 1e"),
        ("fednova", "train", without("steps"), "`steps` is missing"),
        ("fednova", "train", put(steps=np.zeros(1, dtype=np.float32)), "one number of at least 1"),
        ("fednova", "train", put(steps=np.ones(5, dtype=np.float32)), "one number of at least 1"),
        ("fedavg", "evaluate", put(measures=np.array([7.0, 0.1, 0.9, 0.9, 0.1, 40])), "outside 0 to 1"),
        ("fedavg", "evaluate", put(measures=np.array([np.inf, 0.1, 0.9, 0.9, 0.1, 40])), "outside 0 to 1"),
        ("fedavg", "evaluate", put(measures=np.array([0.9, -1.0, 0.9, 0.9, 0.1, 40])), "negative loss"),
        ("fedavg", "evaluate", put(measures=np.array([0.9, 0.1, 0.9, 0.9, 0.1, 1e15])), "samples"),
    ],
)
def test_updates_and_measures_that_cannot_be(
    clients: list[ClientData], algorithm: str, action: str, lie: Lie, why: str
) -> None:
    """The coalition of the liar goes on without it, and no honest client is named."""
    with pytest.warns(FedcollabWarning, match="client `b` failed") as noted:
        result = train(Lying(clients, action, lie), TYPES, algorithm, **SMALL)
    assert any(why in str(note.message) for note in noted)
    assert {name for _, name, _ in result.failures} == {"b"}
    assert not result.stopped
    assert np.isfinite(result.models["last"]).all()
    calm = train(Wire(clients), TYPES, algorithm, **SMALL)
    np.testing.assert_array_equal(result.models["last"][1], calm.models["last"][1])
    if action == "evaluate":
        np.testing.assert_array_equal(np.delete(result.accuracy, 1), np.delete(calm.accuracy, 1))


@pytest.mark.parametrize(
    "lie",
    [
        put(held_out=np.zeros(7)),
        put(held_out=lambda old: -1 - np.abs(old)),
        put(w=lambda old: old + np.float32(3e38)),
        without("w"),
    ],
)
def test_folds_that_cannot_be(clients: list[ClientData], lie: Lie) -> None:
    """Where the number of rounds is chosen: the coalition of the liar chooses without it."""
    settings = {**SMALL, "stopping": "held-out", "rounds": 6}
    with pytest.warns(FedcollabWarning, match="client `b` failed"):
        result = train(runtime := Lying(clients, "train-folds", lie), TYPES, **settings)
    assert {absence.client for absence in runtime.absences} == {"b"}
    calm = train(Wire(clients), TYPES, **settings)
    np.testing.assert_array_equal(result.models["last"][1], calm.models["last"][1])


def test_a_comparison_that_cannot_be(clients: list[ClientData]) -> None:
    """More samples right for two models than for one of them: the figures are taken from the trainings instead."""
    alone = train(Wire(clients), "local", **SMALL)
    honest = compare(Wire(clients), {"alone": alone})
    runtime = Lying(clients, "compare", put(right=lambda old: np.where(np.eye(2) > 0, old, old.max() + 1)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FedcollabWarning)
        found = compare(runtime, {"alone": alone})
    assert {absence.client for absence in runtime.absences} == {"b"}
    np.testing.assert_array_equal(np.delete(found.loss[:, 0], 1), np.delete(honest.loss[:, 0], 1))


def test_nobody_is_left_out_of_two(clients: list[ClientData]) -> None:
    """Of two clients nobody can say which one has the wrong units: the run goes on, or pauses; it never crashes."""
    runtime = Lying(clients[:2], "describe", put(quantity=0))
    with pytest.raises(Paused, match="`b`"):
        federate(runtime)
    federation = federate(Lying(clients[:2], "spread", put(squares=lambda old: old * 1e20)))
    assert federation.names == ("a", "b")


def table_clients() -> list[ClientData]:
    made = []
    for name in "abcd":
        rng = np.random.default_rng(ord(name))
        y = np.arange(60) % 2
        table = pd.DataFrame({"age": rng.normal(50, 9, 60) + 9 * y, "dose": rng.normal(0, 1, 60)})
        made.append(ClientData(name, table.assign(town=["rome", "oslo", "bern"] * 20), y))
    return made


def of_column(**values: Any) -> Lie:
    """Replace fields of what `b` says about its first column."""

    def lie(reply: Message) -> Message:
        first, *rest = reply["columns"]
        return {**reply, "columns": [{**first, **values}, *rest]}

    return lie


@pytest.mark.parametrize(
    ("lie", "why"),
    [
        (put(shape=["age", "dose", 10]), "`shape` must hold"),
        (put(shape=["age", "dose", "city"]), "`columns` are not those of `shape`"),
        (put(quantity=2**62), "quantity"),
        (put(labels={f"label {i}": 1 for i in range(5000)}), "`labels` counts more"),
        (put(rare_labels=10**15), "`labels` counts more"),
        (put(duplicates=10**15), "`groups` or `duplicates`"),
        (put(checksum="half a pair: \ud800"), "cannot be read"),
        (put(labels={"\x1b[2Jno": 48}), "labels"),
        (of_column(name="age\x1b[8m"), "columns"),
        (of_column(present=10**12), "column 1 counts values"),
        (of_column(distinct=10**12), "column 1 counts values"),
        (of_column(std=-1.0), "column 1 has a negative deviation"),
        (of_column(categories={f"c{i}": 10**9 for i in range(30)}), "column 1 counts categories"),
    ],
)
def test_a_data_check_that_cannot_be(lie: Lie, why: str) -> None:
    """The others' findings are those of a check without the liar."""
    found = inspect(Lying(table_clients(), "inspect", lie))
    silent = [each for each in found.findings if each.kind == "no-answer"]
    assert [each.client for each in silent] == ["b"]
    assert why in silent[0].message
    honest = inspect(Wire([client for client in table_clients() if client.name != "b"]))
    assert [each for each in found.findings if each.kind != "no-answer"] == list(honest.findings)


def test_what_a_silo_writes_is_printed_as_one_harmless_line() -> None:
    """A reason of its own cannot clear the coordinator's terminal, or forge a line of its output."""
    forged = "no\x1b[2J\x9b2J\rfedcollab: all silos answered\nnote: go on" + "x" * 10**6
    with pytest.warns(FedcollabWarning, match="left out: `b`") as noted:
        federate(Lying(table_clients(), "describe", lambda _: {"error": forged}))
    text = str(noted[0].message)
    assert text.isprintable()
    assert len(text) < 1000
    with pytest.warns(FedcollabWarning, match="left out: `b`") as noted:
        federate(Lying(table_clients(), "describe", lambda reply: {**reply, "x\x1b[2J": 1}))
    assert str(noted[0].message).isprintable()
    assert str(Paused("one\nline\x1b[2J")) == "one line\\x1b[2J"


@pytest.mark.parametrize(
    ("lie", "why"),
    [
        (put(products=lambda old: old * 0 + 1e300), "beyond 1e"),
        (put(products=lambda old: old * np.where(np.eye(old.shape[1]) > 0, [*[1e9] * (old.shape[1] - 1), 1], 1)),
         "times as long"),
        (put(products=lambda old: old[:, :0, :0].copy(), labelled=lambda old: old[:, :0].copy()), "of no features"),
        (put(products=lambda old: old[:, 1:, 1:].copy(), labelled=lambda old: old[:, 1:].copy()), "has shape"),
        (put(labelled=lambda old: np.pad(old, ((0, 0), (0, 0), (0, 1)))), "has shape"),
        (put(labelled=lambda old: old * np.append(np.full(old.shape[1] - 1, 1e6), 1)[:, None]), "cannot have"),
        (lambda reply: {**reply, "rows": reply["rows"] * 10**6, "products": reply["products"] * 1e6,
                        "labelled": reply["labelled"] * 1e6}, "the client said 48"),
    ],
)  # fmt: skip
def test_sums_for_advice_that_cannot_be(lie: Lie, why: str) -> None:
    """The proxies of everybody else are those without the liar."""
    runtime = Lying(table_clients(), "ridge-sums", lie)
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        found = Sums.ask(federate(runtime), 0)
    reasons = [str(note.message) for note in noted] + [each.why for each in runtime.absences]
    assert any(why in reason for reason in reasons), reasons
    honest = Sums.ask(federate(Wire(table_clients())), 0)
    assert found.names == ("a", "c", "d")
    for mine, theirs in zip(found.products, [honest.products[place] for place in (0, 2, 3)], strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize(
    "lie",
    [
        put(measures=np.array([0.9, np.inf, 0.9, 0.9, 0.1, 40])),
        put(measures=np.array([0.9, 1e300, 0.9, 0.9, 0.1, 40])),
        put(measures=np.array([0.9, 0.1, 0.9, 0.9, np.inf, 40])),
    ],
)
def test_a_test_loss_without_bound(clients: list[ClientData], lie: Lie) -> None:
    with pytest.warns(FedcollabWarning, match="client `b` failed"):
        result = train(Lying(clients, "evaluate", lie), TYPES, **SMALL)
    assert np.isfinite(np.delete(result.loss, 1)).all()
    assert not np.isinf(result.loss).any()


@pytest.mark.parametrize(
    ("action", "lie", "why"),
    [
        ("train", put(layout=[["w", [2]]]), "`layout` has `w` of shape"),
        ("train", put(layout=[["v", [3]]]), "`layout` has `w` of shape"),
        ("train", put(layout=lambda old: [*old, ["x", [7]]]), "`layout` does not fit"),
        ("train", put(layout=lambda old: [*old, ["x", [-1, -4]]]), "negative side"),
        ("train", put(masked=lambda old: old[:-1].copy()), "`layout` does not fit"),
        ("train", put(boxes=lambda old: old[:-1].copy()), "`boxes` has shape"),
        ("train", put(boxes=lambda old: old[:, :-1].copy()), "`boxes` has shape"),
    ],
)
def test_a_masked_update_that_cannot_be(clients: list[ClientData], action: str, lie: Lie, why: str) -> None:
    """The others go on without the liar where their groups can, and blame nobody else."""
    runtime = Lying(clients[:4], action, lie)
    with pytest.warns(FedcollabWarning) as noted:
        result = train(runtime, "global", model="logistic", secure_aggregation="dropouts", **NARROW)
    assert any(why in str(note.message) and "`b`" in str(note.message) for note in noted)
    assert {absence.client for absence in runtime.absences} <= {"b"}
    assert np.isfinite(result.models["last"]).all()


@pytest.mark.parametrize(
    ("lie", "why"),
    [
        (put(certificate="x"), "cannot be read"),
        (put(certificate=lambda old: old.replace('"name": "b"', '"name": "a"')), "signature that is not its silo's"),
        (put(certificate=lambda old: old.replace('"threshold": 3', '"threshold": 2')), "signature"),
    ],
)
def test_a_certificate_that_cannot_be(clients: list[ClientData], lie: Lie, why: str) -> None:
    """Nobody can mask without it: the training pauses, and names the liar and nobody else."""
    runtime = Lying(clients[:4], "secure-keys", lie)
    with pytest.raises(Paused, match=f"`b`.*{why}"):
        train(runtime, "global", model="logistic", secure_aggregation="dropouts", **NARROW)
    assert {absence.client for absence in runtime.absences} == {"b"}


@pytest.mark.parametrize(("changed", "why"), [("name", "in the name of another"), ("group", "for another group")])
def test_a_certificate_that_is_signed_and_not_of_this_member(clients: list[ClientData], changed: str, why: str) -> None:
    def lie(reply: Message) -> Message:
        found = Certificate.from_json(reply["certificate"])
        name, group = ("a", found.group) if changed == "name" else (found.name, "another")
        members = (found.members, found.threshold)
        return {"certificate": certify(draw_identity(), name, group, *members, bytes.fromhex(found.key)).to_json()}

    with pytest.raises(Paused, match=f"`b`.*{why}"):
        train(Lying(clients[:4], "secure-keys", lie), "global", model="logistic", secure_aggregation="dropouts",
              **NARROW)  # fmt: skip


@pytest.mark.parametrize("lie", [without("held_out"), put(held_out=lambda old: old - 9)])
def test_a_client_that_is_absent_while_everyone_trains_alone(lie: Lie) -> None:
    """It is measured in coalitions all the same, as far as it answers; nobody else is blamed, and nothing breaks."""
    runtime = Lying(table_clients(), "train-alone", lie)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FedcollabWarning)
        advice = advise(federate(runtime), model="logistic", rounds=2, lr=0.1)
    assert advice.names == ("a", "b", "c", "d")
    assert {(absence.client, absence.action) for absence in runtime.absences} == {("b", "train-alone")}
    alone = next(each for each in advice.candidates if each.kind == "alone")
    assert sorted(alone.held_out) == ["a", "c", "d"]
    assert any("b" in each.held_out for each in advice.candidates)


def test_a_silo_that_asks_for_larger_coalitions_than_there_are_clients(clients: list[ClientData]) -> None:
    runtime = Lying(clients, "describe", lambda reply: {**reply, "min_coalition": 10**9})
    with pytest.raises(InputError, match=r"client `b` trains in coalitions of at least 1000000000 .* there are 6"):
        FedCollab(distance="few-round", C=5.0, quiet=True).fit(runtime)


def test_a_fingerprint_that_would_fill_the_disk(clients: list[ClientData]) -> None:
    """What a silo says is written into run.json: a megabyte of text in place of 16 digits is not."""
    runtime = Lying(clients, "fingerprint", put(fingerprint="f" * 10**6))
    assert sorted(fingerprints(federate(runtime))) == ["a", "c", "d", "e", "f"]


def test_shares_of_masks_that_cannot_be(clients: list[ClientData]) -> None:
    """Fewer shares than members: those of the others are enough."""
    short = put(shares=lambda old: old[:, :0].copy())
    found = train(Lying(clients[:4], "secure-unmask", short), "global", model="logistic",
                  secure_aggregation="dropouts", **NARROW)  # fmt: skip
    calm = train(Wire(clients[:4]), "global", model="logistic", secure_aggregation="dropouts", **NARROW)
    np.testing.assert_array_equal(found.models["last"], calm.models["last"])


TREES: dict[str, Any] = {"model": "xgboost", "model_options": {"max_depth": 2}, "stopping": "none", "rounds": 2}


@pytest.mark.parametrize("lie", [put(counts=lambda old: old * 1000), put(counts=lambda old: old * 0 + 2**62)])
def test_counts_of_more_rows_than_a_client_has(clients: list[ClientData], lie: Lie) -> None:
    """Thresholds are everybody's: they used to follow whoever counted most, and sums of 2^62 overflowed."""
    with pytest.warns(FedcollabWarning, match="without the rows of `b`"):
        found = train(Lying(clients, "count-rows", lie), TYPES, **TREES)
    without = Lying(clients, "count-rows", lambda _: {"refused": "on purpose"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FedcollabWarning)
        calm = train(without, TYPES, **TREES)
    np.testing.assert_array_equal(found.models["last"], calm.models["last"])


def shifted(old: Any) -> Any:
    """Sums whose first bin has more of the gradient: the first feature's rows are others than those of the rest."""
    changed = old.copy()
    changed[:, 0, 0] += 3.0
    return changed


@pytest.mark.parametrize(
    ("lie", "why"),
    [
        (put(sums=lambda old: old * [1.0, -1.0]), "negative hessians"),
        (put(sums=shifted), "other rows than those of another"),
        (put(sums=lambda old: old * 1e13), "beyond 1e"),
        (put(sums=lambda old: old[:, 1:].copy()), "has shape"),
    ],
)
def test_sums_of_trees_that_cannot_be(clients: list[ClientData], lie: Lie, why: str) -> None:
    runtime = Lying(clients, "train-trees", lie)
    with pytest.warns(FedcollabWarning, match="client `b` failed") as noted:
        found = train(runtime, TYPES, **TREES)
    assert any(why in str(note.message) for note in noted)
    assert {absence.client for absence in runtime.absences} == {"b"}
    calm = train(Wire(clients), TYPES, **TREES)
    np.testing.assert_array_equal(found.models["last"][1], calm.models["last"][1])
