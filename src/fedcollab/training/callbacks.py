"""Callbacks that follow a training. TensorBoard and MLflow are extras, imported when used."""

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
    """Base class of callbacks: override the methods of interest, all of which do nothing by default.

    Examples
    --------
    >>> class Print(Callback):
    ...     def on_round(self, number, rows):
    ...         print(number, [row["train_loss"] for row in rows])
    >>> Print().on_round(1, [{"client": "north", "train_loss": 0.5}])
    1 [0.5]
    """

    def on_start(self, settings: Mapping[str, Any]) -> None:
        """Called before the first round.

        Parameters
        ----------
        settings : mapping
            The settings of the training, as in `TrainingResult.settings`.
        """

    def on_round(self, number: int, rows: Rows) -> None:
        """Called after each round.

        Parameters
        ----------
        number : int
            The round, counted from 1.
        rows : sequence of mappings
            One row for each client that was trained or evaluated, as in `TrainingResult.history`.
        """

    def on_end(self, result: TrainingResult) -> None:
        """Called after the last round.

        Parameters
        ----------
        result : TrainingResult
            What `train` is about to return.
        """


class TensorBoard(Callback):
    """Write scalars for TensorBoard: each measure's mean over clients, and every client's own (extra `tensorboard`).

    Parameters
    ----------
    log_dir : str or Path
        The folder that TensorBoard is pointed at.

    Raises
    ------
    InputError
        If the package `tensorboard` is not installed.
    """

    def __init__(self, log_dir: str | Path) -> None:
        module = _extra("torch.utils.tensorboard", "tensorboard")
        self._writer = module.SummaryWriter(str(log_dir))

    def on_round(self, number: int, rows: Rows) -> None:
        """Write each measure's mean over clients, and every client's own, as scalars."""
        for measure, values in _measured(rows).items():
            self._writer.add_scalar(f"mean/{measure}", float(np.mean(list(values.values()))), number)
            for client, value in values.items():
                self._writer.add_scalar(f"{measure}/{client}", value, number)
        self._writer.flush()  # to be seen while a long round goes on

    def on_end(self, result: TrainingResult) -> None:
        """Close the event file of TensorBoard."""
        self._writer.close()


class MLflow(Callback):
    """Log settings and mean measures to MLflow (install `mlflow` yourself; fedcollab does not depend on it).

    Parameters
    ----------
    experiment : str, default "fedcollab"
        The experiment that the run belongs to.
    tracking_uri : str, optional
        Where MLflow keeps its runs; without it, MLflow's own default.

    Raises
    ------
    InputError
        If the package `mlflow` is not installed.
    """

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
        """Close the run in MLflow."""
        self._mlflow.end_run()


def _measured(rows: Rows) -> dict[str, dict[str, float]]:
    """Return the finite measures in some rows of the history, by measure and client."""
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        for key, value in row.items():
            if key not in ("round", "client", "coalition") and value is not None and np.isfinite(value):
                found.setdefault(key, {})[row["client"]] = float(value)
    return found


def _extra(module: str, package: str) -> Any:
    """Import an optional package, or raise `InputError` that says how to install it."""
    try:
        return import_module(module)
    except ImportError:
        raise InputError(f"this callback needs the package `{package}`: pip install {package}") from None
