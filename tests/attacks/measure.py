"""What each attack finds without limits and with default ones, for the tables of docs/threats.md.

    python -m tests.attacks.measure [ATTACK ...]        from the repository; all attacks by default (some minutes)

Without limits means: no rounding, no errors of updates, no checks of training, no least number of samples, and a
hundred times the budgets.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from fedcollab.wire.limits import Limits

from .target import Target
from .test_attacks import ATTACKS

WITHOUT = Limits(
    min_samples=1,
    min_test=1,
    min_batch=1,
    round_measures=False,
    blur_updates=False,
    check_training=False,
    updates_for_distances=True,
    max_models=30_000,
    max_repeats=800,
    max_rounds=125_000,
    max_schemas=1_000,
    max_splits=1_000,
)


def main() -> None:
    """Print one line for each attack."""
    for name in sys.argv[1:] or sorted(ATTACKS.keys() - {"other_run_ids"}):
        found = []
        for limits in (WITHOUT, Limits()):
            with tempfile.TemporaryDirectory() as folder:
                target = Target(Path(folder), limits)
                found.append(
                    f"{ATTACKS[name](target)}{'; refused: ' + target.refusals[-1][:60] if target.refusals else ''}"
                )
        print(f"{name}\n  without: {found[0]}\n  default: {found[1]}", flush=True)


if __name__ == "__main__":
    main()
