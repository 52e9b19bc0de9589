"""Every attack that broke a silo, and our own: against default limits and stricter ones none gets more than chance.

The statistic is stated in `target`: the share of the silo's rows, or of a column's values, that the attack matches, and
the same share by chance. An attack fails if its share is within two of 48 rows of chance.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fedcollab.wire.limits import Limits, Privacy

from . import further, published
from .target import Attack, Target

LIMITS = {
    "default": Limits(),
    "stricter": Limits(min_samples=20, min_coalition=2),
}
PRIVATE = Limits(require_privacy=Privacy(1.0, 1e-5))
MARGIN = 2 / 48
#: what is about noise, or about presence where noise is required
WITH_NOISE = {
    attack.__name__: attack
    for attack in (published.presence_by_norm, further.fingerprint_oracle, further.other_run_ids)
}
ATTACKS = {**published.ATTACKS, **further.ATTACKS}


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
    assert recovered.share <= recovered.chance + MARGIN, f"{recovered}; refused: {target.refusals[-1:]}"
    assert target.messages > 0
