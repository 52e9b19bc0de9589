"""Opening a training: from the settings that a user gives to a `Session` that is ready to start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from fedcollab.federation import Federation
from fedcollab.training import defaults
from fedcollab.training.algorithms import Algorithm
from fedcollab.training.descend import Setting
from fedcollab.training.losses import choose_loss
from fedcollab.training.models import Factory, Network, name_model
from fedcollab.training.session import Session
from fedcollab.training.trees.forest import TREES, check_trees

#: how far back the mean over rounds reaches, where it is measured beside the last round's model
AVERAGING = 0.8


@dataclass(frozen=True)
class Steps:
    """What is trained, and how a client takes its steps; the same for every algorithm that is compared.

    Parameters
    ----------
    model, model_options, lr, batch_size, local_epochs, seed, weight_decay, optimizer, participation, loss
        As in `fedcollab.train`.
    """

    model: str | Factory | nn.Module = defaults.MODEL
    model_options: Mapping[str, Any] = field(default_factory=dict)
    lr: float = defaults.LR
    batch_size: int = defaults.BATCH_SIZE
    local_epochs: int = defaults.LOCAL_EPOCHS
    seed: int = 0
    weight_decay: float = defaults.WEIGHT_DECAY
    optimizer: str = defaults.OPTIMIZER
    participation: float = 1.0
    loss: str | None = None


def open_session(
    federation: Federation,
    called: str,
    algorithm: Algorithm,
    steps: Steps,
    *,
    keep: Sequence[str] | None = None,
    averaging: float = AVERAGING,
) -> Session:
    """Return a session that is ready to start.

    Parameters
    ----------
    federation : Federation
        The clients.
    called : str
        The algorithm's registered name.
    algorithm : Algorithm
        The algorithm.
    steps : Steps
        Model and step sizes.
    keep : sequence of str, optional
        Parameters that stay with each client; None: what the algorithm says.
    averaging : float
        How far back the mean over rounds reaches; 0 for none.
    """
    schema, seed = federation.schema, int(steps.seed)
    named = steps.model if isinstance(steps.model, str) else name_model(steps.model)
    loss = choose_loss(steps.loss, schema.task)
    check_trees(named, called, keep=algorithm.keep if keep is None else keep, optimizer=steps.optimizer, loss=loss)
    network = Network(Network.describe(named, steps.model_options, schema.shape, schema.outputs, loss), seed=seed)
    kept = list(network.names_of(algorithm.keep if keep is None else keep))
    plain = (float(steps.lr), int(steps.batch_size), int(steps.local_epochs), seed, float(steps.weight_decay))
    mean = 0.0 if named == TREES else float(averaging)  # trees have no mean over rounds
    setting = Setting(called, algorithm.options(), network.text, *plain, steps.optimizer, kept, mean)
    return Session(federation, setting, algorithm, network, federation.quantities, steps.participation)


def decisive(session: Session, ceiling: int) -> dict[str, Any]:
    """Return what decides how many rounds are best, beside who trains with whom and by which algorithm.

    Parameters
    ----------
    session : Session
        The training.
    ceiling : int
        The most rounds.
    """
    keys = ("model", "lr", "batch_size", "epochs", "seed", "weight_decay", "optimizer", "averaging")
    chosen = {key: getattr(session.setting, key) for key in keys}
    return {**chosen, "participation": session.participation, "rounds": ceiling}
