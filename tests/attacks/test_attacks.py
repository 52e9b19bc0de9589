"""Every attack that broke a silo, and our own: against default limits, stricter ones and masks none beats chance.

The statistic is stated in `target`: how many of the silo's rows, or of a column's values, the attack matches, and how
often chance matches as many; less often than once in a thousand times is beyond chance.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fedcollab.wire.limits import Limits, Privacy

from . import crafted, further, published
from .target import Attack, Target

LIMITS = {
    "default": Limits(),
    "stricter": Limits(min_samples=20, min_coalition=2),
    "masked": Limits(secure_aggregation=True),
}
PRIVATE = Limits(require_privacy=Privacy(1.0, 1e-5))
#: what is about noise, or about presence where noise is required
WITH_NOISE = {
    attack.__name__: attack
    for attack in (published.presence_by_norm, further.fingerprint_oracle, further.other_run_ids)
}
ATTACKS = {**published.ATTACKS, **further.ATTACKS, **crafted.ATTACKS}


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("name", sorted(ATTACKS.keys() - {"other_run_ids"}))
def test_an_attack_gets_no_more_than_chance(name: str, limits: str, tmp_path: Path) -> None:
    _check(ATTACKS[name], LIMITS[limits], tmp_path)


@pytest.mark.parametrize("name", sorted(WITH_NOISE))
def test_an_attack_on_a_private_silo_gets_no_more_than_chance(name: str, tmp_path: Path) -> None:
    pytest.importorskip("opacus", reason="opacus is not installed: pip install 'fedcollab[privacy]'")
    _check(WITH_NOISE[name], PRIVATE, tmp_path)


def _check(attack: Attack, limits: Limits, folder: Path) -> None:
    target = Target(folder, limits)
    recovered = attack(target)
    print(f"{attack.__name__}: {recovered}; refused: {target.refusals[-1:]}")  # with -rP, for docs/threats.md
    assert not recovered.beyond_chance, f"{recovered}; refused: {target.refusals[-1:]}"
    assert target.messages > 0


def test_a_silo_without_these_limits_is_read(tmp_path: Path) -> None:
    """The attacks are real: without rounding, errors and checks they get much more than chance."""
    loose = Limits(
        round_measures=False, blur_updates=False, check_training=False, updates_for_distances=True, max_rounds=10_000
    )
    for name in ("empty_losses", "replicate_changes", "turned_trap", "cross_thresholds"):
        recovered = ATTACKS[name](Target(tmp_path / name, loose))
        assert recovered.beyond_chance, f"{name}: {recovered}"
