"""The client side of trees: counts of rows between edges, and histograms of gradients. Sums over rows leave.

`count-rows`          how many rows lie between edges of each feature, from which all clients' thresholds follow
`train-trees`         sums of gradients and hessians by node and bin, for one level of the tree that is being grown
`train-trees-folds`   the same for a model on each fold of the client's rows, and how good it is on the rows that it has
                      not seen

Messages carry all trees so far, so that a client that missed rounds, or has forgotten everything, can take part at
once. The first level's histograms cost a plan a round; those of the next levels of the same trees are free, as long as
they go on from what was asked for before.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, NotRequired, TypedDict, cast

import numpy as np
from numpy.typing import NDArray

from fedcollab.silo.rounding import lot_of, rounded
from fedcollab.threads import balance, in_threads
from fedcollab.training.alone_client import ALONE, reached_alone
from fedcollab.training.blur import update_lot
from fedcollab.training.client import limit_coalition, limit_setting
from fedcollab.training.client_side import gather, guarded, setting_of
from fedcollab.training.descend import Setting
from fedcollab.training.folds import (
    COLUMNS,
    MOST_FOLDS,
    columns_of,
    joined,
    new_division,
    note_division,
    parts_of,
    unfit_folds,
)
from fedcollab.training.honest import MOST_LOSS
from fedcollab.training.measures import judged_loss, rounded_columns, shown_loss
from fedcollab.training.plausible import LARGEST, impossible_held_out
from fedcollab.training.scores import SCORES, scores_of
from fedcollab.training.trees.cuts import Cuts, limit_cuts
from fedcollab.training.trees.forest import Forest, Growing, growing_of
from fedcollab.training.trees.growth import open_nodes
from fedcollab.training.trees.histograms import bin_rows
from fedcollab.training.trees.rows import Margins, histograms, rows_to_show
from fedcollab.wire.action import Refused, Release, Step, action, require_samples, require_size
from fedcollab.wire.fields import Positive, Sides, Whole
from fedcollab.wire.limits import Limits
from fedcollab.wire.message import Message
from fedcollab.wire.silo import Silo

#: where a silo keeps which tree it was asked about last
GROWING = "trees"
#: what rounding may add to sums, as a share of them
ROUNDED = 1e-6
#: the most edges of a feature that rows are counted between
MOST_EDGES = 16_384

Thresholds = Annotated[NDArray[np.float32], Sides("_")]
Ends = Annotated[NDArray[np.int64], Sides("F")]


class CountMessage(TypedDict):
    """What a client is sent to count rows.

    Attributes
    ----------
    setting : str
        As in `client.TrainMessage`.
    round : int
        0.
    cuts, ends : array
        The edges, and where those of each feature end.
    """

    setting: str
    round: Whole
    cuts: Thresholds
    ends: Ends


class CountReply(TypedDict):
    """What a client answers: the number of rows in each cell, features one after the other."""

    counts: Annotated[NDArray[np.int64], Sides("_", low=0)]


class TreesMessage(TypedDict):
    """What a client is sent to sum its gradients.

    Attributes
    ----------
    setting, since, training, coalition
        As in `client.TrainMessage`.
    round : int
        The round whose trees are grown; 0 asks for gradients at margin 0, from which the base score follows.
    level : int
        The level of the trees; the levels above are in `w`.
    w : array
        The flat weights of one model, or of one for each fold.
    cuts, ends : array
        The thresholds, and where those of each feature end.
    """

    setting: str
    round: Whole
    level: Whole
    w: Annotated[NDArray[np.float32], Sides("K", "P")]
    cuts: Thresholds
    ends: Ends
    since: NotRequired[Whole]
    training: NotRequired[str]
    coalition: NotRequired[list[str]]


class TreesReply(TypedDict):
    """What a client answers: the sums of each open node, and at the first level the loss before this round."""

    sums: Annotated[NDArray[np.float64], Sides("_", "_", 2)]
    loss: NotRequired[Annotated[NDArray[np.float64], Sides(1)]]


class TreesFoldsMessage(TreesMessage):
    """What a client is sent to sum gradients on folds; further fields as in `folds_client.FoldsMessage`."""

    folds: Positive
    train: bool
    measure: bool
    alone: NotRequired[Annotated[list[Whole], Sides(2)]]


class TreesFoldsReply(TypedDict):
    """What a client answers: sums as in `TreesReply`, for one fold after the other; measures as in `FoldsReply`."""

    sums: NotRequired[Annotated[NDArray[np.float64], Sides("_", "_", 2)]]
    held_out: NotRequired[Annotated[NDArray[np.float64], Sides(1, len(COLUMNS), nan=True)]]
    unfit: NotRequired[str]


def cuts_of(message: Mapping[str, Any]) -> Cuts:
    """Return the thresholds of a message."""
    return Cuts(message["cuts"], message["ends"])


def _growing(message: Mapping[str, Any]) -> Growing:
    """Return how the trees of a message are grown."""
    how = growing_of(json.loads(message["setting"])["model"])
    if how is None:
        raise Refused("`setting` names no model of trees")
    return how


def _limit_count(message: CountMessage, silo: Silo, limits: Limits) -> None:
    """Refuse edges that do not fit, and counts of fewer rows than the silo's limit."""
    require_samples(len(silo.arrays.y), limits, "counts of rows")
    limit_setting(message, silo, limits)
    limit_cuts(message, _growing(message).features, MOST_EDGES)


@action(
    "count-rows",
    purpose="counted the samples between edges of each feature",
    release=Release.EXACT,
    step=Step.ROUNDS,
    limit=_limit_count,
    cost=lambda message, silo: {"models": 1},
    consistent=lambda message, reply: (
        None if len(reply["counts"]) == len(message["cuts"]) + len(message["ends"]) else "`counts` must have all cells"
    ),
)
def count_rows(message: CountMessage, silo: Silo) -> CountReply:
    """Count one client's rows between edges."""
    cuts = cuts_of(message)
    bins = bin_rows(rows_to_show(silo.arrays, silo).x, cuts)
    counts = np.bincount(bins.reshape(-1), minlength=int(cuts.offsets[-1]))
    shown = rounded(counts, np.sqrt(counts), silo, "rows", message["cuts"], message["ends"])
    return {"counts": np.maximum(np.round(shown), 0).astype(np.int64)}


def _limit_trees(message: TreesMessage, silo: Silo, limits: Limits) -> None:
    """Refuse what an update would be refused for, and trees that do not fit."""
    if limits.secure_aggregation:
        raise Refused("histograms of trees are not masked; this silo sends updates under masks alone")
    limit_coalition(message, silo, limits)
    limit_setting({**message, "w": message["w"][0]}, silo, limits)
    how = _growing(message)
    limit_cuts(message, how.features, how.max_bin)
    most = how.shape.rounds + (not message.get("train", True))  # the last message measures alone
    if message["round"] > most or message["level"] >= how.shape.depth:
        raise Refused(f"round {message['round']}, level {message['level']} is beyond what `setting` says")
    if not message["round"] and (message["level"] or np.any(message["w"])):
        raise Refused("in round 0 there are no trees")
    features = _forests(message, how)[0].feature
    if features.min() < 0 or features.max() > how.features:
        raise Refused("`w` splits by features that there are not")
    nodes = len(message["w"]) * how.shape.trees * 2 ** message["level"]
    require_size(2 * nodes * (len(message["cuts"]) + len(message["ends"])), limits)


def _limit_folds(message: TreesFoldsMessage, silo: Silo, limits: Limits) -> None:
    """Refuse what `train-trees` would refuse, and more folds than models or than a silo should make."""
    _limit_trees(message, silo, limits)
    if message["measure"] and message["level"]:  # it costs nothing, so that it must say nothing new
        raise Refused("models are measured with the first level of a round")
    if len(message["w"]) != message["folds"] or message["folds"] > MOST_FOLDS:
        raise Refused(f"`w` has {len(message['w'])} models; expected one for each fold, and at most {MOST_FOLDS}")


def _forests(message: Mapping[str, Any], how: Growing) -> list[Forest]:
    """Return the trees of each model of a message."""
    return [Forest.of(w, how.shape) for w in message["w"]]


def _asked_about(message: Mapping[str, Any], how: Growing) -> str:
    """Return a checksum of the trees above the level that a message asks about."""
    digest = hashlib.blake2b(message["setting"].encode(), digest_size=16)
    position, level = max(0, message["round"] - 1), message["level"]
    for forest in _forests(message, how):
        digest.update(forest.base_score.tobytes() + forest.feature[:position].tobytes())
        digest.update(forest.threshold[:position].tobytes() + forest.value[:position].tobytes())
        above = max(0, 2 ** (level - 1) - 1) if level else 0
        digest.update(forest.feature[position, :, :above].tobytes() + forest.threshold[position, :, :above].tobytes())
    return digest.hexdigest()


def _whole_above(message: Mapping[str, Any], how: Growing) -> str:
    """Return a checksum of the trees that a message asks about: what a message about the next level must have."""
    return _asked_about({**message, "level": message["level"] + 1}, how)


def _goes_on(message: Mapping[str, Any], silo: Silo) -> bool:
    """Return whether a message asks for the next level of the trees that the silo was asked about last."""
    kept = silo.state.get(_slot(message))
    wanted = {"training": message.get("training"), "round": message["round"], "level": message["level"] - 1}
    if kept is None or not message["level"] or any(kept[key] != value for key, value in wanted.items()):
        return False
    how = growing_of(json.loads(message["setting"])["model"])
    return how is not None and kept["trees"] == _asked_about(message, how)


def _slot(message: Mapping[str, Any]) -> str:
    """Return where a silo keeps which trees it was asked about last; several trainings may run in step."""
    return f"{GROWING} folds {message.get('training', '')}" if "folds" in message else GROWING


def _note(message: Mapping[str, Any], silo: Silo, how: Growing) -> None:
    """Keep which trees a silo was asked about: the next level of them costs nothing more."""
    silo.state[_slot(message)] = {
        "training": message.get("training"),
        "round": message["round"],
        "level": message["level"],
        "trees": _whole_above(message, how),
    }


def train_trees_stacked(messages: Mapping[str, Any], silos: Mapping[str, Silo]) -> dict[str, Message]:
    """Sum the gradients of many clients, in as many threads as cores; arguments as in `client.train_stacked`."""
    return _each(_sum, messages, silos)


def train_trees_folds_stacked(messages: Mapping[str, Any], silos: Mapping[str, Silo]) -> dict[str, Message]:
    """Sum the gradients of many clients' folds; arguments as in `client.train_stacked`."""
    return _each(_sum_folds, messages, silos)


def _each(work: Any, messages: Mapping[str, Any], silos: Mapping[str, Silo]) -> dict[str, Message]:
    """Answer each client's message by `work`, a function of message, silo and setting, in as many threads as cores."""
    setting = setting_of(messages)

    def some(names: list[str]) -> dict[str, Message]:
        return {name: guarded(work, messages[name], silos[name], setting) for name in names}

    return gather(messages, in_threads(some, balance({name: len(silos[name].arrays.y) for name in messages})))


@action(
    "train-trees",
    purpose="grew trees: sums of gradients by node and bin",
    release=Release.EXACT,
    step=Step.TRAINING,
    limit=_limit_trees,
    cost=lambda message, silo: {} if _goes_on(message, silo) else {"rounds": 1},
    consistent=lambda message, reply: _impossible_sums(message, reply),
    stacked=train_trees_stacked,
)
def train_trees(message: TreesMessage, silo: Silo) -> TreesReply:
    """Sum one client's gradients by node and bin."""
    return cast(TreesReply, train_trees_stacked({silo.name: message}, {silo.name: silo})[silo.name])


@action(
    "train-trees-folds",
    purpose="grew trees on a part of the samples and measured them on the rest: sums of gradients and one mean loss",
    release=Release.EXACT,
    step=Step.ROUNDS,
    limit=_limit_folds,
    cost=lambda message, silo: (
        {}
        if _goes_on(message, silo)
        else {"rounds" if message["train"] else "models": 1, "repeats": new_division(message, silo)}
    ),
    consistent=lambda message, reply: _impossible_folds(message, reply),
    stacked=train_trees_folds_stacked,
    reads=lambda message, silo: [silo.state.get(ALONE) if "alone" in message else None],
)
def train_trees_folds(message: TreesFoldsMessage, silo: Silo) -> TreesFoldsReply:
    """Sum the gradients of one client's folds, and measure their models."""
    return cast(TreesFoldsReply, train_trees_folds_stacked({silo.name: message}, {silo.name: silo})[silo.name])


def _sum(message: Message, silo: Silo, setting: Setting) -> Message:
    """Answer `train-trees`: sums of gradients and hessians by open node and bin; at the first level also the loss."""
    how, (forest,) = _growing(message), _forests(message, _growing(message))
    margins = _margins(message, rows_to_show(silo.arrays, silo), forest, how, setting, "train")
    reply: Message = {}
    if not message["level"]:
        losses = margins.losses
        _refuse_absurd(losses, message, silo)
        exact = np.array([losses.mean()])
        reply["loss"] = shown_loss(losses, silo, message["w"]) if silo.limits.round_measures else exact
    reply["sums"] = _histograms(message, silo, margins, forest, 0)
    _note(message, silo, how)
    return reply


def _sum_folds(message: Message, silo: Silo, setting: Setting) -> Message:
    """Sum the gradients of one client's folds, and measure their models on the rows that they have not seen."""
    how, parts = _growing(message), parts_of(silo, message["folds"], setting.seed, grown=True)
    unfit = unfit_folds(parts, silo)
    if unfit:
        return {"unfit": unfit}
    note_division(message, silo)
    forests = _forests(message, how)
    margins = [
        _margins(message, rows_to_show(part, silo, 1 + fold), forest, how, setting, "folds")
        for fold, (part, forest) in enumerate(zip(parts, forests, strict=True))
    ]
    reply: Message = {}
    if message["measure"]:
        alone = reached_alone(message["alone"], silo) if "alone" in message else None
        (outcome,) = joined([[each.outcome(held=True) for each in margins]])
        columns = columns_of(outcome, alone, silo)
        reply["held_out"] = np.array([rounded_columns(columns, outcome, silo, "fold 0", message["w"])])
        _refuse_absurd(outcome.loss, message, silo)
    if message["train"]:
        found = [
            _histograms(message, silo, each, forest, fold)
            for fold, (each, forest) in enumerate(zip(margins, forests, strict=True))
        ]
        reply["sums"] = np.concatenate(found)
        _note(message, silo, how)
    else:  # the last message of a training, or a round that others grow
        silo.state.pop(_slot(message), None)
    return reply


def _margins(message: Message, rows: Any, forest: Forest, how: Growing, setting: Setting, kind: str) -> Margins:
    """Return the margins before the round of a message."""
    rounds = max(0, message["round"] - 1)
    own = bool(setting.keep) and message["round"] > 0
    return Margins.of(rows, forest, rounds, how, training=f"{kind} {message.get('training', '')}", own=own)


def _histograms(message: Message, silo: Silo, margins: Margins, forest: Forest, fold: int) -> NDArray[np.float64]:
    """Return the sums of one model's open nodes, as they may leave the silo."""
    lot = update_lot(silo, message["setting"], message["round"], message["level"], fold, message["w"], message["cuts"])
    cells = lot_of(silo, "cells", fold) if silo.limits.round_measures else ""
    position = max(0, message["round"] - 1)
    return histograms(margins, forest, position, message["level"], cuts_of(message), cells=cells, lot=lot)


def _refuse_absurd(losses: NDArray[np.float64], message: Message, silo: Silo) -> None:
    """Refuse trees that are far from any use: they may be made to isolate single samples."""
    guessing = SCORES[silo.schema.task].guessing(silo.schema.outputs)
    if silo.limits.check_training and judged_loss(losses, silo, message["w"]) > MOST_LOSS * (1 + guessing):
        raise Refused("the trees that were sent are far from any use; this silo does not go on from them")


def _impossible_sums(message: Mapping[str, Any], reply: Mapping[str, Any]) -> str | None:
    """Return what is wrong with sums of gradients, or None."""
    how = _growing(message)
    position, level = max(0, message["round"] - 1), message["level"]
    nodes = sum(len(open_nodes(forest, position, level)) for forest in _forests(message, how))
    wanted = (nodes, len(message["cuts"]) + len(message["ends"]), 2)
    if reply["sums"].shape != wanted:
        return f"`sums` has shape {reply['sums'].shape}; expected {wanted}"
    if not reply["sums"].size:
        return None
    if float(np.abs(reply["sums"]).max()) > LARGEST:
        return f"`sums` has values beyond {LARGEST:g}"
    wholes = np.add.reduceat(reply["sums"], cuts_of(message).offsets[:-1], axis=1)  # of each feature: the same rows
    slack = ROUNDED * (1 + np.abs(reply["sums"]).sum(axis=1, keepdims=True))
    if (np.abs(wholes - wholes[:, :1]) > slack).any():
        return "`sums` of one feature are of other rows than those of another"
    if (reply["sums"][..., 1] < -slack[..., 1]).any():
        return "`sums` has negative hessians"
    return None


def _impossible_folds(message: Mapping[str, Any], reply: Mapping[str, Any]) -> str | None:
    """Return what is wrong with what a client answers about trees on its folds, or None."""
    if "unfit" in reply:
        return None
    if ("held_out" in reply) != message["measure"] or ("sums" in reply) != message["train"]:
        return "`held_out` and `sums` must be there as they were asked for"
    wrong = impossible_held_out(reply["held_out"], scores_of(message["setting"])) if "held_out" in reply else None
    return wrong or (_impossible_sums(message, reply) if "sums" in reply else None)
