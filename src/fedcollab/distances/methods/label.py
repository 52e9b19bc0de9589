"""For comparison: how different the clients' labels are, features ignored.

    D_ij = 1/2 sum_y |p_i(y) - p_j(y)|        (total variation; p_i the label shares of client i)

No further message: every client sent its label counts when the federation was prepared. The plug-in value is biased
upwards for small clients: two clients of 14 samples with the same distribution get about .25.
"""

from __future__ import annotations

import numpy as np

from fedcollab import seeds
from fedcollab.distances.request import Estimate, Floats, Request
from fedcollab.errors import InputError, number
from fedcollab.metrics import total_variation


def estimate(request: Request, *, replicates: int = 100) -> Estimate:
    """Estimate the distances of the request's pairs.

    Parameters
    ----------
    request : Request
        The pairs.
    replicates : int
        Joint replicates of the matrix, each with labels drawn anew from every client's own shares; 0: none.

    Returns
    -------
    Estimate
        Distances, with standard errors and replicates if there are any.
    """
    number("replicates", replicates, at_least=0, whole=True)
    require_classes(request, "label")
    shares = {name: label_counts(request, name) / request.quantity(name) for name in request.names}
    drawn = {
        name: seeds.generator(request.seed, "replicates", name).multinomial(request.quantity(name), share, replicates)
        / request.quantity(name)
        for name, share in shares.items()
    }
    values = np.array([total_variation(shares[a], shares[b]) for a, b in request.pairs], dtype=np.float64)
    if not replicates:
        return Estimate(values, settings={"replicates": 0})
    again = np.stack([total_variation(drawn[a], drawn[b]) for a, b in request.pairs], axis=1)
    return Estimate(values, again.std(axis=0, ddof=1) if replicates > 1 else None, again, {"replicates": replicates})


def require_classes(request: Request, method: str) -> None:
    """Check that there are classes, for a method that compares class by class.

    Raises
    ------
    InputError
        If the target is numeric.
    """
    if request.numeric:
        raise InputError(
            f"`method` (={method!r}) compares class by class, and the target is numeric; "
            "take 'cross', 'few-round', 'hypothesis' or 'published'"
        )


def label_counts(request: Request, name: str) -> Floats:
    """Return how many training samples of each class a client has."""
    counts = request.federation.described[name]["label_counts"]
    return np.array([counts.get(str(label), 0) for label in request.federation.schema.classes], dtype=np.float64)
