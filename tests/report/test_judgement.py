"""What trainings mean, from planted results: who clearly gained, what contradicts the answer, what cannot be told."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from fedcollab import files
from fedcollab.cli.running import summary
from fedcollab.coalitions import solve
from fedcollab.distances import Distances
from fedcollab.report import Judgement, read_run, show_run, show_training, write
from fedcollab.report.terminal import gain_table, verdict
from fedcollab.training import MAJORITY, Comparison, LearningCurve, TrainingResult

from .conftest import trained_as

NAMES = ("n", "s", "e")


def planted(
    accuracy: Mapping[str, list[float]], loss: Mapping[str, list[float]] | None = None, samples: float = 400
) -> Judgement:
    """Results of three clients with these accuracies and losses, and models that judge samples independently."""
    groups = {"local": [["n"], ["s"], ["e"]], "global": [list(NAMES)], "coalitions": [["n", "s"], ["e"]]}
    many = np.full(3, float(samples))
    results = {}
    for way, values in accuracy.items():
        losses = np.array((loss or {}).get(way, [0.5] * 3))
        measures = {"accuracy": np.array(values), "loss": losses, "balanced_accuracy": np.array(values) - 0.1}
        measures |= {"auc": np.array([0.8, np.nan, 0.9]), "loss_stderr": np.full(3, 0.01), "samples": many}
        results[way] = TrainingResult(NAMES, groups[way], measures, **trained_as(groups[way]))
    return Judgement.of(results, None, NAMES)


def with_majority(judgement: Judgement, accuracy: list[float]) -> Judgement:
    """The same, where always giving the most frequent class has this accuracy."""
    known = judgement.comparison
    wider = ((0, 0), (0, 1), (0, 1))
    right, spread = (np.pad(part, wider, constant_values=np.nan) for part in (known.right, known.spread))
    right[:, -1, -1] = np.array(accuracy) * known.samples
    loss = np.pad(known.loss, wider[:2], constant_values=np.nan)
    whole = Comparison(known.names, (*known.models, MAJORITY), known.samples, right, loss, spread)
    return replace(judgement, comparison=whole)


GOOD = {"local": [0.7, 0.7, 0.7], "global": [0.5, 0.5, 0.5], "coalitions": [0.9, 0.71, 0.6]}


def test_clear_gains_and_losses_are_counted() -> None:
    """400 samples: 20 points are a gain, 1 point is none, 10 points less are a loss."""
    judgement = planted(GOOD)
    assert judgement.gain("coalitions").verdicts == ["better", "no clear difference", "worse"]
    coalitions, everyone = judgement.sentences()
    assert coalitions.startswith(
        "In coalitions: 1 of 3 clients clearly gains against training alone, 1 clearly loses; no clear difference for "
        "1. On average +3.7 points (90 % interval +0.7 to +6.6): a clear gain."
    )
    assert "none of 3 clients clearly gains against training alone, 3 clearly lose. On average −20.0 points" in everyone
    assert judgement.contradictions() == []


def test_small_differences_contradict_nothing() -> None:
    few = planted({**GOOD, "local": [0.9, 0.75, 0.65]}, samples=40)
    assert few.contradictions() == []
    assert "no clear difference" in few.sentences()[0]


def test_alone_and_everyone_better_than_the_coalitions_come_worst_first() -> None:
    judgement = planted({"local": [0.8, 0.8, 0.8], "global": [0.9, 0.9, 0.9], "coalitions": [0.7, 0.7, 0.7]})
    first, second = judgement.contradictions()
    assert first.startswith(
        "Measured on the clients' test samples, one model for everyone is better than these coalitions: by 20.0 points "
        "of accuracy on average over clients (90 % interval 17."
    )
    assert "training alone is better than these coalitions: by 10.0 points" in second


def test_a_lower_loss_contradicts_where_accuracies_are_equal() -> None:
    equal = {way: [0.8, 0.8, 0.8] for way in ("local", "coalitions")}
    worse = {"local": [0.4, 0.4, 0.4], "coalitions": [0.5, 0.5, 0.5]}
    (line,) = planted(equal, worse).contradictions()
    assert "training alone is better than these coalitions: its mean log loss is lower by 0.100" in line
    better = {**equal, "coalitions": [0.95, 0.95, 0.95]}
    assert planted(better, worse).contradictions() == [], "accuracy clearly gained: losses alone contradict nothing"


def test_models_below_the_most_frequent_class_are_named() -> None:
    """Everyone together (50 against 64.7 %) for sure; coalition 1 (80.5 against 82) not; alone (70) is above."""
    judgement = with_majority(planted(GOOD), [0.82, 0.82, 0.3])
    below = "below that of always giving each client's most frequent class"
    assert judgement.remarks() == [
        f"Everyone together: the mean accuracy (50.0 %) is clearly {below} (64.7 %).",
        f"Coalition 1 (n, s): the mean accuracy (80.5 %) is {below} (82.0 %).",
    ]


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        ([64, 6400, 60], True),
        ([630, 6400, 0], True),
        ([650, 6400, 10], False),
        ([500, 400, 100], False),
        ([1, 2], False),
    ],
)
def test_a_client_whose_word_decides_is_named(rows: list[int], named: bool) -> None:
    """More rows than all others together, and ten times those of any other: a lie of this kind moves everybody most."""
    found = [line for line in replace(planted(GOOD), rows=rows).remarks() if "says that it has" in line]
    assert len(found) == named
    if rows == [64, 6400, 60]:
        assert found == [
            "s says that it has 98.1 % of all training rows (6400; no other has more than 64): its word decides "
            "coalitions and models, and nobody else can count its rows."
        ]


def test_a_test_split_that_is_too_small_is_named_with_its_width() -> None:
    judgement = planted({"local": [0.5, 0.9, 0.9], "coalitions": [0.5, 0.9, 0.9]}, samples=10)
    (line,) = judgement.remarks()
    assert line == (
        "3 of 3 clients have too few test samples to tell much (10): the accuracy of n, 50.0 % of 10 samples, may be "
        "anything from 26.9 to 73.1 %."
    )
    assert planted(GOOD).remarks() == []


def test_results_of_earlier_versions_keep_their_figures() -> None:
    """Without numbers of test samples nothing is said about how sure the figures are."""
    found = planted(GOOD)
    old = {
        way: replace(result, measures={key: result.measures[key] for key in ("accuracy", "loss")})
        for way, result in found.results.items()
    }
    judgement = Judgement.of(old, None, NAMES)
    assert judgement.accuracy("coalitions").average.mean == pytest.approx(np.mean(GOOD["coalitions"]))
    assert judgement.gain("coalitions").average.verdict == "not known"
    assert judgement.sentences()[0] == "In coalitions: how sure the differences are is not known."
    assert judgement.contradictions() == judgement.remarks() == []


# Terminal, page and JSON say it first.

CONTRADICTED = {"local": [0.8, 0.8, 0.8], "global": [0.5, 0.5, 0.5], "coalitions": [0.7, 0.7, 0.7]}


@pytest.fixture
def contradicted(tmp_path: Path) -> tuple[Any, Judgement, Path]:
    """A fitted run of three clients whose trainings contradict the answer, in a run directory."""
    matrix = np.array([[0, 0.05, 0.9], [0.05, 0, 0.9], [0.9, 0.9, 0]])
    distances = Distances(matrix, NAMES, np.array([100, 100, 5000]))
    distances.save(tmp_path / "distances.json")
    collaboration = solve(distances, C=5)
    collaboration.save(tmp_path / "collaboration.json")
    judgement = planted(CONTRADICTED)
    for way, result in judgement.results.items():
        result.save(tmp_path / "training" / way / "training.json")
    return SimpleNamespace(distances=distances, collaboration=collaboration, saved_advice=None), judgement, tmp_path


def test_the_terminal_says_first_what_contradicts_the_answer(
    contradicted: tuple[Any, Judgement, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    fitted, judgement, folder = contradicted
    show_run(fitted, judgement, folder / "report.html", "next")
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith(
        "Not confirmed by training. Measured on the clients' test samples, training alone is better"
    )
    assert shown.index("is better than these coalitions: by 10.0 points") < shown.index("should train in 1 coalition")
    for column in ("balanced", "AUC", "log loss", "70.0 ± 2.2 %", "60.0 %", "85.0 %", "0.500", "−10.0 ± 2.9"):
        assert column in shown


def test_json_says_first_what_contradicts_the_answer(contradicted: tuple[Any, Judgement, Path]) -> None:
    fitted, judgement, folder = contradicted
    plain = json.loads(files.dumps(summary(fitted, judgement, folder / "report.html")))
    assert next(iter(plain)) == "contradictions"
    assert "training alone is better" in plain["contradictions"][0]
    found = plain["results"]["coalitions"]
    assert found["mean_accuracy"] == pytest.approx(0.7)
    assert found["gain_over_local"]["average"]["verdict"] == "worse"
    assert found["gain_over_local"]["verdicts"] == ["worse"] * 3
    assert found["gain_over_global"]["verdicts"] == ["better"] * 3
    assert found["mean_auc"] == pytest.approx(0.85)
    assert found["auc"][1] is None
    low, high = (found["accuracy_interval"][end][0] for end in ("low", "high"))
    assert low < 0.7 < high
    assert plain["test_samples"] == [400] * 3


def test_the_page_says_first_what_contradicts_the_answer(contradicted: tuple[Any, Judgement, Path]) -> None:
    _, _, folder = contradicted
    text = write(folder).read_text(encoding="utf-8")
    assert text.index("Training does not confirm this answer.") < text.index('<p class="headline">')
    assert "training alone is better than these coalitions: by 10.0 points" in text
    assert "clearly worse" in text


def test_a_comparison_of_other_trainings_is_not_used(contradicted: tuple[Any, Judgement, Path], tmp_path: Path) -> None:
    _, judgement, folder = contradicted
    names = [f"training/{way}/training.json" for way in ("local", "global", "coalitions")]
    digests = {name: files.digest(folder / name) for name in names}
    whole = with_majority(judgement, [0.6, 0.6, 0.6]).comparison
    whole.save(folder / "training" / "comparison.json", {"settings": {}, "inputs": digests})
    contents = read_run(folder)
    assert contents.comparison is not None
    assert contents.judgement is not None
    assert contents.judgement.majority is not None
    other = judgement.results["local"]
    other.save(folder / "training" / "local" / "training.json", {"settings": {}, "inputs": {"clients": "others"}})
    assert read_run(folder).comparison is None
    shutil.rmtree(folder / "training")
    assert read_run(folder).judgement is None


def test_a_single_training_shows_its_intervals(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    result = planted(GOOD).results["coalitions"]
    show_training(result, tmp_path)
    shown = capsys.readouterr().out
    assert "80.5 ± 2.2 %" in shown, "n and s: 90 and 71 %, 400 samples each"
    assert "Mean accuracy 73.7 ± 2.0 % (balanced 63.7 %, AUC 85.0 %, log loss 0.500)." in shown


def test_how_long_each_way_trained_is_said_where_it_was_chosen() -> None:
    judgement = planted(GOOD)
    assert judgement.lengths() == ""
    settings, lengths = (
        {"stopping": "held-out", "rounds": 90},
        {"local": [12, 45, 30], "global": [80], "coalitions": [7, 7]},
    )
    chosen = {way: replace(r, settings=settings, rounds=lengths[way]) for way, r in judgement.results.items()}
    assert Judgement.of(chosen, None, NAMES).lengths() == (
        "Rounds, chosen on training rows that no model had seen (at most 90): alone 12 to 45, everyone together 80, "
        "in coalitions 7."
    )


#: training alone has a loss of .5 with all rows and of .58 with half of them, give or take
CURVE = LearningCurve(NAMES, np.array([100.0, 200.0, 360.0]), np.array([[0.57, 0.5], [0.58, 0.5], [0.59, 0.5]]),
                      np.array([[0.68, 0.7], [0.67, 0.7], [0.69, 0.7]]))  # fmt: skip


def test_a_gain_in_loss_is_told_in_rows() -> None:
    """d = .08; .04 less is worth 2^(.04/.08) = 1.41 times the rows, .08 more half of them."""
    losses = {"local": [0.5] * 3, "global": [0.58] * 3, "coalitions": [0.46] * 3}
    judgement = replace(planted(GOOD, losses), curve=CURVE)
    assert judgement.equivalent("coalitions").factor == pytest.approx(2**0.5)
    coalitions, everyone = judgement.sentences()[2:]
    assert coalitions.startswith(
        "In coalitions: in log loss as if each client trained alone with about 1.4 times its rows"
    )
    assert coalitions.endswith("; 91 more for a client of 220).")
    assert "alone with only about 0.5 times its rows (90 % interval 0." in everyone
    assert everyone.endswith("; 110 fewer for a client of 220).")
    figures = json.loads(files.dumps(judgement.figures()))
    assert figures["learning_curve"]["loss"]["mean"] == pytest.approx(0.08)
    assert figures["learning_curve"]["accuracy"]["mean"] == pytest.approx(0.02)
    assert figures["results"]["coalitions"]["equivalent_rows"]["factor"] == pytest.approx(2**0.5, abs=0.001)
    assert coalitions.endswith(figures["results"]["coalitions"]["equivalent_rows"]["sentence"])
    assert "equivalent_rows" not in figures["results"]["local"]
    assert planted(GOOD, losses).figures()["learning_curve"] is None


def test_what_is_far_from_the_curve_and_what_cannot_be_told() -> None:
    losses = {"local": [0.5] * 3, "global": [0.5] * 3, "coalitions": [0.2] * 3}
    coalitions, everyone = replace(planted(GOOD, losses), curve=CURVE).sentences()[2:]
    assert "with more than 10 times its rows (90 % interval " in coalitions
    assert coalitions.endswith(" or more; too far from what was measured to say more).")
    assert "how many rows the difference in log loss is worth cannot be told (it is not clear)." in everyone
    flat = replace(CURVE, loss=np.array([[0.49, 0.5], [0.5, 0.5], [0.51, 0.5]]))
    (line,) = replace(planted(GOOD, losses), curve=flat).sentences()[2:]  # once for both ways
    assert line.startswith("How many rows")
    assert "cannot be told (with half of their rows, clients are not clearly worse alone)" in line


def test_only_clients_with_a_curve_count() -> None:
    """Without the third client, whose loss fell most, the gain is .04."""
    losses = {"local": [0.5] * 3, "coalitions": [0.46, 0.46, 0.1]}
    known = replace(CURVE, names=NAMES[:2], rows=CURVE.rows[:2], loss=np.array([[0.58, 0.5], [0.58001, 0.5]]))
    judgement = replace(planted({"local": [0.7] * 3, "coalitions": [0.8] * 3}, losses), curve=known)
    assert judgement.equivalent("coalitions").factor == pytest.approx(2**0.5, abs=0.001)


def test_the_table_of_gains_fits_into_eighty_columns() -> None:
    judgement = planted(GOOD)
    for narrow, headings in ((True, 6), (False, 9)):
        table = gain_table(judgement, narrow=narrow)
        assert len(table.columns) == headings
        assert ("RSD" in verdict(judgement, narrow=narrow)[0]) == (not narrow)
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(gain_table(judgement, narrow=True))
    shown = console.export_text().splitlines()
    assert len(shown) == 1 + len(judgement.results) + (judgement.majority is not None), "no row is broken"


def test_many_who_stay_alone_are_told_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"site {letter}" for letter in "abcdefgh"]
    apart = np.ones((8, 8)) - np.eye(8)
    distances = Distances(apart, tuple(names), np.full(8, 5))
    collaboration = solve(distances, C=0.1)
    assert len(collaboration.coalitions) == 8
    judgement = planted(GOOD)
    show_run(
        SimpleNamespace(distances=distances, collaboration=collaboration, saved_advice=None),
        judgement,
        tmp_path / "r.html",
        "next",
    )
    shown = capsys.readouterr().out
    assert "  Alone: site a, site b" in shown
    assert "1 client," not in shown
