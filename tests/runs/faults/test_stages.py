"""Clients that are silent, refuse, fail or answer garbage, in every stage: the others go on as if they were alone."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcollab.baselines import run as run_baseline
from fedcollab.coalitions import solve
from fedcollab.data import ClientData
from fedcollab.distances import estimate_distances
from fedcollab.errors import FedcollabWarning, Paused
from fedcollab.federation import federate
from fedcollab.training import train
from fedcollab.wire import Wire
from fedcollab.wire.absence import Policy, read, words

FAULTS = ("absent", "lost", "garbage", "truncated", "nan", "shape", "dtype", "missing", "extra", "refused", "error")
SMALL = {"model_options": {"widths": [8]}, "lr": 0.1, "stopping": "none"}
TYPES = [["a", "b", "c"], ["d", "e", "f"]]
METHODS = {
    "few-round": {},
    "cross": {"rounds": 4, "repeats": 1},
    "hypothesis": {"rounds": 3, "repeats": 1},
    "published": {"rounds": 20, "patience": 2, "hidden": 4},
    "prototype": {},
    "label": {},
}


def at(action: str, client: str, fault: str, call: int | None = None) -> Any:
    """One client, one action, one fault: always, or at the client's n-th call only."""
    return lambda a, name, n: fault if (a, name) == (action, client) and call in (None, n) else None


@pytest.fixture
def six(clients: list[ClientData]) -> list[ClientData]:
    return clients


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("action", ["describe", "spread"])
def test_who_is_absent_at_the_beginning_is_left_out(
    six: list[ClientData], faulty: Any, action: str, fault: str
) -> None:
    runtime = faulty(six, at(action, "b", fault))
    with pytest.warns(FedcollabWarning, match="left out: `b`"):
        federation = federate(runtime)
    assert federation.names == ("a", "c", "d", "e", "f")
    assert list(federation.left_out) == ["b"]
    alone = federate(Wire([c for c in six if c.name != "b"]))
    assert federation.schema == alone.schema
    assert federation.described.keys() == alone.described.keys()
    assert {(e.action, e.client) for e in runtime.absences} == {(action, "b")}


def test_tables_too(faulty: Any) -> None:
    import pandas as pd

    def made(name: str, town: str) -> ClientData:
        rng = np.random.default_rng(len(town))
        return ClientData(name, pd.DataFrame({"age": rng.normal(50, 9, 30), "town": [town] * 15 + ["x"] * 15}),
                          rng.integers(0, 2, 30))  # fmt: skip

    three = [made("a", "rome"), made("b", "paris"), made("c", "oslo")]
    federation = faulty(three, at("spread", "b", "nan"))
    with pytest.warns(FedcollabWarning, match="left out: `b`"):
        assert federate(federation).schema == federate(Wire([three[0], three[2]])).schema


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("fault", ["absent", "garbage", "nan", "shape"])
def test_lost_pairs_are_unobserved_and_all_others_are_as_without_the_fault(
    six: list[ClientData], faulty: Any, method: str, fault: str
) -> None:
    whole = estimate_distances(Wire(six), method=method, **METHODS[method])
    action = {"few-round": "few-validate", "cross": "cross-step", "hypothesis": "cross-validate",
              "published": "published-step", "prototype": "prototype-means", "label": "none"}[method]  # fmt: skip
    call = 8 if action in ("cross-step", "published-step") else None
    federation = faulty(six, at(action, "b", fault, call))
    if method == "label":
        found = estimate_distances(federation, method=method)
        assert found.observed.all()
        return
    with pytest.warns(FedcollabWarning, match="`b` .*: the distances of these clients are left unobserved"):
        found = estimate_distances(federation, method=method, **METHODS[method])
    others = [i for i, name in enumerate(found.names) if name != "b"]
    at_b = found.names.index("b")
    assert not found.observed[at_b, others].any()
    grid = np.ix_(others, others)
    assert found.observed[grid].all()
    np.testing.assert_array_equal(found.raw[grid], whole.raw[grid])
    if whole.stderr is not None:
        np.testing.assert_array_equal(found.stderr[grid], whole.stderr[grid])
    asked = [name for a, name in federation.asked if a == action]
    assert asked.count("b") == (1 if call is None else asked.count("b"))
    collaboration = solve(found, C=5.0)
    assert ["b"] in collaboration.coalitions


def test_a_retry_hides_a_fault_wholly(six: list[ClientData], faulty: Any) -> None:
    """Every message fails the first time, in one of the ways that are worth another try."""
    ways = ["absent", "lost", "garbage", "truncated", "nan", "shape", "dtype", "missing", "extra"]

    def first(action: str, name: str, n: int) -> str | None:
        return ways[(n // 2 + ord(name)) % len(ways)] if n % 2 else None

    for algorithm in ("ditto", "scaffold"):
        shaky = faulty(six, first, Policy(quorum=1, retries=1))
        found = estimate_distances(shaky, method="few-round")
        calm = Wire(six)
        np.testing.assert_array_equal(found.raw, estimate_distances(calm, method="few-round").raw)
        results = [train(r, TYPES, algorithm, rounds=3, **SMALL) for r in (shaky, calm)]
        for which in results[0].models:
            np.testing.assert_array_equal(results[0].models[which], results[1].models[which])
        assert not results[0].failures
        assert not shaky.absences


def test_a_client_that_stays_away_is_waited_for_once(six: list[ClientData], faulty: Any) -> None:
    """It is asked in every round, since it may be back; but only one that was there is given time to come back."""
    away = faulty(six, lambda action, name, n: "absent" if name == "b" and action == "train" else None, Policy())
    with pytest.warns(FedcollabWarning, match="client `b` failed"):
        train(away, TYPES, rounds=4, **SMALL)
    assert [away.asked.count(("train", name)) for name in "ab"] == [4, 5]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_coalition_goes_on_as_if_the_absent_client_were_not_in_it(
    six: list[ClientData], faulty: Any, fault: str
) -> None:
    federation = faulty(six, lambda action, name, n: fault if name == "b" and action in ("train", "evaluate") else None)
    with pytest.warns(FedcollabWarning, match="client `b` failed"):
        result = train(federation, TYPES, rounds=3, **SMALL)
    calm = federate(Wire(six))
    away = replace(calm.part([name for name in calm.names if name != "b"]), left_out={"b": "sent home"})
    without = train(away, TYPES, rounds=3, **SMALL)
    np.testing.assert_array_equal(result.models["last"], without.models["last"])
    assert np.isnan(result.accuracy[1])
    np.testing.assert_array_equal(np.delete(result.accuracy, 1), without.accuracy)
    assert {(n, name) for n, name, _ in result.failures} == {(n, "b") for n in (1, 2, 3)}


@pytest.mark.parametrize("algorithm", ["ditto", "scaffold", "pfedme"])
def test_a_lost_reply_leaves_no_trace_at_the_client(six: list[ClientData], faulty: Any, algorithm: str) -> None:
    """Acted but not heard equals not reached: the client goes on from the last round that counted."""
    results = []
    for fault in ("absent", "lost", "nan"):
        count = {"b": 0}

        def plan(action: str, name: str, n: int, fault: str = fault, count: dict[str, int] = count) -> str | None:
            if action != "train" or name != "b":
                return None
            count["b"] += 1
            return fault if count["b"] in (2, 3) else None

        with pytest.warns(FedcollabWarning, match="client `b` failed"):
            results.append(train(faulty(six, plan), TYPES, algorithm, rounds=5, **SMALL))
    for other in results[1:]:
        for which in results[0].models:
            np.testing.assert_array_equal(other.models[which], results[0].models[which])


def test_below_the_quorum_it_pauses_and_the_same_call_goes_on(
    six: list[ClientData], faulty: Any, tmp_path: Path
) -> None:
    calm = train(Wire(six), TYPES, "ditto", rounds=6, run_dir=tmp_path / "calm", **SMALL)
    away = {"now": False}

    def plan(action: str, name: str, n: int) -> str | None:
        away["now"] = away["now"] or (action == "train" and name == "a" and n >= 8)
        return "absent" if away["now"] and name in "abcd" else None

    broken = faulty(six, plan, Policy(quorum=0.5, retries=0))
    everyone = r"`a`, `b`, `c`, `d` \(no answer\)"
    with pytest.raises(Paused, match=rf"2 of 6 client\(s\) answered `train` of round \d, 3 must: {everyone}"):
        train(broken, TYPES, "ditto", rounds=6, run_dir=tmp_path / "run", **SMALL)
    assert not (tmp_path / "run" / "training.json").exists()
    reached = max(json.loads(line)["round"] for line in (tmp_path / "run" / "training.jsonl").read_text().splitlines())
    assert 1 <= reached < 6
    back = Wire(six)
    result = train(back, TYPES, "ditto", rounds=6, run_dir=tmp_path / "run", **SMALL)
    for which in calm.models:
        np.testing.assert_array_equal(result.models[which], calm.models[which])
    assert list(result.history) == list(calm.history)
    assert back.cost.rounds < 4 + 6 + 6
    assert not (tmp_path / "run" / "checkpoint.safetensors").exists()
    assert {absence.client for absence in read(tmp_path / "run")} == {"a", "b", "c", "d"}
    assert len(words(read(tmp_path / "run"))) == 4


def test_distances_pause_when_too_few_are_left(six: list[ClientData], faulty: Any) -> None:
    plan = {"a": 5, "b": 6, "c": 7, "d": 8}
    federation = faulty(six, lambda action, name, n: "absent" if n >= plan.get(name, 99) else None)
    with pytest.warns(FedcollabWarning, match="unobserved"), pytest.raises(Paused, match="2 of 6 clients left, 3 must"):
        estimate_distances(federation, method="cross", rounds=9, repeats=1)


@pytest.mark.parametrize("name", ["ifca", "fedcluster", "fesem"])
def test_clustered_baselines_live_with_faults(six: list[ClientData], faulty: Any, name: str) -> None:
    federation = faulty(six, lambda action, client, n: FAULTS[n % 11] if client == "b" and n > 4 else None)
    with pytest.warns(FedcollabWarning, match="client `b` failed"):
        result = run_baseline(name, federation, k=2, rounds=6, **SMALL)
    assert np.isfinite(result.models["last"]).all()


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), share=st.sampled_from([0.02, 0.1, 0.3]), method=st.sampled_from(sorted(METHODS)))
def test_whatever_goes_wrong_nothing_crashes(faulty: Any, seed: int, share: float, method: str) -> None:
    """Faults at random in all stages: a result over those who were there, or a pause."""
    rng = np.random.default_rng(seed)
    four = _four()

    def plan(action: str, name: str, n: int) -> str | None:
        return str(rng.choice(FAULTS)) if rng.random() < share else None

    runtime = faulty(four, plan, Policy(quorum=0.25, retries=seed % 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FedcollabWarning)
        try:
            federation = federate(runtime)
            found = estimate_distances(federation, method=method, **METHODS[method])
            collaboration = solve(found, C=5.0)
            result = train(federation, collaboration, ["fedavg", "scaffold"][seed % 2], rounds=2, **SMALL)
        except Paused:
            return
    assert np.isfinite(found.raw[found.observed]).all()
    assert np.isfinite(result.models["last"]).all()
    assert sorted(name for members in result.coalitions for name in members) == sorted(federation.names)


def _four() -> list[ClientData]:
    made = []
    for index, name in enumerate("abcd"):
        rng = np.random.default_rng(index)
        y = np.arange(40) % 2
        x = rng.normal(0, 1, (40, 3)) + np.outer(2 * y - 1, [1.0, 0, 0])
        made.append(ClientData(name, x[:24], y[:24] if index < 2 else 1 - y[:24], x[24:], y[24:]))
    return made
