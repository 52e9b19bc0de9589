"""Metrics against scikit-learn's and against the paper's definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from fedcollab import metrics
from fedcollab.errors import InputError


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(2, 4))
def test_auc_and_balanced_accuracy_equal_scikit_learn(seed: int, classes: int) -> None:
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(classes), rng.integers(0, classes, 30)])
    scores = np.round(rng.dirichlet(np.ones(classes), len(y)), 1)
    scores = scores / scores.sum(1, keepdims=True)
    expected = roc_auc_score(y, scores[:, 1]) if classes == 2 else roc_auc_score(y, scores, multi_class="ovr")
    assert metrics.auc(y, scores) == pytest.approx(expected, abs=1e-12)
    guess = scores.argmax(1)
    assert metrics.balanced_accuracy(y, guess) == pytest.approx(balanced_accuracy_score(y, guess), abs=1e-12)


def test_auc_is_the_mean_over_the_classes_that_a_client_has() -> None:
    """Of three classes the labels have two: each against the rest, by hand; scikit-learn gives no number here."""
    scores = np.array([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.3, 0.3, 0.4], [0.1, 0.1, 0.8]])
    labels = [0, 0, 2, 2]
    # class 0: 0.6 beats 0.3 and 0.1, 0.2 beats 0.1 alone: 3 of 4; class 2: 0.4 and 0.8 beat 0.1 and 0.3: 4 of 4
    assert metrics.auc(labels, scores) == (3 / 4 + 4 / 4) / 2


def test_one_class_has_no_auc() -> None:
    assert np.isnan(metrics.auc([1, 1], [0.2, 0.3]))


def test_paper_definitions() -> None:
    local, ours = np.array([0.8, 0.7, 0.9, 0.6]), np.array([0.9, 0.7, 0.8, 0.9])
    assert metrics.ipr(ours, local) == 0.5, "equal accuracy is no gain"
    assert metrics.rsd(ours, local) == pytest.approx(np.std([0.1, 0, -0.1, 0.3]))
    summary = metrics.summary(ours, local, local - 0.1)
    assert summary["acc"] == pytest.approx(0.825)
    assert summary["gain_over_local"] == pytest.approx(0.075)
    assert summary["gain_over_global"] == pytest.approx(0.175)


def test_verdicts_in_words() -> None:
    words = metrics.verdicts(["n", "s", "e"], [0.9, 0.6, 0.5], [0.8, 0.7, 0.5], [0.5, 0.7, 0.5])
    assert (
        words[0]
        == "n gains 10.0 points over training alone (90.0 against 80.0) and 40.0 over one model for everyone (50.0)."
    )
    assert "s loses 10.0 points by taking part (60.0 against 70.0): it is better off alone" in words[1]
    assert words[2].startswith("e does as well as alone")


@pytest.mark.parametrize(("ours", "local"), [([0.5], [0.5, 0.6]), ([], []), ([[0.5]], [[0.5]])])
def test_bad_shapes(ours, local) -> None:
    with pytest.raises(InputError, match="client"):
        metrics.ipr(ours, local)
