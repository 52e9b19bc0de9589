"""Train again only where something changed: a coalition goes on from its saved model, all other models stay.

Messages go to the clients of that coalition alone. What the algorithm keeps beside the model (momentum, control
variates, personal models of the clients concerned) starts anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedcollab.errors import InputError, number
from fedcollab.federation.adopt import Part
from fedcollab.progress import Progress, silent
from fedcollab.wire.runtime import Runtime
from fedcollab.training import TrainingResult, train
from fedcollab.training.history import History
from fedcollab.training.result import MEASURES
from fedcollab.training.rounds import Grouping, Session

Weights = NDArray[np.float32]

#: fine-tuning takes this share of the rounds that the run was trained for, unless a number is given
FINE_TUNE = 0.2


@dataclass(eq=False)
class Continued(Grouping):
    """Fixed coalitions whose models start from given weights; None starts like any new model."""

    weights: Sequence[Weights | None] = field(default_factory=list)

    def options(self) -> dict[str, Any]:
        """The weights by their checksums: from others it is another training."""
        return {
            "weights": [
                None if saved is None else hashlib.sha256(saved.tobytes()).hexdigest() for saved in self.weights
            ]
        }

    def start(self, session: Session) -> None:
        """As `Grouping`, from the given weights."""
        super().start(session)
        for coalition, saved in enumerate(self.weights):
            if saved is None:
                continue
            w = session.initial.clone()
            used = session.network.parameters + session.network.buffers
            if len(saved) != used:
                raise InputError(f"the saved model has {len(saved)} weights; the run's model has {used}")
            w[:used] = torch.from_numpy(np.array(saved))
            session.servers[coalition] = session.algorithm.server_init(w)


def retrain(
    federation: Runtime,
    result: TrainingResult,
    members: Sequence[str],
    *,
    scratch: bool = False,
    rounds: int | None = None,
    progress: Progress = silent,
) -> TrainingResult:
    """Train one coalition with the settings of `result`.

    It starts from the model of the coalition of `result` with which it has most samples in common. A coalition of
    newcomers alone, or `scratch`, starts from new weights and takes all the rounds of the run.
    """
    old = None if scratch else _nearest(federation, result, members)
    settings, model = result.settings, result.model
    usual = int(settings["rounds"])
    if rounds is None:
        rounds = usual if old is None else max(1, round(FINE_TUNE * usual))
    rounds = int(number("rounds", rounds, at_least=1, whole=True))
    saved = None if old is None else result.models["last"][old]
    part = train(
        Part(federation, members),
        Continued([list(members)], [saved]),
        settings["algorithm"],
        model["name"],
        rounds=rounds,
        options=settings["options"],
        model_options=model["options"],
        local_epochs=settings["epochs"],
        progress=progress,
        **{key: settings[key] for key in KEPT},
    )
    return replace(part, method=result.method)


KEPT = ("lr", "batch_size", "seed", "participation", "evaluate_every", "early_stop")


def merged(
    result: TrainingResult,
    parts: Sequence[TrainingResult],
    order: Sequence[str],
    coalitions: Sequence[Sequence[str]],
) -> TrainingResult:
    """`result` with the coalitions of `parts` in place of their old ones; all other rows are the same bytes.

    `order` lists the clients. A coalition that is in no part keeps the model that its members had.
    """
    sources = [next((part for part in parts if set(part.names) == set(members)), result) for members in coalitions]
    whose = {name: source for source, members in zip(sources, coalitions, strict=True) for name in members}
    models: dict[str, Any] = {}
    for which in ("last", "best"):
        if which in result.models:
            models[which] = np.stack(
                [_model(source, members[0], which) for source, members in zip(sources, coalitions, strict=True)]
            )
    if "personal" in result.models:
        models["personal"] = np.stack([whose[name].models["personal"][whose[name].names.index(name)] for name in order])
    first = max((int(row["round"]) for row in result.history), default=0)
    rows = [row for row in result.history if row["client"] in order]
    for part in parts:
        label = next(k for k, members in enumerate(coalitions) if set(members) == set(part.names))
        rows += [{**row, "round": first + int(row["round"]), "coalition": label} for row in part.history]
    return replace(
        result,
        names=tuple(order),
        coalitions=[list(members) for members in coalitions],
        measures=_columns(whose, order, "measures"),
        personal=_columns(whose, order, "personal") if result.personal else {},
        history=History(rows),
        models=models,
        cost={key: value + sum(part.cost.get(key, 0) for part in parts) for key, value in result.cost.items()},
        stopped={
            label: source.stopped[_label(source, members[0])]
            for label, (source, members) in enumerate(zip(sources, coalitions, strict=True))
            if _label(source, members[0]) in source.stopped
        },
        failures=[*result.failures, *((first + at, name, why) for part in parts for at, name, why in part.failures)],
    )


def checksums(result: TrainingResult) -> dict[str, str]:
    """SHA-256 of the model that each client is served by: of its coalition, or its own where it has one."""
    found = {}
    for position, name in enumerate(result.names):
        digest = hashlib.sha256(_model(result, name, "last").tobytes())
        if "personal" in result.models:
            digest.update(result.models["personal"][position].tobytes())
        found[name] = digest.hexdigest()
    return found


def accuracies(result: TrainingResult) -> dict[str, float]:
    """What each client gets, by name."""
    return dict(zip(result.names, result.reported.tolist(), strict=True))


def _nearest(federation: Runtime, result: TrainingResult, members: Sequence[str]) -> int | None:
    shared = [
        sum(int(federation.described[name]["quantity"]) for name in members if name in before)
        for before in result.coalitions
    ]
    return int(np.argmax(shared)) if max(shared) > 0 else None


def _label(result: TrainingResult, name: str) -> int:
    return next(label for label, members in enumerate(result.coalitions) if name in members)


def _model(result: TrainingResult, name: str, which: str) -> Weights:
    row: Weights = result.models.get(which, result.models["last"])[_label(result, name)]
    return row


def _columns(whose: Mapping[str, TrainingResult], order: Sequence[str], kind: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in MEASURES:
        values = [getattr(whose[name], kind).get(key) for name in order]
        rows = [whose[name].names.index(name) for name in order]
        if all(value is not None for value in values):
            found[key] = np.array([float(value[row]) for value, row in zip(values, rows, strict=True)])
    return found
