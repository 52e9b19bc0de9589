"""Models compared on the same test samples: against every sample counted by hand, over every runtime, within limits."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcollab.data import ClientData
from fedcollab.errors import FedcollabWarning, InputError
from fedcollab.federation import federate
from fedcollab.flower.silo.state_store import StateStore
from fedcollab.training import (
    MAJORITY,
    Comparison,
    TrainingResult,
    compare,
    compare_client,
    load_model,
    outcomes,
    train,
)
from fedcollab.training.outcomes import Outcome
from fedcollab.wire import Wire
from fedcollab.wire.action import Refused
from fedcollab.wire.limits import NO_LIMITS, Limits
from fedcollab.wire.message import pack
from fedcollab.wire.silo import Silo

OPTIONS: Any = {"rounds": 3, "lr": 0.1, "model_options": {"widths": [6]}}
GROUPS = [["a", "b", "c"], ["d", "e", "f"]]


class Staying(Wire):
    """A wire runtime whose clients keep their models, as in a real federation."""

    models_stay = True


class Refusing(Wire):
    """A wire runtime whose clients do not compare models."""

    def _serve(self, action: Any, name: str, content: bytes) -> bytes:
        return pack({"refused": "not here"}) if action.name == "compare" else super()._serve(action, name, content)


def ways(clients: Any, algorithm: str = "fedavg") -> dict[str, TrainingResult]:
    """The three ways of training that a run compares."""
    return {
        "local": train(clients, "local", **OPTIONS),
        "coalitions": train(clients, GROUPS, algorithm, **OPTIONS),
    }


def same(first: Comparison, second: Comparison, **tolerance: float) -> None:
    """Check that two comparisons are equal."""
    assert (first.names, first.models) == (second.names, second.models)
    np.testing.assert_array_equal(first.samples, second.samples)
    np.testing.assert_array_equal(first.right, second.right)
    np.testing.assert_allclose(first.loss, second.loss, **tolerance)
    np.testing.assert_allclose(first.spread, second.spread, **tolerance)


@pytest.mark.parametrize("algorithm", ["fedavg", "ditto"])
def test_every_sample_counted_by_hand(clients: list[ClientData], tmp_path: Path, algorithm: str) -> None:
    results = ways(clients, algorithm)
    found = compare(clients, results)
    assert found.models == ("local", "coalitions", MAJORITY)
    for row, client in enumerate(clients):
        right, losses = [], []
        for way, result in results.items():
            result.save(tmp_path / way / "training.json")
            chances = load_model(tmp_path / way, client=client.name).predict_proba(client.x_test).astype(np.float64)
            right.append(chances.argmax(1) == client.y_test)
            losses.append(-np.log(chances[np.arange(len(chances)), client.y_test]))
        counts = np.bincount(client.y, minlength=2)
        right.append(client.y_test == counts.argmax())
        losses.append(-np.log((counts + 1) / (counts.sum() + 2))[client.y_test])
        both = np.array([[np.sum(one & two) for two in right] for one in right])
        np.testing.assert_array_equal(found.right[row], both)
        np.testing.assert_allclose(found.loss[row], np.mean(losses, axis=1), atol=1e-5)
        np.testing.assert_allclose(found.spread[row], np.cov(losses), atol=1e-4)
        gain = found.loss_gain("coalitions", over="local")
        difference = losses[0] - losses[1]
        assert gain.mean[row] == pytest.approx(difference.mean(), abs=1e-5)
        assert gain.stderr[row] == pytest.approx(difference.std(ddof=1) / np.sqrt(len(difference)), abs=1e-4)
    np.testing.assert_allclose(found.accuracy("coalitions").mean, results["coalitions"].reported)
    stderr = results["coalitions"].used["loss_stderr"]
    np.testing.assert_allclose(np.sqrt(found.spread[:, 1, 1] / found.samples), stderr, rtol=1e-4)


@pytest.mark.parametrize("algorithm", ["fedavg", "ditto", "finetune"])
def test_every_runtime_gives_the_same(clients: list[ClientData], algorithm: str) -> None:
    """In process, over messages, and where personal models stay with the clients, who kept what they did."""
    runtimes = {name: federate(clients, runtime=name) for name in ("vectorised", "wire")}
    runtimes["staying"] = federate(Staying(clients))
    results = {name: ways(federation, algorithm) for name, federation in runtimes.items()}
    found = {name: compare(federation, results[name]) for name, federation in runtimes.items()}
    assert ("personal" in results["staying"]["coalitions"].models) is False
    same(found["vectorised"], found["wire"], atol=1e-4)
    same(found["staying"], found["wire"], atol=1e-6)


def test_a_model_that_is_nowhere_is_compared_as_on_other_samples(clients: list[ClientData]) -> None:
    federation = federate(Staying(clients))
    results = ways(federation, "ditto")
    results["coalitions"] = replace(results["coalitions"], training="another")
    found = compare(federation, results)
    assert np.isnan(found.right[:, 0, 1]).all()
    np.testing.assert_allclose(found.accuracy("coalitions").mean, results["coalitions"].reported)
    paired = compare(clients, ways(clients, "ditto"))
    wide, narrow = (each.accuracy_gain("coalitions", over="local") for each in (found, paired))
    assert (wide.high - wide.low).mean() > (narrow.high - narrow.low).mean()


def test_the_same_model_gains_nothing_for_certain(clients: list[ClientData]) -> None:
    alone = train(clients, "local", **OPTIONS)
    singles = train(clients, [["a"], ["b"], ["c"], ["d", "e", "f"]], **OPTIONS)
    gain = compare(clients, {"local": alone, "coalitions": singles}).accuracy_gain("coalitions", over="local")
    assert (gain.low[:3] == 0).all()
    assert (gain.high[:3] == 0).all()
    assert (gain.high[3:] > gain.low[3:]).all()


def test_a_comparison_is_saved_and_reordered(clients: list[ClientData], tmp_path: Path) -> None:
    found = compare(clients, ways(clients))
    found.save(tmp_path / "comparison.json")
    same(Comparison.load(tmp_path / "comparison.json"), found)
    turned = found.ordered([*reversed(found.names), "stranger"])
    np.testing.assert_array_equal(turned.right[:-1], found.right[::-1])
    assert np.isnan(turned.samples[-1])
    content = json.loads((tmp_path / "comparison.json").read_text().replace('"right"', '"wrong"'))
    del content["content_sha256"]
    (tmp_path / "broken.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="not a complete comparison"):
        Comparison.load(tmp_path / "broken.json")


def test_results_of_other_test_samples_are_refused(clients: list[ClientData]) -> None:
    other = ways(federate(clients, seed=1))
    with pytest.raises(InputError, match="'local' was trained on clients that were prepared otherwise"):
        compare(federate(clients), other)
    with pytest.raises(InputError, match="'majority'"):
        compare(clients, {MAJORITY: other["local"]})


# At the silo.


def silo_of(client: ClientData, limits: Limits | None = None) -> Silo:
    """A silo that is prepared."""
    schema = federate([client, replace(client, name="other")], scale="none").schema.to_json()
    return Silo(client, {"prepare": {"schema": schema}}, limits=limits or NO_LIMITS)


def asked(result: TrainingResult, **changed: Any) -> dict[str, Any]:
    """The message of comparing one model of zeros."""
    model = {key: result.model[key] for key in ("name", "options", "shape", "classes")}
    keys = ("algorithm", "options", "lr", "batch_size", "epochs", "seed")
    setting = {key: result.settings[key] for key in keys} | {"model": json.dumps(model)}
    return {"trainings": ["t"], "settings": [json.dumps(setting)], **changed}


def test_few_test_samples_give_no_counts(clients: list[ClientData]) -> None:
    result = train(clients, "local", **OPTIONS)
    reply = compare_client.compare(asked(result), silo_of(clients[0], Limits(min_test=41)))
    assert reply == {"samples": 40, "known": [False, True]}
    reply = compare_client.compare(asked(result), silo_of(clients[0], Limits(min_test=40)))
    assert reply["known"] == [False, True]
    assert reply["right"][0].tolist() == [0, 0], "a model that is not known has no figures"
    evaluated = train(clients, "local", **OPTIONS).measures["samples"]
    assert evaluated.tolist() == [40] * len(clients)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"w0": np.zeros(7, dtype=np.float32)}, "weights; the message has 7"),
        ({"w1": np.zeros(7, dtype=np.float32)}, "`w1` is the weights of no model"),
        ({"settings": ["{}"], "w0": np.zeros(7, dtype=np.float32)}, "`setting` cannot be read"),
    ],
)
def test_models_that_do_not_fit_are_refused(clients: list[ClientData], changed: dict[str, Any], why: str) -> None:
    message = asked(train(clients, "local", **OPTIONS), **changed)
    limit = compare_client.compare.limit
    assert limit is not None
    with pytest.raises(Refused, match=why):
        limit(message, silo_of(clients[0]), Limits(min_samples=1))


def test_silos_that_refuse_leave_wider_intervals(clients: list[ClientData]) -> None:
    federation = federate(Refusing(clients))
    results = ways(federation)
    with pytest.warns(FedcollabWarning, match="could not be compared on the same test samples.*not here"):
        found = compare(federation, results)
    assert found.models == ("local", "coalitions")
    assert np.isfinite(found.accuracy_gain("coalitions", over="local").low).all()


def test_what_a_silo_keeps_of_its_trainings(clients: list[ClientData], tmp_path: Path) -> None:
    """On disk too; the oldest of many is forgotten, and none is used for another test split."""
    silo = silo_of(clients[0])
    silo.state = StateStore(tmp_path)
    silo.state["prepare"] = silo_of(clients[0]).state["prepare"]
    drawn = np.random.default_rng(0)
    kept = {f"t{i}": Outcome(drawn.random(40) < 0.5, drawn.random(40)) for i in range(outcomes.MOST + 1)}
    for training, outcome in kept.items():
        outcomes.keep(silo, training, outcome, np.zeros(1, dtype=np.float32))
    silo.state.commit()
    silo.state = StateStore(tmp_path)
    assert outcomes.kept_of(silo, "t0") is None
    for training in list(kept)[1:]:
        found = outcomes.kept_of(silo, training)
        assert found is not None
        np.testing.assert_array_equal(found.right, kept[training].right)
        np.testing.assert_array_equal(found.loss, kept[training].loss)
    changed = silo_of(replace(clients[0], y_test=1 - clients[0].y_test))
    changed.state[outcomes.KEY] = silo.state[outcomes.KEY]
    assert outcomes.kept_of(changed, "t1") is None
