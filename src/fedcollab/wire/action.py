"""Everything that a client will ever do, in one table: the client side of every procedure, by name.

An action is a function `(message, silo) -> reply`. It may read the silo's data and read and write the silo's state;
only its reply leaves. A procedure may also give a `together` version, `(messages, silos) -> replies`, which does the
same for many clients at once; the vectorised runtime uses it, and tests hold the two equal.

Dotted paths keep start-up light: an action's module is imported when it is first called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from fedcollab.errors import choose
from fedcollab.wire.message import Message
from fedcollab.wire.silo import Silo

Action = Callable[[Message, Silo], Message]
Together = Callable[[Mapping[str, Message], Mapping[str, Silo]], dict[str, Message]]

ACTIONS: dict[str, str] = {
    "describe": "fedcollab.federation.prepare:describe_client",
    "spread": "fedcollab.federation.prepare:spread_client",
    "prepare": "fedcollab.federation.prepare:prepare_client",
    "encode": "fedcollab.encoders.encoding:encode_client",
    "encode-spread": "fedcollab.encoders.encoding:encode_spread_client",
    "fingerprint": "fedcollab.federation.adopt:fingerprint_client",
    "train": "fedcollab.training.client:train_client",
    "evaluate": "fedcollab.training.client:evaluate_client",
    "losses": "fedcollab.training.client:losses_client",
    "cross-norm": "fedcollab.distances.methods.cross_client:norm",
    "cross-open": "fedcollab.distances.methods.cross_client:open_plan",
    "cross-step": "fedcollab.distances.methods.cross_client:step",
    "cross-validate": "fedcollab.distances.methods.cross_client:validate",
    "few-moments": "fedcollab.distances.methods.few_round_client:moments",
    "few-validate": "fedcollab.distances.methods.few_round_client:validate",
    "prototype-means": "fedcollab.distances.methods.prototype:means",
    "published-open": "fedcollab.distances.methods.published_client:open_task",
    "published-step": "fedcollab.distances.methods.published_client:step",
    "published-validate": "fedcollab.distances.methods.published_client:validate",
}

TOGETHER: dict[str, str] = {
    "train": "fedcollab.training.client:train_together",
    "evaluate": "fedcollab.training.client:evaluate_together",
    "losses": "fedcollab.training.client:losses_together",
}


def find(action: str) -> Action:
    """The client side of an action."""
    function: Action = _load(choose("action", action, ACTIONS))
    return function


def find_together(action: str) -> Together | None:
    """The version for many clients at once, where there is one."""
    return _load(TOGETHER[action]) if action in TOGETHER else None


def _load(path: str) -> Any:
    module, function = path.split(":")
    return getattr(import_module(module), function)
