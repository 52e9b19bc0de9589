"""Training on all rows but some, to measure on the rest: what happens at a silo when the number of rounds is chosen.

`train-folds`: a message carries the models of the K folds (`folds`); the client measures each on the fold that it has
not seen, trains it for a round on the others, and replies with the K models and one mean loss over all folds.

Where that was asked for, they are compared with what the client reached alone (`alone_client`) on the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NotRequired, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedcollab.errors import InputError
from fedcollab.training import honest
from fedcollab.training.alone_client import ALONE, reached_alone
from fedcollab.training.arrays import arrays_of, tensor_of
from fedcollab.training.averaging import split_means, use_means
from fedcollab.training.blur import update_lot
from fedcollab.training.client import limit_train
from fedcollab.training.client_side import (
    algorithm_of,
    gather,
    keep_state,
    kept_state,
    lend_network,
    setting_of,
    slot_of,
    sorted_arrays,
    tensors_sent,
)
from fedcollab.training.descend import Local, Setting, stack
from fedcollab.training.folds import (
    COLUMNS,
    MOST_FOLDS,
    Done,
    Work,
    all_folds,
    columns_of,
    joined,
    new_division,
    note_division,
    parts_of,
    unfit_folds,
)
from fedcollab.training.kept import first_state, with_own
from fedcollab.training.measures import judged_loss, rounded_columns
from fedcollab.training.plausible import impossible_folds
from fedcollab.training.secure_client import (
    SecureFields,
    SecureReply,
    limit_masks,
    masked_reply,
    refuse_absurd,
    sent_before,
)
from fedcollab.wire.action import Refused, Release, Step, action
from fedcollab.wire.fields import FurtherArrays, Positive, Sides, Whole
from fedcollab.wire.limits import Limits
from fedcollab.wire.message import Message
from fedcollab.wire.silo import Silo

SLOT = "folds"
TRAINED = "trained-folds"  # where a silo keeps what the next round's weights are compared with
Models = Annotated[NDArray[np.float32], Sides("K", "P")]


class FoldsMessage(SecureFields):
    """What a client is sent: K models, each to be measured on the fold that it has not seen and trained on the others.

    Attributes
    ----------
    setting, since, training, coalition
        As in `client.TrainMessage`.
    round : int
        The round to train; the models are those after the rounds before it.
    folds : int
        K.
    w : array
        The flat weights of the K models.
    train : bool
        Whether to train them; otherwise they are only measured.
    last : bool
        Whether this is the last message, after which the client forgets what it kept.
    measure : bool, optional
        Whether to measure the models; by default they are.
    alone : list of int, optional
        Compare the models with what the client reached alone (`train-alone`) after so many rounds, with this kind of
        model; and measure the coalition's models too where the algorithm makes personal ones.
    layer : int, optional
        As in `client.TrainMessage`.
    """

    setting: str
    round: Whole
    folds: Positive
    w: Models
    train: bool
    last: bool
    since: NotRequired[Whole]
    training: NotRequired[str]
    coalition: NotRequired[list[str]]
    measure: NotRequired[bool]
    alone: NotRequired[Annotated[list[Whole], Sides(2)]]
    layer: NotRequired[Whole]


class FoldsReply(SecureReply):
    """What a client answers.

    Attributes
    ----------
    finite : bool
        Whether loss and weights of all models are finite.
    held_out : array
        On rows that the models have not seen, over all folds: mean loss and accuracy; and, where they are compared with
        training alone, the standard errors of the differences of both from it (else NaN). One row for each kind of
        model: the mean over rounds, if there is one, then the last round's models; then, where they are compared with
        training alone and the algorithm makes personal models, the same of the coalition's models.
    w : array, optional
        The trained weights.
    diverged : str, optional
        What is not finite.
    unfit : str, optional
        Why the client's rows cannot be cut into folds; then nothing was measured or trained.
    """

    finite: bool
    held_out: Annotated[NDArray[np.float64], Sides("_", len(COLUMNS), nan=True)]
    w: NotRequired[Models]
    diverged: NotRequired[str]
    unfit: NotRequired[str]


def _limit_folds(message: FoldsMessage, silo: Silo, limits: Limits) -> None:
    """Refuse what `train` would refuse, and more folds than models or than a silo should keep models for."""
    limit_train({**message, "w": message["w"][0]}, silo, limits)  # type: ignore[typeddict-unknown-key, typeddict-item]
    limit_masks(message, silo, limits)  # for every fold's model
    if len(message["w"]) != message["folds"] or message["folds"] > MOST_FOLDS:
        raise Refused(f"`w` has {len(message['w'])} models; expected one for each fold, and at most {MOST_FOLDS}")
    given = cast(Message, message)
    honest.check_start(given, silo, Setting.from_json(message["setting"]), _slot(given, TRAINED))


def train_folds_stacked(messages: Mapping[str, Any], silos: Mapping[str, Silo]) -> dict[str, Message]:
    """Measure and train the fold models of many clients, stacked; arguments as in `client.train_stacked`."""
    setting = setting_of(messages)
    unfit = {
        name: unfit_folds(parts_of(silos[name], messages[name]["folds"], setting.seed), silos[name])
        for name in messages
    }
    replies: dict[str, Message] = {
        name: {"finite": True, "held_out": np.full((1, len(COLUMNS)), np.nan), "unfit": why}
        for name, why in unfit.items()
        if why
    }
    replies |= sent_before({name: message for name, message in messages.items() if not unfit[name]}, silos)
    work = {name: _work(messages[name], silos[name], setting) for name in messages if name not in replies}
    for name in work:
        note_division(messages[name], silos[name])
    for name, folds in all_folds(work, setting, silos).items():
        replies[name] = _reply(messages[name], silos[name], folds)
    return gather(messages, [replies])


@action(
    "train-folds",
    purpose="trained models on a part of the samples and measured them on the rest: weights and one mean loss",
    release=Release.EXACT,
    step=Step.ROUNDS,
    limit=_limit_folds,
    cost=lambda message, silo: {
        "rounds" if message["train"] else "models": 1,  # without training, a measure is all that is asked for
        "repeats": new_division(message, silo),
    },
    consistent=impossible_folds,
    stacked=train_folds_stacked,
    reads=lambda message, silo: [
        kept_state(silo, message, _slot(message)),
        silo.state.get(ALONE) if "alone" in message else None,
    ],
)
def train_folds(message: Annotated[FoldsMessage, FurtherArrays], silo: Silo) -> Annotated[FoldsReply, FurtherArrays]:
    """Measure and train the fold models of one client."""
    return cast(FoldsReply, train_folds_stacked({silo.name: message}, {silo.name: silo})[silo.name])


def _work(message: Message, silo: Silo, setting: Setting) -> list[Work]:
    """Return a client's folds with what it was sent for each, and each one's state (a new one if the client is new)."""
    algorithm = algorithm_of(setting)
    sent = tensors_sent(message, silo.device)
    kept = kept_state(silo, message, _slot(message))
    work = []
    for fold, part in enumerate(parts_of(silo, message["folds"], setting.seed)):
        own = {key: value[fold] for key, value in sent.items()}
        mean = own.pop("mean", None)
        if kept is None:
            state = first_state(algorithm, own, setting)
            if state and "since" in message:
                raise InputError(f"client `{silo.name}` has lost what it kept of round {message['since']}")
        else:
            arrays = {key: value for key, value in kept.items() if isinstance(value, np.ndarray)}
            state = {key: tensor_of(value, silo.device)[fold] for key, value in arrays.items()}
        state, means = split_means(state)
        name, least = f"{silo.lot}, fold {fold}", silo.limits.min_batch
        lot = update_lot(silo, message["setting"], message["round"], fold, *sorted_arrays(message, state))
        local = Local(name, part.x, part.y, with_own(own, state, setting), state, means, least, lot)
        measured: list[Tensor | Local] = []
        if message.get("measure", True):
            measured = [local]
            if mean is not None:
                used = use_means(state, means)
                blended = with_own({**own, "w": mean}, used, setting)
                measured = [Local(name, part.x, part.y, blended, used, least=least), local]
            if algorithm.personalises and "alone" in message:
                measured += [kind.message["w"] for kind in measured if isinstance(kind, Local)]
        work.append(Work(local, measured, own["w"], part, message["round"], message["train"]))
    return work


def _reply(message: Message, silo: Silo, folds: list[Done]) -> Message:
    """Return a client's reply from its folds, and keep their states for the next round."""
    error = next((fold.error for fold in folds if fold.error), "")
    if error:
        return {"error": error}
    alone = reached_alone(message["alone"], silo) if "alone" in message else None
    kinds = joined([list(kind) for kind in zip(*(fold.outcomes for fold in folds), strict=True)])
    exact = [columns_of(kind, alone, silo) for kind in kinds]
    models = [message["mean"], message["w"]] if "mean" in message else [message["w"]]
    asked = _asked(message, silo)
    shown = [
        rounded_columns(columns, kind, silo, f"fold {place}", models[place % len(models)], *asked)
        for place, (columns, kind) in enumerate(zip(exact, kinds, strict=True))
    ]
    held_out = np.array(shown).reshape(-1, len(COLUMNS))
    diverged = next((fold.diverged for fold in folds if fold.diverged), "")
    if diverged:
        return {"finite": False, "held_out": held_out, "diverged": diverged}
    if message["last"]:
        for slot in (_slot(message), f"{_slot(message)}-before", _slot(message, TRAINED)):
            silo.state.pop(slot, None)
    if not message["train"]:
        return {"finite": True, "held_out": held_out}
    if "group" in message and kinds:
        refuse_absurd(message, silo, np.maximum.reduce([kind.loss for kind in kinds]))
    replied = arrays_of(stack([fold.reply for fold in folds]))
    _check_replies(
        message, silo, folds, max((judged_loss(kind.loss, silo, message["w"]) for kind in kinds), default=0.0)
    )
    keep_state(silo, message, arrays_of(stack([fold.state for fold in folds])), _slot(message))
    return masked_reply(message, silo, replied, {"finite": True, "held_out": held_out})


def _asked(message: Message, silo: Silo) -> list[NDArray[Any] | str]:
    """Return on what measures of fold models depend beside the weights that were sent: an error drawn from less would
    be the same for two divisions of the rows, or two states of the client, and leave their difference exact."""
    kept = kept_state(silo, message, _slot(message)) or {}
    own = [kept[key] for key in sorted(kept) if isinstance(kept[key], np.ndarray)]
    return [message["setting"], str(message["folds"]), *own]


def _check_replies(message: Message, silo: Silo, folds: list[Done], loss: float) -> None:
    """Refuse to send updates from which samples could be read, and keep what the next round is compared with."""
    setting, slot = Setting.from_json(message["setting"]), _slot(message, TRAINED)
    replied = np.stack([fold.whole.cpu().numpy() for fold in folds if fold.whole is not None])
    with lend_network(setting, silo.device) as network:
        given = [
            honest.check_reply(network, message, replied[place], part.x.cpu(), loss, silo, slot, place)
            for place, part in enumerate(parts_of(silo, message["folds"], setting.seed))
        ]
    honest.note_update(message, silo, replied, given, slot)


def _slot(message: Message, first: str = SLOT) -> str:
    """Return the place in a client's state for the fold models of a training: several trainings may run in step."""
    return slot_of(message, f"{first} {message.get('training', '')}")
