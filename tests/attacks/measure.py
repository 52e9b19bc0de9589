"""What each attack finds without limits and with default ones, for the tables of docs/threats.md.

    python -m tests.attacks.measure [ATTACK ...]        from the repository; all attacks by default (some minutes)

Without limits means: no rounding, no errors of updates, no checks of training, no least number of samples, and a
hundred times the budgets.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import msgspec

from fedcollab.wire.limits import NO_LIMITS, Limits

from .target import Target
from .test_attacks import ATTACKS

#: those of in-process runtimes, with a hundred times the budgets
WITHOUT = msgspec.structs.replace(
    NO_LIMITS,
    **{f"max_{kind}": 100 * most for kind, most in NO_LIMITS.budget.items()},
    max_splits=100 * NO_LIMITS.max_splits,
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
