"""Training alone on all rows but some: what happens at a silo when it is measured what others could add.

`train-alone` does all rounds at once without anybody else, and keeps at the client what each model did with each row
that it had not seen. Later models are compared with it on the same rows (`folds_client`): means and standard errors
leave.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, NotRequired, TypedDict, cast

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray
from torch import Tensor

from fedcollab import seeds
from fedcollab.errors import InputError
from fedcollab.training import honest
from fedcollab.training.arrays import tensor_of
from fedcollab.training.averaging import blend
from fedcollab.training.client import limit_setting
from fedcollab.training.client_side import gather, setting_of
from fedcollab.training.descend import Local, Setting
from fedcollab.training.folds import (
    COLUMNS,
    MOST_FOLDS,
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
from fedcollab.training.measures import rounded_columns
from fedcollab.training.outcomes import Outcome, as_kept, as_right
from fedcollab.training.plausible import impossible_alone
from fedcollab.training.trees.alone import outcomes_alone
from fedcollab.training.trees.cuts import Cuts, limit_cuts
from fedcollab.training.trees.forest import growing_of
from fedcollab.wire.action import Refused, Release, Step, action, require_samples
from fedcollab.wire.fields import Positive, Sides
from fedcollab.wire.limits import Limits
from fedcollab.wire.message import Message
from fedcollab.wire.silo import Silo

ALONE = "alone"  # where a silo keeps what it reached alone with each row
ALONE_START = "trained-alone"  # nothing is kept there: every training alone starts anew
MOST_ROUNDS = 10_000
TOGETHER = 16  # clients whose models are trained alone at the same time, in one process


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
    cuts, ends : array, optional
        Of trees: the thresholds of their splits, and where those of each feature end.
    """

    setting: str
    rounds: Annotated[int, Meta(ge=1, le=MOST_ROUNDS)]
    folds: Positive
    w: Annotated[NDArray[np.float32], Sides("P")]
    training: str
    fewer: NotRequired[bool]
    cuts: NotRequired[Annotated[NDArray[np.float32], Sides("_")]]
    ends: NotRequired[Annotated[NDArray[np.int64], Sides("F")]]


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
        parts = parts_of(silos[name], message["folds"], setting.seed, grown="cuts" in message)
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
            if "cuts" in message:
                tracks[name].ended = True
                tracks[name].outcomes = outcomes_alone(
                    parts, Cuts(message["cuts"], message["ends"]), message, setting, silos[name]
                )
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
            "right": as_kept(np.stack([[kind.right for kind in kinds] for kinds in outcomes])),
        }
        replies[name] = {
            "held_out": np.stack([_alone_columns(kinds, messages[name], silos[name]) for kinds in outcomes])
        }
        if messages[name].get("fewer"):
            fewer = [joined([parts[folds:] for parts in kinds]) for kinds in track.outcomes]
            shown = [_alone_columns(kinds, messages[name], silos[name], "fewer") for kinds in fewer]
            replies[name]["fewer"] = np.stack(shown)
    return replies


def _limit_alone(message: AloneMessage, silo: Silo, limits: Limits) -> None:
    """Refuse a setting that does not fit, and too few samples; no weights leave, so that it needs no partners."""
    require_samples(len(silo.arrays.y), limits, "a measurement")
    limit_setting(message, silo, limits)
    setting = Setting.from_json(message["setting"])
    honest.check_steps(setting, silo)
    asked = {"round": 1, "w": message["w"], "training": message["training"]}
    honest.check_start(asked, silo, setting, ALONE_START, trained=False)
    how = growing_of(setting.model)
    if (how is None) == ("cuts" in message) or ("cuts" in message) != ("ends" in message):
        raise Refused("thresholds belong to models of trees, and to them alone")
    if how is not None:
        limit_cuts(cast(Message, message), how.features, how.max_bin)
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


def reached_alone(which: list[int], silo: Silo) -> Outcome:
    """Return what the client reached alone with each row.

    Parameters
    ----------
    which : list of int
        After how many rounds, and with which kind of model.
    silo : Silo
        The client, which has trained alone.

    Raises
    ------
    InputError
        If it has not, or not for so many rounds.
    """
    kept = silo.state.get(ALONE)
    number, kind = which
    if kept is None or not (0 <= number < len(kept["loss"]) and 0 <= kind < kept["loss"].shape[1]):
        raise InputError(f"client `{silo.name}` has not trained alone for {number} rounds")
    return Outcome(as_right(kept["right"][number, kind]), kept["loss"][number, kind].astype(np.float64))


def _alone_columns(
    kinds: list[Outcome], message: Mapping[str, Any], silo: Silo, which: str = "alone"
) -> list[list[float]]:
    """Return what `COLUMNS` names for each kind of model of a client that trained alone for some rounds.

    Where measures are rounded, all rounds are moved by the same lot: a mean over rounds tells no more than one of them.
    """
    return [
        rounded_columns(
            columns_of(kind, None, silo), kind, silo, f"{which} {place}", message["setting"], message["w"], least=2
        )
        for place, kind in enumerate(kinds)
    ]
