"""The slider's data: what the page looks up is what the objective says."""

from dataclasses import replace

import numpy as np
import pytest

from fedcollab.advice.fit import BoundFit
from fedcollab.coalitions import objective, solve
from fedcollab.report import slider as module
from fedcollab.report.answer import answer
from fedcollab.report.run import read_run
from fedcollab.report.slider import packed, slider

NAMES = tuple("abcdef")


@pytest.fixture
def run(run_of):
    return read_run(run_of(NAMES))


def test_the_parts_of_every_client_sum_to_the_objective(run):
    shown = slider(run.distances, run.path, run.collaboration)
    quantities = run.distances.quantities
    for segment in shown["segments"]:
        labels = np.array(segment["labels"])
        expected = objective(run.distances.matrix, quantities, labels, C=segment["C"])
        assert segment["objective"]["path"] == pytest.approx(expected, abs=1e-6)
        mass = np.bincount(labels, weights=quantities)[labels]
        parts = (segment["C"] / np.sqrt(mass)).sum() + sum(segment["shift"]) / module.DIGITS
        assert parts == pytest.approx(expected, abs=len(NAMES) / module.DIGITS)
        assert sum(shown["everyone"]) / module.DIGITS + len(NAMES) * segment["C"] / np.sqrt(
            quantities.sum()
        ) == pytest.approx(segment["objective"]["everyone"], abs=len(NAMES) / module.DIGITS)
        assert segment["objective"]["nobody"] == pytest.approx((segment["C"] / np.sqrt(quantities)).sum(), abs=1e-6)
        assert segment["objective"]["path"] <= min(segment["objective"].values()) + 1e-6


def test_segments_cover_the_scale_and_the_answer_is_one_of_them(run):
    shown = slider(run.distances, run.path, run.collaboration)
    segments = shown["segments"]
    assert len(segments) == len(run.path)
    assert [s["right"] for s in segments[:-1]] == [s["left"] for s in segments[1:]]
    assert all(s["left"] <= s["C"] <= s["right"] for s in segments)
    assert segments[0]["words"].startswith("below")
    assert segments[-1]["words"].startswith("above")
    assert segments[shown["chosen"]]["labels"] == run.collaboration.assignment.tolist()
    assert segments[shown["suggested"]]["C"] == run.path.suggested.C


def test_of_too_many_segments_the_widest_are_kept(run, monkeypatch):
    whole = slider(run.distances, run.path, run.collaboration)
    monkeypatch.setattr(module, "MOST", 3 * len(NAMES))
    shown = slider(run.distances, run.path, run.collaboration)
    assert shown["left_out"] == len(run.path) - len(shown["segments"]) == len(run.path) - 3
    kept = [s["words"] for s in shown["segments"]]
    assert {whole["segments"][i]["words"] for i in (0, -1, whole["suggested"])} <= set(kept)


def test_the_fitted_bound_gives_every_segment_its_gain(run):
    quantities = run.distances.quantities.astype(float)
    fit = BoundFit(a=2.0, b=0.5, explained=0.4, pairs=9)
    shown = slider(run.distances, run.path, run.collaboration, fit)
    for segment in shown["segments"]:
        labels = np.array(segment["labels"])
        mass = np.bincount(labels, weights=quantities)[labels]
        little = (2.0 / np.sqrt(quantities) - 2.0 / np.sqrt(mass)).mean()
        unlike = 0.5 * np.mean(segment["shift"]) / module.DIGITS
        assert segment["gain"] == pytest.approx(little - unlike, abs=2e-4)
    everyone = 2.0 / np.sqrt(quantities) - 2.0 / np.sqrt(quantities.sum())
    unlike = 0.5 * np.mean(shown["everyone"]) / module.DIGITS
    assert shown["everyone_gain"] == pytest.approx(everyone.mean() - unlike, abs=2e-4)
    poor = slider(run.distances, run.path, run.collaboration, replace(fit, explained=0.05))
    assert poor["everyone_gain"] is None
    assert {segment["gain"] for segment in poor["segments"]} == {None}


def test_a_matrix_is_packed_as_its_upper_triangle():
    values = np.array([[0, 0.1, np.nan], [0.1, 0, 0.25], [np.nan, 0.25, 0]])
    assert packed(values) == [100, None, 250]
    assert packed(None) is None


def test_an_answer_that_the_path_does_not_hold_is_said(run):
    apart = solve(run.distances, C=run.collaboration.C, cannot_link=[("a", "b")])
    shown = slider(run.distances, run.path, apart)
    assert shown["chosen"] is None
    assert shown["answer"] == apart.assignment.tolist()
    assert "not among the answers below" in " ".join(answer(replace(run, collaboration=apart), [], shown, None)["sure"])
