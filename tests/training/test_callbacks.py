"""Whoever watches a run sees its start, every round, and its end."""

from __future__ import annotations

import sys

import pytest

from fedcollab.data import ClientData
from fedcollab.errors import InputError
from fedcollab.training import Callback, MLflow, TensorBoard, train


def test_order_of_events_and_progress(clients: list[ClientData]) -> None:
    seen: list[object] = []

    class Watch(Callback):
        def on_start(self, settings) -> None:
            seen.append(settings["algorithm"])

        def on_round(self, number, rows) -> None:
            seen.append((number, len(rows), rows[0]["client"]))

        def on_end(self, result) -> None:
            seen.append(result.method)

    done: list[tuple[int, int]] = []
    train(clients, "global", model="logistic", rounds=2, lr=0.1, stopping="none",
          callbacks=[Watch(), Callback()], progress=lambda *state: done.append(state))  # fmt: skip
    assert seen == ["fedavg", (1, 6, "a"), (2, 6, "a"), "fedavg"]
    assert done == [(1, 2), (2, 2)]


def test_tensorboard_writes_events(clients: list[ClientData], tmp_path) -> None:
    pytest.importorskip("tensorboard")
    train(clients, "global", model="logistic", rounds=2, lr=0.1, callbacks=[TensorBoard(tmp_path)])
    assert list(tmp_path.glob("events.*"))


@pytest.mark.parametrize(
    ("callback", "module", "package"),
    [(lambda: TensorBoard("x"), "torch.utils.tensorboard", "tensorboard"), (MLflow, "mlflow", "mlflow")],
)
def test_missing_extras_are_named(monkeypatch, callback, module: str, package: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=f"needs the package `{package}`: pip install {package}"):
        callback()
