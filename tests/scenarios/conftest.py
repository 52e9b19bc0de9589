"""A pool whose images carry their own position, and counts of labels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fedcollab.data import ClientData
from fedcollab.scenarios import Images


@pytest.fixture
def numbered() -> Callable[[int, int], Images]:
    """Images of 2 x 2 whose pixels are the bytes of their position: `labels` labels of `each` images, interleaved."""

    def pool(labels: int, each: int) -> Images:
        index = np.arange(labels * each, dtype="<u4")
        pixels = index.view(np.uint8).reshape(-1, 1, 2, 2)
        names = tuple(str(label) for label in range(labels))
        return Images("numbered", pixels, np.arange(labels * each) % labels, names, (0.0,), (1.0,), 1.0)

    return pool


@pytest.fixture
def positions() -> Callable[[np.ndarray], np.ndarray]:
    """The positions that the features of `numbered` images carry."""
    return lambda x: x.reshape(len(x), 4).astype(np.int64) @ 256 ** np.arange(4)


@pytest.fixture
def label_counts() -> Callable[..., list[int]]:
    """Training samples of each label."""

    def count(client: ClientData, labels: int = 10) -> list[int]:
        return np.bincount(client.y, minlength=labels).tolist()

    return count
