"""The client side of training: what happens at a silo when a round's message arrives. Weights and a mean loss leave.

`train` is one round of local training: weights in, weights out. It is written for many clients at once; a single silo
is a group of one. What every message about a model is checked for is here too: `limit_setting`, `limit_coalition`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, NotRequired, cast

import numpy as np
from numpy.typing import NDArray

from fedcollab.errors import InputError
from fedcollab.training import honest
from fedcollab.training.algorithms import make_algorithm
from fedcollab.training.arrays import arrays_of, tensor_of
from fedcollab.training.averaging import add_means, split_means, use_means
from fedcollab.training.blur import update_lot
from fedcollab.training.client_side import (
    Messages,
    Silos,
    algorithm_of,
    data_of,
    gather,
    in_stacks,
    is_finite,
    keep_state,
    kept_state,
    lend_network,
    line_of,
    setting_of,
    slot_of,
    sorted_arrays,
    tensors_sent,
)
from fedcollab.training.descend import OPTIMIZERS, Local, Setting, descend, gradient, steps_of
from fedcollab.training.hooks import Algorithm
from fedcollab.training.kept import averaged_keys, first_state, used_model, with_own, withhold
from fedcollab.training.losses import CROSS_ENTROPY, LOSSES
from fedcollab.training.measures import judged_loss, shown_loss, what_diverged
from fedcollab.training.models import Network, size_of
from fedcollab.training.plausible import impossible_update
from fedcollab.training.secure_client import (
    SecureFields,
    SecureReply,
    limit_masks,
    masked_reply,
    refuse_absurd,
    sent_before,
)
from fedcollab.training.trees.forest import growing_of
from fedcollab.training.trees.rows import with_own_base
from fedcollab.wire.action import Refused, Release, Step, action, require_samples
from fedcollab.wire.fields import FurtherArrays, Sides, Whole
from fedcollab.wire.limits import Limits
from fedcollab.wire.message import Message
from fedcollab.wire.silo import Silo

EPOCHS = 1_000  # local epochs that a client may be asked for in a round
TRAINING = "trained"  # where a silo keeps what the next round's weights are compared with

Weights = Annotated[NDArray[np.float32], Sides("P")]


class TrainMessage(SecureFields):
    """What a client is sent to train: weights to start from, and what to do with them.

    Attributes
    ----------
    setting : str
        The algorithm, the model and the step sizes (`Setting`), as JSON.
    round : int
        The round.
    w : array
        The flat weights.
    since : int, optional
        The round whose state the client goes on from.
    training : str, optional
        Which training this is (see `checkpoint.identity`).
    coalition : list of str, optional
        With whom the client trains, itself included.
    layer : int, optional
        Which of several models that the client trains in the same round this is, where it trains more than its own.
    own_from : str, optional
        An earlier training: if the client takes part for the first time, the parameters that stay with it (`keep`) go
        on from the model that it uses since then.
    """

    setting: str
    round: Whole
    w: Weights
    since: NotRequired[Whole]
    training: NotRequired[str]
    coalition: NotRequired[list[str]]
    layer: NotRequired[Whole]
    own_from: NotRequired[str]


class TrainReply(SecureReply):
    """What a client answers after training: its weights and mean loss or, where they are not finite, what diverged."""

    finite: bool
    w: NotRequired[Weights]
    loss: NotRequired[Annotated[NDArray[np.float64], Sides(1)]]
    diverged: NotRequired[str]


def train_stacked(messages: Messages, silos: Silos) -> dict[str, Message]:
    """Train many clients: stacked where the model's gradients are known, in as many threads as cores.

    Parameters
    ----------
    messages : mapping
        Each client's `TrainMessage`, by name.
    silos : mapping
        Each client's data and state, by name.

    Returns
    -------
    dict
        Each client's `TrainReply`, in order of name; a client that failed has `error` instead.
    """
    setting = setting_of(messages)
    before = sent_before(messages, silos)
    steps = {name: steps_of(len(silos[name].arrays.y), setting) for name in messages if name not in before}

    def work(names: list[str]) -> dict[str, Message]:
        return _train_group(names, messages, silos, setting)

    return gather(messages, [before, *in_stacks(work, steps, setting, next(iter(silos.values())).device)])


def limit_setting(message: Any, silo: Silo, limits: Limits) -> None:
    """Refuse a setting whose model or algorithm is unknown here, does not fit the weights, or asks for too much."""
    try:
        setting = Setting.from_json(message["setting"])
        spec = json.loads(setting.model)
        shape, classes, loss = tuple(spec["shape"]), spec["classes"], LOSSES[spec.get("loss", CROSS_ENTROPY)]
        whole = all(
            type(value) is int and value >= 1 for value in (setting.batch_size, setting.epochs, *shape, classes)
        )
        proper = whole and setting.epochs <= EPOCHS and 0 < float(setting.lr) < 1e6
        proper = proper and setting.optimizer in OPTIMIZERS
        proper = proper and all(0 <= float(value) < 1e6 for value in (setting.weight_decay, setting.averaging))
        proper = proper and all(isinstance(name, str) for name in setting.keep)
        options = json.dumps(spec["options"], ensure_ascii=False)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise Refused(f"`setting` cannot be read: {type(error).__name__}") from None
    schema = silo.schema if "prepare" in silo.state else None
    if schema is None or not proper or shape != schema.shape or classes != schema.outputs:
        raise Refused("`setting` does not fit the data that were prepared, or asks for too much")
    if loss.task != schema.task:
        raise Refused(f"`setting` has a loss for a {loss.task}; the data were prepared for a {schema.task}")
    if "/" in options or "\\" in options:
        raise Refused("`setting` names a file of the silo's disk")
    make_algorithm(setting.algorithm, setting.options)
    weights = message["models"][0] if "models" in message else message.get("w")
    if weights is not None and size_of(setting.model) != len(weights):
        raise Refused(f"the model has {size_of(setting.model)} weights; the message has {len(weights)}")


def limit_coalition(message: Any, silo: Silo, limits: Limits) -> None:
    """Refuse a coalition that is too small or without this silo, and too few samples."""
    members = set(message.get("coalition", []))
    if len(members) < limits.min_coalition or silo.name not in members:
        raise Refused(
            f"the coalition is {', '.join(sorted(members)) or 'not named'}; this silo asks for at least "
            f"{limits.min_coalition} clients, itself among them"
        )
    require_samples(len(silo.arrays.y), limits, "an update")


def limit_train(message: TrainMessage, silo: Silo, limits: Limits) -> None:
    """Refuse a coalition that is too small or without this silo, too few samples, or a setting that does not fit."""
    limit_coalition(message, silo, limits)
    limit_setting(message, silo, limits)
    setting = Setting.from_json(message["setting"])
    if growing_of(setting.model) is not None:
        raise Refused("trees are grown by histograms (`train-trees`); they have no updates of weights")
    limit_masks(message, silo, limits)
    honest.check_steps(setting, silo)


def _limit_update(message: TrainMessage, silo: Silo, limits: Limits) -> None:
    """Refuse what `limit_train` refuses, and weights that honest training would not send."""
    limit_train(message, silo, limits)
    given = cast(Message, message)
    honest.check_start(given, silo, Setting.from_json(message["setting"]), slot_of(given, TRAINING))


@action(
    "train",
    purpose="trained a model: weights",
    release=Release.EXACT,
    step=Step.TRAINING,
    limit=_limit_update,
    cost=lambda message, silo: {"rounds": 1},
    consistent=impossible_update,
    stacked=train_stacked,
    reads=lambda message, silo: [kept_state(silo, message, slot_of(message))],
)
def train(message: Annotated[TrainMessage, FurtherArrays], silo: Silo) -> Annotated[TrainReply, FurtherArrays]:
    """Train one client's model for one round."""
    return cast(TrainReply, train_stacked({silo.name: message}, {silo.name: silo})[silo.name])


def _train_group(names: Sequence[str], messages: Messages, silos: Silos, setting: Setting) -> dict[str, Message]:
    """Train a stack of clients; if that fails, train them one by one, so that only the client at fault is lost."""
    try:
        return _train(names, messages, silos, setting)
    except InputError:
        raise
    except Exception as error:
        if len(names) == 1:
            return {names[0]: {"error": line_of(error)}}
    return {name: reply for name in names for name, reply in _train_group([name], messages, silos, setting).items()}


def _train(names: Sequence[str], messages: Messages, silos: Silos, setting: Setting) -> dict[str, Message]:
    """Train a stack of clients, and keep the state of those whose loss and weights are finite."""
    algorithm = algorithm_of(setting)
    clients = [local_part(messages[name], silos[name], algorithm, setting) for name in names]
    means = {name: client.means for name, client in zip(names, clients, strict=True)}
    with lend_network(setting, silos[names[0]].device) as network:
        for name, local in zip(names, clients, strict=True):
            if "group" in messages[name]:
                held = data_of(silos[name])
                logits = gradient(network, setting).logits(local.message["w"], held["x_test"])
                each = network.loss.each(logits, held["y_test"])
                refuse_absurd(messages[name], silos[name], each.double().cpu().numpy())
        replies, states, losses = descend(clients, algorithm, network, setting, messages[names[0]]["round"])
    result: dict[str, Message] = {}
    for name, reply, state, loss in zip(names, replies, states, losses, strict=True):
        whole = reply["w"].clone()  # with what stays at the client
        withhold(reply, state, tensor_of(messages[name]["w"], silos[name].device), setting)
        keys = averaged_keys(algorithm, setting)
        state = add_means(state, means[name], keys, messages[name]["round"], setting.averaging)
        if np.isfinite(loss) and all(is_finite(value) for value in (*reply.values(), *state.values())):
            message, silo, replied = messages[name], silos[name], arrays_of(reply)
            place = slot_of(message, TRAINING)
            shown, judged = _shown(network, message, silo, setting, float(loss))
            weights, seen = whole.cpu().numpy(), data_of(silo)["x"].cpu()
            given = honest.check_reply(network, message, weights, seen, judged, silo, place)
            honest.note_update(message, silo, weights, [given], place)
            keep_state(silo, message, arrays_of(state), slot_of(message))
            plain = {"loss": shown, "finite": True}
            result[name] = masked_reply(message, silo, replied, plain)
        else:
            result[name] = {"finite": False, "diverged": what_diverged(float(loss))}
    return result


def _shown(
    network: Network, message: Message, silo: Silo, setting: Setting, loss: float
) -> tuple[NDArray[np.float64], float]:
    """Return the loss of a round as it is sent, the mean over its steps or a coarse one where the silo rounds; and the
    loss by which the silo judges the weights that it was sent."""
    if not silo.limits.round_measures:
        return np.array([loss]), loss
    data = data_of(silo)
    logits = gradient(network, setting).logits(tensor_of(message["w"], silo.device), data["x"])
    each = network.loss.each(logits, data["y"]).double().cpu().numpy()
    return shown_loss(each, silo, message["w"]), judged_loss(each, silo, message["w"])


def local_part(message: Message, silo: Silo, algorithm: Algorithm, setting: Setting, *, mean: bool = False) -> Local:
    """Return a client's part in a round: its data, what it was sent, and its state (a new one if it is new).

    Parameters
    ----------
    message : mapping
        What the client was sent.
    silo : Silo
        The client.
    algorithm : Algorithm
        The algorithm.
    setting : Setting
        What all clients have in common.
    mean : bool
        Whether its state is the mean over rounds, to be tested.
    """
    data = data_of(silo)
    sent = tensors_sent(message, silo.device)
    kept = kept_state(silo, message, slot_of(message))
    if kept is None:
        state = first_state(algorithm, sent, setting, used_model(message, silo, setting))
        if state and "since" in message:
            raise InputError(
                f"client `{silo.name}` has lost what it kept of round {message['since']} of this training; "
                f"start the training anew, or this client: `train --afresh {silo.name}`"
            )
    else:
        state = {key: tensor_of(value, silo.device) for key, value in kept.items() if isinstance(value, np.ndarray)}
    state, means = split_means(state)
    if mean:
        state = use_means(state, means)
    lot = update_lot(silo, message["setting"], message["round"], *sorted_arrays(message, state))
    least = silo.limits.min_batch
    own = with_own_base(sent, silo, setting) if setting.keep else None  # of trees, which fit it anew
    own = with_own(sent, state, setting) if own is None else own
    return Local(silo.lot, data["x"], data["y"], own, state, means, least, lot)
