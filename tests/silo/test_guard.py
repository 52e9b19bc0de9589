"""A silo under its guard: proper messages are served, anything else is refused in a line, and all of it is logged."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcollab.advice import sums  # noqa: F401  (declares an action)
from fedcollab.data import ClientData
from fedcollab.distances import estimate_distances
from fedcollab.encoders import register_encoder
from fedcollab.errors import FedcollabWarning, InputError, Paused
from fedcollab.federation import federate
from fedcollab.federation.fingerprint import fingerprint
from fedcollab.inspection import profile  # noqa: F401  (declares an action)
from fedcollab.silo import audit
from fedcollab.silo import guard as guarding
from fedcollab.silo.audit import Audit
from fedcollab.silo.guard import Guard
from fedcollab.training import compare_client, honest, train
from fedcollab.wire import Wire
from fedcollab.wire.action import ACTIONS, Action, Release
from fedcollab.wire.limits import Limits, Privacy, make_limits
from fedcollab.wire.message import Message, pack, unpack
from fedcollab.wire.silo import Silo

SMALL = {"model_options": {"widths": [4]}, "rounds": 2, "lr": 0.1}


class Guarded(Wire):
    """A wire runtime whose silos are guarded, and keep their personal models; `run` is the id of the run."""

    models_stay = True

    def __init__(self, clients: list[ClientData], folder: Path, limits: Limits) -> None:
        super().__init__(clients)
        self.guards = {name: Guard.at(folder / name, limits) for name in self.names}
        self.run = "1"

    def _serve(self, action: Action | str, name: str, content: bytes) -> bytes:
        guard = self.guards[name]
        kept: dict[str, Message] = {key: unpack(value) for key, value in self._state[name].items()}
        silo = Silo(self._data[name], kept, limits=guard.limits)
        called = action if isinstance(action, str) else action.name
        served = guard.serve(called, content, silo, run=self.run)
        if served.done:
            self._state[name] = {key: pack(value) for key, value in silo.state.items()}
        return served.content


ALGORITHMS = ["ditto", "fedadam", "fedavg", "fednova", "fedprox", "finetune", "local", "own-intercept", "perfedavg",
              "pfedme", "scaffold"]  # fmt: skip
#: for what is compared to the last digit with a runtime that has no guard
EXACT = {"round_measures": False, "blur_updates": False}


@pytest.fixture
def kept(clients: list[ClientData], tmp_path: Path) -> Any:
    """Return a runtime whose silos are guarded; these clients have as few as 25 rows, which default limits refuse."""
    small = {"min_samples": 5, "min_batch": 5, "updates_for_distances": True, "max_repeats": 20}
    return lambda **limits: Guarded(clients, tmp_path, Limits(**{**small, **limits}))


@pytest.mark.parametrize("method", ["few-round", "cross", "hypothesis", "published", "prototype"])
def test_every_stage_passes_its_own_guard(clients: list[ClientData], kept: Any, method: str) -> None:
    options = {"cross": {"rounds": 2, "repeats": 1}, "hypothesis": {"rounds": 2, "repeats": 1},
               "published": {"rounds": 3, "hidden": 4},
               "prototype": {"least": 5}}.get(method, {})  # fmt: skip
    guarded = kept(min_coalition=2, min_samples=1 if method in ("few-round", "prototype") else 5, **EXACT)
    found = estimate_distances(guarded, method=method, **options)
    np.testing.assert_array_equal(found.raw, estimate_distances(Wire(clients), method=method, **options).raw)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_passes_the_guard(
    clients: list[ClientData], kept: Any, algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(honest, "AT_LEAST", 8)  # without errors, honest updates give a few of 25 rows away
    guarded = kept(**EXACT)
    result = train(guarded, [["a", "b", "c"], ["d", "e", "f"]], algorithm, **SMALL)
    plain = train(Wire(clients), [["a", "b", "c"], ["d", "e", "f"]], algorithm, **SMALL)
    np.testing.assert_array_equal(result.models["last"], plain.models["last"])
    assert not result.failures
    entries = guarded.guards["a"].log.entries()
    done = [entry["action"] for entry in entries if entry["action"] in ("train-folds", "train", "evaluate")]
    assert done == ["train-folds"] * 3 + ["train"] * result.rounds[0] + ["evaluate"]
    trained = next(entry for entry in entries if entry["action"] == "train")
    assert trained["partners"] == (["a"] if algorithm == "local" else ["a", "b", "c"])
    assert trained["sent"][0].startswith("w float32[")
    assert trained["bytes_out"] > trained["bytes_in"] / 3


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_passes_the_guard_with_rounding_and_errors(kept: Any, algorithm: str) -> None:
    guarded = kept()
    result = train(guarded, [["a", "b", "c"], ["d", "e", "f"]], algorithm, **SMALL)
    assert not result.failures
    outcomes = {entry["outcome"] for guard in guarded.guards.values() for entry in guard.log.entries()}
    assert outcomes == {"answered"}


# What a message may be.


@pytest.fixture(scope="module")
def one() -> Silo:
    rng = np.random.default_rng(0)
    return Silo(ClientData("a", rng.normal(size=(30, 3)), np.arange(30) % 2))


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Guard:
    return Guard.at(tmp_path_factory.mktemp("silo"), Limits(min_samples=1, updates_for_distances=True))


def asked(action: str, **changed: Any) -> Message:
    """A message that is proper but for what is changed."""
    proper: dict[str, Message] = {
        "describe": {"scale": "none", "test_share": 0.2, "seed": 0},
        "spread": {"scale": "features", "test_share": 0.2, "seed": 0, "mean": np.zeros(3)},
        "cross-step": {"w": np.zeros((2, 1, 4), dtype=np.float32)},
    }
    return {key: value for key, value in {**proper[action], **changed}.items() if value is not ...}


@pytest.mark.parametrize(
    ("action", "changed", "why"),
    [
        ("describe", {"seed": ...}, "`seed` is missing"),
        ("describe", {"seed": "0"}, "`seed`: Expected `int`, got `str`"),
        ("describe", {"seed": True}, "`seed`: Expected `int`, got `bool`"),
        ("describe", {"seed": 2**64}, "`seed`: Expected `int` <= "),
        ("describe", {"test_share": 7}, "`test_share`: Expected `float` <= 1.0"),
        ("describe", {"path": "/etc/passwd"}, "`path` is not expected"),
        ("describe", {"x": np.zeros(2)}, "`x` is not expected"),
        ("spread", {"mean": np.array([0, np.nan, 0])}, "`mean`: has NaN or infinite values"),
        ("spread", {"mean": np.zeros((3, 1))}, r"`mean`: has shape \(3, 1\); expected 1 side"),
        (
            "spread",
            {"mean": np.zeros(3, dtype=np.float32)},
            "`mean`: expected an array of float64, got array of float32",
        ),
        ("spread", {"mean": [0, 0, 0]}, "`mean`: expected an array of float64, got list"),
    ],
)
def test_broken_messages_are_refused(guard: Guard, one: Silo, action: str, changed: dict[str, Any], why: str) -> None:
    served = guard.serve(action, pack(asked(action, **changed)), one)
    assert not served.done
    with pytest.raises(AssertionError, match=why):
        raise AssertionError(unpack(served.content)["refused"])
    assert guard.log.entries()[-1]["outcome"] == "refused"


def test_unknown_actions_and_large_messages_are_refused(guard: Guard, one: Silo, tmp_path: Path) -> None:
    for action in ("no-such", "os.system", "describe\n"):
        assert "does not do" in unpack(guard.serve(action, b"", one).content)["refused"]
    small = Guard.at(tmp_path, Limits(max_bytes=100))
    reply = unpack(small.serve("describe", pack(asked("describe")), one).content)
    assert "more than the 100 bytes allowed" in reply["refused"]


def test_a_failure_tells_its_kind_alone(guard: Guard, one: Silo) -> None:
    """A step without a plan: the silo lives on, and what it says does not show what it holds."""
    served = guard.serve("cross-step", pack(asked("cross-step")), one)
    assert unpack(served.content) == {"error": "KeyError; the silo's log says more"}
    assert not served.done
    assert guard.log.entries()[-1]["why"] == "KeyError: 'cross'"


@settings(max_examples=150)
@given(
    content=st.one_of(
        st.binary(max_size=200),
        st.tuples(st.integers(0, 300), st.binary(min_size=1, max_size=8)).map(lambda cut: _cut(*cut)),
    ),
    action=st.sampled_from(sorted(ACTIONS)),
)
def test_any_bytes_are_answered(guard: Guard, one: Silo, content: bytes, action: str) -> None:
    """Random bytes, and proper messages with some bytes overwritten."""
    reply = unpack(guard.serve(action, content, one).content)
    assert reply.keys() & {"refused", "error", "quantity", "squares"}


def _cut(position: int, patch: bytes) -> bytes:
    whole = pack(asked("spread"))
    return whole[: position % len(whole)] + patch + whole[position % len(whole) + len(patch) :]


@settings(max_examples=60)
@given(
    st.dictionaries(
        st.sampled_from(["setting", "round", "since", "coalition", "w", "schema", "seed", "sizes", "pairs", "x"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
            max_leaves=5,
        ),
    ),
    st.sampled_from(sorted(ACTIONS)),
)
def test_any_values_are_answered(guard: Guard, one: Silo, message: Message, action: str) -> None:
    assert unpack(guard.serve(action, pack(message), one).content)


def test_deep_nesting_and_lying_headers(guard: Guard, one: Silo) -> None:
    deep = b"[" * 100_000
    header = b'{"__plain__":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' % (len(deep), len(deep))
    huge = b'{"w":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,4000000000000]}}'
    for content in (
        len(header).to_bytes(8, "little") + header + deep,
        len(huge).to_bytes(8, "little") + huge,
        (2**63).to_bytes(8, "little") + b"{}",
        len(deep).to_bytes(8, "little") + deep,
    ):
        assert "cannot be read" in unpack(guard.serve("describe", content, one).content)["refused"]


# Limits.


def test_the_coalition_must_be_large_enough(kept: Any) -> None:
    guarded = kept(min_coalition=2)
    with pytest.raises(Paused, match=r"`a` \(the coalition is a; this silo asks for at least 2 clients"):
        train(guarded, "local", stopping="none", **SMALL)
    train(guarded, [["a", "b"], ["c", "d"], ["e", "f"]], **SMALL)


def test_updates_need_samples(kept: Any) -> None:
    guarded = kept(min_samples=30)
    with pytest.warns(FedcollabWarning, match=r"left out: `c`, `f` \(every number is made of 25 sample.*at least 30"):
        federation = federate(guarded)
    assert federation.names == ("a", "b", "d", "e")
    for method in ("published", "cross", "few-round"):
        with pytest.raises(Paused, match=r"`min_samples` \(=30\) forbids it"):
            estimate_distances(federation, method=method)


def test_runs_a_day(kept: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    guarded = kept(max_runs_per_day=2)
    for run in ("1", "2", "1"):
        guarded.run = run
        federate(guarded)
    guarded.run = "3"
    with pytest.raises(Paused, match="this silo takes part in 2 run"):
        federate(guarded)
    monkeypatch.setattr(guarding, "now", lambda precision="": "2999-01-01T00:00:00.000+00:00")
    federate(guarded)


def test_only_the_listed_actions(kept: Any) -> None:
    guarded = kept(actions=("describe", "spread", "prepare"))
    federate(guarded)
    with pytest.raises(Paused, match="this silo does not do 'train'"):
        train(guarded, "global", stopping="none", **SMALL)
    guarded = kept(actions=("describe", "spread", "prepare", "train", "evaluate"))
    with pytest.warns(FedcollabWarning, match="'train-folds'.*the number of rounds is not chosen, all 2 are trained"):
        assert train(guarded, "global", **SMALL).rounds == [2]


def test_without_noise_nothing_of_a_private_silo(kept: Any) -> None:
    guarded = kept(require_privacy=Privacy(1.0, 1e-5))
    federate(guarded)
    why = r"requires differential privacy \(epsilon 1, delta 1e-05\), and 'train' has none"
    with pytest.raises(Paused, match=why):
        train(guarded, "global", stopping="none", **SMALL)
    with pytest.raises(Paused, match="the server asks for none"):
        estimate_distances(guarded, method="few-round")


def test_noise_is_not_taken_on_trust(kept: Any) -> None:
    pytest.importorskip("opacus")
    guarded = kept(require_privacy=Privacy(1.0, 1e-5), min_samples=1)
    federate(guarded)
    seen: dict[str, bytes] = {}
    real = guarded._serve

    def spy(action: Action, name: str, content: bytes) -> bytes:
        if name == "a":
            seen[action.name] = content
        return real(action, name, content)

    guarded._serve = spy
    assert np.isfinite(estimate_distances(guarded, method="few-round", privacy=0.9).raw).all()
    with pytest.raises(Paused, match="another answer would spend more than epsilon 1"):
        estimate_distances(guarded, method="few-round", privacy=0.8)
    guarded.run = "2"
    with pytest.raises(Paused, match=r"the noise that the server asks for gives epsilon 2"):
        estimate_distances(guarded, method="few-round", privacy=2.0)
    honest = unpack(seen["few-moments"])
    lie = {**honest, "privacy": {**honest["privacy"], "epsilon": 0.1, "noise": 1e-9}}
    assert "gives epsilon" in unpack(real("few-moments", "a", pack(lie)))["refused"]


def test_the_same_question_gets_the_same_noise(kept: Any) -> None:
    pytest.importorskip("opacus")
    guarded = kept(require_privacy=Privacy(1.0, 1e-5), min_samples=1)
    federate(guarded)
    plan = {"seed": 0, "width": 4, "folds": 2, "classes": 2, "min_samples": 1, "label_counts": "drawn"}
    ask = pack({**plan, "privacy": {"noise": 20.0, "epsilon": 1.0, "delta": 1e-5, "clip": 2.0}})
    first, again = (real("few-moments", "a", ask) for real in [guarded._serve] * 2)
    assert first == again
    assert unpack(first)["m"].shape[0] == 2
    guarded.run = "2"
    assert guarded._serve("few-moments", "a", ask) == first  # another run id is no other question


@pytest.mark.parametrize("changed", [
    {"batch_size": 0}, {"epochs": 10**9}, {"lr": -1}, {"algorithm": "no-such"}, {"options": {"strange": 1}},
    {"model": {"widths": [10**6, 10**6]}}, {"model": {"widths": [5]}}, {"model": "deep"}, {"seed": ...},
])  # fmt: skip
def test_a_setting_that_asks_for_too_much(clients: list[ClientData], kept: Any, changed: dict[str, Any]) -> None:
    guarded = kept()
    federate(guarded)
    seen: dict[str, Message] = {}
    real = guarded._serve

    def spy(action: Action, name: str, content: bytes) -> bytes:
        seen[action.name] = unpack(content)
        return real(action, name, content)

    guarded._serve = spy
    train(guarded, "global", **SMALL)
    message = seen["train"]
    setting = json.loads(message["setting"])
    if isinstance(changed.get("model"), dict):
        changed = {"model": json.dumps({**json.loads(setting["model"]), "options": changed["model"]})}
    setting = {key: value for key, value in {**setting, **changed}.items() if value is not ...}
    reply = unpack(real("train", "f", pack({**message, "setting": json.dumps(setting)})))
    assert "refused" in reply, reply


def test_limits_from_a_table() -> None:
    table = {
        "min_coalition": 2,
        "min_samples": 20,
        "max_runs_per_day": 5,
        "require_privacy": {"epsilon": 2, "delta": 1e-6},
        "actions": ["describe", "train"],
    }
    assert make_limits(table, ACTIONS) == Limits(20, 2, 5, Privacy(2.0, 1e-6), ("describe", "train"))
    for wrong, why in (
        ({"min_sample": 3}, "did you mean 'min_samples'"),
        ({"min_samples": "many"}, r"`limits min_samples` \(='many'\): Expected `int`"),
        ({"min_samples": 0}, r"`limits min_samples` \(=0\): Expected `int` >= 1"),
        ({"actions": ["trian"]}, "did you mean 'train'"),
        ({"actions": "train"}, "Expected `array"),
        ({"require_privacy": 1}, "Expected `object"),
        ({"require_privacy": {"epsilon": -1}}, "Expected `float` > 0"),
        ({"require_privacy": {"epsilon": 1, "gamma": 2}}, "unknown field `gamma`"),
    ):
        with pytest.raises(InputError, match=why):
            make_limits(wrong, ACTIONS)


#: a proper message for every action there is, of clients with 3 features and 2 classes; a new action needs one here
PROPER: dict[str, Message] = {
    "describe": {"scale": "none", "test_share": 0.2, "seed": 0},
    "spread": {"scale": "none", "test_share": 0.2, "seed": 0, "mean": np.zeros(1)},
    "prepare": {},
    "inspect": {"test_share": 0.2, "seed": 0, "key": "0123456789abcdef" * 2},
    "encode": {"encoder": "rows-for-guard"},
    "encode-spread": {"encoder": "rows-for-guard", "mean": np.zeros(3)},
    "fingerprint": {},
    "train": {"setting": "{}", "round": 1, "w": np.zeros(3, dtype=np.float32), "coalition": ["a", "b"]},
    "train-folds": {"setting": "{}", "round": 1, "folds": 2, "w": np.zeros((2, 3), dtype=np.float32), "train": True,
                    "last": False, "coalition": ["a", "b"]},
    "train-alone": {"setting": "{}", "rounds": 2, "folds": 2, "w": np.zeros(3, dtype=np.float32), "training": "t"},
    "count-rows": {"setting": "{}", "round": 0, "cuts": np.zeros(3, dtype=np.float32), "ends": np.arange(1, 4)},
    "train-trees": {"setting": "{}", "round": 1, "level": 0, "w": np.zeros((1, 3), dtype=np.float32),
                    "cuts": np.zeros(3, dtype=np.float32), "ends": np.arange(1, 4), "coalition": ["a", "b"]},
    "train-trees-folds": {"setting": "{}", "round": 1, "level": 0, "w": np.zeros((2, 3), dtype=np.float32),
                          "cuts": np.zeros(3, dtype=np.float32), "ends": np.arange(1, 4), "coalition": ["a", "b"],
                          "folds": 2, "train": True, "measure": True},
    "ridge-sums": {"folds": 2, "most": 10, "seed": 0},
    "evaluate": {"setting": "{}", "round": 1, "w": np.zeros(3, dtype=np.float32), "personal": False, "keep": False,
                 "stay": False, "mean": False},
    compare_client.compare.name: {"trainings": ["t"], "settings": ["{}"], "w0": np.zeros(3, dtype=np.float32)},
    "losses": {"setting": "{}", "round": 1, "models": np.zeros((2, 3), dtype=np.float32)},
    "cross-norm": {"head": "free"},
    "cross-open": {"head": "free", "classes": 2, "seed": 0, "folds": 2, "replicates": 0, "sizes": [10], "repeats": [1],
                   "targets": [1], "scales": [1.0]},
    "cross-step": {"w": np.zeros((2, 1, 4), dtype=np.float32)},
    "cross-validate": {"w": np.zeros((2, 1, 4), dtype=np.float32)},
    "few-moments": {"seed": 0, "width": 4, "folds": 2, "classes": 2, "min_samples": 1, "label_counts": "drawn"},
    "few-validate": {"w": np.zeros((1, 2, 2, 4), dtype=np.float32), "targets": [1], "replicates": 0},
    "prototype-means": {"classes": 2, "least": 3},
    "published-open": {"seed": 0, "train": 10, "lr": 0.1, "batch": 10, "local_steps": 1, "hidden": 4, "classes": 2,
                       "targets": [1]},
    "published-step": {"w": np.zeros((1, 29), dtype=np.float32), "pairs": [0], "round": 0},
    "published-validate": {"w": np.zeros((1, 29), dtype=np.float32), "pairs": [0]},
    "secure-keys": {"group": "g", "coalition": ["a", "b", "c"], "threshold": 3},
    "secure-unmask": {"group": "g", "training": "t", "round": 1, "left": ["a", "b", "c"],
                      "boxes": np.zeros((3, 92), dtype=np.uint8)},
}  # fmt: skip
NOISE = {"noise": 20.0, "epsilon": 1.0, "delta": 1e-5, "clip": 2.0}


def test_every_action_has_a_message_here() -> None:
    assert set(PROPER) == set(ACTIONS)


@pytest.mark.parametrize("name", sorted(PROPER))
def test_what_a_silo_with_every_limit_and_required_privacy_does(name: str, tmp_path: Path) -> None:
    """Nothing computed from samples leaves without noise, whatever the action; what only agrees on a schema does."""
    pytest.importorskip("opacus", reason="opacus is not installed: pip install 'fedcollab[privacy]'")
    register_encoder("rows-for-guard", lambda x: x.reshape(len(x), -1))
    rng = np.random.default_rng(0)
    pair = [ClientData(who, rng.normal(size=(60, 3)), np.arange(60) % 2) for who in "ab"]
    schema = federate(Wire(pair), scale="none").schema.to_json()
    limits = Limits(
        min_samples=10, min_coalition=2, require_privacy=Privacy(1.0), max_splits=1, updates_for_distances=True
    )
    guard = Guard.at(tmp_path, limits)
    silo = Silo(pair[0], {"prepare": {"schema": schema}}, limits=limits)
    message = {"schema": schema} if name == "prepare" else PROPER[name]
    served = guard.serve(name, pack(message), silo)
    reply = unpack(served.content)
    if name == "secure-unmask":
        assert "has masked nothing" in reply["refused"]
        return
    if ACTIONS[name].release in (Release.NOTHING, Release.SUMMARY):
        assert served.done, reply
        return
    assert not served.done
    assert "requires differential privacy (epsilon 1, delta 1e-05)" in reply["refused"]
    if ACTIONS[name].release is Release.NOISED:
        silo.state["few"] = {**PROPER["few-moments"], "privacy": NOISE}
        noised = {**message, "privacy": NOISE} if name == "few-moments" else message
        assert guard.serve(name, pack(noised), silo).done


# The log.


def test_nothing_leaves_a_silo_that_cannot_log(guard: Guard, one: Silo, tmp_path: Path) -> None:
    (tmp_path / "audit.jsonl").mkdir()
    blind = Guard.at(tmp_path, Limits(min_samples=1))
    served = blind.serve("describe", pack(asked("describe")), one)
    assert "nothing leaves it" in unpack(served.content)["refused"]
    assert not served.done


@pytest.fixture
def log(tmp_path: Path, one: Silo) -> Audit:
    guard = Guard.at(tmp_path, Limits(min_samples=1))
    for _ in range(5):
        guard.serve("describe", pack(asked("describe")), one, run="7")
    return guard.log


def test_tampering_shows(log: Audit) -> None:
    lines, head = log.verify()
    assert lines == 5
    assert log.hashes()[-1] == head
    whole = log.path.read_bytes().splitlines(keepends=True)
    changed = [
        [whole[0], whole[1].replace(b'"run": "7"', b'"run": "8"'), *whole[2:]],
        [whole[0], *whole[2:]],
        [whole[1], whole[0], *whole[2:]],
        [*whole[:3], whole[2], *whole[3:]],
        [whole[0], b"nothing\n", b"to see\n", *whole[2:]],
        whole[1:],
    ]
    for version in changed:
        log.path.write_bytes(b"".join(version))
        with pytest.raises(InputError, match="changed"):
            log.verify()
    log.path.write_bytes(b"".join(whole[:-1]))
    assert log.verify()[0] == 4  # cut off at the end: shows to whoever noted the head
    assert head not in log.hashes()


def test_a_log_that_was_read_is_read_on(log: Audit, one: Silo) -> None:
    """What is kept of a log is what reading it anew gives, whoever writes to it, and whatever becomes of the file."""
    guard, since = Guard(log, Limits(min_samples=1)), log.entries()[0]["time"]

    def same() -> int:
        kept = list(log.since(since))
        assert kept == list(Audit(log.path).since(since)) == log.entries()[::-1]
        assert list(log.since("9999")) == []
        return len(kept)

    count = same()
    guard.serve("describe", pack(asked("describe")), one, run="8")
    assert same() == count + 1
    Guard(Audit(log.path), Limits(min_samples=1)).serve("describe", pack(asked("describe")), one, run="9")
    assert same() == count + 2
    whole = log.path.read_bytes()
    with log.path.open("ab") as file:
        file.write(b'{"half": ')
    assert same() == count + 2
    guard.serve("describe", pack(asked("describe")), one, run="10")
    assert same() == count + 3
    log.path.write_bytes(whole[:-1])  # a last line without its end counts
    assert same() == count + 2
    log.path.write_bytes(whole.replace(b'"run": "8"', b'"run": "7"'))
    assert same() == count + 2
    log.path.write_bytes(b"\n".join(whole.split(b"\n")[:2]) + b"\n\n")
    assert same() == 2
    log.path.unlink()
    assert same() == 0


def test_a_line_cut_short_by_a_killed_process(log: Audit, one: Silo) -> None:
    whole = log.path.read_bytes()
    log.path.write_bytes(whole[:-40])
    Guard(log, Limits(min_samples=1)).serve("describe", pack(asked("describe")), one, run="8")
    assert log.verify()[0] == 6
    assert [entry["run"] for entry in log.entries()] == ["7"] * 4 + ["8"]
    assert [entry["run"] for entry in log.since("2000")] == ["8"] + ["7"] * 4


def test_long_logs_are_read_from_the_end(log: Audit, one: Silo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "_BLOCK", 37)
    assert list(log.since("2000")) == log.entries()[::-1]


@pytest.fixture
def command(log: Audit) -> Any:
    from click.testing import CliRunner

    from fedcollab.cli.silo_log import log as silo_log

    return lambda *words: CliRunner().invoke(silo_log, [str(log.path), *words])


def test_the_command_shows_and_verifies(command: Any, log: Audit) -> None:
    shown = command("--last", "2")
    assert shown.exit_code == 0, shown.output
    assert shown.output.count("said what data there are") == 2
    assert "2 of 5 entries" in shown.output
    listed = json.loads(command("--json", "--verify", "--last", "0").output)
    assert len(listed["entries"]) == 5
    assert listed["verified"] == {"lines": 5, "head": log.hashes()[-1]}
    assert log.hashes()[-1] in command("--verify", "--head", log.hashes()[2]).output
    assert isinstance(command("--verify", "--head", "ab").exception, InputError)


# What may be asked twice.


def described(guard: Guard, silo: Silo, share: float, seed: int = 0) -> Message:
    return unpack(
        guard.serve("describe", pack(asked("describe", scale="features", test_share=share, seed=seed)), silo).content
    )


def test_splits_that_differ_by_a_sample_are_refused(tmp_path: Path) -> None:
    """The hold-outs of two shares are nested: the difference of two sums would be one sample."""
    rng = np.random.default_rng(0)
    silo = Silo(ClientData("a", rng.normal(size=(60, 3)), np.zeros(60, dtype=int)))
    guard = Guard.at(tmp_path, Limits(min_samples=10))
    first = described(guard, silo, 12 / 60)
    assert first["quantity"] == 48
    assert "differs by 1 sample(s) from an earlier one" in described(guard, silo, 13 / 60)["refused"]
    np.testing.assert_array_equal(described(guard, silo, 12 / 60)["sum"], first["sum"])
    assert described(guard, silo, 22 / 60)["quantity"] == 38
    assert "every number is made of 2 sample(s)" in described(guard, silo, 0.97)["refused"]
    assert "quantity" in described(guard, silo, 0.2, seed=1)
    open_handed = Guard.at(tmp_path / "other", Limits(min_samples=1, round_measures=False))
    plain = Silo(silo.data, limits=open_handed.limits)
    totals = [described(open_handed, plain, share)["sum"] for share in (12 / 60, 13 / 60)]
    gaps = np.abs(silo.data.x - (totals[0] - totals[1])).max(axis=1)
    assert gaps.min() < 1e-9, "without the limit the difference of two sums is a sample"


def test_splits_are_few_and_the_schema_cannot_bring_another(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    data = ClientData("a", rng.normal(size=(60, 3)), np.arange(60) % 2)
    silo, guard = Silo(data), Guard.at(tmp_path, Limits(min_samples=5, max_splits=2))
    for seed in (0, 1, 0):
        assert "quantity" in described(guard, silo, 0.2, seed)
    assert "has answered for 2 test splits" in described(guard, silo, 0.2, 2)["refused"]
    agreed = federate(Wire([data, ClientData("b", data.x, data.y)]), scale="none").schema
    for schema, served in ((agreed, True), (replace(agreed, seed=3), False)):
        assert guard.serve("prepare", pack({"schema": schema.to_json()}), silo).done == served
    own = Silo(ClientData("a", data.x, data.y, data.x[:9], data.y[:9]))
    assert all("quantity" in described(guard, own, 0.2, seed) for seed in range(5))


def test_a_split_that_differs_by_one_sample_of_a_label(tmp_path: Path) -> None:
    """Or of a category: an exchange for other samples is let pass, one sample more or less is not."""
    x, y = np.random.default_rng(0).normal(size=(240, 2)), np.repeat(np.arange(10), 24)
    silo, guard = Silo(ClientData("a", x, y)), Guard.at(tmp_path, Limits())
    for share, seed in ((0.25, 0), (0.25, 1)):
        assert "quantity" in described(guard, silo, share, seed)
    why = described(guard, silo, 7 / 24, 0)["refused"]
    assert "differs by fewer than 10 samples of a label or category from an earlier one (share 0.25, seed 0)" in why
    assert "quantity" in described(guard, silo, 17 / 24, 0)
    table = pd.DataFrame({"age": x[:, 0], "ward": np.where(np.arange(240) < 12, "small", "large")})
    known = Silo(ClientData("a", table, np.zeros(240)))
    outcomes = [described(guard, known, 0.25, seed) for seed in range(30)]
    assert sum("of a label or category" in each.get("refused", "") for each in outcomes) > 0


def test_noise_is_drawn_once_whoever_asked_for_it(kept: Any) -> None:
    """A reply that was lost is asked for again: new noise would be a release that nobody counts."""
    pytest.importorskip("opacus", reason="opacus is not installed: pip install 'fedcollab[privacy]'")
    guarded = kept(min_samples=1)
    heard: dict[str, list[bytes]] = {}
    serve = guarded._serve

    def twice(action: Action, name: str, content: bytes) -> bytes:
        replies = [serve(action, name, content) for _ in range(2)]
        heard.setdefault(action.name, []).append(replies[0])
        assert replies[0] == replies[1], action.name
        return replies[0]

    guarded._serve = twice
    estimate_distances(guarded, method="few-round", privacy=2.0)
    assert {"few-moments", "few-validate"} <= set(heard)


def test_a_private_silo_tests_no_models_and_its_fingerprint_is_its_own(clients: list[ClientData], kept: Any) -> None:
    private = kept(require_privacy=Privacy(1.0))
    schema = {"prepare": {"schema": federate(private, scale="none").schema.to_json()}}
    with pytest.raises(Paused, match=r"requires differential privacy .*'evaluate' has none"):
        private.call("evaluate", {"a": PROPER["evaluate"]})
    prints = [fingerprint({}, Silo(clients[0], dict(schema), key=key)) for key in (b"", b"one", b"two", b"one")]
    assert prints[1] == prints[3]
    assert len({entry["fingerprint"] for entry in prints}) == 3


def test_a_personal_model_is_not_sent_whatever_the_server_asks(kept: Any) -> None:
    guarded = kept()
    seen: dict[str, Message] = {}
    real = guarded._serve

    def spy(action: Action, name: str, content: bytes) -> bytes:
        seen[action.name] = unpack(content)
        return real(action, name, content)

    guarded._serve = spy
    train(guarded, "global", "own-intercept", **SMALL)
    reply = unpack(real("evaluate", "f", pack({**seen["evaluate"], "keep": True})))
    assert reply["refused"] == "a personal model stays at its silo"


@pytest.mark.parametrize("algorithm", ["fedavg", "own-intercept", "local"])
@pytest.mark.parametrize("exact", [True, False])
def test_trees_pass_the_guard(clients: list[ClientData], kept: Any, algorithm: str, exact: bool) -> None:
    """With a limit of one row and no errors the trees are those of in process; with the limits they are still good."""
    guarded = kept(**(EXACT | {"min_samples": 1} if exact else {}))
    how: dict[str, Any] = {"model": "xgboost", "rounds": 8, "lr": 0.3}
    coalitions = [["a", "b", "c"], ["d", "e", "f"]]
    result = train(guarded, coalitions, algorithm, **how)
    assert not result.failures
    entries = guarded.guards["a"].log.entries()
    assert {entry["outcome"] for entry in entries} == {"answered"}
    grown = [entry for entry in entries if entry["action"] == "train-trees"]
    assert sum(entry["cost"].get("rounds", 0) for entry in grown) == result.rounds[0] + 1
    assert all(entry["partners"] == (["a"] if algorithm == "local" else ["a", "b", "c"]) for entry in grown)
    if exact:
        plain = train(Wire(clients), coalitions, algorithm, **how)
        np.testing.assert_array_equal(result.models["last"], plain.models["last"])
    elif algorithm == "fedavg":
        assert result.reported_loss.mean() < 0.6
