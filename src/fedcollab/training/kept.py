"""Parameters that stay with the client (`keep`): they are in its state under "kept", and never in a reply."""

from __future__ import annotations

import torch
from torch import Tensor

from fedcollab.training.descend import Setting
from fedcollab.training.hooks import Algorithm, State
from fedcollab.training.models import positions_of
from fedcollab.wire.message import Message
from fedcollab.wire.silo import Silo

MODEL = "model"  # where a client keeps the model that it uses, after a training


def first_state(algorithm: Algorithm, sent: State, setting: Setting, used: Tensor | None = None) -> State:
    """Return the state of a client that takes part for the first time: the algorithm's, and its own parameters.

    Parameters
    ----------
    algorithm : Algorithm
        The algorithm.
    sent : dict of Tensor
        What the server sent.
    setting : Setting
        Names the parameters that stay.
    used : Tensor, optional
        The weights of a model of which the client's own parameters go on; without, they start as the server's.
    """
    own = positions_of(setting.model, tuple(setting.keep))
    state = algorithm.client_init(sent)
    start = sent["w"] if used is None else used.to(sent["w"].device)
    return {**state, "kept": start[own].clone()} if len(own) else state


def used_model(message: Message, silo: Silo, setting: Setting) -> Tensor | None:
    """Return the weights of the model that a client uses, if its own parameters are to go on from there.

    Parameters
    ----------
    message : dict
        What the client was sent: `own_from` names the training that the model must be of.
    silo : Silo
        The client.
    setting : Setting
        Its model must be the same.

    Returns
    -------
    Tensor or None
        None if nothing was asked, or the client has no such model (any more).
    """
    kept = silo.state.get(MODEL)
    if kept is None or kept["model"] != setting.model or kept.get("training") != message.get("own_from", ""):
        return None
    return torch.tensor(kept["w"])


def averaged_keys(algorithm: Algorithm, setting: Setting) -> tuple[str, ...]:
    """Return which parts of a client's state are averaged over rounds: personal models and parameters that stay."""
    return (*algorithm.averaged, *(("kept",) if setting.keep else ()))


def with_own(sent: State, state: State, setting: Setting) -> State:
    """Return what a client was sent with the client's own parameters in the place of the server's."""
    if "kept" not in state:
        return sent
    own = positions_of(setting.model, tuple(setting.keep)).to(sent["w"].device)
    return {**sent, "w": sent["w"].index_copy(0, own, state["kept"])}


def withhold(reply: State, state: State, sent: Tensor, setting: Setting) -> None:
    """Move the client's own parameters from its reply into its state; the reply has the server's again, in place.

    Parameters
    ----------
    reply, state : dict of Tensor
        What the client would send and keep. Other arrays of the reply that have the size of the weights become 0 there.
    sent : Tensor
        The weights that the server sent.
    setting : Setting
        Names the parameters that stay.
    """
    if "kept" not in state:
        return
    own = positions_of(setting.model, tuple(setting.keep)).to(sent.device)
    state["kept"] = reply["w"][own]
    for key, value in reply.items():
        if value.shape == sent.shape:
            reply[key] = value.index_copy(0, own, sent[own] if key == "w" else torch.zeros_like(sent[own]))
