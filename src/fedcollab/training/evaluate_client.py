"""Testing models at a client: what happens at a silo when it is asked how good a model is. Aggregates leave.

`evaluate`  accuracy, loss, balanced accuracy and AUC (or R2, loss, RMSE and MAE), the loss's standard error and the
            number of samples on the client's test split, of the model sent and of its own
`losses`    the training loss of each of several models (how IFCA's clients choose)

Each is written for many clients at once; a single silo is a group of one.
"""

from __future__ import annotations

from typing import Annotated, NotRequired, TypedDict, cast

import numpy as np
import torch
from numpy.typing import NDArray

from fedcollab.threads import balance, in_threads
from fedcollab.training import honest, outcomes
from fedcollab.training.client import TRAINING, TrainMessage, Weights, limit_setting, local_part
from fedcollab.training.client_side import (
    Messages,
    Silos,
    algorithm_of,
    data_of,
    gather,
    guarded,
    kept_state,
    lend_network,
    setting_of,
    slot_of,
)
from fedcollab.training.descend import Setting, gradient, personal
from fedcollab.training.kept import MODEL
from fedcollab.training.measures import measure, rounded_losses
from fedcollab.training.plausible import impossible_losses, impossible_measures
from fedcollab.training.scores import SCORES
from fedcollab.wire.action import Refused, Release, Step, action, require_samples, require_tests
from fedcollab.wire.fields import FurtherArrays, Sides, Whole
from fedcollab.wire.limits import Limits
from fedcollab.wire.message import Message
from fedcollab.wire.silo import Silo

Measures = Annotated[NDArray[np.float64], Sides(6, nan=True)]


class EvaluateMessage(TrainMessage):
    """What a client is sent to test a model.

    Attributes
    ----------
    personal : bool
        Test the client's personal model too.
    keep : bool
        Send the personal model back: in process alone, a silo with limits refuses it.
    stay : bool
        Keep the model that the client would use in its own state.
    mean : bool
        Use the means over rounds of what the client keeps.
    """

    personal: bool
    keep: bool
    stay: bool
    mean: bool


class EvaluateReply(TypedDict):
    """What a client answers: the measures (`Scores.measures`) of the model sent, and of its personal one."""

    measures: Measures
    personal_measures: NotRequired[Measures]
    personal: NotRequired[Weights]


class LossesMessage(TypedDict):
    """What a client is sent to compare several models of one setting."""

    setting: str
    round: Whole
    models: Annotated[NDArray[np.float32], Sides("K", "P")]
    since: NotRequired[Whole]
    training: NotRequired[str]


class LossesReply(TypedDict):
    """What a client answers: its training loss under each model."""

    losses: Annotated[NDArray[np.float64], Sides("K", nan=True)]


def evaluate_stacked(messages: Messages, silos: Silos) -> dict[str, Message]:
    """Test a model at many clients, in as many threads as cores; arguments and result are those of `train_stacked`."""
    setting = setting_of(messages)

    def work(names: list[str]) -> dict[str, Message]:
        return {name: guarded(_evaluate, messages[name], silos[name], setting) for name in names}

    return gather(messages, in_threads(work, balance(dict.fromkeys(messages, 1))))


def losses_stacked(messages: Messages, silos: Silos) -> dict[str, Message]:
    """Compute the training losses of many clients; arguments and result are those of `train_stacked`."""
    setting = setting_of(messages)

    def work(names: list[str]) -> dict[str, Message]:
        return {name: guarded(_losses, messages[name], silos[name], setting) for name in names}

    return gather(messages, in_threads(work, balance(dict.fromkeys(messages, 1))))


def _limit_losses(message: LossesMessage, silo: Silo, limits: Limits) -> None:
    """Refuse losses of fewer samples than the silo's limit, and a setting that does not fit."""
    limit_setting(message, silo, limits)
    require_samples(len(silo.arrays.y), limits, "a loss")


def _limit_evaluate(message: EvaluateMessage, silo: Silo, limits: Limits) -> None:
    """Refuse to send the personal model, and a setting that does not fit."""
    if message["keep"]:
        raise Refused("a personal model stays at its silo")
    limit_setting(message, silo, limits)
    require_tests(len(silo.arrays.y_test), limits, "a measure")


@action(
    "evaluate",
    purpose="tested a model: accuracy, loss and its error",
    release=Release.EXACT,
    step=Step.TESTING,
    limit=_limit_evaluate,
    cost=lambda message, silo: {"models": 2 if message["personal"] else 1},
    consistent=impossible_measures,
    stacked=evaluate_stacked,
    reads=lambda message, silo: [kept_state(silo, message, slot_of(message))],
)
def evaluate(message: Annotated[EvaluateMessage, FurtherArrays], silo: Silo) -> EvaluateReply:
    """Test a model, and the client's personal one if that is asked, on the client's test split."""
    return cast(EvaluateReply, evaluate_stacked({silo.name: message}, {silo.name: silo})[silo.name])


@action(
    "losses",
    purpose="tested several models on training data: one loss a model",
    release=Release.EXACT,
    step=Step.TRAINING,
    limit=_limit_losses,
    cost=lambda message, silo: {"models": len(message["models"])},
    consistent=impossible_losses,
    stacked=losses_stacked,
)
def losses(message: LossesMessage, silo: Silo) -> LossesReply:
    """Compute one client's training loss under each of several models."""
    return cast(LossesReply, losses_stacked({silo.name: message}, {silo.name: silo})[silo.name])


def _evaluate(message: Message, silo: Silo, setting: Setting) -> Message:
    """Test a model, and the client's personal one if that is asked, on one client's test split."""
    algorithm = algorithm_of(setting)
    client = local_part(message, silo, algorithm, setting, mean=message["mean"])
    data = data_of(silo)
    with lend_network(setting, silo.device) as network:
        grad = gradient(network, setting)
        logits = grad.logits(client.message["w"], data["x_test"])
        asked = [message["setting"], message["w"]]
        used = client.message["w"].cpu().numpy()
        reply: Message = {"measures": measure(network.loss, logits, data["y_test"], silo, "model", *asked, used)}
        if message["personal"]:
            own = personal(client, algorithm, network, setting, message["round"])
            logits = grad.logits(own, data["x_test"])
            asked.append(own.cpu().numpy())
            reply["personal_measures"] = measure(network.loss, logits, data["y_test"], silo, "personal", *asked)
            if message["keep"]:
                reply["personal"] = own.cpu().numpy()
        if message["stay"]:
            last = (own if message["personal"] else client.message["w"])[: network.parameters + network.buffers]
            own_model = {"w": last.cpu().numpy(), "model": setting.model, "training": message.get("training", "")}
            prepared = silo.schema.to_json()  # kept with it: another run may prepare the data otherwise
            silo.state[MODEL] = {**own_model, "schema": prepared}
            honest.note_model(message, silo, setting, slot_of(message, TRAINING))
            spread = SCORES[network.loss.task].spread(silo.arrays.y)
            outcome = outcomes.of_outputs(network.loss, logits, data["y_test"], spread)
            outcomes.keep(silo, message.get("training", ""), outcome, last.cpu().numpy())
    return reply


def _losses(message: Message, silo: Silo, setting: Setting) -> Message:
    """Compute one client's training loss under each of several models."""
    data = data_of(silo)
    models = torch.tensor(message["models"], device=silo.device)
    with lend_network(setting, silo.device) as network:
        grad = gradient(network, setting)
        losses = [network.loss.each(grad.logits(w, data["x"]), data["y"]) for w in models]
    means = np.array([float(each.mean()) for each in losses])
    each = np.stack([each.double().cpu().numpy() for each in losses])
    return {"losses": rounded_losses(means, each, silo, "losses", message["models"])}
