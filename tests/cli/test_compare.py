"""`fedcollab compare`: what differs between runs of the same clients, with intervals as wide as they must be."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcollab import ClientData, Distances, InputError, TrainingResult, load_model, train, training
from fedcollab.data import Schema
from fedcollab.data.split import with_test
from fedcollab.errors import FedcollabWarning
from fedcollab.federation import federate
from fedcollab.report import ComparedRuns, read_run, show_compared
from fedcollab.report.compared import movers
from fedcollab.report.run import RunContents
from fedcollab.uncertainty import paired, unpaired

from .conftest import type_in

SHORT = ("--distance", "label", "--rounds", 3, "--stopping", "none", "--no-learning-curve", "--quiet")
NAMES = ("a1", "a2", "b1", "b2")


def said(*words: object) -> str:
    """Run a command and return what it printed."""
    return type_in(*words).stdout


def client(name: str, rows: int = 90) -> ClientData:
    """Two classes that overlap; those of clients whose name begins with `b` are swapped."""
    rng = np.random.default_rng([3, *name.encode()])
    y = rng.integers(0, 2, rows)
    x = rng.normal(0, 1.2, (rows, 3)) + np.outer(2 * y - 1, [1, 0.5, 0])
    return ClientData(name, x, 1 - y if name.startswith("b") else y)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four clients in `sites`, and runs of them: `plain`, `wide` (another model, other coalitions)."""
    made = tmp_path_factory.mktemp("compare")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        for name in NAMES:
            client(name).save(made / "sites" / f"{name}.npz")
        run = ("run", "--clients", "sites", *SHORT)
        kinds = [word for one in ("a1", "a2") for other in ("b1", "b2") for word in ("--cannot-link", f"{one},{other}")]
        said(*run, "--C", 5, "--model", "logistic", "--algorithm", "fedavg", *kinds, "-o", "plain")
        apart = ("--cannot-link", "a1,a2", "--cannot-link", "b1,b2")
        said(*run, "--C", 5, "--model", "mlp", "--algorithm", "ditto", *apart, "-o", "wide")
    return made


@pytest.fixture(autouse=True)
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def right(run: str, name: str) -> np.ndarray:
    """Which held-out rows the model of a client in a run gets right, one by one."""
    schema = Schema.load(run)
    held = with_test(client(name), schema.test_share, schema.seed)
    found: np.ndarray = load_model(run, client=name).predict(held.x_test) == held.y_test
    return found


def test_differences_are_those_of_answers_paired_one_by_one() -> None:
    answer = json.loads(said("compare", "plain", "wide", "--json"))
    before, after = answer["runs"]
    found = after["accuracy_difference"]
    assert after["paired"]
    for place, name in enumerate(answer["clients"]):
        one, other = right("wide", name), right("plain", name)
        gained, lost = int((one & ~other).sum()), int((other & ~one).sum())
        low, high = paired(gained, lost, len(one))
        assert found["mean"][place] == pytest.approx(one.mean() - other.mean())
        assert (found["low"][place], found["high"][place]) == pytest.approx((float(low), float(high)), abs=1e-9)
        assert before["accuracy"]["mean"][place] == pytest.approx(other.mean())
    losses = [TrainingResult.load(run) for run in ("plain", "wide")]
    np.testing.assert_allclose(
        after["loss_difference"]["mean"], losses[0].reported_loss - losses[1].reported_loss, atol=1e-5
    )
    gains = read_run("wide").judgement.gain("coalitions")  # type: ignore[union-attr]
    np.testing.assert_array_equal(after["gain_over_local"]["low"], gains.low)


def test_what_differs_and_who_moved() -> None:
    answer = json.loads(said("compare", "plain", "wide", "--json"))
    assert answer["settings"]["model"] == ["logistic", "mlp"]
    assert answer["settings"]["trained in coalitions by"] == ["FedAvg", "Ditto"]
    assert "rounds" not in answer["settings"]
    groups = [{frozenset(group) for group in each["coalitions"]} for each in answer["runs"]]
    assert groups[0] == {frozenset({"a1", "a2"}), frozenset({"b1", "b2"})}
    assert frozenset({"a1", "a2"}) not in groups[1]
    assert len(answer["runs"][1]["moved"]) == 2
    assert answer["runs"][1]["data_changed"] == []
    shown = said("compare", "plain", "wide")
    assert "the clients have the same data" in shown
    assert "logistic" in shown
    assert "Differences are paired" in shown
    assert said("compare", "plain", "wide", "--way", "local").count("gain (") == 0


def test_without_the_files_intervals_are_those_of_other_rows(tmp_path: Path, folder: Path) -> None:
    for run in ("plain", "wide"):
        for path in (folder / run).rglob("*"):
            if path.is_file() and path.name != "sources.json":
                target = tmp_path / run / path.relative_to(folder / run)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(path.read_bytes())
    runs = (tmp_path / "plain", tmp_path / "wide")
    answer = json.loads(said("compare", *runs, "--json"))
    after = answer["runs"][1]
    assert not after["paired"]
    for place, name in enumerate(answer["clients"]):
        one, other = right("wide", name), right("plain", name)
        low, high = unpaired(one.sum(), len(one), other.sum(), len(other))
        found = after["accuracy_difference"]
        assert (found["low"][place], found["high"][place]) == pytest.approx((float(low), float(high)))
    assert "not paired" in said("compare", *runs)
    assert json.loads(said("compare", *runs, "--clients", "sites", "--json"))["runs"][1]["paired"]


def test_data_that_changed_are_named_and_not_paired(tmp_path: Path, folder: Path) -> None:
    for name in NAMES:
        client(name, 120 if name == "b2" else 90).save(tmp_path / "later" / f"{name}.npz")
    fedavg = ("--C", 5, "--model", "logistic", "--algorithm", "fedavg")
    said("run", "--clients", tmp_path / "later", *SHORT, *fedavg, "-o", tmp_path / "grown")
    answer = json.loads(said("compare", "plain", tmp_path / "grown", "--json"))
    after = answer["runs"][1]
    assert after["data_changed"] == ["b2"]
    assert not after["paired"]
    place = answer["clients"].index("b2")
    results = [TrainingResult.load(run) for run in ("plain", tmp_path / "grown")]
    (n, x), (m, y) = ((each.used["samples"][place], each.reported[place]) for each in results)
    assert (n, m) == (18, 24)
    low, high = unpaired(round(y * m), m, round(x * n), n)
    found = after["accuracy_difference"]
    assert found["mean"][place] == pytest.approx(y - x)
    assert (found["low"][place], found["high"][place]) == pytest.approx((float(low), float(high)))

    client("b2", 120).save(folder / "sites" / "b2.npz")  # after both runs: their files are no longer what they were
    try:
        with pytest.warns(FedcollabWarning, match="the data of `b2` are no longer those of the runs"):
            said("compare", "plain", "wide")
    finally:
        client("b2").save(folder / "sites" / "b2.npz")


def test_what_cannot_be_compared_is_one_line(tmp_path: Path) -> None:
    for name in NAMES[:3]:
        client(name).save(tmp_path / "fewer" / f"{name}.npz")
    estimate = ("estimate", "--clients", tmp_path / "fewer", "--distance", "label", "--quiet")
    said(*estimate, "-o", tmp_path / "fewer-run" / "distances.json")
    lines = {
        tmp_path / "fewer-run": r"cannot be compared: they have other clients \(only in `.*`: b2\)",
        tmp_path / "none": r"does not exist; expected a run directory",
        Path("plain"): r"`RUN` \(='plain'\) is given twice",
    }
    for run, line in lines.items():
        with pytest.raises(InputError, match=line):
            said("compare", "plain", run)
    with pytest.raises(InputError, match=r"is one run; give two or more"):
        said("compare", "plain")
    one = read_run("plain")
    schema = Schema.load("plain")
    other = Schema(("no", "yes"), schema.shape)
    with pytest.raises(
        InputError,
        match=r"`x` and `y` cannot be compared: they have other classes \(only in `x`: 0, 1; only in `y`: no, yes\)",
    ):
        ComparedRuns(("x", "y"), (one, one), (schema, other))


def test_a_numeric_target_is_compared_by_its_r2(tmp_path: Path) -> None:
    """By hand: on the same rows the mean difference of e^2 / v (v of the training rows), and its standard error."""
    rng = np.random.default_rng(0)
    sites = {}
    for name in ("a", "b"):
        x = rng.normal(size=(300, 2))
        sites[name] = ClientData(name, x, 10 * x[:, 0] + x[:, 1] ** 2 + rng.normal(size=300))
    federation = federate(list(sites.values()))
    results = {
        label: train(federation, "local", model=model, rounds=3, stopping="none", lr=0.05)
        for label, model in (("one", "logistic"), ("two", "mlp"))
    }
    paired_up = training.compare(federation, results)
    run = RunContents(tmp_path, {}, Distances(np.zeros((2, 2)), ("a", "b"), np.array([240, 240])), None, None, {})
    runs = tuple(replace(run, results={"local": result}) for result in results.values())
    schemas = (federation.schema, federation.schema)
    apart = ComparedRuns(("one", "two"), runs, schemas, "local")
    compared = replace(apart, paired={"two": paired_up})
    found, loss = compared.difference(1), compared.difference(1, "loss")
    assert found is not None
    assert loss is not None
    for place, name in enumerate(("a", "b")):
        held = with_test(sites[name], federation.schema.test_share, federation.schema.seed)
        errors = [load_model(result, client=name).predict(held.x_test) - held.y_test for result in results.values()]
        explained = (errors[0] ** 2 - errors[1] ** 2) / np.var(held.y)
        assert found.mean[place] == pytest.approx(explained.mean(), rel=1e-4)
        assert found.stderr[place] == pytest.approx(explained.std() / np.sqrt(len(explained)), rel=2e-2)
        before, after = (result.loss[place] for result in results.values())
        assert loss.mean[place] == pytest.approx(before - after, rel=1e-4)
    wide = apart.difference(1)
    assert wide is not None
    np.testing.assert_allclose(wide.mean, found.mean, rtol=1e-4)
    show_compared(compared)
    with pytest.raises(InputError, match=r"only in `x`: a number; only in `y`: 0, 1"):
        ComparedRuns(("x", "y"), runs, (federation.schema, Schema((0, 1), (2,))), "local")


def test_runs_that_are_not_trained_are_compared_as_far_as_they_are(tmp_path: Path) -> None:
    for number in (1, 2):
        run = tmp_path / str(number)
        said("estimate", "--clients", "sites", "--distance", "label", "--quiet", "-o", run / "distances.json")
        said("solve", run, "--C", 5 if number == 1 else 0.001, "-o", run)
    answer = json.loads(said("compare", tmp_path / "1", tmp_path / "2", "--json"))
    assert answer["runs"][1]["accuracy_difference"] is None
    assert answer["settings"]["C of the coalitions"] == [5.0, 0.001]
    assert "not both trained in coalitions" in said("compare", tmp_path / "1", tmp_path / "2")


@given(before=st.lists(st.integers(0, 3), min_size=2, max_size=6), data=st.data())
def test_no_other_matching_leaves_more_clients_where_they_are(before: list[int], data: st.DataObject) -> None:
    """Brute force over all ways of matching coalitions."""
    after = data.draw(st.lists(st.integers(0, 3), min_size=len(before), max_size=len(before)))
    names = [f"c{place}" for place in range(len(before))]
    one, other = (
        [[name for name, label in zip(names, labels, strict=True) if label == group] for group in sorted(set(labels))]
        for labels in (before, after)
    )
    most = max(
        sum(chosen[label] == now for label, now in zip(before, after, strict=True))
        for chosen in permutations([0, 1, 2, 3])
    )
    assert len(movers(names, one, other)) == len(names) - most
