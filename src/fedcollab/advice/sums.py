"""The client side of the proxies: sums over parts of a client's training rows, from which ridge classifiers are made.

A client cuts its rows into F folds, in a draw that only it can repeat, and answers for each fold

    G_f = sum z z^T,    B_f = sum z t^T,    n_f,        z = (x, 1),  t the one-hot label,

over the fold's rows. With them a server computes ridge classifiers of any weighting of clients, trained on some folds,
and their squared error on the other folds (`advice.proxy`), without asking again. Samples of many columns are first
multiplied by a random matrix that all clients draw from the same seed.
"""

from __future__ import annotations

from typing import Annotated, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

from fedcollab import seeds
from fedcollab.data.split import fold_of
from fedcollab.wire.action import Refused, Release, action, require_size
from fedcollab.wire.fields import Positive, Sides, Whole
from fedcollab.wire.limits import Limits
from fedcollab.wire.silo import Silo

#: the fewest rows of a fold, whatever a silo's limits; and the most folds that a client makes
FEWEST, MOST_FOLDS = 8, 10


class SumsMessage(TypedDict):
    """What a client is sent.

    Attributes
    ----------
    folds : int
        How many folds to make; a client of few rows makes fewer.
    most : int
        With more columns than this the samples are projected to so many.
    seed : int
        Everything random is derived from it; the draw of the folds from the client's own samples too.
    """

    folds: Positive
    most: Positive
    seed: Whole


class SumsReply(TypedDict):
    """What a client answers.

    Attributes
    ----------
    products : array
        G_f for each fold.
    labelled : array
        B_f for each fold.
    rows : array
        n_f for each fold.
    unfit : str, optional
        Why the client's rows cannot be cut into folds; then the arrays are empty.
    """

    products: Annotated[NDArray[np.float64], Sides("F", "D", "D")]
    labelled: Annotated[NDArray[np.float64], Sides("F", "D", "K")]
    rows: Annotated[NDArray[np.int64], Sides("F", low=0)]
    unfit: NotRequired[str]


def folds_of(rows: int, wanted: int, least: int) -> int:
    """Return how many folds of at least `least` rows each a client makes of its rows: `wanted`, or fewer; 0 for none.

    Parameters
    ----------
    rows, wanted, least : int
        The client's rows, the folds that were asked for, and the fewest rows of a fold.

    Examples
    --------
    >>> folds_of(400, 4, 20), folds_of(50, 4, 20), folds_of(30, 4, 20)
    (4, 2, 0)
    """
    possible = min(wanted, rows // least)
    return possible if possible >= 2 else 0


def _limit(message: SumsMessage, silo: Silo, limits: Limits) -> None:
    """Refuse more folds than a silo makes, and replies that are larger than its limit."""
    if message["folds"] > MOST_FOLDS:
        raise Refused(f"`folds` is {message['folds']}; this silo makes at most {MOST_FOLDS}")
    columns = 1 + min(int(np.prod(silo.arrays.x.shape[1:])), message["most"])
    require_size(message["folds"] * columns * (columns + len(silo.schema.classes)), limits)


@action(
    "ridge-sums",
    purpose="summed products of features and of features with labels, over parts of its training samples",
    release=Release.EXACT,
    limit=_limit,
)
def ridge_sums(message: SumsMessage, silo: Silo) -> SumsReply:
    """Sum products of features and labels over each fold of a client's training rows."""
    y, classes = silo.arrays.y, len(silo.schema.classes)
    x = silo.arrays.x.reshape(len(y), -1).astype(np.float64)
    if x.shape[1] > message["most"]:
        draw = seeds.generator(message["seed"], "projection", x.shape[1])
        x = x @ draw.normal(size=(x.shape[1], message["most"])) / np.sqrt(message["most"])
    count = folds_of(len(y), message["folds"], max(FEWEST, silo.limits.min_samples))
    z = np.concatenate([x, np.ones((len(y), 1))], axis=1)
    if count == 0:
        empty = np.zeros((0, z.shape[1], z.shape[1])), np.zeros((0, z.shape[1], classes)), np.zeros(0, dtype=np.int64)
        few = f"{len(y)} training sample(s) are too few for two folds"
        return {"products": empty[0], "labelled": empty[1], "rows": empty[2], "unfit": few}
    fold = fold_of(y, count, seeds.generator(message["seed"], "sums", silo.secret), silo.arrays.groups)
    parts = [np.flatnonzero(fold == number) for number in range(count)]
    targets = np.eye(classes)[y]
    return {
        "products": np.stack([z[rows].T @ z[rows] for rows in parts]),
        "labelled": np.stack([z[rows].T @ targets[rows] for rows in parts]),
        "rows": np.array([len(rows) for rows in parts]),
    }
