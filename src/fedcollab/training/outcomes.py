"""What a model does with each sample of a client's test split. It stays with the client: sums over samples leave.

Two models are compared on the same samples (`training.compare_client`). A model that stays with the client is not there
any more when a later training is compared with it, so the client keeps what it did: for each of the last trainings, the
loss of every test sample and whether the prediction was right.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcollab.training.losses import ABSOLUTE, LOSSES, Loss
from fedcollab.training.scores import SCORES
from fedcollab.wire.silo import Silo

#: the key of a silo's state, and how many trainings are kept there
KEY, MOST = "tested", 8
PARTS = ("right", "loss", "of", "model")


@dataclass(frozen=True, eq=False)
class Outcome:
    """What one model does with each test sample.

    Parameters
    ----------
    right : array
        Whether the prediction is right; of a numeric target, the sample's part in R2 (see `training.scores`).
    loss : array
        The loss.
    """

    right: NDArray[Any]
    loss: NDArray[np.float64]


def of_outputs(loss: Loss, outputs: Tensor, y: Tensor, spread: float | Tensor = 1.0) -> Outcome:
    """Return the outcome of a model from what it gives.

    Parameters
    ----------
    loss : Loss
        The loss that it was trained with.
    outputs : Tensor
        What it gives for each sample.
    y : Tensor
        The class or the target of each sample.
    spread : float or Tensor
        The variance of the target (see `Scores.spread`); with several models, one row for each.
    """
    return Outcome(SCORES[loss.task].right(outputs, y, spread), loss.each(outputs, y).double().cpu().numpy())


def of_constant(silo: Silo, loss: Loss) -> Outcome:
    """Return the outcome of giving the same for every sample, as the client's own training samples have it.

    Of a numeric target that is the mean, or the median where the loss is the absolute one. Of classes it is their
    shares, and the prediction is the most frequent; the shares have one sample of each class added, so that the loss of
    a class that the client has never seen is finite.

    Parameters
    ----------
    silo : Silo
        The client.
    loss : Loss
        The loss of the models that are compared with it.
    """
    arrays, classes = silo.arrays, len(silo.schema.classes)
    if loss.task == "regression":
        given = np.median(arrays.y) if loss is LOSSES[ABSOLUTE] else arrays.y.mean()
        outputs = torch.full((len(arrays.y_test), 1), float(given))
        return of_outputs(loss, outputs, torch.from_numpy(arrays.y_test), SCORES[loss.task].spread(arrays.y))
    counts = np.bincount(silo.arrays.y, minlength=classes)
    shares = (counts + 1) / (counts.sum() + classes)
    labels = silo.arrays.y_test
    return Outcome(labels == counts.argmax(), -np.log(shares[labels]))


def keep(silo: Silo, training: str, outcome: Outcome, w: NDArray[np.float32]) -> None:
    """Keep an outcome in the silo's own state, under the name of its training; the oldest of many is forgotten.

    Parameters
    ----------
    silo : Silo
        The client.
    training : str
        Which training the model is of (see `checkpoint.identity`).
    outcome : Outcome
        What its model does.
    w : array
        The model's weights, of which a checksum is kept: what is told about it is rounded by a lot of its own.
    """
    kept = silo.state.get(KEY, {})
    order = [name for name in kept.get("order", []) if name != training][1 - MOST :]
    silo.state[KEY] = {
        **{f"{name}/{part}": kept.get(f"{name}/{part}", "") for name in order for part in PARTS},
        f"{training}/right": as_kept(outcome.right),
        f"{training}/loss": outcome.loss,
        f"{training}/of": _test_split(silo),
        f"{training}/model": hashlib.blake2b(w.tobytes(), digest_size=16).hexdigest(),
        "order": [*order, training],
    }


def kept_of(silo: Silo, training: str) -> Outcome | None:
    """Return the outcome of a training, or None if it is not kept or is of another test split.

    Parameters
    ----------
    silo : Silo
        The client.
    training : str
        Which training.
    """
    kept = silo.state.get(KEY, {})
    known = training in kept.get("order", []) and kept.get(f"{training}/model")
    if not known or kept[f"{training}/of"] != _test_split(silo):
        return None
    return Outcome(as_right(kept[f"{training}/right"]), kept[f"{training}/loss"])


def as_kept(right: NDArray[Any]) -> NDArray[Any]:
    """Return `Outcome.right` as a client keeps it: messages have no booleans."""
    return right.astype(np.uint8) if right.dtype == bool else right


def as_right(kept: NDArray[Any]) -> NDArray[Any]:
    """Return `Outcome.right` as it was before `as_kept`."""
    return kept.astype(bool) if kept.dtype == np.uint8 else kept


def model_of(silo: Silo, training: str) -> str:
    """Return a checksum of the model whose outcome is kept of a training, or ""; arguments as in `kept_of`."""
    return str(silo.state.get(KEY, {}).get(f"{training}/model", ""))


def _test_split(silo: Silo) -> str:
    """Return a checksum of the client's test split."""
    digest = hashlib.blake2b(silo.arrays.x_test.tobytes(), digest_size=16)
    digest.update(silo.arrays.y_test.tobytes())
    return digest.hexdigest()
