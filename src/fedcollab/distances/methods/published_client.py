"""The client side of `published` (Algorithm 1): local updates of the discriminators of all of a client's pairs.

    published-open       keeps the settings: training size, step size, batch, local steps, the side of each pair
    published-step       weights of the active pairs -> the same after the local steps
    published-validate   weights of the active pairs -> the share of held-out samples predicted right, one number a pair

Replies hold weights and balanced-accuracy halves; test data is never read.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, TypedDict

import numpy as np
import torch
from msgspec import Meta
from numpy.typing import NDArray
from torch import Tensor

from fedcollab import seeds
from fedcollab.data.split import stratified
from fedcollab.distances.methods.cross_client import CLASSES, Classes, Side
from fedcollab.distances.methods.discriminator import descend, forward
from fedcollab.distances.samples import labels, rows
from fedcollab.distances.sampling.folds import Ints
from fedcollab.distances.sampling.least import require
from fedcollab.parsing import Finite
from fedcollab.silo.rounding import rounded_shares
from fedcollab.wire.action import Empty, Release, Step, action, require_samples
from fedcollab.wire.fields import Positive, Sides, Whole
from fedcollab.wire.limits import Limits
from fedcollab.wire.silo import Silo


@dataclass(frozen=True)
class ClientPlan:
    """The settings that a client gets once, before its comparisons with others.

    Parameters
    ----------
    seed : int
        The split and the batches are drawn from it.
    train : int
        Samples for training; the rest validates.
    lr : float
        The step size.
    batch : int
        Samples of one step.
    local_steps : int
        Steps in a round.
    hidden : int
        Hidden units of a discriminator.
    classes : int
        Labels in the federation; 0 for discriminators without labels, or of samples with a numeric target.
    targets : list of int
        1 where this client is the first of the pair, 0 where it is the second.
    min_samples : int
        The fewest samples that the server wants numbers to be made of.
    target : bool
        Whether a numeric target is part of each sample.
    """

    seed: Whole
    train: Positive
    lr: Finite
    batch: Positive
    local_steps: Annotated[int, Meta(ge=1, le=1_000)]
    hidden: Classes
    classes: Annotated[int, Meta(ge=0, le=CLASSES)]
    targets: list[Side]
    min_samples: Positive = 1
    target: bool = False


class PairsMessage(TypedDict):
    """The message of `published-validate`: the weights of some pairs' discriminators, and which pairs they are."""

    w: Annotated[NDArray[np.float32], Sides("M", "P")]
    pairs: Annotated[list[Annotated[int, Meta(ge=0)]], Sides("M")]


class StepMessage(PairsMessage):
    """The message of `published-step`: the weights of some pairs' discriminators, and the number of the round."""

    round: Whole


class StepReply(TypedDict):
    """The reply of `published-step`: the weights after the local steps."""

    w: Annotated[NDArray[np.float32], Sides("M", "P", low=-1e12, high=1e12)]


class ValidateReply(TypedDict):
    """The reply of `published-validate`: the share of held-out samples predicted right, one number a pair."""

    accuracy: Annotated[NDArray[np.float64], Sides("M", low=0, high=1)]


@action(
    "published-open",
    purpose="took over the plan of a comparison with other clients",
    release=Release.NOTHING,
    step=Step.DISTANCES,
    limit=None,  # `check` counts the samples of batches
    cost=lambda message, silo: {"repeats": 1},
)
def open_plan(message: ClientPlan, silo: Silo) -> Empty:
    """Keep the settings for later messages, if they respect the client's limits."""
    check(message, silo)
    silo.state["published"] = asdict(message)
    return {}


def check(plan: ClientPlan, silo: Silo) -> None:
    """Check that the smallest batch that makes an update has enough samples.

    Parameters
    ----------
    plan : ClientPlan
        The settings.
    silo : Silo
        The client.

    Raises
    ------
    InputError
        If it has too few.
    """
    smallest = plan.train % plan.batch or min(plan.batch, plan.train)
    require(silo, {"min_samples": plan.min_samples}, smallest, f"updates from batches of {smallest} samples")


@action(
    "published-step",
    purpose="trained models that tell clients apart: weights",
    release=Release.EXACT,
    step=Step.DISTANCES,
    limit=None,  # what it sums over was checked with the plan
    cost=lambda message, silo: {"rounds": 1},
)
def step(message: StepMessage, silo: Silo) -> StepReply:
    """Return the weights after the local steps on the client's own training samples."""
    plan = ClientPlan(**silo.state["published"])
    w = torch.from_numpy(np.array(message["w"])).to(silo.device)
    return {"w": local_update(plan, w, message["pairs"], message["round"], silo).cpu().numpy()}


def _limit_validate(message: PairsMessage, silo: Silo, limits: Limits) -> None:
    """Refuse accuracies on fewer held-out samples than the silo's limit."""
    if "published" in silo.state:
        require_samples(len(split(ClientPlan(**silo.state["published"]), silo)[1]), limits, "an accuracy")


@action(
    "published-validate",
    purpose="tested models that tell clients apart: accuracies",
    release=Release.EXACT,
    step=Step.DISTANCES,
    limit=_limit_validate,
    cost=lambda message, silo: {"models": len(message["pairs"])},
)
def validate(message: PairsMessage, silo: Silo) -> ValidateReply:
    """Return the share of held-out samples that each model attributes to this client."""
    plan = ClientPlan(**silo.state["published"])
    w = torch.from_numpy(np.array(message["w"])).to(silo.device)
    found = accuracy(plan, w, message["pairs"], silo)
    return {"accuracy": rounded_shares(found, len(split(plan, silo)[1]), silo, "published", message["w"])}


def local_update(plan: ClientPlan, w: Tensor, pairs: list[int], round_: int, silo: Silo) -> Tensor:
    """Return the weights after one round of SGD on the client's own training samples.

    Parameters
    ----------
    plan : ClientPlan
        The settings, `local_steps` among them.
    w : Tensor
        Weights, one row a pair.
    pairs : list of int
        Which of the client's pairs these are.
    round_ : int
        The number of the round, from 0.
    silo : Silo
        The client.
    """
    x, y = tensors(plan, silo)
    train, _ = split(plan, silo)
    target = torch.tensor(plan.targets, dtype=torch.float32, device=w.device)[pairs]
    for local in range(plan.local_steps):
        chosen = train[batch(plan, silo.lot, round_ * plan.local_steps + local)]
        w = descend(w, x[chosen], y[chosen], target, plan.lr, plan.classes, plan.hidden)
    return w


def accuracy(plan: ClientPlan, w: Tensor, pairs: list[int], silo: Silo) -> np.ndarray:
    """Return the share of the held-out samples that each model attributes to this client.

    Parameters
    ----------
    plan : ClientPlan
        The settings.
    w : Tensor
        Weights, one row a pair.
    pairs : list of int
        Which of the client's pairs these are.
    silo : Silo
        The client.

    Returns
    -------
    array
        One share a pair.
    """
    x, y = tensors(plan, silo)
    _, valid = split(plan, silo)
    target = np.array(plan.targets)[pairs]
    found = np.empty(len(w))
    for start in range(0, len(w), 8):  # a few pairs at a time: pre-activations are (pairs, samples, hidden)
        logits, _ = forward(w[start : start + 8], x[valid], y[valid], plan.classes, plan.hidden)
        positive = (logits > 0).double().mean(dim=1).cpu().numpy()
        found[start : start + 8] = np.where(target[start : start + 8] == 1, positive, 1 - positive)
    return found


def tensors(plan: ClientPlan, silo: Silo) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the client's training samples and their labels on its device."""
    x, y = rows(silo, plan.target), labels(silo)
    return torch.from_numpy(x).to(silo.device), torch.from_numpy(y).to(silo.device)


def split(plan: ClientPlan, silo: Silo) -> tuple[Ints, Ints]:
    """Return the positions of training and held-out samples, stratified by label; they are the same in all pairs.

    Groups of samples stay on one side; where they do not fit, some samples are trained on twice, or not at all.
    """
    y, groups = labels(silo), silo.arrays.groups
    mask = stratified(y, plan.train / len(y), seeds.generator(plan.seed, "published-split", silo.lot), groups)
    return np.resize(np.flatnonzero(mask), plan.train), np.flatnonzero(~mask)


def batch(plan: ClientPlan, name: str, step_: int) -> Ints:
    """Return the positions in the training set of one step's batch: epochs in random order, each ending in the rest.

    Parameters
    ----------
    plan : ClientPlan
        The settings.
    name : str
        The client.
    step_ : int
        The number of the step, from 0.

    Returns
    -------
    array of int
        At most `plan.batch` positions.
    """
    a_pass = -(-plan.train // plan.batch)
    order = seeds.generator(plan.seed, "published-batch", name, step_ // a_pass).permutation(plan.train)
    start = step_ % a_pass * plan.batch
    return order[start : start + plan.batch]
