"""What the tests of membership share: a run of six clients of two types, trained in coalitions, alone and together."""

from __future__ import annotations

import csv
import shutil
import zlib
from pathlib import Path

import numpy as np
import pytest

from fedcollab.data import ClientData
from fedcollab.runs.fitted import Fitted
from fedcollab.runs.pipeline import FedCollab

from ...conftest import blobs

SIZES = {"a": 60, "b": 40, "c": 25, "d": 60, "e": 40, "f": 25}


def members(sizes: dict[str, int] = SIZES) -> list[ClientData]:
    """a, b, c agree; d, e, f have the labels swapped."""
    return [blobs(name, size, flip=name in "def") for name, size in sizes.items()]


@pytest.fixture(scope="session")
def trained_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("membership") / "run"
    fitted = FedCollab(C=2.0, run_dir=folder).fit(members())
    for way in ("coalitions", "local", "global"):
        fitted.train(model="logistic", rounds=10, lr=0.1, way=way)
    return folder


@pytest.fixture(params=["vectorised", "wire"])
def fitted(trained_run: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Fitted:
    """A fresh copy of that run, opened in each runtime."""
    shutil.copytree(trained_run, tmp_path / "run")
    return FedCollab(C=2.0, run_dir=tmp_path / "run", runtime=request.param).fit(members())


def write_table(path: Path, *, flip: bool, rows: int = 60, seed: int = 0, columns: tuple[str, ...] = ()) -> Path:
    """A small table whose label `flip` turns round; `columns` are added."""
    rng = np.random.default_rng([seed, zlib.crc32(path.stem.encode())])
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["age", "dose", "sex", "outcome", *columns])
        for _ in range(rows):
            ill = bool(rng.integers(2))
            age = f"{rng.normal(50 + 15 * (ill != flip), 4):.1f}"
            out.writerow([age, f"{rng.normal():.2f}", rng.choice(["f", "m"]), "yes" if ill else "no", *columns])
    return path
