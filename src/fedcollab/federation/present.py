"""The clients that still answer while a federation is prepared, and sums over their replies."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcollab.errors import FedcollabWarning, Paused
from fedcollab.federation.plausible import far_off, too_narrow
from fedcollab.wire.absence import reasons
from fedcollab.wire.action import Action
from fedcollab.wire.message import Message
from fedcollab.wire.runtime import Runtime

Moments = tuple[NDArray[np.float64], NDArray[np.float64]]  # a mean each, and how many values it is of


@dataclass
class Present:
    """The clients that are asked; one that does not answer is left out from then on.

    Parameters
    ----------
    runtime : Runtime
        Carries the messages.
    names : tuple of str
        The clients that are asked.
    left_out : dict of str to str
        The clients that were asked and did not answer, with the reason.
    """

    runtime: Runtime
    names: tuple[str, ...]
    left_out: dict[str, str]

    def ask(self, action: Action, message: Message) -> dict[str, Message]:
        """Send every client the same message and return the replies.

        Parameters
        ----------
        action : Action
            What to do.
        message : dict
            The message.

        Raises
        ------
        Paused
            If fewer than two clients are left.
        """
        replies = self.runtime.call(action, dict.fromkeys(self.names, message), partial=True)
        self.leave_out(self.runtime.absent)
        return replies

    def leave_out(self, absent: Mapping[str, str]) -> None:
        """Go on without clients that did not answer.

        Parameters
        ----------
        absent : mapping
            The reason for each of them.

        Raises
        ------
        Paused
            If fewer than two clients are left.
        """
        if not absent:
            return
        self.names = tuple(name for name in self.names if name not in absent)
        self.left_out |= absent
        if len(self.names) < 2:
            raise Paused(f"{len(self.names)} client(s) left, 2 must be: {reasons(absent)}")
        warnings.warn(f"left out: {reasons(absent)}", FedcollabWarning, stacklevel=5)

    def variance(
        self,
        described: Mapping[str, Message],
        moments: Callable[[Mapping[str, Message]], Moments],
        action: Action,
        message: Message,
    ) -> tuple[dict[str, Message], NDArray[np.float64], NDArray[np.float64]]:
        """Return means and variances over the clients that answer two rounds.

        If a client is lost in the second round, the round is asked again with the means of the others.

        Parameters
        ----------
        described : mapping
            The replies of the first round.
        moments : callable
            The means that these replies give, and how many values each is of.
        action, message : Action, Message
            The second round; the means are added to its message, and its replies hold `squares`.

        Returns
        -------
        described : dict
            The replies of the first round of the clients that answered both.
        mean, variance : array
            Over these clients.
        """
        own = {name: moments({name: reply}) for name, reply in described.items()}
        doubtful = far_off({name: mean for name, (mean, _) in own.items()}) if self.runtime.checks else {}
        self.leave_out(doubtful)
        described = {name: reply for name, reply in described.items() if name not in doubtful}
        while True:
            mean, count = moments(described)
            replies = self.ask(action, {**message, "mean": mean})
            if self.runtime.checks:
                doubtful = _doubtful(mean, {name: own[name] for name in replies}, replies)
                self.leave_out(doubtful)
                replies = {name: reply for name, reply in replies.items() if name not in doubtful}
            if len(replies) == len(described):
                return dict(described), mean, total(replies, "squares") / np.maximum(count, 1)
            described = {name: reply for name, reply in described.items() if name in replies}


def _doubtful(mean: NDArray[np.float64], own: Mapping[str, Moments], replies: Mapping[str, Message]) -> dict[str, str]:
    """Return the clients whose squared deviations contradict their own means, or dwarf those of everyone else."""
    narrow = {
        name: "`squares` contradict the sums that it gave before"
        for name, reply in replies.items()
        if too_narrow(mean, own[name][0], own[name][1], reply["squares"])
    }
    rest = {name: reply["squares"] / np.maximum(own[name][1], 1) for name, reply in replies.items()}
    means = {name: own[name][0] for name in replies}
    return {**far_off({name: 0 * value for name, value in means.items()}, rest), **narrow}


def total(replies: Mapping[str, Message], key: str) -> NDArray[np.float64]:
    """Return the sum of one field of all replies, added in order of client name so that rounding is always the same."""
    summed: NDArray[np.float64] = np.sum([replies[name][key] for name in sorted(replies)], axis=0, dtype=np.float64)
    return summed


def deviation(variance: NDArray[np.float64], mean: NDArray[np.float64]) -> tuple[float, ...]:
    """Return standard deviations; 1 for a constant, which scaling must leave alone.

    Parameters
    ----------
    variance, mean : array
        Of each feature. A constant's variance may be a little above 0, by rounding: the smaller the mean, the less.
    """
    deviation = np.sqrt(variance)
    return tuple(np.where(deviation > 1e-12 * np.minimum(1.0, np.abs(mean)), deviation, 1.0).tolist())
