"""Heart disease: 920 patients of four hospitals, 13 measurements and a diagnosis (UCI, the "processed" files)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedcollab.scenarios.data.base import Arrays, DataSet, Layout, Source, check_all
from fedcollab.scenarios.data.fetch import Remote, official

COLUMNS = (
    "age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak",
    "slope", "ca", "thal", "num",
)  # fmt: skip
MD5 = {
    "cleveland": "2d91a8ff69cfd9616aa47b59d6f843db",
    "hungarian": "22e96bee155b5973568101c93b3705f6",
    "switzerland": "9a87f7577310b3917730d06ba9349e20",
    "va": "4249d03ca7711e84f4444768c9426170",
}
FILES = tuple(f"processed.{hospital}.data" for hospital in MD5)


def decode(paths: Sequence[Path]) -> Arrays:
    """Decode one array a hospital, one row a patient, one column as in COLUMNS; `?` is missing and becomes NaN."""
    contents = check_all(((path.read_bytes(), path) for path in paths), MD5.values())
    return {
        hospital: np.array(
            [[np.nan if value == "?" else float(value) for value in row.split(",")] for row in content.decode().split()]
        )
        for hospital, content in zip(MD5, contents, strict=True)
    }


HEART = DataSet(
    name="heart",
    title="Heart disease, four hospitals",
    content="920 patients of 4 hospitals, 13 features, 2 classes",
    licence="CC BY 4.0",
    citation="Janosi, Steinbrunn, Pfisterer, Detrano: Heart Disease, UCI, 1989, doi:10.24432/C52P4X",
    layouts=(Layout(FILES, decode),),
    folders=("heart-disease",),
    sources=(
        Source(
            "the official address",
            official(
                *(
                    Remote(f"https://archive.ics.uci.edu/ml/machine-learning-databases/heart-disease/{file}", file, md5)
                    for file, md5 in zip(FILES, MD5.values(), strict=True)
                )
            ),
        ),
    ),
    classes=("well", "ill"),
)
