"""Everything that a client will ever do for a server is an action, declared once, beside the function that does it.

    @action("spread", purpose="said how far each column is spread: sums of squares", release=Release.SUMMARY,
            step=Step.SCHEMA, limit=None, cost=free)
    def spread(message: SpreadMessage, silo: Silo) -> SpreadReply: ...

An action may read the silo's data and read and write the silo's state; only its reply leaves. The declaration is all
there is to know about it: the silo's guard checks messages against its types, applies its limits and decides by its
`release` what differential privacy demands; its `step` says which part of an approved plan it belongs to, its `cost`
what a message takes from that plan's budget; the log quotes its purpose; the vectorised runtime calls its stacked
version. An action that is not declared cannot be called. Release, step, limit and cost have no defaults: whoever adds
an action decides.

    cost=free                                              nothing: the reply tells no more however often it is asked
    cost=lambda message, silo: {"models": len(message["models"])}          each model's measure is an answer about rows
    cost=lambda message, silo: {"rounds": 1, "repeats": message["folds"]}  an update, on rows divided in a new way
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from enum import Enum
from typing import Any, TypedDict, get_type_hints

from fedcollab.errors import InputError, choose
from fedcollab.wire.fields import BrokenMessage, Checks, check
from fedcollab.wire.limits import Limits
from fedcollab.wire.message import Message
from fedcollab.wire.silo import Silo

Function = Callable[[Any, Silo], Any]
Stacked = Callable[[Mapping[str, Any], Mapping[str, Silo]], dict[str, Any]]
Limit = Callable[[Any, Silo, Limits], None]
Reads = Callable[[Any, Silo], list[Any]]
Spending = Callable[[Any, Silo], Mapping[str, int]]


#: what a plan's budget counts, and its words
SPENDS = {
    "models": "models tested on its samples",
    "repeats": "ways of dividing its samples into folds",
    "rounds": "updates computed from its samples",
    "schemas": "schemas taken over",
}


class Step(Enum):
    """The part of a plan that an action belongs to, in the words of a review.

    `ROUNDS` is the training of models on folds, by which the number of rounds is chosen (in a train plan) and
    candidates are compared (in a look that has candidates): updates of a part of the samples leave, and one measure a
    round over the rest.
    """

    CHECK = "data check"
    SCHEMA = "schema"
    DISTANCES = "distances"
    ADVICE = "advice"
    ROUNDS = "choice of rounds"
    TRAINING = "training"
    TESTING = "testing"


def free(message: Any, silo: Silo) -> Mapping[str, int]:
    """Return the cost of a message whose reply tells nothing more about samples however often it is asked."""
    return {}


class Empty(TypedDict):
    """A message or reply without fields."""


class Release(Enum):
    """What an action's reply reveals about the client's samples."""

    #: nothing: the reply does not depend on them, or only through a keyed checksum
    NOTHING = "nothing about samples"
    #: counts, sums and categories over all samples, which agreeing on a schema needs; never covered by noise
    SUMMARY = "counts, sums and categories over all samples"
    #: statistics to which the client adds noise where differential privacy is asked for
    NOISED = "statistics of samples, with noise where privacy is required"
    #: statistics or model weights computed from samples, without noise
    EXACT = "statistics or weights computed from samples, without noise"


@dataclass(frozen=True, eq=False)
class Action:
    """One thing that a client can be asked to do.

    Parameters
    ----------
    name, purpose, release, step, cost, limit, consistent, noise, stacked, reads
        As in `action`.
    function : callable
        The client's side: (message, silo) to reply.
    message, reply : type
        The types of message and reply, from the function's annotations.
    """

    name: str
    purpose: str
    release: Release
    function: Function
    message: Any
    reply: Any
    step: Step
    cost: Spending
    limit: Limit | None = None
    consistent: Callable[[Any, Any], str | None] | None = None
    noise: Callable[[Any, Silo], Mapping[str, float] | None] | None = None
    stacked: Stacked | None = None
    reads: Reads | None = None

    def __call__(self, message: Message, silo: Silo) -> Message:
        """Carry the action out at one silo and return the reply."""
        given: Any = self.message(**message) if is_dataclass(self.message) else message  # type: ignore[operator]
        reply: Message = self.function(given, silo)
        return reply

    def check_message(self, message: Message) -> Checks:
        """Check a message against the declared type.

        Parameters
        ----------
        message : dict
            The message.

        Returns
        -------
        dict
            The lengths that the letters of the message type stand for in this message (see `fields`).

        Raises
        ------
        BrokenMessage
            If the message is not of the declared type.
        """
        lengths: Checks = {}
        check(self.message, message, lengths)
        return lengths

    def check_reply(self, message: Message, reply: Message) -> None:
        """Check that a reply is of the declared type and belongs to its message.

        Parameters
        ----------
        message : dict
            The message that was sent.
        reply : dict
            What came back.

        Raises
        ------
        BrokenMessage
            If it is not.
        InputError
            If the message itself is not of the declared type, which is the server's own mistake.
        """
        try:
            lengths = self.check_message(message)
        except BrokenMessage as error:
            raise InputError(f"the server's own message of `{self.name}` is not what it declares: {error}") from None
        check(self.reply, reply, lengths)
        wrong = None if self.consistent is None else self.consistent(message, reply)
        if wrong is not None:
            raise BrokenMessage(wrong)


ACTIONS: dict[str, Action] = {}


def action(
    name: str,
    *,
    purpose: str,
    release: Release,
    step: Step,
    limit: Limit | None,
    cost: Spending,
    consistent: Callable[[Any, Any], str | None] | None = None,
    noise: Callable[[Any, Silo], Mapping[str, float] | None] | None = None,
    stacked: Stacked | None = None,
    reads: Reads | None = None,
) -> Callable[[Function], Action]:
    """Declare an action. The types of its message and reply are those of the function's annotations.

    A function whose message is a dataclass is given one; any other gets the message as a dict.

    Parameters
    ----------
    name : str
        The action's name in messages and in the silo's log.
    purpose : str
        What was done, in words for the silo's administrator.
    release : Release
        What the reply reveals about samples. There is no default: whoever adds an action must decide.
    step : Step
        The part of a plan that the action belongs to; a silo that requires plans serves it in such a part alone.
    limit : callable or None
        `(message, silo, limits)`; raises `Refused` where the silo's limits forbid what a proper message asks. None
        where nothing that a message could ask needs a limit.
    cost : callable
        `(message, silo)`; what the message takes from the plan's budget, by the keys of `SPENDS`. `free` for nothing.
    consistent : callable, optional
        `(message, reply)`; what is wrong between fields, or None.
    noise : callable, optional
        `(message, silo)`; the noise that the server asks for. Belongs to `Release.NOISED`, and to it alone.
    stacked : callable, optional
        `(messages, silos)`; the same for many clients at once, held equal to the function by tests.
    reads : callable, optional
        `(message, silo)`; what of the silo's state the answer depends on, as messages: the same message is the same
        question, which costs nothing, as long as these are the same.

    Returns
    -------
    callable
        A decorator that turns the function into an `Action` and adds it to `ACTIONS`.

    Raises
    ------
    ValueError
        If the name is taken, or `noise` and `release` contradict each other.
    """
    if name in ACTIONS:
        raise ValueError(f"action {name!r} is declared twice")
    if (noise is not None) != (release is Release.NOISED):
        raise ValueError(f"action {name!r}: `noise` belongs to Release.NOISED")

    def declare(function: Function) -> Action:
        hints = get_type_hints(function, include_extras=True)
        declared = Action(
            name,
            purpose,
            release,
            function,
            hints["message"],
            hints["return"],
            step,
            cost,
            limit,
            consistent,
            noise,
            stacked,
            reads,
        )
        ACTIONS[name] = declared
        return declared

    return declare


def find(wanted: Action | str) -> Action:
    """Return the action of this name; an `Action` is returned as it is.

    Parameters
    ----------
    wanted : Action or str
        An action or its name.

    Returns
    -------
    Action
        The action.

    Raises
    ------
    InputError
        If no action has that name.
    """
    return wanted if isinstance(wanted, Action) else choose("action", wanted, ACTIONS)


class Refused(InputError):
    """Raised where a silo refuses what it is asked to do; the text says why."""


def require_samples(samples: int, limits: Limits, what: str) -> None:
    """Refuse to send numbers that are made of fewer samples than the silo's limit.

    Parameters
    ----------
    samples : int
        How many samples the numbers are made of.
    limits : Limits
        The silo's limits.
    what : str
        What would be sent, for the error message.

    Raises
    ------
    Refused
        If there are too few samples.
    """
    if samples < limits.min_samples:
        raise Refused(f"{what} is made of {samples} sample(s); this silo asks for at least {limits.min_samples}")


def require_tests(samples: int, limits: Limits, what: str) -> None:
    """Refuse to send measures that are made of fewer test samples than the silo's limit.

    Parameters
    ----------
    samples : int
        How many test samples the measures are made of.
    limits : Limits
        The silo's limits.
    what : str
        What would be sent, for the error message.

    Raises
    ------
    Refused
        If there are too few.
    """
    if samples < limits.min_test:
        raise Refused(f"{what} is made of {samples} test sample(s); this silo asks for at least {limits.min_test}")


def require_size(numbers: int, limits: Limits) -> None:
    """Refuse a reply that would be larger than the silo's limit.

    Parameters
    ----------
    numbers : int
        How many numbers the reply would hold, counted with 8 bytes each.
    limits : Limits
        The silo's limits.

    Raises
    ------
    Refused
        If the reply would be too large.
    """
    if 8 * numbers > limits.max_bytes:
        raise Refused(f"the reply would have {numbers} numbers; this silo sends at most {limits.max_bytes} bytes")
