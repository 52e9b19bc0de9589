"""The client side of training: what happens at a silo when a round's message arrives. Weights and aggregates leave.

`train`     one round of local training: weights in, weights out
`evaluate`  accuracy, loss, balanced accuracy and AUC on the client's test split, of the model sent and of its own
`losses`    the training loss of each of several models (how IFCA's clients choose)

Each is written for many clients at once; a single silo is a group of one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from fedcollab import metrics
from fedcollab.errors import InputError
from fedcollab.threads import balance, in_threads
from fedcollab.training.algorithms import make_algorithm
from fedcollab.training.descend import Local, Setting, descend, gradient, personal, steps_of
from fedcollab.training.hooks import Algorithm, State
from fedcollab.training.models import Network
from fedcollab.wire.message import Message
from fedcollab.wire.silo import Arrays, Silo

STACK_BYTES = 8 << 20  # weights of a stack: beyond this the caches are lost and stacking gains nothing
STACK_CLIENTS = 64

Messages = Mapping[str, Message]
Silos = Mapping[str, Silo]
Tensors = dict[str, Tensor]

_tensors: WeakKeyDictionary[Arrays, Tensors] = WeakKeyDictionary()
_networks: dict[tuple[str, str], list[Network]] = {}


def train_client(message: Message, silo: Silo) -> Message:
    """One client's local training."""
    return train_together({silo.name: message}, {silo.name: silo})[silo.name]


def evaluate_client(message: Message, silo: Silo) -> Message:
    """One client's evaluation."""
    return evaluate_together({silo.name: message}, {silo.name: silo})[silo.name]


def losses_client(message: Message, silo: Silo) -> Message:
    """One client's training loss under each of several models."""
    return losses_together({silo.name: message}, {silo.name: silo})[silo.name]


def train_together(messages: Messages, silos: Silos) -> dict[str, Message]:
    """Local training of many clients: stacked where the model's gradients are known, in as many threads as cores."""
    setting = _setting(messages)
    with _network(setting, next(iter(silos.values())).device) as network:
        limit = max(1, min(STACK_CLIENTS, STACK_BYTES // (4 * network.size))) if network.widths else 1
    bins = balance({name: steps_of(len(silos[name].arrays.y), setting) for name in messages})
    groups = [[names[i : i + limit] for i in range(0, len(names), limit)] for names in bins]

    def work(share: list[list[str]]) -> dict[str, Message]:
        replies: dict[str, Message] = {}
        for names in share:
            replies |= _train_group(names, messages, silos, setting)
        return replies

    return _gather(messages, in_threads(work, groups))


def evaluate_together(messages: Messages, silos: Silos) -> dict[str, Message]:
    """Evaluation of many clients, in as many threads as cores."""
    setting = _setting(messages)

    def work(names: list[str]) -> dict[str, Message]:
        return {name: _guarded(_evaluate, messages[name], silos[name], setting) for name in names}

    return _gather(messages, in_threads(work, balance(dict.fromkeys(messages, 1))))


def losses_together(messages: Messages, silos: Silos) -> dict[str, Message]:
    """Training losses of many clients."""
    setting = _setting(messages)

    def work(names: list[str]) -> dict[str, Message]:
        return {name: _guarded(_losses, messages[name], silos[name], setting) for name in names}

    return _gather(messages, in_threads(work, balance(dict.fromkeys(messages, 1))))


def _train_group(names: Sequence[str], messages: Messages, silos: Silos, setting: Setting) -> dict[str, Message]:
    """A stack of clients; if it fails, one by one, so that only the client at fault is lost."""
    try:
        return _train(names, messages, silos, setting)
    except InputError:
        raise
    except Exception as error:
        if len(names) == 1:
            return {names[0]: {"error": _line(error)}}
    return {name: reply for name in names for name, reply in _train_group([name], messages, silos, setting).items()}


def _train(names: Sequence[str], messages: Messages, silos: Silos, setting: Setting) -> dict[str, Message]:
    algorithm = _algorithm(setting)
    clients = [_local(messages[name], silos[name], algorithm) for name in names]
    with _network(setting, silos[names[0]].device) as network:
        replies, states, losses = descend(clients, algorithm, network, setting, messages[names[0]]["round"])
    result: dict[str, Message] = {}
    for name, reply, state, loss in zip(names, replies, states, losses, strict=True):
        if np.isfinite(loss) and all(_finite(value) for value in (*reply.values(), *state.values())):
            _keep(silos[name], messages[name], _arrays(state))
            result[name] = {**_arrays(reply), "loss": np.array([loss]), "finite": True}
        else:
            result[name] = {"finite": False, "diverged": f"loss {loss:g}"}
    return result


def _evaluate(message: Message, silo: Silo, setting: Setting) -> Message:
    algorithm = _algorithm(setting)
    client = _local(message, silo, algorithm)
    data = _data(silo)
    with _network(setting, silo.device) as network:
        grad = gradient(network, setting.lr)
        reply: Message = {"measures": _measures(grad.logits(client.message["w"], data["x_test"]), data["y_test"])}
        if message["personal"]:
            own = personal(client, algorithm, network, setting, message["round"])
            reply["personal_measures"] = _measures(grad.logits(own, data["x_test"]), data["y_test"])
            if message["keep"]:
                reply["personal"] = own.cpu().numpy()
        if message["stay"]:
            last = (own if message["personal"] else client.message["w"])[: network.parameters + network.buffers]
            silo.state["model"] = {"w": last.cpu().numpy(), "model": setting.model}
    return reply


def _losses(message: Message, silo: Silo, setting: Setting) -> Message:
    data = _data(silo)
    models = torch.tensor(message["models"], device=silo.device)
    with _network(setting, silo.device) as network:
        grad = gradient(network, setting.lr)
        losses = [float(functional.cross_entropy(grad.logits(w, data["x"]), data["y"])) for w in models]
    return {"losses": np.array(losses)}


def _measures(logits: Tensor, labels: Tensor) -> NDArray[np.float64]:
    """In the order of `result.MEASURES`."""
    truth, predicted = labels.cpu().numpy(), logits.argmax(1).cpu().numpy()
    loss = float(functional.cross_entropy(logits, labels))
    return np.array(
        [
            (predicted == truth).mean(),
            loss,
            metrics.balanced_accuracy(truth, predicted),
            metrics.auc(truth, torch.softmax(logits, 1).cpu().numpy()),
        ]
    )


# From messages to tensors and back.


def _setting(messages: Messages) -> Setting:
    return Setting(**json.loads(next(iter(messages.values()))["setting"]))


def _algorithm(setting: Setting) -> Algorithm:
    return make_algorithm(setting.algorithm, setting.options)[1]


@contextmanager
def _network(setting: Setting, device: str) -> Iterator[Network]:
    """A module for this thread alone, kept for the next call: threads must not share one that is pointed at weights."""
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


def _local(message: Message, silo: Silo, algorithm: Algorithm) -> Local:
    data = _data(silo)
    sent = {key: _tensor(value, silo.device) for key, value in message.items() if isinstance(value, np.ndarray)}
    kept = _kept(silo, message)
    if kept is None:
        state = algorithm.client_init(sent)
        if state and "since" in message:
            raise InputError(
                f"client `{silo.name}` has lost what it kept of round {message['since']} of this training; "
                "start the training anew"
            )
    else:
        state = {key: _tensor(value, silo.device) for key, value in kept.items() if isinstance(value, np.ndarray)}
    return Local(silo.name, data["x"], data["y"], sent, state)


def _kept(silo: Silo, message: Message) -> Message | None:
    """What the client kept of the round of this training that the message goes on from (`since`); None for who is new.

    The last round's state is kept, and that of the round which it went on from: a round whose reply was lost, or whose
    server was killed, can be asked for again, or passed over.
    """
    states = (silo.state.get(key) for key in ("train", "train-before"))
    wanted = message.get("since"), message.get("training")
    return next((kept for kept in states if kept is not None and (kept["round"], kept["training"]) == wanted), None)


def _keep(silo: Silo, message: Message, state: Message) -> None:
    before = _kept(silo, message)
    silo.state.pop("train-before", None)
    if before is not None and before["round"] != message["round"]:
        silo.state["train-before"] = before
    silo.state["train"] = {"round": message["round"], "training": message.get("training"), **state}


def _data(silo: Silo) -> Tensors:
    arrays = silo.arrays
    if arrays not in _tensors:
        _tensors[arrays] = {
            key: torch.from_numpy(getattr(arrays, key)).to(silo.device) for key in ("x", "y", "x_test", "y_test")
        }
    return _tensors[arrays]


def _tensor(value: NDArray[Any], device: str) -> Tensor:
    """Zero-copy where the array may be written to (PyTorch has no read-only tensors); never written to all the same."""
    return (torch.from_numpy(value) if value.flags.writeable else torch.tensor(value)).to(device)


def _arrays(values: State) -> Message:
    return {key: value.cpu().numpy() for key, value in values.items()}


def _finite(value: Tensor) -> bool:
    return bool(torch.isfinite(value.sum()))


# Failures.


def _guarded(
    work: Callable[[Message, Silo, Setting], Message], message: Message, silo: Silo, setting: Setting
) -> Message:
    try:
        return work(message, silo, setting)
    except InputError:
        raise
    except Exception as error:
        return {"error": _line(error)}


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def _gather(messages: Messages, parts: Sequence[dict[str, Message]]) -> dict[str, Message]:
    replies = {name: reply for part in parts for name, reply in part.items()}
    return {name: replies[name] for name in sorted(messages)}
