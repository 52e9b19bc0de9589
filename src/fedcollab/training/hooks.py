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
    """Base class of algorithms; its hooks are FedAvg's.

    A subclass overrides the hooks that make it different; its dataclass fields are its options.

    Attributes
    ----------
    alone : bool
        Whether every client is a coalition of its own.
    personalises : bool
        Whether `personal` gives each client a model of its own, evaluated beside its coalition's.
    keep : tuple of str
        Names of parameters that stay with each client, as in `fedcollab.train`.
    plain_steps : bool
        Whether all that it knows of a local step is that weights change; if it is False only SGD takes its steps.
    additive : bool
        Whether `aggregate` needs no more of the replies than their weighted mean, array by array; secure aggregation
        gives the server nothing else.
    weighted : bool
        Whether each client's model learns from all clients by given weights, instead of from its coalition.
    averaged : tuple of str
        Keys of a client's state that are personal models, of which a mean over rounds is used (see `averaging`).
    replies : mapping of str to str
        What a reply must hold beside the weights: "weights" for as many numbers, "count" for one of at least 1.

    Examples
    --------
    >>> @dataclass(frozen=True)
    ... class Proximal(Algorithm):
    ...     mu: float = 0.1
    ...     def step(self, w, message, state, grad, batch):
    ...         grad.descend(w, batch, self.mu * (w - message["w"]))
    >>> Proximal().options()
    {'mu': 0.1}
    """

    alone: ClassVar[bool] = False
    personalises: ClassVar[bool] = False
    keep: ClassVar[tuple[str, ...]] = ()
    averaged: ClassVar[tuple[str, ...]] = ()
    plain_steps: ClassVar[bool] = True
    additive: ClassVar[bool] = True
    weighted: ClassVar[bool] = False
    replies: ClassVar[Mapping[str, str]] = {}

    # server side

    def server_init(self, w0: Tensor) -> State:
        """Return what the server keeps for a coalition.

        Parameters
        ----------
        w0 : Tensor
            The initial weights, of shape [P].

        Returns
        -------
        dict of Tensor
            At least `w`, the coalition's model.
        """
        return {"w": w0}

    def broadcast(self, server: State) -> State:
        """Return what each client of a coalition is sent, given the server's state for that coalition."""
        return {"w": server["w"]}

    def aggregate(self, server: State, replies: Sequence[State], weights: Sequence[float]) -> State:
        """Return a coalition's next state.

        Parameters
        ----------
        server : dict of Tensor
            The coalition's state.
        replies : sequence of dict of Tensor
            What its clients sent back, in order of client name.
        weights : sequence of float
            What each reply weighs, by quantity; they sum to 1.
        """
        return {**server, "w": average([reply["w"] for reply in replies], weights)}

    # client side

    def client_init(self, message: State) -> State:
        """Return what a client keeps between rounds; called when it first takes part, with what it was sent."""
        return {}

    def begin(self, message: State, state: State) -> Tensor:
        """Return the weights from which local training starts: new ones, not the message's own."""
        return message["w"].clone()

    def step(self, w: Tensor, message: State, state: State, grad: Gradient, batch: Batch) -> None:
        """Take one local step on one batch; `w` and `state` are changed in place.

        Parameters
        ----------
        w : Tensor
            The weights that are trained, [K, P].
        message : dict of Tensor
            What the clients were sent; `message["w"]` is the coalition's model.
        state : dict of Tensor
            What the clients keep between rounds.
        grad : Gradient
            Computes gradients, and takes plain steps with `grad.descend`.
        batch : Batch
            A batch of each client.
        """
        grad.descend(w, batch)

    def reply(self, w: Tensor, message: State, state: State, steps: Tensor, lr: float) -> State:
        """Return what the clients send back after local training; `state` may be changed in place.

        Parameters
        ----------
        w : Tensor
            The trained weights, [K, P].
        message, state : dict of Tensor
            As in `step`.
        steps : Tensor
            How many steps each client took, [K, 1].
        lr : float
            The step size.
        """
        return {"w": w}

    def personal(self, message: State, state: State, grad: Gradient, batches: Batches) -> Tensor:
        """Return the clients' own models, [K, P]; used where `personalises` is True.

        Parameters
        ----------
        message, state : dict of Tensor
            As in `step`.
        grad : Gradient
            Computes gradients.
        batches : callable
            `batches(n)` gives n batches of the client's training data.
        """
        return message["w"]

    # how it travels in messages

    def options(self) -> dict[str, Any]:
        """Return the algorithm's options, as JSON values."""
        return asdict(self)


A = TypeVar("A", bound=type[Algorithm])
ALGORITHMS: dict[str, type[Algorithm]] = {}


def register(name: str) -> Callable[[A], A]:
    """Make an algorithm known by a name, for users and for messages; a class decorator.

    Parameters
    ----------
    name : str
        The name; one that is taken is replaced.

    Returns
    -------
    callable
        The decorator, which returns the class unchanged.

    Examples
    --------
    >>> @register("my-fedavg")
    ... class MyFedAvg(Algorithm):
    ...     pass
    >>> ALGORITHMS.pop("my-fedavg") is MyFedAvg
    True
    """

    def add(algorithm: A) -> A:
        ALGORITHMS[name] = algorithm
        return algorithm

    return add


def make_algorithm(algorithm: str | Algorithm, options: Mapping[str, Any] | None = None) -> tuple[str, Algorithm]:
    """Return an algorithm and its registered name.

    Parameters
    ----------
    algorithm : str or Algorithm
        A name, or an object; an object of a class that was never registered is registered under its class name.
    options : mapping, optional
        The options of an algorithm given by name.

    Raises
    ------
    InputError
        If the name or an option is unknown, an option is out of range, or an object comes with options.

    Examples
    --------
    >>> from fedcollab.training import algorithms
    >>> make_algorithm("fedprox", {"mu": 0.5})
    ('fedprox', FedProx(mu=0.5))
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
    """Check that every option is known, and that one whose default is a number is a number of at least 0.

    Parameters
    ----------
    where : str
        What the options belong to, for the message.
    options : mapping
        The options.
    defaults : mapping
        The known options and their default values.

    Raises
    ------
    InputError
        If one is unknown or out of range.
    """
    for key, value in options.items():
        if key not in defaults:
            has = unknown("option", key, defaults) if defaults else f"`option` (={key!r}): it has none"
            raise InputError(f"{where}: {has}")
        if isinstance(defaults[key], (int, float)):
            number(key, value, at_least=0, whole=isinstance(defaults[key], int))


def fine_tuned(w: Tensor, grad: Gradient, batches: Iterable[Batch]) -> Tensor:
    """Return weights after a plain step on each of the batches; `w` itself is not changed."""
    v = w.clone()
    for batch in batches:
        grad.descend(v, batch)
    return v


def average(values: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Return the weighted sum in the order given (of client name), so that the order of clients never matters."""
    total = values[0] * weights[0]
    for value, weight in zip(values[1:], weights[1:], strict=True):
        total.add_(value, alpha=weight)
    return total
