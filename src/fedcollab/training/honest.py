"""Whether a training asks for what honest training asks for: checks at a silo, against weights that are crafted.

A server that chooses the weights from which a silo trains can choose them so that the update isolates single samples (a
first layer that only one sample activates, weights so large that only one sample has a gradient). So a silo with
`check_training` in its limits asks for three things:

    start    the first weights of a training are those that model and seed give, which the silo draws itself; or those
             that an earlier training of the same model left; or those that its approved plan names. A silo that is
             first asked in a later round takes weights that as many rounds could have reached
    stride   from round to round the weights move no farther than 30 times the longest update that the silo itself has
             sent in this training (an average of updates is no longer than the longest, and a partner with more samples
             takes more steps); likewise what else is sent
    reply    the silo attacks what it is about to send (with its error, see `blur`), and the mean of what it has sent in
             this training: of all rows, those that units of the first layer, differences of two, or differences from
             the round before have given away so far must be at most a 25th, beyond those that are given away by chance;
             and the loss of the weights that were sent must be of this world

The checks are for crafted weights. What an honest server learns from many honest updates is another matter: see
docs/threats.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcollab import seeds
from fedcollab.training.client_side import data_of
from fedcollab.training.descend import Setting
from fedcollab.training.models import Network
from fedcollab.training.scores import SCORES
from fedcollab.wire.action import Refused
from fedcollab.wire.message import Message
from fedcollab.wire.silo import Silo

Floats = NDArray[np.float64]
#: two columns, the lower left corner of a map, the sides of a cell, and which cells have a row in or beside them
Map = tuple[tuple[int, int], Floats, Floats, NDArray[np.bool_]]

#: how many times the longest own update the weights may move in a round, and for how many missed rounds
STRIDE, MISSED = 30.0, 10
#: the largest step size, and the largest share by which a step may shrink the weights
LARGEST_LR, LARGEST_DECAY = 1.0, 0.05
#: the largest weight decay: beyond it the weights go where the server has them go, whatever the samples are
MOST_DECAY = 1.0
#: a guess is a row's if it is within this many deviations in every column; so many columns are looked at
NEAR, COLUMNS = 0.03, 8
#: the share of the samples that may be given away beyond chance before an update is refused, and their least number
EXPOSED, AT_LEAST = 0.04, 2
#: the rounded mean loss above which weights are no honest model, times 1 + log(classes); samples count up to 2
MOST_LOSS = 1.8
#: pairs of units that are looked at, those nearest to each other first
PAIRS = 2_000_000
#: cells of a map of rows, each way
CELLS = 512
#: units of the second layer that are looked at
MOST_OUTGOING = 256


def check_steps(setting: Setting, silo: Silo) -> None:
    """Refuse step sizes, decay and batches that would let single samples decide.

    Parameters
    ----------
    setting : Setting
        The training's setting.
    silo : Silo
        The silo, whose limits have the smallest batch.

    Raises
    ------
    Refused
        If one is out of bounds.
    """
    limits = silo.limits
    if not limits.check_training:
        return
    if setting.batch_size < limits.min_batch:
        raise Refused(f"`batch_size` is {setting.batch_size}; this silo asks for at least {limits.min_batch}")
    large = setting.lr * setting.weight_decay > LARGEST_DECAY or setting.weight_decay > MOST_DECAY
    if setting.lr > LARGEST_LR or large:
        raise Refused(
            f"`lr` is {setting.lr:g} and `weight_decay` {setting.weight_decay:g}; this silo takes smaller steps"
        )


def check_start(message: Message, silo: Silo, setting: Setting, slot: str, *, trained: bool = True) -> None:
    """Refuse weights that honest training would not send: a start of the server's own, or a leap.

    Parameters
    ----------
    message : dict
        The message: `w` of one model, or of several in rows.
    silo : Silo
        The silo, whose state has the weights of the last round and the longest update.
    setting : Setting
        The training's setting.
    slot : str
        The place in the silo's state.
    trained : bool, default True
        Whether a model that this silo has trained may be the start. Not where it trains for many rounds by itself: the
        server has chosen much of that model, and could choose where it goes.

    Raises
    ------
    Refused
        If the weights are not the start of this training, or have moved too far since the last round.
    """
    if not silo.limits.check_training:
        return
    w = np.atleast_2d(message["w"]).astype(np.float64)
    further = {
        key: np.atleast_2d(value)
        for key, value in message.items()
        if isinstance(value, np.ndarray) and value.dtype.kind == "f" and key != "w"
    }
    kept = _kept(silo, message, slot)
    first = message["round"] <= 1 and _is_start(silo, setting, w, 1, trained)  # the same training may begin anew
    if kept is None or np.shape(kept["w"]) != w.shape or first:
        if not first and not _is_start(silo, setting, w, message["round"], trained):
            raise Refused(
                "the training does not start from the weights that its model and seed give, nor from a model that this "
                "silo has trained, nor from one that its plan names"
            )
        if any(np.any(value) for key, value in further.items() if key != "mean"):
            raise Refused("the first message of a training brings more than weights")
        return
    allowed = STRIDE * float(np.max(kept["longest"])) * min(MISSED, max(1, abs(message["round"] - kept["round"])))
    moved = np.linalg.norm(w - kept["w"], axis=1)
    if np.any(moved > allowed + 1e-6):
        raise Refused(
            f"the weights moved by {moved.max():.3g} since the last round; this silo's own updates allow less"
        )
    steps = setting.epochs * -(-len(silo.arrays.y) // setting.batch_size)
    for key, value in further.items():
        reach = setting.lr * steps * np.linalg.norm(value.reshape(len(value), -1), axis=1).max()
        if key != "mean" and reach > allowed + 1e-6:
            raise Refused(f"`{key[:40]}` would move the weights by {reach:.3g}; this silo's own updates allow less")


def note_update(
    message: Message, silo: Silo, replied: NDArray[np.float32], given_away: Sequence[NDArray[np.int64]], slot: str
) -> None:
    """Keep what the next round is compared with: the weights that were sent, and the longest update so far.

    Parameters
    ----------
    message : dict
        The message.
    silo : Silo
        The silo.
    replied : array
        The weights of the reply, of the shape of the message's.
    given_away : sequence of array
        For each model, the rows that this training's updates have given away (`check_reply`).
    slot : str
        The place in the silo's state.
    """
    if not silo.limits.check_training:
        return
    sent = np.atleast_2d(message["w"])
    update = np.atleast_2d(replied) - sent
    longest, count, mean = np.linalg.norm(update.astype(np.float64), axis=1), 1, update
    kept = _kept(silo, message, slot)
    if kept is not None and np.shape(kept["longest"]) == longest.shape:
        longest, count = np.maximum(longest, kept["longest"]), kept["count"] + 1
        mean = kept["mean"] + (update - kept["mean"]) / np.float32(count)
    silo.state[slot] = {
        "training": message.get("training"),
        "round": message["round"],
        "w": np.array(sent),
        "longest": longest,
        "update": update,
        "mean": mean,
        "count": count,
        **{f"exposed{place}": rows for place, rows in enumerate(given_away)},
    }


def note_model(message: Message, silo: Silo, setting: Setting, slot: str) -> None:
    """Keep a trained model as one from which a later training may start, if this silo trained it.

    Parameters
    ----------
    message : dict
        The last message of a training, whose weights the silo is to keep.
    silo : Silo
        The silo.
    setting : Setting
        The training's setting.
    slot : str
        The place in the silo's state where the training is kept.
    """
    kept = _kept(silo, message, slot)
    if not silo.limits.check_training or kept is None or kept["w"].shape[1:] != np.shape(message["w"]):
        return
    allowed = (
        STRIDE * MISSED * float(np.max(kept["longest"]))
    )  # a mean over rounds is farther from the last than a step
    if np.linalg.norm(message["w"] - kept["w"][0]) <= allowed:
        silo.state["start"] = {"w": np.array(message["w"]), "model": setting.model}


def check_reply(
    network: Network, message: Message, replied: Any, x: Any, loss: float, silo: Silo, slot: str, place: int = 0
) -> NDArray[np.int64]:
    """Refuse to send an update of a dense model from which rows can be read.

    Parameters
    ----------
    network : Network
        The model.
    message : dict
        The message, with the flat weights before training.
    replied : array
        The flat weights after training.
    x : array or Tensor
        The samples that were trained on, as models see them.
    loss : float
        The mean loss of the weights that were sent, moved so that a refusal tells nothing about single samples
        (`measures.judged_loss`).
    silo : Silo
        The silo.
    slot : str
        The place in the silo's state where the training is kept.
    place : int
        Which of the message's models this is.

    Returns
    -------
    array of int
        The rows that this training's updates have given away so far, this one included.

    Raises
    ------
    Refused
        If they are more than a 25th (at least two), or the weights that were sent are far from any use.
    """
    nothing = np.zeros(0, dtype=np.int64)
    if not silo.limits.check_training:
        return nothing
    if loss > MOST_LOSS * (1 + SCORES[silo.schema.task].guessing(silo.schema.outputs)):
        raise Refused("the weights that were sent are far from any use; this silo does not train from them")
    if not network.widths:
        return nothing
    kept = _kept(silo, message, slot)
    known = kept is not None and place < len(kept["update"])
    rows = np.asarray(x, dtype=np.float64).reshape(len(x), -1)
    sides = [network.widths[0][0], *(width for _, width in network.widths[:2])]
    sent = np.atleast_2d(message["w"])[place].astype(np.float64)
    update = np.asarray(replied, dtype=np.float64) - sent
    before = kept["update"][place].astype(np.float64) if kept is not None and known else None
    found = exposed(sent, update, sides, rows, before)
    if kept is not None and known:
        mean = kept["mean"][place] + (update - kept["mean"][place]) / (kept["count"] + 1)
        found = np.union1d(np.union1d(found, kept[f"exposed{place}"]), exposed(sent, mean, sides, rows))
    if len(found) > max(AT_LEAST, EXPOSED * len(rows)):
        raise Refused("samples could be read from the updates: the weights that were sent isolate single samples")
    return found


def exposed(
    sent: Floats, update: Floats, sides: Sequence[int], rows: Floats, before: Floats | None = None
) -> NDArray[np.int64]:
    """Return which rows an update of the first layer gives away beyond chance.

    A unit's update is (sum_s d_s x_s, sum_s d_s), d_s the gradient at the unit: the ratio is a row if one sample alone
    has a gradient there. The difference of two units is one if they are active on the same samples but one.

    Parameters
    ----------
    sent, update : array
        The flat weights that were sent, and what training added: first the first layer's weights, then its biases.
    sides : sequence of int
        Inputs, units of the first layer, and of the one after it.
    rows : array
        The samples, one row each.
    before : array, optional
        The update of the round before, from which this one may differ by a few samples.

    Returns
    -------
    array of int
        The positions of the rows that a guess matches best, as many as are beyond those that are matched if the values
        of each column are exchanged between samples, and three standard errors of these.
    """
    inputs, units, after = (*sides, 0)[:3]
    last = inputs * units
    chosen = np.argsort(-rows.std(axis=0), kind="stable")[:COLUMNS]
    scale = np.maximum(rows[:, chosen].std(axis=0), 1e-9)
    own = rows[:, chosen] / scale

    def first_layer(of: Floats) -> Floats:
        """Return, for each unit, the update of the chosen columns' weights, and of its bias."""
        weights = of[:last].reshape(units, inputs)[:, chosen] / scale
        return np.concatenate([weights, of[last : last + units, None]], axis=1).T

    layer = first_layer(update)
    outgoing = _outgoing(sent, inputs, units, after)
    differences = [layer] if before is None else [layer, layer - first_layer(before)]
    first, second = _pairs(sent[last : last + units])
    pairs = [layer, layer / outgoing]
    sizes = [*(each[-1] for each in differences), *(each[-1][first] - each[-1][second] for each in pairs)]
    least = 1e-6 * max(max(float(np.abs(size).max(initial=0.0)) for size in sizes), 1e-300)
    draw = seeds.generator(0, "exposed", len(rows))
    strange = np.stack([draw.permutation(column) for column in own.T], axis=1)
    maps = _maps(np.concatenate([own, strange]))
    everyone = np.arange(units)
    found = [_ratios(each, everyone, None, least, maps) for each in differences]
    points = np.concatenate([*found, *(_ratios(each, first, second, least, maps) for each in pairs)])
    if not len(points):
        return np.zeros(0, dtype=np.int64)
    from scipy.spatial import cKDTree  # type: ignore[import-untyped]

    tree = cKDTree(points, balanced_tree=False, compact_nodes=False)
    near, other = (tree.query(each, p=np.inf, distance_upper_bound=NEAR)[0] for each in (own, strange))
    hits, chance = int(np.isfinite(near).sum()), int(np.isfinite(other).sum())
    beyond = max(0, int(hits - chance - 3 * np.sqrt(chance)))
    return np.sort(np.argsort(near, kind="stable")[:beyond])


def _maps(rows: Floats) -> list[Map]:
    """Return maps of where rows are, by two columns: cells of at least `NEAR` that have a row in or beside them."""
    maps = []
    for column in range(0, rows.shape[1], 2):
        columns = (column, min(column + 1, rows.shape[1] - 1))
        values = rows[:, columns]
        low = values.min(axis=0)
        cell = np.maximum(NEAR, (values.max(axis=0) - low) / CELLS)
        at = ((values - low) / cell).astype(np.int64)
        taken = np.zeros((CELLS + 3, CELLS + 3), dtype=bool)
        for right in range(3):
            for up in range(3):
                taken[at[:, 0] + right, at[:, 1] + up] = True
        maps.append((columns, low - cell, cell, taken))
    return maps


def _ratios(
    layer: Floats, first: NDArray[np.int64], second: NDArray[np.int64] | None, least: float, maps: Sequence[Map]
) -> Floats:
    """Return the rows that units, or differences of two, stand for, as far as they lie where rows are.

    Two columns at a time, so that most pairs of units are left out after the first two.

    Parameters
    ----------
    layer : array
        [columns + 1, units]: updates of weights, and of the bias last.
    first, second : array of int
        The units, and those to subtract from them, if any.
    least : float
        The smallest size of a bias' update (or difference) that counts.
    maps : sequence
        From `_maps`.
    """

    def values(of: Floats) -> Floats:
        return of[first] if second is None else of[first] - of[second]

    size = values(layer[-1])
    kept = np.flatnonzero(np.abs(size) > least)
    first, second, size = first[kept], None if second is None else second[kept], size[kept]
    points = np.empty((len(layer) - 1, len(kept)))
    for columns, low, cell, taken in maps:
        for column in columns:
            points[column] = values(layer[column]) / size
        at = (points[list(columns)] - low[:, None]) / cell[:, None]
        inside = np.flatnonzero(((at >= 0) & (at < CELLS + 3)).all(axis=0))
        kept = inside[taken[tuple(at[:, inside].astype(np.int64))]]
        first, second, size = first[kept], None if second is None else second[kept], size[kept]
        points = points[:, kept]
    return points.T


def _pairs(bias: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return pairs of units: all of them, or in a wide layer those that follow each other in order of their bias."""
    units = len(bias)
    if units * (units - 1) // 2 <= PAIRS:
        first, second = np.triu_indices(units, 1)
        return first, second
    order = np.argsort(bias, kind="stable")
    near = max(1, PAIRS // units)
    first = np.concatenate([order[: units - gap] for gap in range(1, near + 1)])
    second = np.concatenate([order[gap:] for gap in range(1, near + 1)])
    return first, second


def _outgoing(sent: Floats, inputs: int, units: int, after: int) -> Floats:
    """Return how much each unit counts in the next layer: along the direction in which most units count, never 0."""
    rest = sent[(inputs + 1) * units :]
    if after < 2:
        return np.ones(units)
    outgoing = rest[: after * units].reshape(after, units)[:MOST_OUTGOING]
    centred = outgoing - outgoing.mean(axis=0)  # what all next units have in common changes no softmax, nor much else
    weights: Floats = centred[np.argmax(np.abs(centred).sum(axis=1))]
    for _ in range(5):  # towards the first right singular vector
        weights = (weights @ centred.T) @ centred
        weights = weights / max(float(np.linalg.norm(weights)), 1e-300)
    return np.where(np.abs(weights) > 1e-9 * np.abs(weights).max(initial=1e-300), weights, 1.0)


def _is_start(silo: Silo, setting: Setting, w: Floats, number: int, trained: bool) -> bool:
    """Return whether a training may start from these weights, if the silo is first asked in this round."""
    network = Network(setting.model, seed=setting.seed)
    drawn = network.initial().numpy().astype(np.float64)
    own = silo.state.get("start")
    starts = [drawn]
    if trained and own is not None and own["model"] == setting.model:
        starts.append(np.asarray(own["w"], dtype=np.float64))
    if any(np.allclose(w, start[None], rtol=0, atol=1e-6) for start in starts):
        return True
    if {start_digest(row) for row in w} <= set(silo.agreed.starts):
        return True
    if number <= 1:
        return False
    allowed = STRIDE * min(MISSED, number - 1) * _reach(network, setting, silo)
    return bool(np.linalg.norm(w - drawn[None], axis=1).max() <= allowed)


def _reach(network: Network, setting: Setting, silo: Silo) -> float:
    """Return about how long a round's update from the drawn weights would be: step size times steps times gradient."""
    steps = setting.epochs * -(-len(silo.arrays.y) // setting.batch_size)
    if setting.optimizer == "adam":
        return float(setting.lr * steps * np.sqrt(network.parameters))
    data = data_of(silo)
    network.module.zero_grad()
    network.loss.mean(network.module(data["x"].cpu()), data["y"].cpu()).backward()  # type: ignore[no-untyped-call]
    squares = sum(float(value.grad.square().sum()) for value in network.module.parameters() if value.grad is not None)
    return float(setting.lr * steps * np.sqrt(squares))


def start_digest(w: Any) -> str:
    """Return the SHA-256 of flat weights, by which a plan names the model that a training starts from."""
    return hashlib.sha256(np.ascontiguousarray(w, dtype=np.float32).tobytes()).hexdigest()


def _kept(silo: Silo, message: Mapping[str, Any], slot: str) -> Message | None:
    """Return what is kept of this training's last round, or None."""
    kept = silo.state.get(slot)
    return kept if kept is not None and kept["training"] == message.get("training") else None
