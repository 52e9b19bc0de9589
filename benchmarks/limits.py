"""What a silo's default limits cost honest training: refusals, calls, bytes, CPU and accuracy, beside none.

    python benchmarks/limits.py [NAME ...]        federations (all by default), as in benchmarks/federations.py

Each federation is trained together for 20 rounds without stopping, by logistic regression, by the default MLP and by
trees, three times over the wire runtime: without limits, with default limits at every silo, and with default limits and
secure aggregation (not by trees, which have none). Silos below the limits' numbers of rows (10 to train on, 10 to test
on) are left out of all three. Accuracy and loss are those of the models themselves on all test samples, not what silos
with limits say about them, which is rounded; the standard error is that of the difference from training without limits,
over test samples.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from fedcollab import ClientData, train
from fedcollab.data import Schema
from fedcollab.silo.guard import Guard
from fedcollab.training import TrainingResult
from fedcollab.training.models import Network
from fedcollab.wire import Wire
from fedcollab.wire.action import Action
from fedcollab.wire.limits import Limits
from fedcollab.wire.message import Message, pack, unpack
from fedcollab.wire.silo import Silo
from federations import load, names

Floats = NDArray[np.float64]

LIMITS = Limits()
ROUNDS = 20


class Counted(Wire):
    """A wire runtime that counts calls and, with a folder, guards every silo by default limits."""

    models_stay = True

    def __init__(self, clients: list[ClientData], folder: Path | None) -> None:
        super().__init__(clients)
        self.guards = {} if folder is None else {name: Guard.at(folder / name, LIMITS) for name in self.names}
        self.calls = 0

    def _call(self, action: Action, messages: dict[str, Message]) -> dict[str, Message]:
        self.calls += 1
        return super()._call(action, messages)

    def _serve(self, action: Action, name: str, content: bytes) -> bytes:
        if not self.guards:
            return super()._serve(action, name, content)
        kept: dict[str, Message] = {key: unpack(value) for key, value in self._state[name].items()}
        silo = Silo(self._data[name], kept, limits=LIMITS, key=name.encode() * 4)
        served = self.guards[name].serve(action.name, content, silo, run="1")
        if served.done:
            self._state[name] = {key: pack(value) for key, value in silo.state.items()}
        return served.content


def outcomes(result: TrainingResult, clients: list[ClientData]) -> tuple[Floats, Floats]:
    """Return for every test sample of every client whether the last model is right, and its loss."""
    network = Network(json.dumps({key: result.model[key] for key in ("name", "options", "shape", "classes")}))
    schema = Schema.from_json(json.dumps(result.schema))
    right, losses = [], []
    for client in clients:
        model = torch.from_numpy(result.models["last"][result.assignment[result.names.index(client.name)]])
        truth = torch.from_numpy(schema.targets(np.asarray(client.y_test)))
        with torch.no_grad():
            logits = network.point(model).eval()(torch.from_numpy(schema.features(client.x_test)))
        right.append((logits.argmax(1) == truth).numpy().astype(float))
        losses.append(functional.cross_entropy(logits, truth, reduction="none").numpy().astype(float))
    return np.concatenate(right), np.concatenate(losses)


def difference(found: dict[str, Any], plain: dict[str, Any]) -> str:
    """Return accuracy and loss in words, with their differences from training without limits."""
    words = []
    for name in ("right", "losses"):
        change = found[name] - plain[name]
        error = change.std(ddof=1) / np.sqrt(len(change))
        words.append(f"{found[name].mean():.4f} ({change.mean():+.4f} +- {error:.4f})")
    return f"accuracy {words[0]}, loss {words[1]}"


def measured(clients: list[ClientData], model: str, *, guarded: bool, secure: bool) -> dict[str, Any]:
    """Train once, and return calls, bytes, CPU seconds, what the model does, and which silos refused to train."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runtime = Counted(clients, Path(folder) if guarded else None)
        start = time.process_time()
        more: dict[str, Any] = {"secure_aggregation": "everyone"} if secure else {}
        result = train(runtime, "global", model=model, rounds=ROUNDS, stopping="none", **more)
        seconds = time.process_time() - start
        refused = {
            name: entry["why"]
            for name, guard in runtime.guards.items()
            for entry in guard.log.entries()
            if entry["outcome"] != "answered" and entry["action"] in ("train", "train-trees")
        }
    right, losses = outcomes(result, clients)
    spent = {"calls": runtime.calls, "bytes": runtime.bytes_on_wire, "cpu": seconds}
    return {**spent, "right": right, "losses": losses, "refused": refused}


def main() -> None:
    """Print one line for each federation and model."""
    torch.set_num_threads(1)
    ratios: dict[str, list[list[float]]] = {"limits": [], "limits and masks": []}
    silos = refusing = 0
    for name in sys.argv[1:] or names():
        everyone = [client for client in load(name, 0) if client.y_test is not None]
        clients = [client for client in everyone if len(client.y) >= 10 and len(np.asarray(client.y_test)) >= 10]
        if len(clients) < 3:
            continue
        for model in ("logistic", "mlp", "xgboost"):
            plain = measured(clients, model, guarded=False, secure=False)
            line = f"{name:20} {model:9} {len(clients)} of {len(everyone)} silos, accuracy {plain['right'].mean():.4f}"
            line += f", loss {plain['losses'].mean():.4f}"
            for kind, secure in (("limits", False), ("limits and masks", True)):
                if secure and model == "xgboost":
                    continue
                found = measured(clients, model, guarded=True, secure=secure)
                ratios[kind].append([found[what] / plain[what] for what in ("calls", "bytes", "cpu")])
                line += f"; {kind}: {difference(found, plain)}, {len(found['refused'])} refused"
                for why in sorted(set(found["refused"].values())):
                    line += f" ({why[:90]})"
                silos, refusing = silos + len(clients), refusing + len(found["refused"])
            print(line, flush=True)
    print(f"{refusing} of {silos} trainings of a silo were refused")
    for kind, each in ratios.items():
        calls, size, cpu = np.median(each, axis=0)
        print(f"{kind}: calls {calls:.2f}, bytes {size:.3f}, CPU {cpu:.2f} times those without (median)")


if __name__ == "__main__":
    main()
