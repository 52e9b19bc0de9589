"""Training on all rows but some, to measure on the rest: what happens at a silo when the number of rounds is chosen.

`train-folds`: a message carries the models of the K folds (`folds`); the client measures each on the fold that it has
not seen, trains it for a round on the others, and replies with the K models and one mean loss over all folds.

`train-alone` does all rounds at once without anybody else, and keeps at the client what each model did with each row
that it had not seen. Later models are compared with it on the same rows: means and standard errors leave.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, NotRequired, TypedDict, cast

import numpy as np
import torch
from msgspec import Meta
from numpy.typing import NDArray
from torch import Tensor

from fedcollab import seeds
from fedcollab.errors import InputError
from fedcollab.training import honest
from fedcollab.training.averaging import blend, split_means, use_means
from fedcollab.training.blur import update_lot
from fedcollab.training.client import limit_setting, limit_train
from fedcollab.training.client_side import (
    algorithm_of,
    arrays_of,
    gather,
    keep_state,
    kept_state,
    lend_network,
    setting_of,
    slot_of,
    sorted_arrays,
    tensor_of,
    tensors_sent,
)
from fedcollab.training.descend import Local, Setting
from fedcollab.training.folds import (
    COLUMNS,
    Done,
    Part,
    Work,
    all_folds,
    columns_of,
    halved,
    joined,
    new_division,
    note_division,
    parts_of,
    unfit_folds,
)
from fedcollab.training.hooks import State
from fedcollab.training.kept import first_state, with_own
from fedcollab.training.measures import judged_loss, rounded_columns
from fedcollab.training.outcomes import Outcome
from fedcollab.training.plausible import impossible_alone, impossible_folds
from fedcollab.training.secure_client import (
    SecureFields,
    SecureReply,
    limit_masks,
    masked_reply,
    refuse_absurd,
    sent_before,
)
from fedcollab.wire.action import Refused, Release, Step, action, require_samples
from fedcollab.wire.fields import FurtherArrays, Positive, Sides, Whole
from fedcollab.wire.limits import Limits
from fedcollab.wire.message import Message
from fedcollab.wire.silo import Silo

SLOT, ALONE = "folds", "alone"
TRAINED = "trained-folds"  # where a silo keeps what the next round's weights are compared with
ALONE_START = "trained-alone"  # nothing is kept there: every training alone starts anew
MOST_FOLDS, MOST_ROUNDS = 10, 10_000
TOGETHER = 16  # clients whose models are trained alone at the same time, in one process
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


class AloneMessage(TypedDict):
    """What a client is sent to train alone: the first weights, and how long.

    Attributes
    ----------
    setting : str
        As in `client.TrainMessage`.
    rounds : int
        How many rounds to train.
    folds : int
        How many folds.
    w : array
        The flat weights to start from.
    training : str
        Which training this is (see `checkpoint.identity`).
    fewer : bool, optional
        Whether to train models on half of each part too, which tells what more rows are worth.
    """

    setting: str
    rounds: Annotated[int, Meta(ge=1, le=MOST_ROUNDS)]
    folds: Positive
    w: Annotated[NDArray[np.float32], Sides("P")]
    training: str
    fewer: NotRequired[bool]


class AloneReply(TypedDict):
    """What a client answers.

    Attributes
    ----------
    held_out : array
        After 0, 1, 2, ... rounds, up to the last one whose weights are finite: rows and columns as in `FoldsReply`.
    fewer : array, optional
        The same of the models that were trained on half of each part.
    unfit : str, optional
        Why the client's rows cannot be cut into folds; then nothing was trained.
    """

    held_out: Annotated[NDArray[np.float64], Sides("_", "_", len(COLUMNS), nan=True)]
    fewer: NotRequired[Annotated[NDArray[np.float64], Sides("_", "_", len(COLUMNS), nan=True)]]
    unfit: NotRequired[str]


def _limit_folds(message: FoldsMessage, silo: Silo, limits: Limits) -> None:
    """Refuse what `train` would refuse, and more folds than models or than a silo should keep models for."""
    limit_train({**message, "w": message["w"][0]}, silo, limits)  # type: ignore[typeddict-unknown-key]
    limit_masks(message, silo, limits)  # for every fold's model
    if len(message["w"]) != message["folds"] or message["folds"] > MOST_FOLDS:
        raise Refused(f"`w` has {len(message['w'])} models; expected one for each fold, and at most {MOST_FOLDS}")
    given = cast(Message, message)
    honest.check_start(given, silo, Setting(**json.loads(message["setting"])), _slot(given, TRAINED))


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


def train_alone_stacked(messages: Mapping[str, Any], silos: Mapping[str, Silo]) -> dict[str, Message]:
    """Train the fold models of many clients, each alone, for all rounds; arguments as in `client.train_stacked`.

    Some clients after the others: memory does not grow with their number.
    """
    names = list(messages)
    parts = [names[start : start + TOGETHER] for start in range(0, len(names), TOGETHER)]
    return gather(messages, [_train_alone({name: messages[name] for name in part}, silos) for part in parts])


def _train_alone(messages: Mapping[str, Any], silos: Mapping[str, Silo]) -> dict[str, Message]:
    """Train the fold models of some clients, stacked."""
    setting = setting_of(messages)
    replies: dict[str, Message] = {}
    tracks = {}
    for name, message in messages.items():
        parts = parts_of(silos[name], message["folds"], setting.seed)
        unfit = unfit_folds(parts, silos[name])
        if unfit:
            replies[name] = {"held_out": np.full((1, 1, len(COLUMNS)), np.nan), "unfit": unfit}
        else:
            note_division(message, silos[name])
            if message.get("fewer"):
                draw = seeds.generator(setting.seed, "fewer rows", silos[name].secret)
                parts = [*parts, *(halved(part, draw) for part in parts)]
            w = tensor_of(message["w"], silos[name].device)
            tracks[name] = _Alone(silos[name], message["rounds"], parts, [w] * len(parts), [None] * len(parts))
    number = 0
    while any(number <= track.rounds for track in tracks.values() if not track.ended):
        number += 1
        running = {name: track for name, track in tracks.items() if not track.ended and number <= track.rounds + 1}
        work = {name: track.work(number, setting) for name, track in running.items()}
        for name, folds in all_folds(work, setting, silos).items():
            running[name].take(folds, number, setting)
    for name, track in tracks.items():
        if track.error:
            replies[name] = {"error": track.error}
            continue
        folds = messages[name]["folds"]
        outcomes = [joined([parts[:folds] for parts in kinds]) for kinds in track.outcomes]
        silos[name].state[ALONE] = {
            "training": messages[name]["training"],
            "loss": np.stack([[kind.loss for kind in kinds] for kinds in outcomes]).astype(np.float32),
            "right": np.stack([[kind.right for kind in kinds] for kinds in outcomes]).astype(np.uint8),
        }
        replies[name] = {
            "held_out": np.stack([_alone_columns(kinds, messages[name], silos[name]) for kinds in outcomes])
        }
        if messages[name].get("fewer"):
            fewer = [joined([parts[folds:] for parts in kinds]) for kinds in track.outcomes]
            shown = [_alone_columns(kinds, messages[name], silos[name], "fewer") for kinds in fewer]
            replies[name]["fewer"] = np.stack(shown)
    return replies


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


def _limit_alone(message: AloneMessage, silo: Silo, limits: Limits) -> None:
    """Refuse a setting that does not fit, and too few samples; no weights leave, so that it needs no partners."""
    require_samples(len(silo.arrays.y), limits, "a measurement")
    limit_setting(message, silo, limits)
    setting = Setting(**json.loads(message["setting"]))
    honest.check_steps(setting, silo)
    asked = {"round": 1, "w": message["w"], "training": message["training"]}
    honest.check_start(asked, silo, setting, ALONE_START, trained=False)
    if message["folds"] > MOST_FOLDS:
        raise Refused(f"`folds` is {message['folds']}; this silo makes at most {MOST_FOLDS}")


@action(
    "train-alone",
    purpose="trained models alone on a part of the samples and measured them on the rest: mean losses and accuracies",
    release=Release.EXACT,
    step=Step.ADVICE,
    limit=_limit_alone,
    cost=lambda message, silo: {"models": 1 + bool(message.get("fewer")), "repeats": new_division(message, silo)},
    consistent=impossible_alone,
    stacked=train_alone_stacked,
)
def train_alone(message: AloneMessage, silo: Silo) -> AloneReply:
    """Train the fold models of one client alone, for all rounds; only what was measured leaves."""
    return cast(AloneReply, train_alone_stacked({silo.name: message}, {silo.name: silo})[silo.name])


@dataclass(eq=False)
class _Alone:
    """The fold models of a client that trains alone: the server's part of the rounds, done at the client."""

    silo: Silo
    rounds: int
    parts: list[Part]
    w: list[Tensor]
    means: list[Tensor | None]
    outcomes: list[list[list[Outcome]]] = field(default_factory=list)
    ended: bool = False
    error: str = ""

    def work(self, number: int, setting: Setting) -> list[Work]:
        """Return what is to be done in a round: the last one, after which nothing is trained, only measures."""
        lot = self.silo.lot
        return [
            Work(
                Local(f"{lot}, fold {fold}", part.x, part.y, {"w": w}, {}, least=self.silo.limits.min_batch),
                [w] if not setting.averaging else [w if mean is None else mean, w],
                w,
                part,
                number,
                number <= self.rounds,
            )
            for fold, (part, w, mean) in enumerate(zip(self.parts, self.w, self.means, strict=True))
        ]

    def take(self, folds: list[Done], number: int, setting: Setting) -> None:
        """Keep what a round measured, and go on with the weights that it trained, unless they are not finite."""
        self.error = next((fold.error for fold in folds if fold.error), "")
        if self.error:
            self.ended = True
            return
        self.outcomes.append([list(kinds) for kinds in zip(*(fold.outcomes for fold in folds), strict=True)])
        self.ended = any(fold.diverged for fold in folds)
        if self.ended or number > self.rounds:
            return
        self.w = [fold.reply["w"] for fold in folds]
        if setting.averaging:
            self.means = [blend(mean, w, number, setting.averaging) for mean, w in zip(self.means, self.w, strict=True)]


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
    alone = _alone(message["alone"], silo) if "alone" in message else None
    kinds = joined([list(kind) for kind in zip(*(fold.outcomes for fold in folds), strict=True)])
    exact = [columns_of(kind, alone) for kind in kinds]
    models = [message["mean"], message["w"]] if "mean" in message else [message["w"]]
    shown = [
        rounded_columns(columns, kind.loss, silo, f"fold {place}", models[place % len(models)])
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
    replied = arrays_of(_stack([fold.reply for fold in folds]))
    _check_replies(
        message, silo, folds, max((judged_loss(kind.loss, silo, message["w"]) for kind in kinds), default=0.0)
    )
    keep_state(silo, message, arrays_of(_stack([fold.state for fold in folds])), _slot(message))
    return masked_reply(message, silo, replied, {"finite": True, "held_out": held_out})


def _check_replies(message: Message, silo: Silo, folds: list[Done], loss: float) -> None:
    """Refuse to send updates from which samples could be read, and keep what the next round is compared with."""
    setting, slot = Setting(**json.loads(message["setting"])), _slot(message, TRAINED)
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


def _alone(which: list[int], silo: Silo) -> Outcome:
    """Return what the client reached alone with each row, after a number of rounds with a kind of model."""
    kept = silo.state.get(ALONE)
    number, kind = which
    if kept is None or not (0 <= number < len(kept["loss"]) and 0 <= kind < kept["loss"].shape[1]):
        raise InputError(f"client `{silo.name}` has not trained alone for {number} rounds")
    return Outcome(kept["right"][number, kind].astype(bool), kept["loss"][number, kind].astype(np.float64))


def _alone_columns(
    kinds: list[Outcome], message: Mapping[str, Any], silo: Silo, which: str = "alone"
) -> list[list[float]]:
    """Return what `COLUMNS` names for each kind of model of a client that trained alone for some rounds.

    Where measures are rounded, all rounds are moved by the same lot: a mean over rounds tells no more than one of them.
    """
    return [
        rounded_columns(
            columns_of(kind, None), kind.loss, silo, f"{which} {place}", message["setting"], message["w"], least=2
        )
        for place, kind in enumerate(kinds)
    ]


def _stack(parts: list[State]) -> State:
    """Stack the arrays of the folds, one row for each fold."""
    return {key: torch.stack([part[key] for part in parts]) for key in parts[0]}
