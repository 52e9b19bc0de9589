"""What a model does with each sample of a client's test split. It stays with the client: sums over samples leave.

Two models are compared on the same samples (`training.compare_client`). A model that stays with the client is not there
any more when a later training is compared with it, so the client keeps what it did: for each of the last trainings, the
loss of every test sample and whether the prediction was right.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from fedcollab.wire.silo import Silo

#: the key of a silo's state, and how many trainings are kept there
KEY, MOST = "tested", 8
PARTS = ("right", "loss", "of", "model")


@dataclass(frozen=True, eq=False)
class Outcome:
    """What one model does with each test sample.

    Parameters
    ----------
    right : array of bool
        Whether the prediction is right.
    loss : array
        The cross-entropy.
    """

    right: NDArray[np.bool_]
    loss: NDArray[np.float64]


def of_logits(logits: Tensor, labels: Tensor) -> Outcome:
    """Return the outcome of a model from its scores.

    Parameters
    ----------
    logits : Tensor
        One score for each sample and class.
    labels : Tensor
        The class of each sample.
    """
    losses = functional.cross_entropy(logits, labels, reduction="none").double()
    return Outcome((logits.argmax(1) == labels).cpu().numpy(), losses.cpu().numpy())


def of_majority(silo: Silo, classes: int) -> Outcome:
    """Return the outcome of always giving the shares of the classes among the client's own training samples.

    The prediction is the most frequent class; the shares have one sample of each class added, so that the loss of a
    class that the client has never seen is finite.

    Parameters
    ----------
    silo : Silo
        The client.
    classes : int
        The number of classes.
    """
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
        f"{training}/right": outcome.right.astype(np.uint8),
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
    return Outcome(kept[f"{training}/right"].astype(bool), kept[f"{training}/loss"])


def model_of(silo: Silo, training: str) -> str:
    """Return a checksum of the model whose outcome is kept of a training, or ""; arguments as in `kept_of`."""
    return str(silo.state.get(KEY, {}).get(f"{training}/model", ""))


def _test_split(silo: Silo) -> str:
    """Return a checksum of the client's test split."""
    digest = hashlib.blake2b(silo.arrays.x_test.tobytes(), digest_size=16)
    digest.update(silo.arrays.y_test.tobytes())
    return digest.hexdigest()
