"""Digits: 1,797 handwritten digits of 8 x 8 pixels, inside scikit-learn. The data that is always there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedcollab.scenarios.data.base import Arrays, DataSet, Layout


def decode(paths: Sequence[Path]) -> Arrays:
    """Load scikit-learn's own copy; there are no files to read."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return {"pixels": bunch.images.astype(np.uint8)[:, None], "labels": bunch.target.astype(np.uint8)}


DIGITS = DataSet(
    name="digits",
    title="Optical recognition of handwritten digits (test part)",
    content="1,797 grey images of 8 x 8, 10 classes",
    licence="CC BY 4.0",
    citation="Alpaydin, Kaynak: Optical Recognition of Handwritten Digits, UCI, 1998, doi:10.24432/C50P49",
    layouts=(Layout((), decode),),
    classes=tuple("0123456789"),
    mean=(0.3053,),
    std=(0.3760,),
    top=16.0,
)
