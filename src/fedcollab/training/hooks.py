"""What makes one federated algorithm differ from another: the hooks, and their defaults, which are FedAvg.

A hook works on flat weights: tensors of shape [K, P], one row a client. On a silo K is 1; the vectorised runtime stacks
many clients, and the same lines serve both. Clients take different numbers of steps, so `step` may see only the first
rows of the stack; it changes `w` and `state` in place and never mixes rows.

    server side   server_init -> broadcast -> ... -> aggregate         sees replies alone
    client side   client_init -> begin -> step, step, ... -> reply; personal   sees the client's batches

A hook does no I/O, no logging, and never chooses a device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from torch import Tensor

from fedcollab.errors import InputError, choose, number, unknown

if TYPE_CHECKING:
    from fedcollab.training.batches import Batch
    from fedcollab.training.gradient import Gradient

State = dict[str, Tensor]
Batches = Callable[[int], "Iterable[Batch]"]


@dataclass(frozen=True)
class Algorithm:
    """FedAvg's hooks. A subclass overrides the one that makes it different; its fields are its options.

    alone           every client is a coalition of its own
    personalises    `personal` gives each client a model of its own, evaluated beside its coalition's
    """

    alone: ClassVar[bool] = False
    personalises: ClassVar[bool] = False

    # server side

    def server_init(self, w0: Tensor) -> State:
        """What the server keeps for a coalition; `w` is the coalition's model, of shape [P]."""
        return {"w": w0}

    def broadcast(self, server: State) -> State:
        """What each client of the coalition is sent."""
        return {"w": server["w"]}

    def aggregate(self, server: State, replies: Sequence[State], weights: Sequence[float]) -> State:
        """The coalition's next state, from replies in order of client name; `weights` sum to 1."""
        return {**server, "w": average([reply["w"] for reply in replies], weights)}

    # client side

    def client_init(self, message: State) -> State:
        """What a client keeps between rounds, made when it first takes part."""
        return {}

    def begin(self, message: State, state: State) -> Tensor:
        """Where local training starts: new weights, not the message's own."""
        return message["w"].clone()

    def step(self, w: Tensor, message: State, state: State, grad: Gradient, batch: Batch) -> None:
        """One local step on one batch."""
        grad.descend(w, batch)

    def reply(self, w: Tensor, message: State, state: State, steps: Tensor, lr: float) -> State:
        """What is sent back; `steps` has shape [K, 1]. `state` may be changed in place."""
        return {"w": w}

    def personal(self, message: State, state: State, grad: Gradient, batches: Batches) -> Tensor:
        """The client's own model. `batches(n)` gives n batches of its training data."""
        return message["w"]

    # how it travels in messages

    def options(self) -> dict[str, Any]:
        """The algorithm's options, as JSON values."""
        return asdict(self)


A = TypeVar("A", bound=type[Algorithm])
ALGORITHMS: dict[str, type[Algorithm]] = {}


def register(name: str) -> Callable[[A], A]:
    """Class decorator: make an algorithm known by a name, so that messages and users can say it."""

    def add(algorithm: A) -> A:
        ALGORITHMS[name] = algorithm
        return algorithm

    return add


def make_algorithm(algorithm: str | Algorithm, options: Mapping[str, Any] | None = None) -> tuple[str, Algorithm]:
    """An algorithm and its registered name, from a name with options or from an object.

    An object of a class that was never registered is registered here under its class name.
    """
    if isinstance(algorithm, Algorithm):
        if options:
            raise InputError(f"`options` (={dict(options)!r}) goes with an algorithm's name; the object has its own")
        name = next((key for key, known in ALGORITHMS.items() if known is type(algorithm)), type(algorithm).__name__)
        ALGORITHMS[name] = type(algorithm)
        return name, algorithm
    if not isinstance(algorithm, str):
        raise InputError(f"`algorithm` (={algorithm!r}) must be a name or an object of a subclass of Algorithm")
    known = choose("algorithm", algorithm, ALGORITHMS)
    check_options(f"algorithm '{algorithm}'", options or {}, {field.name: field.default for field in fields(known)})
    return algorithm, known(**(options or {}))


def check_options(where: str, options: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Every option must be known; one whose default is a number must be a number of at least 0."""
    for key, value in options.items():
        if key not in defaults:
            has = unknown("option", key, defaults) if defaults else f"`option` (={key!r}): it has none"
            raise InputError(f"{where}: {has}")
        if isinstance(defaults[key], (int, float)):
            number(key, value, at_least=0, whole=isinstance(defaults[key], int))


def average(values: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """The weighted sum, in the order given (order of client name), so that the order of clients never matters."""
    total = values[0] * weights[0]
    for value, weight in zip(values[1:], weights[1:], strict=True):
        total.add_(value, alpha=weight)
    return total
