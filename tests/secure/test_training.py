"""Training under masks equals plain training within the stated error, in every runtime; what cannot be hidden is
refused in one line, and members that drop out or lie do not spoil it for the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedcollab import baselines
from fedcollab.data import ClientData
from fedcollab.errors import FedcollabWarning, InputError, Paused
from fedcollab.federation import federate
from fedcollab.runs import FedCollab
from fedcollab.secure import keys, member
from fedcollab.secure.quantise import error_bound
from fedcollab.silo.guard import Guard
from fedcollab.training import ALGORITHMS, Algorithm, TrainingResult, retrain, train
from fedcollab.training.hooks import make_algorithm
from fedcollab.wire import Wire
from fedcollab.wire.action import Action
from fedcollab.wire.limits import Limits
from fedcollab.wire.message import Message, pack, unpack
from fedcollab.wire.silo import Silo

TYPES = [["a", "b", "c", "d"], ["e", "f", "g"]]
SMALL = {"model_options": {"widths": [8]}, "rounds": 4, "lr": 0.1}
WAYS = ["dropouts", "everyone"]
ADDITIVE = sorted(
    name
    for name, known in ALGORITHMS.items()
    if known.__module__.startswith("fedcollab.") and known.additive and not known.weighted and not known.alone
)


def blobs(name: str, count: int, flip: bool = False) -> ClientData:
    rng = np.random.default_rng(list(name.encode()))
    y = rng.integers(0, 2, count + 40)
    x = rng.normal(0, 1, (count + 40, 4)) + np.outer(2 * y - 1, [1.5, 0, 0, 0])
    return ClientData(name, x[:count], (1 - y if flip else y)[:count], x[count:], (1 - y if flip else y)[count:])


@pytest.fixture(scope="module")
def seven() -> list[ClientData]:
    sizes = {"a": 60, "b": 40, "c": 35, "d": 60, "e": 40, "f": 35, "g": 50}
    return [blobs(name, size, name in "efg") for name, size in sizes.items()]


class Guarded(Wire):
    """A wire runtime whose silos are guarded; `broken` makes a client fail in an action and round."""

    models_stay = True

    def __init__(self, clients: list[ClientData], folder: Path, **limits: Any) -> None:
        super().__init__(clients)
        plain = {"min_samples": 5, "min_batch": 1, "round_measures": False, "blur_updates": False}
        plain["updates_for_distances"] = True
        exact = Limits(**{**plain, **limits})
        self.guards = {name: Guard.at(folder / name, exact) for name in self.names}
        self.broken: set[tuple[str, str, int]] = set()
        self.changed: dict[tuple[str, str, int], Any] = {}
        self.partners: dict[str, dict[str, str]] = {}

    def _call(self, action: Action, messages: dict[str, Message]) -> dict[str, Message]:
        there = {
            name: message
            for name, message in messages.items()
            if (action.name, name, message.get("round", 0)) not in self.broken
        }
        self.absent = {name: "no answer" for name in messages if name not in there}
        changed = {
            name: {**message, **self.changed.get((action.name, name, message.get("round", 0)), {})}
            for name, message in there.items()
        }
        return super()._call(action, changed)

    def _serve(self, action: Action, name: str, content: bytes) -> bytes:
        guard = self.guards[name]
        kept: dict[str, Message] = {key: unpack(value) for key, value in self._state[name].items()}
        silo = Silo(self._data[name], kept, limits=guard.limits, partners=self.partners.get(name, {}))
        served = guard.serve(action.name, content, silo, run="1")
        if served.done:
            self._state[name] = {key: pack(value) for key, value in silo.state.items()}
        return served.content


def assert_same(secure: TrainingResult, plain: TrainingResult) -> None:
    """Equal but for rounding: the sum's and that of 32-bit floats, over all rounds."""
    assert secure.rounds == plain.rounds
    assert secure.averaged == plain.averaged
    for which in plain.models:
        np.testing.assert_allclose(secure.models[which], plain.models[which], rtol=0, atol=2e-6)
    np.testing.assert_allclose(secure.loss, plain.loss, atol=1e-5)
    for name, curve in plain.held_out.items():
        np.testing.assert_allclose(secure.held_out[name], curve, atol=1e-5)


# Equal to plain training.


@pytest.mark.parametrize("algorithm", ADDITIVE)
@pytest.mark.parametrize(("runtime", "way"), [("wire", "dropouts"), ("wire", "everyone"), ("vectorised", "dropouts")])
def test_every_additive_algorithm_equals_plain_training(
    seven: list[ClientData], algorithm: str, runtime: str, way: str
) -> None:
    plain = train(seven, TYPES, algorithm, runtime=runtime, **SMALL)
    assert_same(train(seven, TYPES, algorithm, runtime=runtime, secure_aggregation=way, **SMALL), plain)


def test_which_algorithms_are_additive() -> None:
    assert ADDITIVE == ["ditto", "fedadam", "fedavg", "fedprox", "finetune", "own-intercept", "perfedavg", "pfedme",
                        "scaffold"]  # fmt: skip


@pytest.mark.parametrize("name", ADDITIVE)
def test_additive_means_that_the_mean_of_the_replies_is_enough(name: str) -> None:
    algorithm = make_algorithm(name)[1]
    draw = torch.Generator().manual_seed(0)
    server = algorithm.server_init(torch.randn(5, generator=draw))
    message = {key: value[None] for key, value in algorithm.broadcast(server).items()}
    replies, weights = [], [0.2, 0.3, 0.5]
    for _ in weights:
        w, state = torch.randn(1, 5, generator=draw), algorithm.client_init(message)
        reply = algorithm.reply(w, message, state, torch.tensor([[3.0]]), 0.1)
        replies.append({key: value[0] for key, value in reply.items()})
    mean = {key: sum(p * reply[key] for p, reply in zip(weights, replies, strict=True)) for key in replies[0]}
    whole, summed = algorithm.aggregate(server, replies, weights), algorithm.aggregate(server, [mean], [1.0])
    for key in whole:
        torch.testing.assert_close(summed[key], whole[key], atol=1e-6, rtol=1e-5)


def test_one_round_is_within_the_stated_error(seven: list[ClientData]) -> None:
    one = {**SMALL, "rounds": 1, "stopping": "none"}
    plain = train(seven, TYPES, **one)
    secure = train(seven, TYPES, secure_aggregation=True, **one)
    largest = np.abs(plain.models["last"]).max()
    assert np.abs(secure.models["last"] - plain.models["last"]).max() <= error_bound(4) + 2 * largest * 2**-23


def test_batch_norm_statistics_and_averaging(seven: list[ClientData]) -> None:
    def normed() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2))

    settings = {"model": normed, "rounds": 4, "lr": 0.1, "averaging": 0.8, "stopping": "none"}
    plain = train(seven, TYPES, **settings)
    assert plain.averaged == [True, True]
    assert_same(train(seven, TYPES, secure_aggregation=True, **settings), plain)


def test_calls_and_what_crosses_the_line(seven: list[ClientData], tmp_path: Path) -> None:
    """Keys once, one further call a round where dropouts are recovered, none where everybody must answer; no reply has
    weights in it."""
    four, seen = seven[:4], []
    wire = Wire(four, spy=lambda action, name, sent, reply: seen.append((action, unpack(reply))))
    calls = {}
    for way in ("none", *WAYS):
        federation = federate(wire)
        before = wire.cost.rounds
        seen.clear()
        train(federation, "global", secure_aggregation=way, **SMALL)
        calls[way] = wire.cost.rounds - before
        updates = [reply for action, reply in seen if action in ("train", "train-folds") and "held_out" not in reply]
        folds = [reply for action, reply in seen if action == "train-folds"]
        assert len(updates) == 16
        if way != "none":
            assert all("w" not in reply and reply["masked"].dtype == np.uint32 for reply in updates)
            assert sum("masked" in reply for reply in folds) == 16
            assert all("w" not in reply for reply in folds)
    rounds = SMALL["rounds"]
    assert calls["none"] == 2 * rounds + 2
    assert calls["everyone"] == calls["none"] + 1
    assert calls["dropouts"] == calls["none"] + 1 + 2 * rounds


def test_guarded_silos_carry_it_out_and_log_it(seven: list[ClientData], tmp_path: Path) -> None:
    guarded = Guarded(seven, tmp_path)
    assert_same(train(guarded, TYPES, secure_aggregation=True, **SMALL), train(Wire(seven), TYPES, **SMALL))
    entries = guarded.guards["a"].log.entries()
    assert {entry["outcome"] for entry in entries} == {"answered"}
    sent = next(entry["sent"] for entry in entries if entry["action"] == "train")
    assert any(array.startswith("masked uint32[") for array in sent)
    assert not any(array.startswith("w ") for array in sent)


# Dropouts.


def test_a_member_that_drops_out_mid_training_is_left_out_of_those_rounds(
    seven: list[ClientData], tmp_path: Path
) -> None:
    """d is silent in round 2, c reveals nothing in round 3: both rounds equal plain training without d in round 2."""
    settings = {**SMALL, "stopping": "none"}
    results = []
    for secure in (False, True):
        guarded = Guarded(seven, tmp_path / str(secure))
        guarded.broken = {("train", "d", 2)} | ({("secure-unmask", "c", 3)} if secure else set())
        with pytest.warns(FedcollabWarning, match="round 2: client `d` failed"):
            results.append(train(guarded, TYPES, secure_aggregation=secure, **settings))
        assert results[-1].failures == [(2, "d", "no answer")]
    assert_same(results[1], results[0])


@pytest.mark.parametrize(
    ("broken", "way", "message"),
    [
        ({("train", "d", 2), ("train", "c", 2)}, "dropouts", "2 of 4 members .* have sent their masked update, 3 must"),
        ({("train", "e", 2)}, "dropouts", "2 of 3 members .* masked update, 3 must: `e` "),
        ({("secure-unmask", "a", 2), ("secure-unmask", "b", 2)}, "dropouts", "2 of 4 members .* revealed shares"),
        ({("train", "d", 2)}, "everyone", "3 of 4 members .* masked update, 4 must: `d` "),
        ({("secure-keys", "d", 0)}, "everyone", r"6 of 7 client\(s\) answered `secure-keys`, 7 must"),
    ],
)
@pytest.mark.filterwarnings("ignore::fedcollab.errors.FedcollabWarning")
def test_too_few_pause_the_training_and_it_goes_on_later(
    seven: list[ClientData], tmp_path: Path, broken: Any, way: str, message: str
) -> None:
    settings = {**SMALL, "stopping": "none", "secure_aggregation": way, "run_dir": tmp_path / "run"}
    guarded = Guarded(seven, tmp_path / "silos")
    guarded.lasting = True  # type: ignore[misc]
    federation = federate(guarded)
    guarded.broken = broken
    with pytest.raises(Paused, match=message):
        train(federation, TYPES, **settings)
    guarded.broken = set()
    assert_same(train(federation, TYPES, **settings), train(Wire(seven), TYPES, **{**SMALL, "stopping": "none"}))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("runtime", ["wire", "vectorised"])
def test_a_killed_training_goes_on_from_its_checkpoint(
    seven: list[ClientData], tmp_path: Path, way: str, runtime: str
) -> None:
    class Killed(Exception):
        pass

    class Kill:
        def on_start(self, settings: Any) -> None: ...
        def on_end(self, result: Any) -> None: ...

        def on_round(self, number: int, rows: Any) -> None:
            if number == 3:
                raise Killed

    settings = {**SMALL, "secure_aggregation": way, "run_dir": tmp_path, "algorithm": "scaffold", "runtime": runtime}
    with pytest.raises(Killed):
        train(seven, TYPES, callbacks=[Kill()], **settings)  # type: ignore[list-item]
    assert_same(train(seven, TYPES, **settings), train(seven, TYPES, "scaffold", **SMALL))


def test_a_member_whose_update_is_not_finite_stops_its_coalition_alone(seven: list[ClientData]) -> None:
    broken = [c if c.name != "e" else ClientData("e", np.asarray(c.x) * 1e18, c.y, c.x_test, c.y_test) for c in seven]
    settings = {**SMALL, "scale": "none", "stopping": "none"}
    with pytest.warns(FedcollabWarning, match="coalition of `e` stopped in round 1"):
        result = train(broken, TYPES, secure_aggregation=True, **settings)
    assert list(result.stopped) == [1]
    with pytest.warns(FedcollabWarning, match="coalition of `e` stopped in round 1"):
        plain = train(broken, TYPES, **settings)
    np.testing.assert_allclose(result.models["last"], plain.models["last"], atol=2e-6)


def test_a_coalition_with_a_client_too_small_for_folds_follows_the_others(
    seven: list[ClientData], tmp_path: Path
) -> None:
    """f's folds leave 10 rows, its silo asks for 15: its coalition trains no folds, and follows the other's curve."""
    smaller = [blobs("f", 20, True) if each.name == "f" else each for each in seven]
    guarded = Guarded(smaller, tmp_path, min_samples=15)
    guarded.min_samples = 1  # type: ignore[misc]
    result = train(guarded, TYPES, secure_aggregation=True, **SMALL)
    assert set(result.held_out) == set("abcd")
    assert not result.failures
    assert result.rounds[0] == result.rounds[1]


# What is refused.


@pytest.mark.parametrize(
    ("coalitions", "changed", "message"),
    [
        (
            [["a", "b"], ["c", "d", "e", "f", "g"]],
            {},
            r"the coalition a, b has 2 member\(s\); secure aggregation needs",
        ),
        ("local", {}, r"the coalition a has 1 member\(s\)"),
        (TYPES, {"algorithm": "fednova"}, r"'fednova': its server needs each client's reply, not their sum"),
        (TYPES, {"algorithm": "own-weights", "weights": np.full((7, 7), 1 / 7)}, "sums with different weights uncover"),
        (TYPES, {"participation": 0.9}, r"needs `participation` \(=0.9\) to be 1"),
        (TYPES, {"secure_aggregation": "always"}, r"\(='always'\) must be True, False or one of: dropouts, everyone"),
    ],
)
def test_what_cannot_be_hidden_is_refused_in_one_line(
    seven: list[ClientData], coalitions: Any, changed: Any, message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        train(seven, coalitions, **{**SMALL, "secure_aggregation": True, **changed})
    assert "\n" not in str(caught.value)


def test_clustered_baselines_are_refused(seven: list[ClientData]) -> None:
    with pytest.raises(InputError, match="needs fixed coalitions"):
        baselines.run("fesem", seven, k=2, rounds=2, lr=0.1, secure_aggregation=True)


def test_a_silo_that_insists_sends_no_update_without_masks(seven: list[ClientData], tmp_path: Path) -> None:
    guarded = Guarded(seven, tmp_path, secure_aggregation=True)
    with pytest.raises(Paused, match="this silo sends its updates only under masks"):
        train(guarded, TYPES, stopping="none", **SMALL)
    with (
        pytest.warns(FedcollabWarning, match="the number of rounds is not chosen"),
        pytest.raises(Paused, match="this silo sends its updates only under masks"),
    ):
        train(guarded, TYPES, **SMALL)
    with pytest.raises(Paused, match="administrator has given no public key of"):
        train(guarded, TYPES, secure_aggregation=True, stopping="none", **SMALL)


def test_a_silo_that_insists_on_everyone_refuses_sums_without_members(seven: list[ClientData], tmp_path: Path) -> None:
    guarded = Guarded(seven, tmp_path, secure_aggregation="everyone")
    with pytest.raises(
        Paused, match="sums could be formed of 3 of 4 members; this silo adds up its updates with every"
    ):
        train(guarded, TYPES, secure_aggregation="dropouts", stopping="none", **SMALL)
    with pytest.raises(Paused, match="administrator has given no public key of"):  # it would, with partners it knows
        train(guarded, TYPES, secure_aggregation="everyone", stopping="none", **SMALL)


@pytest.mark.filterwarnings("ignore::fedcollab.errors.FedcollabWarning")
def test_insisting_silos_that_know_each_other_train(seven: list[ClientData], tmp_path: Path) -> None:
    guarded = Guarded(seven, tmp_path, secure_aggregation=True)
    public = {}
    for name in guarded.names:
        private = keys.draw_identity()
        guarded._state[name][member.IDENTITY] = pack({"key": np.frombuffer(private, np.uint8), "partners": {}})
        public[name] = keys.public_of(private)
    guarded.partners = {name: {other: public[other] for other in public if other != name} for name in public}
    assert_same(train(guarded, TYPES, secure_aggregation=True, **SMALL), train(Wire(seven), TYPES, **SMALL))
    with pytest.raises(Paused, match="differs by d alone from an earlier one"):
        train(federate(guarded).part("abcefg"), [list("abc"), list("efg")], secure_aggregation=True, seed=1, **SMALL)


@pytest.mark.filterwarnings("ignore::fedcollab.errors.FedcollabWarning")
def test_the_same_model_with_fewer_members_is_refused_by_guarded_silos(seven: list[ClientData], tmp_path: Path) -> None:
    guarded = Guarded(seven, tmp_path)
    settings = {**SMALL, "stopping": "none", "secure_aggregation": True}
    train(guarded, TYPES, **settings)
    train(guarded, TYPES, **settings)  # the same coalitions again
    with pytest.raises(Paused, match="has added up the same model with a, b, c, d"):
        train(federate(guarded).part("abcefg"), [list("abc"), list("efg")], **settings)
    train(federate(guarded).part("abcefg"), [list("abc"), list("efg")], **{**settings, "seed": 1})  # other weights


def test_the_solver_takes_the_smallest_coalition_from_the_silos_limits(seven: list[ClientData], tmp_path: Path) -> None:
    federation = federate(Guarded(seven, tmp_path, secure_aggregation=True, min_samples=1))
    assert federation.min_coalition == 3
    fitted = FedCollab(C=1e-6, distance="label").fit(federation)
    assert min(map(len, fitted.collaboration.coalitions)) >= 3
    assert fitted.settings.solve_options["min_size"] == 3
    assert min(map(len, FedCollab(C=1e-6, distance="label").fit(seven).collaboration.coalitions)) == 1
    kept = FedCollab(C=1e-6, distance="label", run_dir=tmp_path / "run").fit(federation)
    assert kept.settings.run is not None
    assert {each["min_coalition"] for each in kept.settings.run.config()["clients"].values()} == {3}


# Liars under a mask.


class Liar(Algorithm):
    """FedAvg in which the client with 60 rows sends an absurd update in the second round."""

    def reply(self, w: Any, message: Any, state: Any, steps: Any, lr: float) -> Any:
        return {"w": torch.where(message["w"].abs().sum() > 0, w + 14.0 * (-1.0) ** torch.arange(w.shape[-1]), w)}


@pytest.mark.filterwarnings("ignore::fedcollab.errors.FedcollabWarning")
def test_members_refuse_to_go_on_from_an_absurd_model(seven: list[ClientData], tmp_path: Path) -> None:
    """Everyone adds 14 to every other weight and takes it from the rest: the loss of the sum is absurd."""
    try:
        guarded = Guarded(seven, tmp_path)
        with pytest.raises(Paused, match=r"the model of round 2 has a loss over .* held-out rows"):
            train(guarded, TYPES, Liar(), secure_aggregation=True, stopping="none", **SMALL)
    finally:
        ALGORITHMS.pop("Liar", None)
    refused = [entry for entry in guarded.guards["a"].log.entries() if entry["outcome"] == "refused"]
    assert refused
    assert "under masks it cannot be told whose" in refused[0]["why"]


def test_updates_beyond_the_range_are_cut_with_a_warning(seven: list[ClientData]) -> None:
    class Far(Algorithm):
        def reply(self, w: Any, message: Any, state: Any, steps: Any, lr: float) -> Any:
            return {"w": torch.cat([message["w"][:, :1] + 99.0, w[:, 1:]], dim=1)}

    one = {**SMALL, "rounds": 1, "stopping": "none"}
    try:
        with pytest.warns(FedcollabWarning, match=r"round 1: .* were cut: 1 number\(s\) of `a`"):
            result = train(
                seven, "global", Far(), secure_aggregation=True, **{**SMALL, "rounds": 1, "stopping": "none"}
            )
    finally:
        ALGORITHMS.pop("Far", None)
    first = train(seven, "global", **one).models["last"][0, 0]
    assert result.models["last"][0, 0] - first == pytest.approx(15, abs=1)


def test_a_model_for_one_silo_is_noticed_in_training(seven: list[ClientData], tmp_path: Path) -> None:
    for way, why in {
        "dropouts": "was sent something else than this silo",
        "everyone": "masks .* do not cancel",
    }.items():
        guarded = Guarded(seven, tmp_path / way, check_training=False)
        federation = federate(guarded)
        spied: list[Message] = []
        guarded._spy = lambda action, name, sent, reply, spied=spied: spied.append(unpack(sent))  # type: ignore[misc]
        train(federation, TYPES, secure_aggregation=way, stopping="none", **{**SMALL, "rounds": 1})
        w = next(message["w"] for message in spied if "w" in message)
        guarded.changed = {("train", "d", 1): {"w": w + np.float32(0.5)}}
        with pytest.raises((Paused, InputError), match=why):
            train(federation, TYPES, secure_aggregation=way, stopping="none", **SMALL)


def test_training_again_keeps_the_masks(seven: list[ClientData]) -> None:
    wire = Wire(seven)
    result = train(wire, TYPES, secure_aggregation=True, **SMALL)
    assert result.settings["secure_aggregation"] == "dropouts"
    seen: list[Message] = []
    wire._spy = lambda action, name, sent, reply: seen.append(unpack(reply))
    again = retrain(wire, result, ["a", "b", "c", "d"], rounds=2)
    assert again.settings["secure_aggregation"] == "dropouts"
    assert any("masked" in reply for reply in seen)
    assert all("w" not in reply for reply in seen)
    with pytest.raises(InputError, match="has 2 member"):
        retrain(wire, result, ["a", "b"], rounds=2)


def test_the_model_is_chosen_under_masks_too(seven: list[ClientData]) -> None:
    settings = {"rounds": 3, "lr": 0.1, "model": "auto"}
    plain = train(seven, TYPES, **settings)
    for way in WAYS:
        secure = train(seven, TYPES, secure_aggregation=way, **settings)
        assert secure.model["name"] == plain.model["name"]
        assert_same(secure, plain)
