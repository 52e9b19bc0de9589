"""Training on all rows but some, to measure on the rest: what happens at a silo when the number of rounds is chosen.

A client cuts its training rows into K folds, drawn from a digest of its own samples, so that a server cannot repeat
the draw. For each fold there is a model that never sees it. A message carries the K models; the client measures each
on the fold that it has not seen, trains it for a round on the others, and replies with the K models and one mean loss
over all folds. Test rows play no part.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, NotRequired, TypedDict, cast
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from fedcollab import seeds
from fedcollab.data.schema import Arrays
from fedcollab.data.split import fold_of
from fedcollab.errors import InputError
from fedcollab.training import honest
from fedcollab.training.averaging import add_means, split_means, use_means
from fedcollab.training.client import limit_train
from fedcollab.training.client_side import (
    algorithm_of,
    arrays_of,
    data_of,
    gather,
    in_stacks,
    is_finite,
    keep_state,
    kept_state,
    lend_network,
    line_of,
    setting_of,
    tensor_of,
)
from fedcollab.training.descend import Local, Setting, descend, gradient, personal, steps_of
from fedcollab.training.hooks import Algorithm, State
from fedcollab.training.kept import averaged_keys, first_state, with_own, withhold
from fedcollab.training.measures import rounded_losses
from fedcollab.training.models import Network
from fedcollab.wire.action import Refused, Release, Step, action
from fedcollab.wire.fields import FurtherArrays, Positive, Sides, Whole
from fedcollab.wire.limits import Limits
from fedcollab.wire.message import Message
from fedcollab.wire.silo import Silo

SLOT = "folds"
TRAINED = "trained-folds"  # where a silo keeps what the next round's weights are compared with
MOST_FOLDS = 10
Models = Annotated[NDArray[np.float32], Sides("K", "P")]


class FoldsMessage(TypedDict):
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


class FoldsReply(TypedDict):
    """What a client answers.

    Attributes
    ----------
    finite : bool
        Whether loss and weights of all models are finite.
    held_out : array
        The mean loss on rows that the models have not seen, over all folds: of the mean over rounds, if there is one,
        then of the last round's models.
    w : array, optional
        The trained weights.
    diverged : str, optional
        What is not finite.
    unfit : str, optional
        Why the client's rows cannot be cut into folds; then nothing was measured or trained.
    """

    finite: bool
    held_out: Annotated[NDArray[np.float64], Sides("_", nan=True)]
    w: NotRequired[Models]
    diverged: NotRequired[str]
    unfit: NotRequired[str]


@dataclass(frozen=True, eq=False)
class Part:
    """The rows of a client that one fold's model trains on (`x`, `y`), and those that it is measured on."""

    x: Tensor
    y: Tensor
    x_held: Tensor
    y_held: Tensor


@dataclass(frozen=True, eq=False)
class Work:
    """One fold of one client in a round: what is trained, what is measured, what was sent, the rows to measure on."""

    local: Local
    measured: list[Local]
    sent: Tensor
    part: Part
    number: int
    train: bool


@dataclass(frozen=True, eq=False)
class Done:
    """What a fold of a client left: losses of the rows that were held out, summed and each, and what training gave."""

    losses: list[float]
    rows: int
    reply: State
    state: State
    diverged: str = ""
    error: str = ""
    each: list[NDArray[np.float64]] = field(default_factory=list)
    mean_loss: float = 0.0


_parts: WeakKeyDictionary[Arrays, dict[tuple[int, int], list[Part]]] = WeakKeyDictionary()


def parts_of(silo: Silo, folds: int, seed: int) -> list[Part]:
    """Return a client's training rows cut into folds, made once.

    Parameters
    ----------
    silo : Silo
        The client.
    folds : int
        How many folds.
    seed : int
        The training's seed; the client's own samples make the draw unknown to a server.
    """
    known = _parts.setdefault(silo.arrays, {})
    if (folds, seed) not in known:
        known.clear()
        data = data_of(silo)
        draw = seeds.generator(seed, "training folds", silo.secret)
        fold = fold_of(silo.arrays.y, folds, draw, silo.arrays.groups)
        masks = [torch.from_numpy(fold == number).to(silo.device) for number in range(folds)]
        known[folds, seed] = [
            Part(data["x"][~held], data["y"][~held], data["x"][held], data["y"][held]) for held in masks
        ]
    return known[folds, seed]


def _limit_folds(message: FoldsMessage, silo: Silo, limits: Limits) -> None:
    """Refuse what `train` would refuse, and more folds than models or than a silo should keep models for."""
    limit_train({**message, "w": message["w"][0]}, silo, limits)  # type: ignore[typeddict-unknown-key]
    if len(message["w"]) != message["folds"] or message["folds"] > MOST_FOLDS:
        raise Refused(f"`w` has {len(message['w'])} models; expected one for each fold, and at most {MOST_FOLDS}")
    honest.check_start(cast(Message, message), silo, Setting(**json.loads(message["setting"])), TRAINED)


def train_folds_stacked(messages: Mapping[str, Any], silos: Mapping[str, Silo]) -> dict[str, Message]:
    """Measure and train the fold models of many clients, stacked; arguments as in `client.train_stacked`."""
    setting = setting_of(messages)
    unfit = {
        name: _unfit(parts_of(silos[name], messages[name]["folds"], setting.seed), silos[name]) for name in messages
    }
    fit = [name for name in messages if not unfit[name]]
    replies: dict[str, Message] = {
        name: {"finite": True, "held_out": np.full(1, np.nan), "unfit": why} for name, why in unfit.items() if why
    }
    if not fit:
        return gather(messages, [replies])
    jobs: dict[str, Work] = {
        f"{name}\x1f{fold}": job for name in fit for fold, job in enumerate(_work(messages[name], silos[name], setting))
    }
    steps = {key: steps_of(len(job.local.y), setting) for key, job in jobs.items()}
    device = next(iter(silos.values())).device

    def work(keys: list[str]) -> dict[str, Done]:
        done = _measure_and_train({key: jobs[key] for key in keys}, setting, device)
        if len(keys) > 1 and any(result.error for result in done.values()):  # only the client at fault is lost
            done = {key: work([key])[key] for key in keys}
        return done

    done = {key: result for stack in in_stacks(work, steps, setting, device) for key, result in stack.items()}
    for name in fit:
        folds = [done[f"{name}\x1f{fold}"] for fold in range(messages[name]["folds"])]
        replies[name] = _reply(messages[name], silos[name], folds)
    return gather(messages, [replies])


@action(
    "train-folds",
    purpose="trained models on a part of the samples and measured them on the rest: weights and one mean loss",
    release=Release.EXACT,
    step=Step.ADVICE,
    limit=_limit_folds,
    cost=lambda message, silo: {"rounds": 1, "repeats": 1 if "since" not in message else 0},
    stacked=train_folds_stacked,
)
def train_folds(message: Annotated[FoldsMessage, FurtherArrays], silo: Silo) -> Annotated[FoldsReply, FurtherArrays]:
    """Measure and train the fold models of one client."""
    return cast(FoldsReply, train_folds_stacked({silo.name: message}, {silo.name: silo})[silo.name])


def _unfit(parts: list[Part], silo: Silo) -> str:
    """Return why a client's folds cannot be used: empty ones, or updates of fewer samples than the silo's limit."""
    fewest, held = min(len(part.y) for part in parts), min(len(part.y_held) for part in parts)
    if fewest < silo.limits.min_samples:
        return f"a fold leaves {fewest} sample(s) to train on; this silo asks for at least {silo.limits.min_samples}"
    if held < silo.limits.min_samples:  # the models of two folds differ by the samples of these folds
        return f"a fold has {held} sample(s); this silo asks for at least {silo.limits.min_samples}"
    return "" if all(len(part.y_held) for part in parts) else "a fold has no samples"


def _work(message: Message, silo: Silo, setting: Setting) -> list[Work]:
    """Return a client's folds with what it was sent for each, and each one's state (a new one if the client is new)."""
    algorithm = algorithm_of(setting)
    sent = {key: tensor_of(value, silo.device) for key, value in message.items() if isinstance(value, np.ndarray)}
    kept = kept_state(silo, message, SLOT)
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
        local = Local(name, part.x, part.y, with_own(own, state, setting), state, means, least)
        measured = [local]
        if mean is not None:
            used = use_means(state, means)
            blended = with_own({**own, "w": mean}, used, setting)
            measured = [Local(name, part.x, part.y, blended, used, least=least), local]
        work.append(Work(local, measured, own["w"], part, message["round"], message["train"]))
    return work


def _measure_and_train(jobs: Mapping[str, Work], setting: Setting, device: str) -> dict[str, Done]:
    """Measure a stack of fold models on the rows that they have not seen, then train them for a round."""
    algorithm = algorithm_of(setting)
    try:
        with lend_network(setting, device) as network:
            measured = {key: _measure(job, algorithm, network, setting) for key, job in jobs.items()}
            trained = [key for key, job in jobs.items() if job.train]
            if not trained:
                return measured
            replies, states, losses = descend(
                [jobs[key].local for key in trained], algorithm, network, setting, next(iter(jobs.values())).number
            )
    except InputError:
        raise
    except Exception as error:  # as in training: the clients of this stack fail, the others go on
        return {key: Done([], 0, {}, {}, error=line_of(error)) for key in jobs}
    for key, reply, state, loss in zip(trained, replies, states, losses, strict=True):
        job = jobs[key]
        withhold(reply, state, job.sent, setting)
        state = add_means(state, job.local.means, averaged_keys(algorithm, setting), job.number, setting.averaging)
        good = np.isfinite(loss) and all(is_finite(value) for value in (*reply.values(), *state.values()))
        diverged = "" if good else f"loss {loss:g}"
        measured[key] = replace(measured[key], reply=reply, state=state, diverged=diverged, mean_loss=float(loss))
    return measured


def _measure(job: Work, algorithm: Algorithm, network: Network, setting: Setting) -> Done:
    """Return the loss of each kind of model, summed over the rows that it has not seen."""
    losses: list[NDArray[np.float64]] = []
    summed, rows = [], len(job.part.y_held)
    for local in job.measured:
        w = local.message["w"]
        if algorithm.personalises:
            w = personal(local, algorithm, network, setting, job.number - 1)
        logits = gradient(network, setting).logits(w, job.part.x_held)
        losses.append(functional.cross_entropy(logits, job.part.y_held, reduction="none").double().cpu().numpy())
        summed.append(float(functional.cross_entropy(logits, job.part.y_held, reduction="sum")))
    return Done(summed, rows, {"w": job.sent}, job.local.state, each=losses)


def _reply(message: Message, silo: Silo, folds: list[Done]) -> Message:
    """Return a client's reply from its folds, and keep their states for the next round."""
    error = next((fold.error for fold in folds if fold.error), "")
    if error:
        return {"error": error}
    rows = sum(fold.rows for fold in folds)
    held_out = np.array([sum(losses) / rows for losses in zip(*(fold.losses for fold in folds), strict=True)])
    for place in range(len(held_out)):
        losses = np.concatenate([fold.each[place] for fold in folds])
        held_out[place] = rounded_losses(
            held_out[place : place + 1], losses[None], silo, f"fold {place}", message["w"]
        )[0]
    diverged = next((fold.diverged for fold in folds if fold.diverged), "")
    if diverged:
        return {"finite": False, "held_out": held_out, "diverged": diverged}
    if message["last"]:
        for slot in (SLOT, f"{SLOT}-before"):
            silo.state.pop(slot, None)
    if not message["train"]:
        return {"finite": True, "held_out": held_out}
    replied = arrays_of(_stack([fold.reply for fold in folds]))
    _check_replies(message, silo, folds, replied["w"])
    keep_state(silo, message, arrays_of(_stack([fold.state for fold in folds])), SLOT)
    return {"finite": True, "held_out": held_out, **replied}


def _check_replies(message: Message, silo: Silo, folds: list[Done], replied: NDArray[np.float32]) -> None:
    """Refuse to send updates from which samples could be read, and keep what the next round is compared with."""
    setting = Setting(**json.loads(message["setting"]))
    with lend_network(setting, silo.device) as network:
        given = [
            honest.check_reply(
                network, message, replied[place], part.x.cpu(), folds[place].mean_loss, silo, TRAINED, place
            )
            for place, part in enumerate(parts_of(silo, message["folds"], setting.seed))
        ]
    honest.note_update(message, silo, replied, given, TRAINED)


def _stack(parts: list[State]) -> State:
    """Stack the arrays of the folds, one row for each fold."""
    return {key: torch.stack([part[key] for part in parts]) for key in parts[0]}
