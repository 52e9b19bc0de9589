"""Every attack that broke a silo, and our own: against default limits, stricter ones and masks none beats chance.

The statistic is stated in `target`: how many of the silo's rows, or of a column's values, the attack matches, and how
often chance matches as many; less often than once in a thousand times is beyond chance.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcollab.data import ClientData
from fedcollab.wire.limits import Limits, Privacy

from . import alike, combined, crafted, deviations, differences, further, published, state, trees
from .target import NAME, Attack, Target

TESTS = Path(__file__).parents[1]
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
#: over a thousand messages: by `make test-slow`; stricter limits and masks only add refusals and errors
SLOW = {"walked_measures", "outermost_rows", "copied_units"}
ATTACKS = {
    **published.ATTACKS,
    **further.ATTACKS,
    **crafted.ATTACKS,
    **differences.ATTACKS,
    **state.ATTACKS,
    **trees.ATTACKS,
    **deviations.ATTACKS,
    **alike.ATTACKS,
    **combined.ATTACKS,
}


CASES = [
    pytest.param(name, limits, id=f"{name}-{limits}", marks=pytest.mark.slow if name in SLOW else ())
    for name in sorted(ATTACKS.keys() - {"other_run_ids"})
    for limits in LIMITS
    if name not in SLOW or limits == "default"
]


@pytest.mark.parametrize(("name", "limits"), CASES)
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
    without: dict[str, Any] = {"round_measures": False, "blur_updates": False, "check_training": False}
    without |= {"updates_for_distances": True, "max_rounds": 10_000}
    for name in ("empty_losses", "replicate_changes", "turned_trap", "silent_units", "cross_thresholds", "overflow"):
        recovered = ATTACKS[name](Target(tmp_path / name, Limits(**without)))
        assert recovered.beyond_chance, f"{name}: {recovered}"
    least_1 = ("lone_values", "two_schemas", "hair_apart", "sparse_column", "nested_splits", "rare_label", "added_rows")
    for name in (*least_1, "like_columns", "crossed_columns", "underflow", "lone_means", "small_tables"):
        recovered = ATTACKS[name](Target(tmp_path / name, Limits(min_samples=1, **without)))
        assert recovered.beyond_chance, f"{name}: {recovered}"


def test_an_answer_is_the_same_however_much_was_asked_since(tmp_path: Path) -> None:
    """Two answers to one question with errors of different sizes would give the error away."""
    target = Target(tmp_path, Limits())
    target.prepare()
    models = np.random.default_rng(0).normal(size=(8, 16)).astype(np.float32)
    question = {"setting": target.setting(), "round": 1, "models": models[:1]}
    first = target.ask("losses", question)["losses"]
    for model in models[1:]:
        target.ask("losses", {**question, "models": model[None]})
    np.testing.assert_array_equal(target.ask("losses", question)["losses"], first)
    assert target.guards[NAME].spent(None)["models"] == 8
    other = target.ask("losses", {**question, "round": 2})["losses"]  # another message: another answer, and it counts
    assert other[0] != first[0]
    assert target.guards[NAME].spent(None)["models"] == 9


def test_the_same_question_about_other_data_counts_again(tmp_path: Path) -> None:
    """It is another question: else the first answer's error would be that of the second, for nothing."""
    target = Target(tmp_path, Limits())
    target.prepare()
    question = {"setting": target.setting(), "round": 1, "models": np.zeros((1, 16), dtype=np.float32)}
    for spent, rows in ((1, 60), (1, 60), (2, 59)):
        data = ClientData(NAME, target.data.x.iloc[:rows], target.data.y[:rows])
        target.silos[NAME] = replace(target.silos[NAME], data=data, _rows=None, _arrays=None)
        target.ask("losses", question)
        assert target.guards[NAME].spent(None)["models"] == spent


def test_every_promise_names_tests_that_there_are() -> None:
    """docs/threats.md names an attack in brackets, or a file of tests and how the name of the test begins."""
    text = (TESTS.parent / "docs" / "threats.md").read_text(encoding="utf-8")
    promises = text.partition("## Promises")[2].partition("## The attacks")[0]
    named = re.findall(r"`(?:test_attacks)?\[(\w+)\]`", promises)
    assert set(named) - {"name"} <= set(ATTACKS)
    assert set(ATTACKS) <= set(named), "every attack holds a promise"
    for file, begins in re.findall(r"`(test_\w+): (test_\w+)`", promises):
        found = [path.read_text(encoding="utf-8") for path in TESTS.rglob(f"{file}.py")]
        assert any(f"def {begins}" in content for content in found), f"{file}: {begins}"
    for file in re.findall(r"`(tests/[\w/.]+\.py)", text):
        assert (TESTS.parent / file).exists(), file
