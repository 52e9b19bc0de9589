"""What a client can answer after training or testing a model: checked where the reply arrives, client by client.

A reply that cannot be makes its client absent from the round; it never reaches an average, so that nobody else is
blamed for what it would do there.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcollab.secure.member import CHECKS
from fedcollab.training.algorithms import ALGORITHMS, Algorithm
from fedcollab.training.scores import Scores, scores_of

#: the largest absolute value of a weight, or of what an algorithm sends beside them: beyond it training has diverged
LARGEST = 1e12
#: the largest loss, which weights of that size can have
LARGEST_LOSS = 1e30
#: the largest loss of a model that is tested: predictions are float32, and may be squared
LARGEST_MEASURED = 1e80
#: the most test samples of a client
MOST_SAMPLES = 10**9


def impossible_update(message: Mapping[str, Any], reply: Mapping[str, Any]) -> str | None:
    """Return what is wrong with a client's reply after training, or None.

    Parameters
    ----------
    message : mapping
        What it was sent (`TrainMessage`).
    reply : mapping
        What came back, of the declared types.
    """
    if not reply["finite"]:
        if "diverged" in reply and "w" not in reply:
            return None
        return "a reply that is not finite has `diverged` and no `w`"
    if "group" in message:
        whole = {"masked", "layout", "boxes", "cut", "loss"} <= set(reply) and "w" not in reply
        if not whole:
            return "a finite masked reply has `masked`, `layout`, `boxes`, `cut`, `loss` and no `w`"
        return _impossible_layout(message, reply)
    if "w" not in reply or "loss" not in reply:
        return "a finite reply has `w` and `loss`"
    for key, value in reply.items():
        most = LARGEST_LOSS if key == "loss" else LARGEST
        if isinstance(value, np.ndarray) and value.size and float(np.abs(value).max()) > most:
            return f"`{key[:40]}` has values beyond {most:g}"
    for key, shaped in _algorithm(message).replies.items():
        if key not in reply:
            return f"`{key}` is missing"
        if shaped == "weights" and reply[key].shape != reply["w"].shape:
            return f"`{key}` has shape {reply[key].shape}; expected {reply['w'].shape}"
        if shaped == "count" and (reply[key].size != 1 or not 1 <= float(reply[key].reshape(-1)[0]) <= MOST_SAMPLES):
            return f"`{key}` must be one number of at least 1"
    return None


def _algorithm(message: Mapping[str, Any]) -> type[Algorithm]:
    """Return the class of the algorithm that a message names."""
    return ALGORITHMS.get(json.loads(message["setting"])["algorithm"], Algorithm)


def _impossible_layout(message: Mapping[str, Any], reply: Mapping[str, Any]) -> str | None:
    """Return why a masked reply cannot be taken apart into what its algorithm sends, or None."""
    shapes = dict(reply["layout"])
    if any(side < 0 for shape in shapes.values() for side in shape) or len(shapes) != len(reply["layout"]):
        return "`layout` has a negative side, or an array twice"
    if list(shapes.get("w", ())) != list(message["w"].shape):
        return f"`layout` has `w` of shape {list(shapes.get('w', ()))}; expected {list(message['w'].shape)}"
    if sum(math.prod(shape) for shape in shapes.values()) + CHECKS != len(reply["masked"]):
        return f"`layout` does not fit the {len(reply['masked'])} numbers of `masked`"
    for key, shaped in _algorithm(message).replies.items():
        wanted = (math.prod(shapes["w"]),) if shaped == "weights" else (1, shapes["w"][0])  # of all, or one a fold
        if key not in shapes or math.prod(shapes[key]) not in wanted:
            return f"`layout` lacks `{key}`, or has it in another size"
    return None


def impossible_folds(message: Mapping[str, Any], reply: Mapping[str, Any]) -> str | None:
    """Return what is wrong with what a client answers about models of its folds (`FoldsReply`), or None."""
    if "unfit" in reply:
        return None
    wanted = (2 if "mean" in message else 1) if message.get("measure", True) else 0
    if "alone" in message and _algorithm(message).personalises:
        wanted *= 2
    if len(reply["held_out"]) != wanted:
        return f"`held_out` must be measures of {wanted} kind(s) of models"
    wrong = impossible_held_out(reply["held_out"], scores_of(message["setting"]))
    if wrong is not None:
        return wrong
    if reply["finite"] and message["train"] and "w" not in reply and "masked" not in reply:
        return "`w` is missing"
    if "masked" in reply:
        whole = {"layout", "boxes", "cut"} <= set(reply) and "w" not in reply
        return _impossible_layout(message, reply) if whole else "a masked reply has `layout`, `boxes`, `cut` and no `w`"
    if "w" in reply and float(np.abs(reply["w"]).max(initial=0.0)) > LARGEST:
        return f"`w` has values beyond {LARGEST:g}"
    return None


def impossible_held_out(held_out: NDArray[np.float64], scores: Scores) -> str | None:
    """Return what is wrong with measures on rows held out (`folds.COLUMNS`), or None; NaN means that it is not told.

    Parameters
    ----------
    held_out : array
        [..., 4]: loss, accuracy or R2, and the standard errors of their differences from training alone.
    scores : Scores
        What the task measures.
    """
    loss, right, *errors = (held_out[..., column] for column in range(held_out.shape[-1]))
    if (loss < 0).any() or any((error < 0).any() for error in errors):
        return "`held_out` has a negative loss or standard error"
    wrong = scores.impossible([right, loss])
    if wrong is not None:
        return f"`held_out` has {wrong}"
    if (held_out > LARGEST_MEASURED).any():
        return f"`held_out` has values beyond {LARGEST_MEASURED:g}"
    return None


def impossible_alone(message: Mapping[str, Any], reply: Mapping[str, Any]) -> str | None:
    """Return what is wrong with what a client answers after training alone (`AloneReply`), or None."""
    if "unfit" in reply:
        return None
    if not 2 <= len(reply["held_out"]) <= message["rounds"] + 1:
        return f"`held_out` has {len(reply['held_out'])} rounds; expected 2 to {message['rounds'] + 1}"
    scores = scores_of(message["setting"])
    wrong = impossible_held_out(reply["held_out"], scores)
    if wrong is not None or not message.get("fewer"):
        return wrong
    if "fewer" not in reply or reply["fewer"].shape != reply["held_out"].shape:
        return "`fewer` must have the shape of `held_out`"
    return impossible_held_out(reply["fewer"], scores)


def impossible_measures(message: Mapping[str, Any], reply: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the measures of a model (`Scores.measures`), or None; NaN means that it is not told."""
    for key in ("measures", "personal_measures"):
        if key not in reply:
            continue
        *measures, stderr, samples = reply[key].tolist()
        loss = measures[1]
        wrong = scores_of(message["setting"]).impossible(measures)
        if wrong is not None:
            return f"`{key}` has {wrong}"
        if loss < 0 or stderr < 0:
            return f"`{key}` has a negative loss or standard error"
        if loss > LARGEST_MEASURED or stderr > LARGEST_MEASURED:
            return f"`{key}` has a loss or a standard error beyond {LARGEST_MEASURED:g}"
        if not np.isnan(samples) and not (0 <= samples <= MOST_SAMPLES and samples == int(samples)):
            return f"`{key}` has {samples:g} samples"
    return None


def impossible_losses(message: Mapping[str, Any], reply: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the losses of models, or None."""
    if (reply["losses"] < 0).any() or (reply["losses"] > LARGEST_MEASURED).any():
        return f"`losses` are negative, or beyond {LARGEST_MEASURED:g}"
    return None


def impossible_comparison(reply: Mapping[str, Any]) -> str | None:
    """Return what is wrong with counts and losses of models on the same samples (`CompareReply`), or None."""
    if not 0 <= reply["samples"] <= MOST_SAMPLES:
        return f"`samples` is {reply['samples']}"
    if "loss" not in reply:
        return None
    if not reply["samples"]:
        return "`loss` is of no samples"
    for mean, spread in (("loss", "spread"), ("unexplained", "unexplained_spread")):
        if mean not in reply:
            continue
        if (reply[mean] > LARGEST_MEASURED).any() or (np.abs(reply[spread]) > LARGEST_MEASURED**2).any():
            return f"`{mean}` or `{spread}` has values beyond those of losses of {LARGEST_MEASURED:g}"
        if (reply[mean] < 0).any() or (np.diag(reply[spread]) < 0).any():
            return f"`{mean}` or `{spread}` has negative values"
    if "right" not in reply:
        return None
    right = reply["right"]
    both: NDArray[np.int64] = np.minimum.outer(np.diag(right), np.diag(right))
    if int(right.max()) > reply["samples"] or (right > both).any() or (right != right.T).any():
        return "`right` has more samples than there are, or more for two models than for one of them"
    return None
