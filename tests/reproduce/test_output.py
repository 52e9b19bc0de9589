"""Numbers beside the paper's: means, deviations, and the mark."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedcollab import solve
from fedcollab.distances.methods import discriminator
from fedcollab.reproduce import Cells, Choices, Workspace, complexity
from fedcollab.reproduce.convergence import descend
from fedcollab.reproduce.distances import levels
from fedcollab.reproduce.experiment import paper
from fedcollab.reproduce.notation import slug
from fedcollab.reproduce.output import Comparison, Table
from fedcollab.reproduce.setups import full
from fedcollab.reproduce.two_client import crossing


def test_the_mark_is_at_two_standard_deviations() -> None:
    assert not Comparison((91.0, 92.0), (90.5, 0.5)).far
    assert Comparison((91.0, 92.1), (90.5, 0.5)).far
    assert Comparison((99.0,), (100.0, 0.0)).far
    assert not Comparison((46.64,), (46.64, 0.0)).far
    assert not Comparison((50.0,)).far
    assert Comparison((45.0, 45.0, 45.0, 50.0, 45.0)).deviation == pytest.approx(2.236, abs=1e-3)


def test_a_table_shows_the_difference() -> None:
    table = Table(
        "T", ("method", "Acc"), [("local", Comparison((80.0, 82.0), (86.05, 0.28))), ("ours", Comparison((90.0,)))]
    )
    text = table.markdown()
    assert "| local | 81.00 (1.41) | 86.05 (0.28) | -5.05† |" in text
    assert "| ours | 90.00 |  |  |" in text
    alone = Table("T", ("C", "Acc"), [("0", Comparison((80.0, 82.0)))]).markdown()
    assert "| C | Acc |\n" in alone
    assert "| 0 | 81.00 (1.41) |\n" in alone
    assert [record.get("far") for record in table.records()] == [True, None]


def test_a_number_of_the_paper_without_a_deviation() -> None:
    assert Comparison((104600,), (104600, None), digits=0).cells() == ["104600", "104600", "+0"]
    assert not Comparison((5.34,), (5.3, None), digits=1).far
    assert Comparison((5.4,), (5.3, None), digits=1).far


def test_rounds_are_named_where_they_are_not_the_papers() -> None:
    workspace = Workspace(Choices(rounds=500), Cells(Path("none")))
    assert "(the paper:" not in workspace.setups["feature-shift"].differences[0]
    assert (
        workspace.setups["label-shift"]
        .differences[0]
        .startswith("Differs from the paper: 500 rounds (the paper: 200); ")
    )
    paper, shorter = full()["feature-shift"].lengths
    assert "(the paper:" not in paper.differences[0]
    assert shorter.differences[0].startswith("Differs from the paper: 100 rounds (the paper: 500); ")
    assert (paper.title, shorter.title) == ("Feature shift (CIFAR-10)", "Feature shift (CIFAR-10), 100 rounds")


def test_the_papers_figures_are_whole() -> None:
    for name, rows in (("table-1", 15), ("table-2", 5)):
        assert {scenario: len(values) for scenario, values in paper()[name].items()} == {
            "label-shift": rows, "feature-shift": rows, "concept-shift": rows,
        }  # fmt: skip
    assert paper()["table-1"]["concept-shift"]["pfedme"] == {
        "acc": [27.04, 0.39],
        "ipr": [48.0, 2.74],
        "rsd": [10.39, 0.47],
    }
    assert paper()["ablation"]["label-shift"]["ignore-distances"]["acc"] == [67.79, 0.89]


def test_long_partitions_have_short_names() -> None:
    names = [f"client-{k:02d}" for k in range(40)]
    odd = slug([names[::2], names[1::2]])
    assert len(odd) < 40
    assert odd.startswith("2-coalitions-")
    assert odd != slug([names[:20], names[20:]]) == "0-19.20-39"


def test_levels_tell_planted_types_apart() -> None:
    types = np.repeat(np.arange(4), 2)
    planted = np.where(types[:, None] == types, 0.1, 1.0) - 0.1 * np.eye(8)
    *means, apart = levels(planted, types)
    assert means == pytest.approx([0.1, 1.0, 1.0, 1.0])
    assert apart == 1.0
    assert levels(1.0 - planted, types)[-1] == 0.0


def test_crossing_in_words() -> None:
    assert "up to 0.2, training alone from 0.4" in crossing("distance", [(0, 3), (0.2, 1), (0.4, -1), (0.6, -5)])
    assert "pays at every point" in crossing("distance", [(0, 3), (0.2, 1)])


def test_algorithm_2_by_hand() -> None:
    """Two clients alike, one far: one pass joins the two, a second confirms; the loss never rises."""
    matrix = np.array([[0, 0, 1], [0, 0, 1], [1, 1, 0]], dtype=float)
    path, labels = descend(matrix, np.array([100.0, 100.0, 100.0]), 1.0, np.random.default_rng(0))
    assert labels[0] == labels[1] != labels[2]
    assert len(path) == 1 + 6
    assert path[0] == pytest.approx(0.3)
    assert path[-1] == pytest.approx(0.1 + 2 / np.sqrt(200))
    assert (np.diff(path) <= 0).all()


def test_single_moves_can_miss_the_best_partition_always() -> None:
    """Two pairs of equals at .2, C / sqrt(m) = 1: pairs cost 4 / sqrt(2), together they would cost 2 + 2 (.2)."""
    pairs = np.array([0, 0, 1, 1])
    matrix, quantities = 0.2 * (pairs[:, None] != pairs), np.full(4, 100.0)
    for run in range(10):
        path, labels = descend(matrix, quantities, 10.0, np.random.default_rng(run))
        assert labels[0] == labels[1] != labels[2] == labels[3]
        assert path[-1] == pytest.approx(4 / 2**0.5)
    answer = solve(matrix, quantities, C=10.0)
    assert answer.optimal
    assert answer.objective == pytest.approx(2.4)


def test_the_discriminator_that_is_counted_is_the_one_that_is_trained() -> None:
    for labels in (10, 20):
        assert complexity.discriminator(labels)[1] == discriminator.parameters(complexity.FEATURES, labels)
