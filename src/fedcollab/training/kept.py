"""Parameters that stay with the client (`keep`): they are in its state under "kept", and never in a reply."""

from __future__ import annotations

import torch
from torch import Tensor

from fedcollab.training.descend import Setting
from fedcollab.training.hooks import Algorithm, State
from fedcollab.training.models import positions_of


def first_state(algorithm: Algorithm, sent: State, setting: Setting) -> State:
    """Return the state of a client that takes part for the first time: the algorithm's, and its own parameters."""
    own = positions_of(setting.model, tuple(setting.keep))
    state = algorithm.client_init(sent)
    return {**state, "kept": sent["w"][own].clone()} if len(own) else state


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
