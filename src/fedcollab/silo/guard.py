"""The silo protects itself: nothing is done that its limits forbid, and nothing leaves that its log does not list.

    message -> size, format, declared type, finite numbers -> limits -> the action -> the log -> reply

Whatever comes in, the silo lives on: what is wrong with a message is a refusal in one line, what goes wrong with a
proper one a failure in one line. The text of an unexpected error may hold values of the data; it goes to the silo's log
alone.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fedcollab.errors import InputError
from fedcollab.files import now
from fedcollab.silo import audit, privacy
from fedcollab.silo.audit import Audit, Entry
from fedcollab.wire.action import ACTIONS, Action, Refused, Release
from fedcollab.wire.fields import BrokenMessage
from fedcollab.wire.limits import Limits
from fedcollab.wire.message import Message, pack, receive, unpack
from fedcollab.wire.silo import Silo


@dataclass(frozen=True)
class Served:
    """The answer to one message.

    Parameters
    ----------
    content : bytes
        The reply, packed.
    done : bool
        Whether the action was carried out, so that the silo's new state is to be kept.
    """

    content: bytes
    done: bool


@dataclass(frozen=True)
class Guard:
    """Checks every message before a silo acts on it, and writes every reply to the silo's log before it leaves.

    Parameters
    ----------
    log : Audit
        The silo's own log.
    limits : Limits
        What the silo's administrator allows.
    """

    log: Audit
    limits: Limits = field(default_factory=Limits)

    @classmethod
    def at(cls, folder: Path, limits: Limits) -> Guard:
        """Return a guard whose log is in this folder."""
        return cls(Audit(folder / audit.FILE), limits)

    def serve(self, name: str, content: bytes, silo: Silo, *, run: str = "") -> Served:
        """Have the silo do what a message asks, if its limits allow it; the reply is in the log before it is returned.

        Parameters
        ----------
        name : str
            The action that the server asks for.
        content : bytes
            The message, packed.
        silo : Silo
            Data and state; the state is to be kept only if the answer's `done` is true.
        run : str
            The id of the run that the message belongs to.

        Returns
        -------
        Served
            The reply, a refusal, or the notice of a failure.
        """
        message: Message = {}
        outcome, why = "answered", ""
        digest = hashlib.sha256(f"{name}\x1f".encode() + content).hexdigest()
        try:
            action = self._find(name)
            message = self._admit(action, content)
            reply = self._again(action, digest, silo, run)
            if reply is None:
                self._limit(action, message, silo, run)
                answer = action(message, silo)
                action.check_reply(message, answer)
                reply = pack(answer)
                self._remember(action, digest, reply, message, silo)
        except InputError as error:
            outcome, why = "refused", str(error)
            reply = pack({"refused": why})
        except Exception as error:
            outcome, why = "failed", f"{type(error).__name__}: {error}"[:500]
            reply = pack({"error": f"{type(error).__name__}; the silo's log says more"})
        try:
            self.log.add(self._entry(run, name, content, message, reply, outcome, why, digest))
        except OSError as error:
            reply = pack({"refused": f"the silo's log cannot be written ({error.strerror}), so nothing leaves it"})
            return Served(reply, done=False)
        return Served(reply, done=outcome == "answered")

    def _find(self, name: str) -> Action:
        if name not in ACTIONS or (self.limits.actions is not None and name not in self.limits.actions):
            raise Refused(f"this silo does not do {name[:40]!r}")
        return ACTIONS[name]

    def _admit(self, action: Action, content: bytes) -> Message:
        """Return the message, if it is of the type that the action declares."""
        message = unpack(content, self.limits.max_bytes)
        try:
            action.check_message(message)
        except BrokenMessage as error:
            raise Refused(f"the message of {action.name!r} is broken: {error}") from None
        return message

    def _limit(self, action: Action, message: Message, silo: Silo, run: str) -> None:
        """Refuse a proper message that the administrator's limits forbid."""
        self._limit_runs(run)
        if self.limits.require_privacy is not None:
            self._limit_privacy(action, message, silo, run)
        if action.limit is not None:
            action.limit(message, silo, self.limits)

    def _limit_runs(self, run: str) -> None:
        most = self.limits.max_runs_per_day
        if not most:
            return
        today = now()[:10]
        runs = {entry["run"] for entry in self.log.since(today) if entry["outcome"] == "answered"}
        if run not in runs and len(runs) >= most:
            raise Refused(f"this silo takes part in {most} run(s) a day, and has today")

    def _limit_privacy(self, action: Action, message: Message, silo: Silo, run: str) -> None:
        """Refuse whatever reveals statistics of samples without enough noise."""
        wanted = self.limits.require_privacy
        assert wanted is not None
        if action.release in (Release.NOTHING, Release.SUMMARY):
            return
        if action.noise is None:
            raise Refused(f"this silo requires differential privacy ({wanted}), and {action.name!r} has none")
        asked = action.noise(message, silo)
        if not asked:
            raise Refused(f"this silo requires differential privacy ({wanted}); the server asks for none")
        epsilon = privacy.spent(float(asked["noise"]), wanted.delta)  # what the server says of epsilon is not trusted
        if epsilon > wanted.epsilon * (1 + 1e-9):
            raise Refused(
                f"this silo requires differential privacy ({wanted}); the noise that the server asks for gives "
                f"epsilon {epsilon:.3g}"
            )
        if any(entry["action"] == action.name for entry in self._answered(run)):
            raise Refused(f"{action.name!r} was answered in this run; another answer would spend more than {wanted}")

    def _answered(self, run: str) -> list[dict[str, object]]:
        return [entry for entry in self.log.entries() if entry["run"] == run and entry["outcome"] == "answered"]

    def _again(self, action: Action, digest: str, silo: Silo, run: str) -> bytes | None:
        """Return the reply that was sent before, if the same is asked again: new noise would be a second release."""
        kept = silo.state.get(f"released-{action.name}") if action.noise is not None else None
        if kept is None or kept["digest"] != digest:
            return None
        known = any(entry["digest"] == digest for entry in self._answered(run))
        return bytes(kept["reply"]) if known else None

    def _remember(self, action: Action, digest: str, reply: bytes, message: Message, silo: Silo) -> None:
        if action.noise is not None and action.noise(message, silo):
            silo.state[f"released-{action.name}"] = {"digest": digest, "reply": np.frombuffer(reply, dtype=np.uint8)}

    def _entry(
        self, run: str, name: str, content: bytes, message: Message, reply: bytes, outcome: str, why: str, digest: str
    ) -> Entry:
        answered = outcome == "answered"
        return Entry(
            time=now("milliseconds"),
            run=run,
            action=name[:40],
            purpose=ACTIONS[name].purpose if answered else "nothing but this answer left",
            bytes_in=len(content),
            bytes_out=len(reply),
            received=audit.shapes(message),
            sent=audit.shapes(receive(reply)),
            partners=[name for name in message.get("coalition", []) if name != ""] if answered else [],
            outcome=outcome,
            why=why,
            digest=digest,
        )
