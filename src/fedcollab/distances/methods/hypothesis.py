"""The paper's definition taken literally: how much better can one model be on one client than on the other?

    D_ij = max over h of |error_i(h) - error_j(h)|  =  2 BalAcc(1[h(x) = y]) - 1

h ranges over linear classifiers of the features (`heads.Hypothesis`). It is trained federatedly to be right on one
client (-log p_y) and wrong on the other (-log(1 - p_y)), in both directions; training samples decide which direction
counts, held-out samples only judge. It sees differences that matter to the task and no others: two hospitals whose
patients are easily distinguished, yet for whom the same classifier is right, are near. Cross-fitting, rounds and
messages are those of `cross`.

For a numeric target h ranges over linear regressions (`heads.Bounded`), and a sample's error is a bounded loss of what
is left over, with y centred and scaled over all clients:

    error_i(h) = mean over i of l(h(x) - y),   l(e) = 1 - exp(-e^2 / 2)  in [0, 1]

The bound of the paper asks of a loss only that it lies in [0, 1], so it holds as it stands, for errors measured by l.
It assumes that one standard deviation of the target over all clients is an error that matters; heavy tails make that
unit large, and what happens far below it is not seen (take logarithms of prices and incomes). The maximum over h is
searched by gradient steps from h = 0 and may be missed, since l is not convex: then the distance is too small.

Bao, Wang, Wu, He (ICML 2023), Section 3 (C-divergence) and the appendix on its derivation.
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

    Raises
    ------
    InputError
        If a setting is out of range, or a client has fewer samples than `min_samples` demands.
    """
    return cross.estimate(
        request,
        head="bounded" if request.numeric else "hypothesis",
        folds=folds,
        rounds=rounds,
        cap=cap,
        repeats=repeats,
        replicates=replicates,
        min_samples=min_samples,
        label_counts=label_counts,
    )
