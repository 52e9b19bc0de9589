"""What the client-side actions of training share: stacks, borrowed networks, tensors from messages, state, failures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcollab.data.schema import Arrays
from fedcollab.errors import InputError
from fedcollab.threads import balance, in_threads
from fedcollab.training.algorithms import make_algorithm
from fedcollab.training.arrays import arrays_of, tensor_of
from fedcollab.training.descend import Setting
from fedcollab.training.displaced import displaced
from fedcollab.training.hooks import Algorithm, State
from fedcollab.training.models import Network
from fedcollab.training.plausible import LARGEST
from fedcollab.wire.message import Message
from fedcollab.wire.silo import Silo

STACK_BYTES = 8 << 20  # weights of a stack: beyond this the caches are lost and stacking gains nothing
STACK_CLIENTS = 64

Messages = Mapping[str, Any]
Silos = Mapping[str, Silo]
Tensors = dict[str, Tensor]

_tensors: WeakKeyDictionary[Arrays, Tensors] = WeakKeyDictionary()
_networks: dict[tuple[str, str], list[Network]] = {}


def in_stacks(
    work: Callable[[list[str]], dict[str, Any]], steps: Mapping[str, int], setting: Setting, device: str
) -> list[dict[str, Any]]:
    """Do work on stacks of like length, in as many threads as cores.

    Parameters
    ----------
    work : callable
        Given the keys of one stack, those with most steps first; returns a result for each.
    steps : mapping
        How many steps each key takes.
    setting : Setting
        The model decides how many fit into a stack.
    device : str
        Where the model runs.
    """
    with lend_network(setting, device) as network:
        limit = max(1, min(STACK_CLIENTS, STACK_BYTES // (4 * network.size))) if network.widths else 1
    groups = [[keys[i : i + limit] for i in range(0, len(keys), limit)] for keys in balance(steps)]
    done = in_threads(lambda stacks: [work(keys) for keys in stacks], groups)
    return [results for share in done for results in share]


def setting_of(messages: Messages) -> Setting:
    """Return the setting that the messages share."""
    return Setting.from_json(next(iter(messages.values()))["setting"])


def algorithm_of(setting: Setting) -> Algorithm:
    """Return the algorithm that a setting names."""
    return make_algorithm(setting.algorithm, setting.options)[1]


@contextmanager
def lend_network(setting: Setting, device: str) -> Iterator[Network]:
    """Lend a module to this thread alone: threads must not share one, because it is pointed at a client's weights."""
    key = (setting.model, device)
    if key not in _networks:
        _networks.clear()
    spare = _networks.setdefault(key, [])
    try:
        network = spare.pop()
    except IndexError:
        network = Network(setting.model, device)
    yield network
    spare.append(network)


def slot_of(message: Message, first: str = "train") -> str:
    """Return the place in a client's state where it keeps a training; further layers have places of their own.

    Parameters
    ----------
    message : dict
        What the client was sent; `layer` is 0 where it is missing.
    first : str, default "train"
        The place of layer 0.
    """
    layer = message.get("layer", 0)
    return f"{first} {layer}" if layer else first


def kept_state(silo: Silo, message: Message, slot: str = "train") -> Message | None:
    """Return the state of the round that the message goes on from (`since`); None for a client that is new.

    The last round's state is kept, and that of the round which it went on from: a round whose reply was lost, or whose
    server was killed, can be asked for again, or passed over.

    Parameters
    ----------
    silo : Silo
        The client.
    message : dict
        What it was sent.
    slot : str, default "train"
        The place in the client's state.
    """
    states = (silo.state.get(key) for key in (slot, f"{slot}-before"))
    wanted = message.get("since"), message.get("training")
    return next((kept for kept in states if kept is not None and (kept["round"], kept["training"]) == wanted), None)


def keep_state(silo: Silo, message: Message, state: Message, slot: str = "train") -> None:
    """Keep a client's state after a round, and that of the round which it went on from; arguments as above."""
    before = kept_state(silo, message, slot)
    silo.state.pop(f"{slot}-before", None)
    if before is not None and before["round"] != message["round"]:
        silo.state[f"{slot}-before"] = before
    silo.state[slot] = {"round": message["round"], "training": message.get("training"), **state}


def data_of(silo: Silo) -> Tensors:
    """Return a silo's arrays as tensors on its device, made once: training samples as models may see them."""
    arrays = silo.arrays
    if arrays not in _tensors:
        x, y = displaced(silo)
        found = {"x": x, "y": y, "x_test": arrays.x_test, "y_test": arrays.y_test}
        _tensors[arrays] = {key: torch.from_numpy(value).to(silo.device) for key, value in found.items()}
    return _tensors[arrays]


def tensors_sent(message: Message, device: str) -> Tensors:
    """Return the arrays of numbers that a message carries for the algorithm, as tensors."""
    arrays = {key: value for key, value in message.items() if isinstance(value, np.ndarray) and value.dtype.kind == "f"}
    return {key: tensor_of(value, device) for key, value in arrays.items()}


def sorted_arrays(message: Message, state: State) -> list[NDArray[Any]]:
    """Return all numbers on which an update depends, in order of name: those that were sent, and the client's state.

    An error that is drawn from fewer of them would be the same for two updates that differ, and leave their difference
    exact.

    Parameters
    ----------
    message : dict
        What the client was sent.
    state : dict of Tensor
        What it goes on from.
    """
    sent = {key: value for key, value in message.items() if isinstance(value, np.ndarray) and value.dtype.kind == "f"}
    return [values[key] for values in (sent, arrays_of(state)) for key in sorted(values)]


def is_finite(value: Tensor) -> bool:
    """Return whether all values of a tensor are finite, and none is so large that the coordinator would refuse it."""
    return value.numel() == 0 or bool(value.abs().max() <= LARGEST)  # NaN is not


def guarded(
    work: Callable[[Message, Silo, Setting], Message], message: Message, silo: Silo, setting: Setting
) -> Message:
    """Run one client's work; return an error in one line if it fails, except for bad input, which is raised."""
    try:
        return work(message, silo, setting)
    except InputError:
        raise
    except Exception as error:
        return {"error": line_of(error)}


def line_of(error: Exception) -> str:
    """Return the type and the first line of an error."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def gather(messages: Messages, parts: Sequence[dict[str, Message]]) -> dict[str, Message]:
    """Return the replies of several threads in one dict, in order of name."""
    replies = {name: reply for part in parts for name, reply in part.items()}
    return {name: replies[name] for name in sorted(messages)}
