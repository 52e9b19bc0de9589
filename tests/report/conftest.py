"""Run directories of every stage, made from small synthetic values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from fedcollab import files as artefact
from fedcollab.coalitions import CPath, c_path, solve
from fedcollab.coalitions.path import Segment
from fedcollab.distances import Distances
from fedcollab.report.slider import bound_terms
from fedcollab.training import TrainingResult
from fedcollab.training.history import History

NASTY = (
    "<script>alert(1)</script>",
    "Saint Mary's & Co",
    'Klinik "Süd"',
    "n4 </script><b>x",
    "{{ 7 * 7 }}",
    "a\\u003c",
)
STAGES = ("distances", "coalitions", "training")


def make_distances(names: Sequence[str], *, stderr: bool = True, replicates: int = 0) -> Distances:
    """Clients of two types in order; the first half of each type is large."""
    count = len(names)
    rng = np.random.default_rng(0)
    kind = np.arange(count) * 2 // count
    noise = np.triu(rng.normal(0, 0.01, (count, count)), 1)
    raw = np.where(kind[:, None] == kind, 0.03, 0.8) + noise + noise.T
    np.fill_diagonal(raw, 0.0)
    wide = np.full((count, count), 0.05)
    draws = np.stack([raw + 0.001 * k * (1 - np.eye(count)) for k in range(replicates)]) if replicates else None
    quantities = np.where(np.arange(count) % 2, 20, 400)
    return Distances(
        raw, tuple(names), quantities, wide if stderr else None, draws, method="auto",
        settings={"seed": 0}, cost={"rounds": 10, "bytes": dict.fromkeys(names, 2048)},
    )  # fmt: skip


def make_path(distances: Distances) -> CPath:
    """The path where that is quick; for many clients a chain of mergers with equal steps in log C."""
    count = len(distances.names)
    if count == 1:
        return CPath(
            (Segment(0.0, np.inf, np.zeros(1, dtype=int), [list(distances.names)], 0.05, 0.0, True, 1.0),), (1, 1)
        )
    if count <= 20:
        return c_path(distances, restarts=5)
    edges = [0.0, *np.geomspace(0.01, 100, count - 1).tolist(), np.inf]
    kind = np.arange(count) * 2 // count
    segments = []
    for merged, (low, high) in enumerate(pairwise(edges)):
        labels = np.unique(np.maximum(np.arange(count), merged), return_inverse=True)[1]
        labels = np.where(kind == 0, 0, labels - labels[count // 2] + 1) if merged == count // 2 else labels
        _, first = np.unique(labels, return_index=True)
        labels = np.argsort(np.argsort(first))[np.unique(labels, return_inverse=True)[1]]
        C = float(np.sqrt(max(low, 1e-3) * min(high, 1e3)))
        slope = float(bound_terms(distances.matrix, distances.quantities.astype(float), labels, 1.0)[:, 0].sum())
        segments.append(Segment(low, high, labels, [], slope, 0.0, True, C))
    return CPath(tuple(segments), (edges[count // 2], edges[count // 2 + 1]))


def make_training(names: Sequence[str], coalitions: list[list[str]], top: float) -> TrainingResult:
    """A result with a history of four rounds."""
    where = {name: label for label, members in enumerate(coalitions) for name in members}
    accuracy = np.clip(top + 0.001 * np.arange(len(names)), 0, 1)
    rows = [
        {"round": number, "client": name, "coalition": where[name], "train_loss": 1.0, "accuracy": value * number / 4}
        for number in range(1, 5)
        for name, value in zip(names, accuracy.tolist(), strict=True)
    ]
    measures = dict.fromkeys(("accuracy", "loss", "balanced_accuracy", "auc"), accuracy)
    measures |= {"samples": np.full(len(names), 1000.0), "loss_stderr": np.full(len(names), 0.01)}
    cost = {"rounds": 4, "bytes_up": 4096, "seconds": 1.5}
    return TrainingResult(tuple(names), coalitions, measures, history=History(rows), cost=cost)


def make_run(folder: Path, names: Sequence[str], stage: str = "training", **options: object) -> Path:
    """A run directory that has come as far as `stage`."""
    distances = make_distances(names, **options)  # type: ignore[arg-type]
    distances.save(folder / "distances.json")
    said = {name: {"quantity": 5, "label_counts": {"0": 3, "1": 1 + i % 2}} for i, name in enumerate(names)}
    asked = {"settings": {"source": "test", "seed": 0}, "command": "fedcollab run --clients test", "clients": said}
    artefact.write_json(folder / "run.json", "run", {**asked, "started": "2026-01-01", "versions": {"numpy": "2"}})
    if stage == "distances":
        return folder
    path = make_path(distances)
    path.save(folder / "path.json")
    answer = solve(distances, C=path.suggested.C, method="auto" if len(names) <= 20 else "local", restarts=3)
    answer.save(folder / "collaboration.json")
    if stage == "training":
        ways = {"local": [[name] for name in names], "global": [list(names)], "coalitions": answer.coalitions}
        for (way, coalitions), top in zip(ways.items(), (0.8, 0.5, 0.9), strict=True):
            make_training(names, coalitions, top).save(folder / "training" / way / "training.json")
    return folder


@pytest.fixture(scope="session")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Run directories on demand, each made once."""
    made: dict[str, Path] = {}

    def get(names: Sequence[str], stage: str = "training", **options: object) -> Path:
        key = repr((tuple(names), stage, options))
        if key not in made:
            made[key] = make_run(tmp_path_factory.mktemp("run"), names, stage, **options)
        return made[key]

    return get


@pytest.fixture
def nasty() -> tuple[str, ...]:
    """Names that try to leave their place."""
    return NASTY


@pytest.fixture(scope="session")
def many() -> tuple[str, ...]:
    """Two hundred clients."""
    return tuple(f"client-{i:03d}" for i in range(200))
