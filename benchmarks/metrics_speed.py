"""AUC and balanced accuracy: the CPU time of one call, ours as a ratio to scikit-learn's in the same run.

Every client computes both after every round in which the models are evaluated.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from fedcollab import metrics

CASES = ((14, 2), (60, 2), (60, 10), (1000, 10))  # test samples, classes
REPEATS, CALLS = 5, 50


def seconds(call: Callable[[], object]) -> float:
    """Return the CPU time of one call: the least of some repeats, each a mean over many calls."""
    call()
    times = []
    for _ in range(REPEATS):
        started = time.process_time()
        for _ in range(CALLS):
            call()
        times.append((time.process_time() - started) / CALLS)
    return min(times)


def main() -> None:
    rng = np.random.default_rng(0)
    print("| test samples | classes | measure | ours, us | scikit-learn, us | ratio |")
    print("|---:|---:|---|---:|---:|---:|")
    for samples, classes in CASES:
        labels = np.concatenate([np.arange(classes), rng.integers(0, classes, samples - classes)])
        scores = rng.dirichlet(np.ones(classes), samples)
        guess = scores.argmax(1)
        theirs_auc = (
            (lambda y=labels, s=scores: roc_auc_score(y, s[:, 1]))
            if classes == 2
            else (lambda y=labels, s=scores: roc_auc_score(y, s, multi_class="ovr"))
        )
        pairs = {
            "AUC": (lambda y=labels, s=scores: metrics.auc(y, s), theirs_auc),
            "balanced accuracy": (
                lambda y=labels, g=guess: metrics.balanced_accuracy(y, g),
                lambda y=labels, g=guess: balanced_accuracy_score(y, g),
            ),
        }
        for name, (ours, theirs) in pairs.items():
            mine, other = 1e6 * seconds(ours), 1e6 * seconds(theirs)
            print(f"| {samples} | {classes} | {name} | {mine:.0f} | {other:.0f} | {other / mine:.0f} |")


if __name__ == "__main__":
    main()
