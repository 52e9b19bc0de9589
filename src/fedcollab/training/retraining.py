"""Train one coalition again with the settings of an earlier training: on from its saved model, or from new weights.

On from its saved model, every client's own parameters (`keep`, own intercept) go on from the model that it uses. What
else the algorithm keeps beside the model (momentum, control variates, personal models) starts anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedcollab.data.schema import Schema
from fedcollab.errors import InputError, number
from fedcollab.federation import Clients, Federation, federate
from fedcollab.progress import Progress, silent
from fedcollab.training.kept import MODEL
from fedcollab.training.result import TrainingResult
from fedcollab.training.rounds import Grouping
from fedcollab.training.run import train
from fedcollab.training.session import Session
from fedcollab.training.trees.forest import TREES

Weights = NDArray[np.float32]

#: training on takes this share of the rounds of the earlier training, unless a number is given
FINE_TUNE = 0.2
KEPT = ("lr", "batch_size", "seed", "participation", "evaluate_every", "weight_decay", "optimizer", "keep",
        "secure_aggregation")  # fmt: skip


@dataclass(eq=False)
class Continued(Grouping):
    """Fixed coalitions whose models start from given weights.

    Parameters
    ----------
    coalitions : sequence of sequences of str
        The coalitions.
    weights : sequence of arrays or None
        For each coalition the weights to start from; None starts like any new model.
    used : mapping
        The weights of the model that each client of `own_from` uses, as far as they are known: models of silos are not.
    """

    weights: Sequence[Weights | None] = field(default_factory=list)
    used: Mapping[str, Weights] = field(default_factory=dict)

    def options(self) -> dict[str, Any]:
        """Return the checksums of the weights: with other weights it is another training."""
        found: dict[str, Any] = {"weights": [None if saved is None else _digest(saved) for saved in self.weights]}
        if self.own_from:
            found["own"] = dict(self.own_from) | {name: _digest(saved) for name, saved in self.used.items()}
        return found

    def start(self, session: Session) -> None:
        """Start the fixed coalitions from the given weights."""
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
        if not session.federation.runtime.models_stay:
            session.federation.runtime.restore(
                {
                    name: {MODEL: {"w": saved, "model": session.setting.model, "training": self.own_from[name]}}
                    for name, saved in self.used.items()
                }
            )


def retrain(
    clients: Clients,
    result: TrainingResult,
    members: Sequence[str],
    *,
    scratch: bool = False,
    rounds: int | None = None,
    progress: Progress = silent,
) -> TrainingResult:
    """Train some clients as one coalition, with the settings and the schema of an earlier training.

    Parameters
    ----------
    clients : iterable of ClientData, Runtime or Federation
        The members and any others, at least two. Clients that were not there before must fit the schema.
    result : TrainingResult
        The earlier training. The coalition starts from the model of that of its coalitions with which it has most
        samples in common.
    members : sequence of str
        The names of the clients that train as one coalition; no other client is asked anything.
    scratch : bool
        Start from new weights instead, as a coalition of newcomers alone always does, and one of trees.
    rounds : int, optional
        By default a fifth of the rounds that the coalition trained. A coalition that starts from new weights trains as
        many as `result` allowed, chosen anew if they were chosen there.
    progress : function of (done, total), optional
        Called after every round.

    Returns
    -------
    TrainingResult
        Of the members alone; its rounds are counted from 1.

    Raises
    ------
    InputError
        If a client does not fit the schema, or the saved model has other parameters.

    Examples
    --------
    >>> trained = train(clients, [["north", "east"], ["south"]], rounds=50, lr=0.1)      # doctest: +SKIP
    >>> retrain([*clients, newcomer], trained, ["south", "newcomer"]).accuracy           # doctest: +SKIP
    """
    known = clients if isinstance(clients, Federation) else federate(clients, schema=Schema.of(result.schema))
    shared = [sum(known.quantities[name] for name in members if name in before) for before in result.coalitions]
    anew = scratch or result.model["name"] == TREES  # trees are grown anew: those there are were not the newcomer's
    old = None if anew or max(shared) == 0 else int(np.argmax(shared))
    settings, model = result.settings, result.model
    lacking = [key for key in ("algorithm", "options", "rounds", "epochs") if key not in settings]
    if lacking:
        raise InputError(f"the training cannot be repeated: its settings lack `{lacking[0]}`")
    stopping = settings.get("stopping", "none") if old is None and rounds is None else "none"
    if rounds is None:
        rounds = int(settings["rounds"]) if old is None else max(1, round(FINE_TUNE * result.rounds[old]))
    keeps = [] if old is None or not result.settings.get("keep") else [name for name in members if name in result.names]
    personal = result.models.get("personal")
    used = {} if personal is None else {name: personal[result.names.index(name)] for name in keeps}
    part = train(
        known.part(members),
        Continued(
            [list(members)],
            own_from={name: result.training_of(name) for name in keeps},
            weights=[None if old is None else result.models["last"][old]],
            used=used,
        ),
        settings["algorithm"],
        model["name"],
        rounds=int(number("rounds", rounds, at_least=1, whole=True)),
        options=settings["options"],
        model_options=model["options"],
        local_epochs=settings["epochs"],
        stopping=stopping,
        averaging=_averaging(result, old, stopping),
        progress=progress,
        loss=model.get("loss"),
        **{key: settings[key] for key in KEPT if key in settings},
    )
    return replace(part, method=result.method)


def _digest(weights: Weights) -> str:
    """Return the SHA-256 of flat weights."""
    return hashlib.sha256(weights.tobytes()).hexdigest()


def _averaging(result: TrainingResult, coalition: int | None, stopping: str) -> float | None:
    """Return the `averaging` of `train`: chosen anew with the rounds, or what the earlier coalition came to use."""
    before = float(result.settings.get("averaging", 0.0))
    if stopping == "held-out" and before:
        return None
    used = coalition is None or (coalition < len(result.averaged) and result.averaged[coalition])
    return before if used else 0.0
