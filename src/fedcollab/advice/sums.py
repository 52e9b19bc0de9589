"""The client side of the proxies: sums over parts of a client's training rows, from which ridge classifiers are made.

A client cuts its rows into F folds, in a draw that only it can repeat, and answers for each fold

    G_f = sum z z^T,    B_f = sum z t^T,    n_f,        z = (x, 1),  t the one-hot label, or the numeric target,

(and of a numeric target sum t^2, which is n_f of labels) over the fold's rows. With them a server computes ridge
classifiers of any weighting of clients, trained on some folds, and their squared error on the other folds
(`advice.proxy`), without asking again. Samples of many columns are first multiplied by a random matrix that all clients
draw from the same seed. Labels that fewer rows of a fold have than a silo's limit share their sums there; values of a
numeric target that few rows have are brought nearer to the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

from fedcollab import seeds
from fedcollab.data.rare import rounded_sums
from fedcollab.data.split import fold_of
from fedcollab.distances.methods.few_round_client import groups
from fedcollab.silo.rounding import summable, summable_rows
from fedcollab.wire.action import Refused, Release, Step, action, require_samples, require_size
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
    squares : array, optional
        Of a numeric target, the sum of its squares for each fold.
    unfit : str, optional
        Why the client's rows cannot be cut into folds; then the arrays are empty.
    """

    products: Annotated[NDArray[np.float64], Sides("F", "D", "D")]
    labelled: Annotated[NDArray[np.float64], Sides("F", "D", "K")]
    rows: Annotated[NDArray[np.int64], Sides("F", low=0)]
    squares: NotRequired[Annotated[NDArray[np.float64], Sides("F", low=0)]]
    unfit: NotRequired[str]


#: the largest sum of products: 10^9 samples of the largest values that a client may have
LARGEST = 1e45
#: by how much rounding may make a sum of features larger than the sums of squares beside it allow
ROUNDED = 2.0


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
    """Refuse more folds than a silo makes, sums of too few samples, and replies that are larger than its limit."""
    require_samples(len(silo.arrays.y), limits, "every sum")
    if message["folds"] > MOST_FOLDS:
        raise Refused(f"`folds` is {message['folds']}; this silo makes at most {MOST_FOLDS}")
    columns = 1 + min(int(np.prod(silo.arrays.x.shape[1:])), message["most"])
    require_size(message["folds"] * columns * (columns + silo.schema.outputs), limits)


def _impossible(message: SumsMessage, reply: SumsReply) -> str | None:
    """Return what is wrong with sums that no rows can have, or None."""
    if "unfit" in reply:
        return None
    products, labelled, rows = reply["products"], reply["labelled"], reply["rows"]
    if products.shape[1] < 2 or not labelled.shape[2]:
        return "`products` are of no features, or `labelled` of no labels"
    if np.abs(products).max() > LARGEST:
        return f"`products` has values beyond {LARGEST:g}"
    if not 2 <= len(rows) <= message["folds"] or (rows < 1).any():
        return f"`rows` must be 2 to {message['folds']} folds of at least 1 row"
    if not np.allclose(products, products.transpose(0, 2, 1)) or not np.allclose(products[:, -1, -1], rows):
        return "`products` are not symmetric, or do not count the rows"
    least = np.linalg.eigvalsh(products).min(axis=1)
    if (least < -1e-4 * np.abs(products).max(axis=(1, 2))).any():
        return "`products` are no sums of squares"
    targets = labelled[:, -1:]  # the sum of squares of each label is its count
    if "squares" in reply:
        if labelled.shape[2] != 1 or reply["squares"].max() > LARGEST:
            return f"`labelled` are of more than one target, or `squares` has values beyond {LARGEST:g}"
        targets = reply["squares"][:, None, None]
    elif (targets < -1e-9).any() or not np.allclose(targets[:, 0].sum(axis=1), rows):
        return "`labelled` do not count the rows' labels"
    squares = np.maximum(np.diagonal(products, axis1=1, axis2=2), 0)[:, :, None] * np.maximum(targets, 0)
    if (np.abs(labelled) > ROUNDED * np.sqrt(squares) + 1e-6).any():  # Cauchy-Schwarz
        return "`labelled` are sums of features that `products` cannot have"
    return None


def impossible_beside(reply: Mapping[str, Any], shape: tuple[int, int], quantity: int, longest: float) -> str | None:
    """Return what is wrong with a client's sums beside all else that is known of the federation, or None.

    Parameters
    ----------
    reply : mapping
        What the client answered (`SumsReply`), not "unfit".
    shape : (int, int)
        D and K, which are the same for everyone.
    quantity : int
        How many samples the client said it has.
    longest : float
        The largest squared length that its samples may have together.
    """
    if reply["labelled"].shape[1:] != shape:
        return f"`labelled` has shape {reply['labelled'].shape[1:]} in a fold; expected {shape}"
    if reply["rows"].sum() > quantity:
        return f"`rows` are {reply['rows'].sum()}; the client said {quantity}"
    if squared_length(reply) > longest:
        return f"`products` are of samples {squared_length(reply) / longest:.3g} times as long as they can be"
    return None


def squared_length(reply: Mapping[str, Any]) -> float:
    """Return the squared length of all samples behind a client's sums, the intercept's ones left out."""
    return float(np.trace(reply["products"], axis1=1, axis2=2).sum() - reply["rows"].sum())


@action(
    "ridge-sums",
    purpose="summed products of features and of features with labels, over parts of its training samples",
    release=Release.EXACT,
    step=Step.ADVICE,
    limit=_limit,
    cost=lambda message, silo: {"repeats": 1},
    consistent=_impossible,
)
def ridge_sums(message: SumsMessage, silo: Silo) -> SumsReply:
    """Sum products of features and labels over each fold of a client's training rows."""
    y, outputs, least = silo.arrays.y, silo.schema.outputs, silo.limits.min_samples
    x = silo.arrays.x.reshape(len(y), -1).astype(np.float64)
    parts = _parts(message, silo)
    for rows in parts:
        x[rows] = summable_rows(x, rows, least, silo)
    if x.shape[1] > message["most"]:
        draw = seeds.generator(message["seed"], "projection", x.shape[1])
        x = x @ draw.normal(size=(x.shape[1], message["most"])) / np.sqrt(message["most"])
    z = np.concatenate([x, np.ones((len(y), 1))], axis=1)
    if not parts:
        empty = np.zeros((0, z.shape[1], z.shape[1])), np.zeros((0, z.shape[1], outputs)), np.zeros(0, dtype=np.int64)
        few = f"{len(y)} training sample(s) are too few for two folds"
        return {"products": empty[0], "labelled": empty[1], "rows": empty[2], "unfit": few}
    counts = np.array([len(rows) for rows in parts])
    if silo.schema.task == "regression":
        found = np.stack([_with_target(z[rows], y[rows], silo) for rows in parts])
        products, labelled, squares = found[:, :-1, :-1], found[:, :-1, -1:], found[:, -1, -1]
        return {"products": products.copy(), "labelled": labelled.copy(), "rows": counts, "squares": squares.copy()}
    return {
        "products": np.stack([rounded_sums(z[rows].T @ z[rows], least) for rows in parts]),
        "labelled": np.stack([_labelled(z[rows], y[rows], outputs, least) for rows in parts]),
        "rows": counts,
    }


def _with_target(z: NDArray[np.float64], y: NDArray[np.float32], silo: Silo) -> NDArray[np.float64]:
    """Return the sums of products of samples and of a numeric target, which comes last, over the rows of a fold."""
    whole = np.concatenate([z, summable(y[:, None].astype(np.float64), silo)], axis=1)
    return rounded_sums(whole.T @ whole, silo.limits.min_samples)


def _parts(message: SumsMessage, silo: Silo) -> list[NDArray[np.int64]]:
    """Return the rows of each fold; fewer folds than were asked for, or none, where one would have too few rows."""
    y, least = silo.arrays.y, silo.limits.min_samples
    for count in range(folds_of(len(y), message["folds"], max(FEWEST, least)), 1, -1):
        fold = fold_of(y, count, seeds.generator(message["seed"], "sums", silo.secret), silo.arrays.groups)
        parts = [np.flatnonzero(fold == number) for number in range(count)]
        if min(len(rows) for rows in parts) >= least:  # folds of whole groups may be of unequal size
            return parts
    return []


def _labelled(z: NDArray[np.float64], y: NDArray[np.int64], classes: int, least: int) -> NDArray[np.float64]:
    """Return B_f; labels that fewer rows than `least` of the fold have share their sum, by their numbers of rows."""
    found = np.zeros((z.shape[1], classes))
    counts = np.bincount(y, minlength=classes)
    for pooled in groups(counts, least):
        chosen = np.isin(y, pooled)
        found[:, pooled] = z[chosen].sum(axis=0)[:, None] * (counts[pooled] / chosen.sum())
    return found
