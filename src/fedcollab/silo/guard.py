"""The silo protects itself: nothing is done that its limits forbid, and nothing leaves that its log does not list.

    message -> size, format, declared type, finite numbers -> plan, budget -> limits -> the action -> the log -> reply

Whatever comes in, the silo lives on: what is wrong with a message is a refusal in one line, what goes wrong with a
proper one a failure in one line. The text of an unexpected error may hold values of the data; it goes to the silo's log
alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedcollab.errors import InputError
from fedcollab.files import now
from fedcollab.silo import audit, privacy
from fedcollab.silo.audit import Audit, Entry
from fedcollab.silo.plans import STEPS, UPDATES, Approved, total_cost
from fedcollab.wire.action import ACTIONS, SPENDS, Action, Refused, Release
from fedcollab.wire.fields import BrokenMessage
from fedcollab.wire.limits import Limits
from fedcollab.wire.message import Message, pack, receive, unpack
from fedcollab.wire.silo import Agreed, Silo

#: K of `silo.rounding`, by what a question costs; where a silo's limits allow very many, this part of them
EXACT, PARTS = {"models": 20, "rounds": 200}, {"models": 15, "rounds": 6}
#: what a silo keeps that changes the answer to a question beside the schema, by how the action's name begins
CONTEXT = {"few-validate": "few", "cross-": "cross", "published-": "published"}


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
    plans : sequence of Approved
        The plans that the administrator has approved, the newest last.
    """

    log: Audit
    limits: Limits = field(default_factory=Limits)
    plans: Sequence[Approved] = ()

    @classmethod
    def at(cls, folder: Path, limits: Limits, plans: Sequence[Approved] = ()) -> Guard:
        """Return a guard whose log is in this folder."""
        return cls(Audit(folder / audit.FILE), limits, plans)

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
        plan: Approved | None = None
        cost: dict[str, int] = {}
        digest = hashlib.sha256(f"{name}\x1f".encode() + _context(name, silo) + content).hexdigest()
        try:
            action = self._find(name)
            message = self._admit(action, content)
            digest = silo.question = _with_state(action, message, silo, digest)
            plan = self._plan(action, message, silo)
            silo.agreed = Agreed() if plan is None else plan.plan.agreed
            reply = self._again(action, digest, silo)
            if reply is None:
                cost, silo.coarseness = self._cost(action, message, digest, silo, plan)
                self._limit(action, message, silo, run, plan)
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
            entry = self._entry(run, name, content, message, reply, outcome, why, digest)
            if outcome == "answered" or cost:  # a refusal by what the samples are tells something too
                part = "" if plan is None else plan.plan.part(ACTIONS[name])
                entry = replace(entry, plan="" if plan is None else plan.plan.digest, step=part, cost=cost)
            self.log.add(entry)
        except OSError as error:
            reply = pack({"refused": f"the silo's log cannot be written ({error.strerror}), so nothing leaves it"})
            return Served(reply, done=False)
        return Served(reply, done=outcome == "answered")

    def _now(self) -> str:
        """Return the time, never one before the newest entry's: budgets are counted by time, and clocks may go back."""
        return max(now("milliseconds"), self.log.latest())

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

    def _plan(self, action: Action, message: Message, silo: Silo) -> Approved | None:
        """Return the approved plan that a message belongs to, or None where the silo requires none."""
        objections: dict[bool, str] = {}  # the newest plan's, by whether it has such a step: there it says more
        for approved in reversed(self.plans):
            early = approved.approved > self._now()
            why = "the plan was approved later than this silo's clock shows: it must be set" if early else None
            why = why or approved.plan.objection(action, message, silo.name)
            if why is None:
                return approved
            objections.setdefault(action.step in STEPS[approved.plan.kind], why)
        if not self.limits.updates_for_distances and action.name.startswith(UPDATES):
            raise Refused(
                f"{action.name!r} belongs to a distance that sends updates of models which the server chooses; this "
                "silo does so in an approved plan that names it (or with `updates_for_distances = true` in its limits)"
            )
        if self.limits.require_plan:
            none = "; none is approved: `fedcollab federation plan` makes one, its administrator approves it"
            known = f": {objections.get(True, objections.get(False))}" if objections else none
            raise Refused(f"{action.name!r} is in no plan that this silo has approved{known}")
        return None

    def _cost(
        self, action: Action, message: Message, digest: str, silo: Silo, plan: Approved | None
    ) -> tuple[dict[str, int], float]:
        """Return what a message takes from the budget, and how coarse its answer is; refuse it where that is spent.

        The same message again costs nothing, and its answer is as coarse as it was.
        """
        cost = {kind: int(amount) for kind, amount in action.cost(message, silo).items() if amount}
        if not cost:
            return {}, 1.0
        entries = self._entries(plan)  # the newest first
        before = [place for place, each in enumerate(entries) if each["digest"] == digest and _is_answered(each)]
        if before:
            return {}, self._coarseness(cost, total_cost(entries[before[-1] :]))
        spent = total_cost(entries)
        budget = self.limits.budget if plan is None else plan.plan.allowed(self.limits.budget)
        for kind, amount in cost.items():
            if spent[kind] + amount > budget[kind]:
                whose = "today, without a plan," if plan is None else f"the plan {plan.plan.digest[:12]}"
                raise Refused(
                    f"{whose} allows {budget[kind]} {SPENDS[kind]}; {spent[kind]} are spent, and "
                    f"{action.name!r} asks for {amount} more"
                )
            spent[kind] += amount
        return cost, self._coarseness(cost, spent)

    def _coarseness(self, cost: Mapping[str, int], spent: Mapping[str, int]) -> float:
        """Return f of `silo.rounding` for a message of this cost, after which so much of a plan is spent."""
        most = self.limits.budget
        found = [1 + spent[kind] / max(EXACT[kind], most[kind] / PARTS[kind]) for kind in cost if kind in EXACT]
        return max(found, default=1.0)

    def spent(self, plan: Approved | None) -> dict[str, int]:
        """Return what was spent of a plan's budget, by kind, as the log has it.

        Parameters
        ----------
        plan : Approved or None
            The plan; None for what was answered today without one.

        Returns
        -------
        dict
            Amounts by the keys of `wire.action.SPENDS`.
        """
        return total_cost(self._entries(plan))

    def _counted(self, plan: Approved | None) -> list[dict[str, Any]]:
        """Return the answered entries of a plan's log, or of today's."""
        return [entry for entry in self._entries(plan) if _is_answered(entry)]

    def _entries(self, plan: Approved | None) -> list[dict[str, Any]]:
        """Return the entries of the log that count against a plan's budget, or against today's, refusals included."""
        since, wanted = (self._now()[:10], "") if plan is None else (plan.approved, plan.plan.digest)
        return [entry for entry in self.log.since(since) if entry.get("plan", "") == wanted]

    def _limit(self, action: Action, message: Message, silo: Silo, run: str, plan: Approved | None) -> None:
        """Refuse a proper message that the administrator's limits forbid."""
        self._limit_runs(run)
        if self.limits.require_privacy is not None:
            self._limit_privacy(action, message, silo, plan)
        if action.limit is not None:
            action.limit(message, silo, self.limits)

    def _limit_runs(self, run: str) -> None:
        most = self.limits.max_runs_per_day
        if not most:
            return
        today = self._now()[:10]
        runs = {entry["run"] for entry in self.log.since(today) if entry["outcome"] == "answered"}
        if run not in runs and len(runs) >= most:
            raise Refused(f"this silo takes part in {most} run(s) a day, and has today")

    def _limit_privacy(self, action: Action, message: Message, silo: Silo, plan: Approved | None) -> None:
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
        if any(entry["action"] == action.name for entry in self._counted(plan)):
            when = "today" if plan is None else "in this plan"
            raise Refused(f"{action.name!r} was answered {when}; another answer would spend more than {wanted}")

    def _again(self, action: Action, digest: str, silo: Silo) -> bytes | None:
        """Return the reply that was sent before, if the same is asked again: new noise would be a second release."""
        kept = silo.state.get(f"released-{action.name}") if action.noise is not None else None
        if kept is None or kept["digest"] != digest:
            return None
        known = any(entry["digest"] == digest and entry["outcome"] == "answered" for entry in self.log.entries())
        return bytes(kept["reply"]) if known else None

    def _remember(self, action: Action, digest: str, reply: bytes, message: Message, silo: Silo) -> None:
        if action.noise is not None and action.noise(message, silo):
            silo.state[f"released-{action.name}"] = {"digest": digest, "reply": np.frombuffer(reply, dtype=np.uint8)}

    def _entry(
        self, run: str, name: str, content: bytes, message: Message, reply: bytes, outcome: str, why: str, digest: str
    ) -> Entry:
        answered = outcome == "answered"
        return Entry(
            time=self._now(),
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


def _with_state(action: Action, message: Message, silo: Silo, digest: str) -> str:
    """Return the digest of a message together with what of the silo's state its answer depends on."""
    read = [] if action.reads is None else [part for part in action.reads(message, silo) if part is not None]
    return hashlib.sha256(digest.encode() + b"".join(map(pack, read))).hexdigest() if read else digest


def _is_answered(entry: Mapping[str, Any]) -> bool:
    return bool(entry["outcome"] == "answered")


def _context(name: str, silo: Silo) -> bytes:
    """Return what the answer to a message depends on beside it: the data, the schema, and the plan of a distance."""
    slots = ["prepare", *(slot for begins, slot in CONTEXT.items() if name.startswith(begins))]
    changed = name == "prepare" or name.endswith("-open")
    kept = [] if changed else [pack({slot: silo.state[slot]}) for slot in slots if slot in silo.state]
    return silo.version.encode() + b"".join(kept)
