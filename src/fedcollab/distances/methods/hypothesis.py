"""The paper's definition taken literally: how much better can one classifier be on one client than on the other?

    D_ij = max over h of |error_i(h) - error_j(h)|  =  2 BalAcc(1[h(x) = y]) - 1

h ranges over linear classifiers of the features (`heads.Hypothesis`). It is trained federatedly to be right on one
client (-log p_y) and wrong on the other (-log(1 - p_y)), in both directions; training samples decide which direction
counts, held-out samples only judge. It sees differences that matter to the task and no others: two hospitals whose
patients are easily distinguished, yet for whom the same classifier is right, are near. Cross-fitting, rounds and
messages are those of `cross`. Bao, Wang, Wu, He (ICML 2023), Section 3 (C-divergence) and the appendix on its
derivation.
"""

from __future__ import annotations

from fedcollab.distances.methods import cross
from fedcollab.distances.request import Estimate, Request


def estimate(
    request: Request,
    *,
    folds: int = 5,
    rounds: int = 40,
    cap: int = 256,
    repeats: int = 4,
    replicates: int = 100,
    min_samples: int | None = None,
    label_counts: str = "auto",
) -> Estimate:
    """Estimate the distances of the request's pairs.

    Parameters
    ----------
    request : Request
        The pairs.
    folds, rounds, cap, repeats, replicates, min_samples, label_counts
        As in `cross.estimate`.

    Returns
    -------
    Estimate
        Distances with standard errors and replicates.

    Raises
    ------
    InputError
        If a setting is out of range, or a client has fewer samples than `min_samples` demands.
    """
    return cross.estimate(
        request,
        head="hypothesis",
        folds=folds,
        rounds=rounds,
        cap=cap,
        repeats=repeats,
        replicates=replicates,
        min_samples=min_samples,
        label_counts=label_counts,
    )
