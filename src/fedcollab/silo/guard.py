"""The silo protects itself: nothing is done that its floors forbid, and nothing leaves that its log does not list.

    message -> size, format, fields, shapes, finite numbers (`contract`) -> floors -> the action -> the log -> reply

Whatever comes in, the silo lives on: what is wrong with a message is a refusal in one line, what goes wrong with a
proper one a failure in one line. The text of an unexpected error may hold values of the data; it goes to the silo's log
alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedcollab.errors import InputError
from fedcollab.silo import audit
from fedcollab.silo.audit import Audit, Entry
from fedcollab.wire import contract
from fedcollab.wire.limits import Floors
from fedcollab.wire.message import Message, pack, receive, unpack
from fedcollab.wire.serve import serve
from fedcollab.wire.silo import Silo

#: actions whose replies are made of samples and that a silo with `require_privacy` answers with noise or not at all
UPDATES = ("train", "evaluate", "losses", "cross-step", "cross-validate", "few-moments", "few-validate",
           "prototype-means", "published-step", "published-validate")  # fmt: skip
#: of these, the ones that can have noise; each answers once a run, and the same again if asked the same again
NOISY = ("few-moments", "few-validate")


class Refused(Exception):
    """What a silo will not do, and why."""


@dataclass(frozen=True)
class Served:
    """The reply; `done` says whether the action was carried out, and the silo's state is to be kept."""

    content: bytes
    done: bool


@dataclass(frozen=True)
class Guard:
    """Stands before a silo's actions."""

    log: Audit
    floors: Floors = field(default_factory=Floors)

    @classmethod
    def at(cls, folder: Path, floors: Floors) -> Guard:
        """With its log in this folder."""
        return cls(Audit(folder / audit.FILE), floors)

    def serve(self, action: str, content: bytes, silo: Silo, *, run: str = "") -> Served:
        """Have the silo do what a message asks, if it may; every reply is in the log before it is returned."""
        message: Message = {}
        outcome, why = "answered", ""
        digest = hashlib.sha256(f"{action}\x1f".encode() + content).hexdigest()
        try:
            message = self._admit(action, content)
            reply = self._again(action, digest, silo, run)
            if reply is None:
                self._limit(action, message, silo, run)
                reply = serve(action, content, silo)
                contract.check_reply(action, message, unpack(reply))
                self._remember(action, digest, reply, message, silo)
        except (Refused, InputError) as error:
            outcome, why = "refused", str(error)
            reply = pack({"refused": why})
        except Exception as error:
            outcome, why = "failed", f"{type(error).__name__}: {error}"[:500]
            reply = pack({"error": f"{type(error).__name__}; the silo's log says more"})
        try:
            self.log.add(self._entry(run, action, content, message, reply, outcome, why, digest))
        except OSError as error:
            reply = pack({"refused": f"the silo's log cannot be written ({error.strerror}), so nothing leaves it"})
            return Served(reply, done=False)
        return Served(reply, done=outcome == "answered")

    def _admit(self, action: str, content: bytes) -> Message:
        """The message, if it is what the table says."""
        if action not in contract.CONTRACTS or (self.floors.actions is not None and action not in self.floors.actions):
            raise Refused(f"this silo does not do {action[:40]!r}")
        message = unpack(content, self.floors.max_bytes)
        try:
            contract.check_message(action, message)
        except contract.Broken as error:
            raise Refused(f"the message of {action!r} is broken: {error}") from None
        return message

    def _limit(self, action: str, message: Message, silo: Silo, run: str) -> None:
        """What the administrator's floors say of a proper message."""
        self._limit_runs(run)
        if self.floors.require_privacy is not None and action in UPDATES:
            self._limit_privacy(action, message, silo, run)
        if action in LIMITS:
            LIMITS[action](message, silo, self.floors)

    def _limit_runs(self, run: str) -> None:
        most = self.floors.max_runs_per_day
        if not most:
            return
        today = audit.now()[:10]
        runs = {entry["run"] for entry in self.log.since(today) if entry["outcome"] == "answered"}
        if run not in runs and len(runs) >= most:
            raise Refused(f"this silo takes part in {most} run(s) a day, and has today")

    def _limit_privacy(self, action: str, message: Message, silo: Silo, run: str) -> None:
        wanted = self.floors.require_privacy
        assert wanted is not None
        if action not in NOISY:
            raise Refused(f"this silo requires differential privacy ({wanted}), and {action!r} has none")
        asked = _noise(action, message, silo)
        if not asked:
            raise Refused(f"this silo requires differential privacy ({wanted}); the server asks for none")
        from fedcollab.distances.privacy import spent  # what the server says of epsilon is not taken on trust

        epsilon = spent(float(asked["noise"]), wanted.delta)
        if epsilon > wanted.epsilon * (1 + 1e-9):
            raise Refused(
                f"this silo requires differential privacy ({wanted}); the noise that the server asks for gives "
                f"epsilon {epsilon:.3g}"
            )
        if any(entry["action"] == action for entry in self._answered(run)):
            raise Refused(f"{action!r} was answered in this run; another answer would spend more than {wanted}")

    def _answered(self, run: str) -> list[dict[str, object]]:
        return [entry for entry in self.log.entries() if entry["run"] == run and entry["outcome"] == "answered"]

    def _again(self, action: str, digest: str, silo: Silo, run: str) -> bytes | None:
        """The reply that went out before, if the same is asked again: new noise would be a second release."""
        kept = silo.state.get(f"released-{action}") if action in NOISY else None
        if kept is None or kept["digest"] != digest:
            return None
        known = any(entry["digest"] == digest for entry in self._answered(run))
        return bytes(kept["reply"]) if known else None

    def _remember(self, action: str, digest: str, reply: bytes, message: Message, silo: Silo) -> None:
        if action in NOISY and _noise(action, message, silo):
            import numpy as np

            silo.state[f"released-{action}"] = {"digest": digest, "reply": np.frombuffer(reply, dtype=np.uint8)}

    def _entry(
        self, run: str, action: str, content: bytes, message: Message, reply: bytes, outcome: str, why: str, digest: str
    ) -> Entry:
        known = contract.CONTRACTS.get(action)
        return Entry(
            time=audit.now(),
            run=run,
            action=action[:40],
            purpose=known.purpose if known is not None and outcome == "answered" else "nothing but this answer left",
            bytes_in=len(content),
            bytes_out=len(reply),
            received=audit.shapes(message),
            sent=audit.shapes(receive(reply)),
            partners=[name for name in message.get("coalition", []) if name != ""] if outcome == "answered" else [],
            outcome=outcome,
            why=why,
            digest=digest,
        )


# What single actions may ask of a silo. Distance methods look at `min_samples` themselves (`distances.floor`).


def _need(samples: int, floors: Floors, what: str) -> None:
    if samples < floors.min_samples:
        raise Refused(f"{what} is made of {samples} sample(s); this silo asks for at least {floors.min_samples}")


def _noise(action: str, message: Message, silo: Silo) -> Any:
    """The noise that one of the `NOISY` actions is asked to add."""
    return message.get("privacy") if action == "few-moments" else silo.state.get("few", {}).get("privacy")


def _limit_split(message: Message, silo: Silo, floors: Floors) -> None:
    from fedcollab.silo import splits

    try:
        split = json.loads(message["schema"]) if "schema" in message else message
        share, seed = float(split["test_share"]), int(split["seed"])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise Refused(f"`schema` cannot be read: {type(error).__name__}") from None
    _need(splits.training_samples(silo, share, seed), floors, "every number")
    why = splits.objection(silo, share, seed, floors)
    if why is not None:
        raise Refused(why)


def _limit_train(message: Message, silo: Silo, floors: Floors) -> None:
    members = set(message.get("coalition", []))
    if len(members) < floors.min_coalition or silo.name not in members:
        raise Refused(
            f"the coalition is {', '.join(sorted(members)) or 'not said'}; this silo asks for at least "
            f"{floors.min_coalition} clients, itself among them"
        )
    _need(len(silo.arrays.y), floors, "an update")
    _limit_setting(message, silo, floors)


def _limit_setting(message: Message, silo: Silo, floors: Floors) -> None:
    """The setting names a model and an algorithm: both must be known here, fit the weights and be of this world."""
    from fedcollab.federation.prepare import Schema
    from fedcollab.training.algorithms import make_algorithm
    from fedcollab.training.descend import Setting
    from fedcollab.training.models import size_of

    try:
        setting = Setting(**json.loads(message["setting"]))
        spec = json.loads(setting.model)
        shape, classes = tuple(spec["shape"]), spec["classes"]
        whole = all(
            type(value) is int and value >= 1 for value in (setting.batch_size, setting.epochs, *shape, classes)
        )
        proper = whole and setting.epochs <= contract.EPOCHS and 0 < float(setting.lr) < 1e6
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise Refused(f"`setting` cannot be read: {type(error).__name__}") from None
    schema = Schema.from_json(silo.state["prepare"]["schema"]) if "prepare" in silo.state else None
    if schema is None or not proper or shape != schema.shape or classes != len(schema.classes):
        raise Refused("`setting` does not fit the data that were prepared, or asks for too much")
    if any(isinstance(value, str) and ("/" in value or "\\" in value) for value in spec["options"].values()):
        raise Refused("`setting` names a file of the silo's disk")
    make_algorithm(setting.algorithm, setting.options)
    weights = message["models"][0] if "models" in message else message["w"]
    if size_of(setting.model) != len(weights):
        raise Refused(f"the model has {size_of(setting.model)} weights; the message has {len(weights)}")


def _limit_prototype(message: Message, silo: Silo, floors: Floors) -> None:
    _limit_size(message["classes"] * silo.arrays.x[0].size, floors)


def _limit_moments(message: Message, silo: Silo, floors: Floors) -> None:
    side = min(message["width"], silo.arrays.x[0].size) + 1
    _limit_size(message["folds"] * message["classes"] * side * (side + 1) // 2, floors)


def _limit_size(numbers: int, floors: Floors) -> None:
    if 8 * numbers > floors.max_bytes:
        raise Refused(f"the reply would have {numbers} numbers; this silo sends at most {floors.max_bytes} bytes")


LIMITS: dict[str, Callable[[Message, Silo, Floors], None]] = {
    "describe": _limit_split,
    "spread": _limit_split,
    "prepare": _limit_split,
    "train": _limit_train,
    "evaluate": _limit_setting,
    "losses": _limit_setting,
    "prototype-means": _limit_prototype,
    "few-moments": _limit_moments,
}
