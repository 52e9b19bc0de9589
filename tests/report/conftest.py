"""Run directories of every stage, made from small synthetic values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcollab import files as artefact
from fedcollab.advice.gains import Expected, Gain
from fedcollab.advice.result import Advice, Candidate
from fedcollab.coalitions import CPath, c_path, personal_weights, solve
from fedcollab.coalitions.path import Segment
from fedcollab.data import Schema
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


def trained_as(coalitions: list[list[str]]) -> dict[str, Any]:
    """What a result also says: the model, the schema, and how long each coalition trained."""
    return {
        "model": {"name": "logistic", "options": {}, "shape": [1], "classes": 2},
        "schema": Schema((0, 1), (1,)).as_dict(),
        "rounds": [4] * len(coalitions),
        "averaged": [False] * len(coalitions),
    }


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
    return TrainingResult(
        tuple(names), coalitions, measures, history=History(rows), cost=cost, **trained_as(coalitions)
    )


def make_candidate(label: str, kind: str, coalitions: list[list[str]], gain: float, **given: object) -> Candidate:
    """A candidate whose gain in accuracy is a tenth of its gain in loss, the same for all clients."""
    names = [name for members in coalitions for name in members]
    told = {"algorithm": "fedavg", "options": {}, "keep": (), "C": 5.0, "rounds": [8], "means": [True], **given}
    return Candidate(
        label, kind, coalitions=coalitions, gain=Expected(gain, 0.02), accuracy_gain=Expected(gain / 10, 0.002),
        held_out={name: [0.5 - gain, 0.8 + gain / 10, 0.01, 0.02] for name in names}, **told,
    )  # type: ignore[arg-type]  # fmt: skip


def make_advice(distances: Distances, kind: str = "together", verdict: str | None = None) -> Advice:
    """An advice of this kind among four candidates; the first client gains most and the last one loses."""
    names = list(distances.names)
    half = (len(names) + 1) // 2
    two = [names[:half], names[half:]]
    ditto = {"algorithm": "ditto", "options": {"lam": 1.0}, "keep": ("output-bias",)}
    candidates = [
        make_candidate("alone", "alone", [[name] for name in names], 0.0),
        make_candidate("everyone, Ditto with an own intercept", "together", [names], 0.06, **ditto),
        make_candidate("2 coalitions, FedAvg", "coalitions", two, 0.05, rounds=[4, 6]),
        make_candidate("own weights", "own weights", two, 0.04, algorithm="own-weights"),
        make_candidate("everyone, FedAvg", "together", [names], -0.02, dropped=True),
    ]
    chosen = next(k for k, each in enumerate(candidates) if each.kind == kind)
    if kind == "own weights":
        weights = personal_weights(distances, None, 5.0)[0]
    else:
        groups = candidates[chosen].coalitions
        label = np.array([next(k for k, members in enumerate(groups) if name in members) for name in names])
        masses = (label[:, None] == label) * distances.quantities
        weights = masses / masses.sum(axis=1, keepdims=True)
    spread = np.linspace(0.05, -0.01, len(names))
    gains = {
        name: Gain(10 * mean, 0.02, Expected(10 * mean, 0.02), Expected(mean, 0.01), name != names[-1])
        for name, mean in zip(names, spread.tolist(), strict=True)
    }
    return Advice(
        tuple(names), distances.quantities.astype(float), verdict or kind, chosen,
        two if kind == "own weights" else candidates[chosen].coalitions, weights, 5.0, candidates, gains,
        Expected(0.06, 0.02), fit={"a": 0.8, "b": 0.2, "C": 4.0, "explained": 0.4, "pairs": 12},
        separates=[
            {"column": "scanner", "apart": 2.5, "helps": 0.001, "matters": False},
            {"column": "<b>dose", "apart": 1.5, "helps": 0.04, "matters": True},
        ],
        cost={"calls": 100, "cpu_seconds": 12.0},
    )  # fmt: skip


def make_advised_run(folder: Path, names: Sequence[str], kind: str = "together", *, trained: bool = True) -> Path:
    """A run directory with an advice and, where `trained`, with the training that follows it."""
    make_run(folder, names, "training" if trained else "coalitions")
    advice = make_advice(Distances.load(folder / "distances.json"), kind)
    advice.save(folder / "advice.json")
    if trained:
        how = advice.candidate
        result = make_training(names, how.coalitions, 0.83)
        settings = {"algorithm": how.algorithm, "options": dict(how.options), "keep": list(how.keep)}
        replace(result, method=how.algorithm, settings=settings).save(folder / "training/coalitions/training.json")
    return folder


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
