"""Sentences that people read: numbers and counts as one would say them."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcollab.coalitions import solve
from fedcollab.coalitions.explain import more_in_words
from fedcollab.distances import Distances
from fedcollab.report import write
from fedcollab.report.terminal import unmeasured
from fedcollab.report.words import headline
from fedcollab.runs.membership.regroup import consider
from fedcollab.training import TrainingResult


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ([["a", "b"]], "Both clients should train together"),
        ([["a"], ["b"]], "Each of the 2 clients should train alone"),
        ([["a", "b", "c"]], "All 3 clients should train together"),
    ],
)
def test_two_clients_are_both(groups: list[list[str]], words: str) -> None:
    assert headline(groups, [name for members in groups for name in members]) == words


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (1e-7, "less than 0.01 % more"),
        (0.0123, "1.2 % more"),
        (0.994, "99 % more"),
        (0.996, "2 times as much"),
        (2.2, "3.2 times as much"),
        (2.5, "3.5 times as much"),
        (8.97, "10 times as much"),
        (1233.4, "1,234 times as much"),
    ],
)
def test_large_increases_are_multiples(share: float, words: str) -> None:
    assert more_in_words(share) == words


@given(st.floats(0, 1e9))
def test_no_increase_is_written_with_an_exponent(share: float) -> None:
    assert re.fullmatch(r"[\d.,]+ (% more|times as much)|less than 0.01 % more", more_in_words(share))


def test_the_page_and_regrouping_say_times(tmp_path: Path) -> None:
    """Large clients with nothing in common: for each, joining another costs many times as much as staying alone."""
    D = np.full((4, 4), 0.95)
    np.fill_diagonal(D, 0)
    found = Distances(D, ("a", "b", "c", "d"), [200_000] * 4)
    found.save(tmp_path / "distances.json")
    solve(found, C=1).save(tmp_path / "collaboration.json")
    page = write(tmp_path).read_text(encoding="utf-8")
    assert re.search(r"The closest call is \w: [\w ]+ would cost [\d.,]+ times as much in total\.", page)
    assert re.search(r"Coalition 2: [\d.,]+ times as much in total, [\d.,]+ worse for itself\.", page)
    assert not re.search(r"\de\+\d\d %", page)
    staying = str(consider(found, [0, 1, 0, 1], 1.0, {}))
    assert re.match(r"Regrouping is advised: staying costs [\d.,]+ times as much \(objective", staying)


def result(accuracy: list[float]) -> TrainingResult:
    """A result of which only names and accuracies matter."""
    names = tuple("abcd"[: len(accuracy)])
    return SimpleNamespace(names=names, reported=np.array(accuracy), stopped={})  # type: ignore[return-value]


def test_a_client_that_is_absent_at_the_end_is_named() -> None:
    results = {"local": result([0.5, 0.6, 0.7]), "coalitions": result([0.6, np.nan, 0.8])}
    (line,) = unmeasured(results)
    assert line.startswith("b did not answer at the end of training in coalitions")
    assert "IPR and RSD are of 2 of 3 clients" in line
    assert unmeasured({"local": results["local"]}) == []
