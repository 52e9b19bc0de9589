"""The data that `fedcollab federation demo` brings itself: a silo's default limits admit it, and it tells the story."""

from __future__ import annotations

import numpy as np
import pytest

from fedcollab import solve, train
from fedcollab.cli.federation_demo import IMAGES, post_offices
from fedcollab.distances import estimate_distances
from fedcollab.wire import Wire
from fedcollab.wire.limits import Limits


@pytest.mark.parametrize("seed", [0, 1])
def test_the_post_offices_with_equal_scanners_find_each_other_and_gain(seed: int) -> None:
    offices = post_offices(seed)
    found = estimate_distances(Wire(offices), method="few-round", seed=seed, min_samples=Limits().min_samples)
    coalitions = solve(found, C=10).coalitions
    assert coalitions == [["east", "west"], ["north", "south"]]
    means = {}
    for way, members in (("alone", "local"), ("coalitions", coalitions), ("together", "global")):
        result = train(offices, members, model="logistic", lr=0.1, rounds=3, local_epochs=5, seed=seed)
        means[way] = result.accuracy.mean()
    assert means["together"] < means["alone"] < means["coalitions"]


def test_every_digit_is_dealt_once() -> None:
    from sklearn.datasets import load_digits

    offices = post_offices()
    assert [office.quantity for office in offices] == [IMAGES] * 4
    dealt = []
    for office in offices:
        images = np.concatenate([office.x, office.x_test])
        dealt.append(images[:, ::-1, ::-1] if office.name in ("east", "west") else images)
    digits = load_digits().images / 16
    assert sorted(image.tobytes() for image in np.concatenate(dealt)) == sorted(image.tobytes() for image in digits)
