"""How clients are called: by name, for all of them or some, for one action or several in the same round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedcollab.wire.action import Action


@dataclass(frozen=True, eq=False)
class Answered:
    """What one call brought back.

    Parameters
    ----------
    replies : dict
        The reply of each client that answered, in order of name.
    absent : mapping of str to str
        Who did not answer, and why.
    """

    replies: dict[str, dict[str, Any]]
    absent: Mapping[str, str]


class Calls(ABC):
    """Clients that can be called: those of a runtime, and those of a federation, which are prepared."""

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """Return the clients' names in order."""

    @abstractmethod
    def call_several(
        self, calls: Sequence[tuple[Action | str, Mapping[str, Any]]], *, partial: bool = False
    ) -> list[Answered]:
        """Have clients carry several actions out in one round: where a round costs seconds, in one message each.

        Parameters
        ----------
        calls : sequence of (Action or str, mapping)
            Each action, with a message for each client.
        partial : bool
            As in `call`.

        Returns
        -------
        list of Answered
            For each call the replies, and who did not answer.

        Raises
        ------
        InputError, Paused
            As in `call`.
        """

    def call(
        self, action: Action | str, messages: Mapping[str, Any], *, partial: bool = False
    ) -> dict[str, dict[str, Any]]:
        """Have each of the named clients carry an action out: one round.

        Parameters
        ----------
        action : Action or str
            What to do, or its name.
        messages : mapping
            A message for each client.
        partial : bool
            Return the replies of those who answered, as long as they are a quorum.

        Returns
        -------
        dict
            The reply of each client that answered, in order of name.

        Raises
        ------
        InputError
            If a name is not a client's.
        Paused
            If too few clients answered.
        """
        (answered,) = self.call_several([(action, messages)], partial=partial)
        return answered.replies

    def call_all(self, action: Action | str, message: Any, *, partial: bool = False) -> dict[str, dict[str, Any]]:
        """Call every client with the same message; see `call`.

        Parameters
        ----------
        action : Action or str
            What to do, or its name.
        message : dict
            The message.
        partial : bool
            As in `call`.
        """
        return self.call(action, dict.fromkeys(self.names, message), partial=partial)
