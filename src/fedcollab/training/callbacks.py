"""Callbacks: whoever wants to watch a run. TensorBoard and MLflow are extras, imported when used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcollab.errors import InputError

if TYPE_CHECKING:
    from fedcollab.training.result import TrainingResult

Rows = Sequence[Mapping[str, Any]]


class Callback:
    """Override what is of interest; every method does nothing by default."""

    def on_start(self, settings: Mapping[str, Any]) -> None:
        """Before the first round."""

    def on_round(self, number: int, rows: Rows) -> None:
        """After each round: one row a client, as in the history."""

    def on_end(self, result: TrainingResult) -> None:
        """After the last round."""


class TensorBoard(Callback):
    """Scalars for TensorBoard: each measure's mean over clients, and every client's own (extra `tensorboard`)."""

    def __init__(self, log_dir: str | Path) -> None:
        module = _extra("torch.utils.tensorboard", "tensorboard")
        self._writer = module.SummaryWriter(str(log_dir))

    def on_round(self, number: int, rows: Rows) -> None:
        """Write what the round measured."""
        for measure, values in _measured(rows).items():
            self._writer.add_scalar(f"mean/{measure}", float(np.mean(list(values.values()))), number)
            for client, value in values.items():
                self._writer.add_scalar(f"{measure}/{client}", value, number)

    def on_end(self, result: TrainingResult) -> None:
        """Finish the event file."""
        self._writer.close()


class MLflow(Callback):
    """Parameters and mean measures for MLflow (install `mlflow` yourself; it is not among fedcollab's dependencies)."""

    def __init__(self, experiment: str = "fedcollab", tracking_uri: str | None = None) -> None:
        self._mlflow = _extra("mlflow", "mlflow")
        if tracking_uri is not None:
            self._mlflow.set_tracking_uri(tracking_uri)
        self._mlflow.set_experiment(experiment)

    def on_start(self, settings: Mapping[str, Any]) -> None:
        """Open a run with the settings as its parameters."""
        self._mlflow.start_run()
        self._mlflow.log_params({key: str(value)[:500] for key, value in settings.items()})

    def on_round(self, number: int, rows: Rows) -> None:
        """Log each measure's mean over clients."""
        means = {measure: float(np.mean(list(values.values()))) for measure, values in _measured(rows).items()}
        self._mlflow.log_metrics(means, step=number)

    def on_end(self, result: TrainingResult) -> None:
        """Close the run."""
        self._mlflow.end_run()


def _measured(rows: Rows) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        for key, value in row.items():
            if key not in ("round", "client", "coalition") and value is not None and np.isfinite(value):
                found.setdefault(key, {})[row["client"]] = float(value)
    return found


def _extra(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise InputError(f"this callback needs the package `{package}`: pip install {package}") from None
