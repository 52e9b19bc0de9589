"""The model that training left at a silo, for use there."""

from __future__ import annotations

from pathlib import Path

import torch

from fedcollab.data.schema import Schema
from fedcollab.errors import InputError
from fedcollab.flower.silo.config import SiloConfig
from fedcollab.flower.silo.state_store import StateStore
from fedcollab.training.honest import start_digest
from fedcollab.training.models import Network
from fedcollab.training.trained import TrainedModel


def own_model(path: str | Path = "silo.toml") -> TrainedModel:
    """Return the model that the last training left at a silo: its personal one, or its coalition's.

    Parameters
    ----------
    path : str or Path
        The silo's config.

    Returns
    -------
    TrainedModel
        The model; it takes raw samples.

    Raises
    ------
    InputError
        If nothing was trained yet.

    Examples
    --------
    >>> own_model("silo.toml").predict(x)  # doctest: +SKIP
    """
    config = SiloConfig.read(path)
    state = StateStore(config.state)
    if "model" not in state:
        raise InputError(f"silo `{config.name}` has no model yet; the coordinator has not trained")
    kept = state["model"]
    schema = kept["schema"] if "schema" in kept else state["prepare"]["schema"]  # a model of an earlier version
    network = Network(kept["model"])
    return TrainedModel(network.point(torch.from_numpy(kept["w"])).eval(), Schema.from_json(schema))


def own_starts(config: SiloConfig) -> list[str]:
    """Return the SHA-256 of the model that a silo has from its last training, by which a plan names it.

    Parameters
    ----------
    config : SiloConfig
        The silo's config.

    Returns
    -------
    list of str
        One, or none where nothing was trained yet.
    """
    state = StateStore(config.state)
    return [start_digest(state["start"]["w"])] if "start" in state else []
