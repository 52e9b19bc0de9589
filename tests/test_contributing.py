"""The worked examples of CONTRIBUTING are followed literally: each file is written, imported and used."""

from __future__ import annotations

import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from fedcollab import ClientData, baselines, estimate_distances, scenarios, train
from fedcollab.distances import METHODS
from fedcollab.scenarios.data import DATA_SETS
from fedcollab.training import ALGORITHMS

ROOT = Path(__file__).resolve().parent.parent
BLOCKS = dict(re.findall(r"```python\n# src/(\S+)\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL))


def follow(path: str, folder: Path) -> ModuleType:
    """Write one of the files where it says, under another root, and import it."""
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(BLOCKS[path])
    name = f"example_{target.stem}"
    spec = spec_from_file_location(name, target)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def clients() -> list[ClientData]:
    rng = np.random.default_rng(0)
    made = []
    for name, rows in (("north", 20), ("south", 24), ("east", 60), ("west", 80)):
        x = rng.normal(size=(rows, 3))
        made.append(ClientData(name, x, ((x[:, 0] > 0) if rows < 50 else (x[:, 0] > -1)).astype(int)))
    return made


def test_there_are_four_and_each_is_short() -> None:
    assert len(BLOCKS) == 4
    assert all(len(code.strip().splitlines()) < 30 for code in BLOCKS.values())
    assert all((ROOT / "src" / path).parent.is_dir() for path in BLOCKS)


def test_an_algorithm(tmp_path: Path, clients: list[ClientData], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedcollab.training.hooks.ALGORITHMS", ALGORITHMS)
    try:
        follow("fedcollab/training/algorithms/sign.py", tmp_path)
        settings = {"model": "logistic", "rounds": 3, "stopping": "none"}
        one = train(clients, "global", "signavg", **settings)  # type: ignore[arg-type]
        other = train(clients, "global", "signavg", runtime="wire", **settings)  # type: ignore[arg-type]
        assert np.allclose(one.loss, other.loss)
        assert not np.allclose(one.loss, train(clients, "global", **settings).loss)  # type: ignore[arg-type]
    finally:
        ALGORITHMS.pop("signavg", None)


def test_a_distance(tmp_path: Path, clients: list[ClientData], monkeypatch: pytest.MonkeyPatch) -> None:
    module = follow("fedcollab/distances/methods/majority.py", tmp_path)
    monkeypatch.setitem(METHODS, "majority", module.estimate)
    found = estimate_distances(clients, method="majority")
    assert set(np.unique(found.matrix)) <= {0.0, 1.0}
    assert found.matrix[2, 3] == 0


def test_a_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = follow("fedcollab/scenarios/data/stripes.py", tmp_path)
    monkeypatch.setitem(DATA_SETS, "stripes", module.STRIPES)
    made = scenarios.make("dirichlet", dataset="stripes", clients=3, alpha=1.0, quantity=20, test=10)
    assert len(made.clients) == 3
    assert made.clients[0].x.shape[1:] == (1, 8, 8)


def test_a_baseline(tmp_path: Path, clients: list[ClientData], monkeypatch: pytest.MonkeyPatch) -> None:
    module = follow("fedcollab/baselines/quantity.py", tmp_path)
    monkeypatch.setitem(baselines.BASELINES, "quantity", module.Quantity)
    result = baselines.run("quantity", clients, k=2, rounds=2, lr=0.1, model="logistic")
    assert result.assignment[0] == result.assignment[1] != result.assignment[2] == result.assignment[3]
