"""The client side of cross-fitted discriminators: what each client does with the weights that it is sent.

    cross-norm       -> the mean of |x|^2 over its training samples
    cross-open       keeps the plan: head, folds, and for each of its pairs the training size, side, scale and repeats
    cross-step       weights of all its models -> the same after one step on its own training samples
    cross-validate   final weights -> held-out accuracies of each pair, and their replicates

Nothing per sample leaves: replies hold weights, means over the client's samples, and nothing else. Test data is never
read.
"""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass
from typing import Annotated, Any, NotRequired, TypedDict

import numpy as np
import torch
from msgspec import Meta
from numpy.typing import NDArray
from torch import Tensor

from fedcollab import seeds
from fedcollab.distances.methods.heads import Head, find
from fedcollab.distances.samples import labels, rows
from fedcollab.distances.sampling import folds as folding
from fedcollab.distances.sampling.least import require
from fedcollab.distances.sampling.uncertainty import partial, summary
from fedcollab.errors import InputError
from fedcollab.parsing import Finite
from fedcollab.silo.rounding import lot_of, rounded_shares, summable
from fedcollab.wire.action import Empty, Release, Step, action, require_samples
from fedcollab.wire.fields import Positive, Sides, Whole
from fedcollab.wire.silo import Silo

Floats = NDArray[np.float64]


#: what a client may be asked for at most: more would be an attack on its memory, or a mistake
FOLDS, REPEATS, REPLICATES, CLASSES = 100, 100, 1_000, 100_000
#: the error of an update that is sent, as a share of its standard error
BLUR = 0.5

Classes = Annotated[int, Meta(ge=1, le=CLASSES)]
Folds = Annotated[int, Meta(ge=2, le=FOLDS)]
Replicates = Annotated[int, Meta(ge=0, le=REPLICATES)]
Side = Annotated[int, Meta(ge=0, le=1)]
Weights = Annotated[NDArray[np.float32], Sides("M", "R", "D", low=-1e12, high=1e12)]
Shares = Annotated[Floats, Sides("N", "E", low=0, high=1)]


@dataclass(frozen=True)
class ClientPlan:
    """The plan that a client gets once, before it is compared with others; lists have one entry a pair.

    Parameters
    ----------
    head : str
        The family of discriminators.
    classes : int
        Labels in the federation.
    seed : int
        Folds and replicates are drawn from it.
    folds : int
        Folds that the client's samples are cut into.
    replicates : int
        Replicates of each accuracy.
    sizes : list of int
        Training samples a side.
    repeats : list of int
        How often samples are divided into folds.
    targets : list of int
        1 where this client is the first of the pair, 0 where it is the second.
    scales : list of float
        What features are divided by.
    min_samples : int
        The fewest samples that the server wants numbers to be made of.
    label_counts : str
        "drawn" or "set"; see `sampling.resample`.
    """

    head: str
    classes: Classes
    seed: Whole
    folds: Folds
    replicates: Replicates
    sizes: Annotated[list[Positive], Sides("N")]
    repeats: Annotated[list[Annotated[int, Meta(ge=1, le=REPEATS)]], Sides("N")]
    targets: Annotated[list[Side], Sides("N")]
    scales: Annotated[list[Finite], Sides("N")]
    min_samples: Positive = 1
    label_counts: str = "drawn"

    def models(self) -> list[tuple[int, int, int, int]]:
        """Return (pair, direction, repeat, fold) of every model, in the order of the stacked weights."""
        return models(find(self.head), self.folds, self.repeats)


def models(head: Head, folds: int, repeats: list[int]) -> list[tuple[int, int, int, int]]:
    """Return (pair, direction, repeat, fold) of every model of these pairs, in the order of the stacked weights.

    Parameters
    ----------
    head : Head
        The family of discriminators.
    folds : int
        Folds of each client's samples.
    repeats : list of int
        Repeats of each pair.

    Returns
    -------
    list of tuple of int
        One entry a model.
    """
    return [
        (pair, direction, repeat, fold)
        for pair, times in enumerate(repeats)
        for direction in range(head.directions)
        for repeat in range(times)
        for fold in range(folds)
    ]


class NormMessage(TypedDict):
    """The message of `cross-norm`: the family of discriminators that will see the samples.

    `min_samples` is the fewest samples that the server wants the number to be made of.
    """

    head: str
    min_samples: NotRequired[Positive]


class NormReply(TypedDict):
    """The reply of `cross-norm`: the mean squared length of a training sample."""

    norm: Annotated[Floats, Sides(1, low=0, high=1e18)]


class StepMessage(TypedDict):
    """The message of `cross-step` and `cross-validate`, and the reply of the first: the weights of all models."""

    w: Weights


class JudgeReply(TypedDict):
    """The reply of `cross-validate`: accuracies on held-out samples, and on training samples (`fitted`).

    One entry a pair and direction.
    """

    accuracy: Shares
    variance: Shares
    fitted: Shares
    replicates: Annotated[Floats, Sides("N", "E", "_", low=-5, high=6)]


@action(
    "cross-norm",
    purpose="said how long a sample is on average: one number",
    release=Release.EXACT,
    step=Step.DISTANCES,
    limit=None,  # `require` counts the samples
    cost=lambda message, silo: {"models": 1},
)
def norm(message: NormMessage, silo: Silo) -> NormReply:
    """Return the mean squared length of the client's training samples."""
    x = tensors(silo, find(message["head"]))[0].cpu().numpy()
    require(silo, message, len(x), "the length of its features")
    return {"norm": np.array([np.mean(np.sum(np.square(summable(x.astype(np.float64), silo)), axis=1))])}


@action(
    "cross-open",
    purpose="took over the plan of a comparison with other clients",
    release=Release.NOTHING,
    step=Step.DISTANCES,
    limit=None,  # `check` counts the samples of folds and training sizes
    cost=lambda message, silo: {"repeats": max(message["repeats"], default=1)},
)
def open_plan(message: ClientPlan, silo: Silo) -> Empty:
    """Keep the plan for later messages, if it respects the client's limits."""
    check(message, silo)
    silo.state["cross"] = asdict(message)
    return {}


def check(part: ClientPlan, silo: Silo) -> None:
    """Check that a plan respects the limit of samples.

    Updates of two folds, or of two training sizes, differ by a sum over the samples between them, so these count too.

    Parameters
    ----------
    part : ClientPlan
        The plan.
    silo : Silo
        The client.

    Raises
    ------
    InputError
        If a number would be made of too few samples.
    """
    message = {"min_samples": part.min_samples}
    count = len(silo.arrays.y)
    least = max(1, count // part.folds)
    if silo.arrays.groups is not None:
        least = min(folding.smallest(_parts(part, silo, repeat)) for repeat in range(max(part.repeats, default=1)))
    require(silo, message, least, f"updates of {part.folds} folds of {count} samples")
    sizes = sorted(set(part.sizes))
    require(silo, message, sizes[0], f"updates from {sizes[0]} samples")
    for less, more in itertools.pairwise(sizes):
        require(silo, message, more - less, f"updates from {less} and from {more} samples (no multiples of the limit)")


@action(
    "cross-step",
    purpose="trained models that tell clients apart: weights",
    release=Release.EXACT,
    step=Step.DISTANCES,
    limit=None,  # what it sums over was checked with the plan
    cost=lambda message, silo: {"rounds": len(silo.state.get("cross", {}).get("sizes", [0]))},
)
def step(message: StepMessage, silo: Silo) -> StepMessage:
    """Return the weights after one step on the client's own training samples."""
    part = ClientPlan(**silo.state["cross"])
    w = torch.from_numpy(np.array(message["w"])).to(silo.device)
    return {"w": descend(part, w, silo).cpu().numpy()}


def _tested(message: StepMessage, silo: Silo) -> dict[str, int]:
    """Return the cost of testing discriminators: each pair and direction has one accuracy."""
    part = silo.state.get("cross")
    return {"models": 1 if part is None else len(part["sizes"]) * find(part["head"]).directions}


@action(
    "cross-validate",
    purpose="tested models that tell clients apart: accuracies and their spread",
    release=Release.EXACT,
    step=Step.DISTANCES,
    limit=lambda message, silo, limits: require_samples(len(silo.arrays.y), limits, "an accuracy"),
    cost=_tested,
)
def validate(message: StepMessage, silo: Silo) -> JudgeReply:
    """Return held-out accuracies. The plan is kept, since the reply may be lost and asked for again."""
    part = ClientPlan(**silo.state["cross"])
    return judge(part, torch.from_numpy(np.array(message["w"])).to(silo.device), silo)


def descend(part: ClientPlan, w: Tensor, silo: Silo) -> Tensor:
    """Return w - step * gradient of the mean loss over the client's training samples.

    Where the silo's limits ask for it, a gradient gets an error of half its standard error, as updates in training do.

    Parameters
    ----------
    part : ClientPlan
        The client's plan.
    w : Tensor
        Weights (models, rows, D + 1).
    silo : Silo
        The client.

    Returns
    -------
    Tensor
        The new weights, of the same shape.
    """
    head = find(part.head)
    x, y = tensors(silo, head)
    updated = torch.empty_like(w)
    draw = seeds.generator(part.seed, "cross step", lot_of(silo, w.cpu().numpy()))
    for (size, repeat, fold), chosen, target, scale in _groups(part, silo.device):
        train, _ = folding.split(_parts(part, silo, repeat), fold, size)
        features, answers = x[train], y[train, None]
        outputs = head.outputs(_responses(w[chosen], features, scale), answers)
        residual = head.spread(head.residual(outputs, answers, target), answers, part.classes) / size
        gradient = torch.einsum("mgr,md->grd", residual, features) / scale[:, None, None]
        gradient = torch.cat([gradient, residual.sum(0)[..., None]], dim=2)
        if silo.limits.blur_updates:
            squares = torch.einsum("mgr,md->grd", residual**2, features**2) / scale[:, None, None] ** 2
            squares = torch.cat([squares, (residual**2).sum(0)[..., None]], dim=2)
            gradient += (
                BLUR * squares.sqrt() * torch.from_numpy(draw.standard_normal(squares.shape)).float().to(w.device)
            )
        updated[chosen] = w[chosen] - head.step * gradient
    return updated


def judge(part: ClientPlan, w: Tensor, silo: Silo) -> JudgeReply:
    """Return the accuracies of each pair and direction on held-out samples (each held out once a repeat).

    Parameters
    ----------
    part : ClientPlan
        The client's plan.
    w : Tensor
        Final weights (models, rows, D + 1).
    silo : Silo
        The client.

    Returns
    -------
    dict
        `accuracy`, `variance` and `replicates` of `uncertainty.summary`, and `fitted` (pairs, directions), the accuracy
        on training samples.
    """
    head = find(part.head)
    x, y = tensors(silo, head)
    count, shape = len(y), (len(part.sizes), head.directions)
    hits: Floats = np.zeros((*shape, count))
    fitted: Floats = np.zeros(shape)
    listed = np.array(part.models()).reshape(-1, 4)
    for (size, repeat, fold), chosen, target, scale in _groups(part, silo.device):
        samples = np.concatenate(folding.split(_parts(part, silo, repeat), fold, size))
        answers = y[samples, None]
        outputs = head.outputs(_responses(w[chosen], x[samples], scale), answers)
        right = head.correct(outputs, answers, target).cpu().numpy().T.astype(np.float64)
        pair, direction = listed[chosen.cpu().numpy(), :2].T
        times = np.array(part.repeats, dtype=np.float64)[pair]
        hits[pair[:, None], direction[:, None], samples[size:]] += right[:, size:] / times[:, None]
        np.add.at(fitted, (pair, direction), right[:, :size].mean(axis=1) / times / part.folds)
    drawn = summary(hits, partial(np.array(part.sizes)), part.replicates, part.seed, silo, w.cpu().numpy())
    return {
        "accuracy": drawn["accuracy"],
        "variance": drawn["variance"],
        "fitted": rounded_shares(fitted, count, silo, "fitted", w.cpu().numpy()),
        "replicates": drawn["replicates"],
    }


def tensors(silo: Silo, head: Head) -> tuple[Tensor, Tensor]:
    """Return the client's training samples as `head` sees them, on its device: rows, and labels or a numeric target.

    Raises
    ------
    InputError
        If the head is for classes and the target is numeric, or the other way round.
    """
    numeric = silo.schema.task == "regression"
    if head.target == ("never" if numeric else "number"):
        raise InputError(f"`head` (={head.name!r}) is not for a {silo.schema.task}")
    x = rows(silo, target=numeric and head.target == "part")
    y = silo.arrays.y if head.target == "number" else labels(silo)
    return torch.from_numpy(x).to(silo.device), torch.from_numpy(y).to(silo.device)


def _responses(w: Tensor, x: Tensor, scale: Tensor) -> Tensor:
    """Return the responses x~ . w (m, G, rows) of G models to m samples; x~ = (x / scale, 1)."""
    flat = w[..., :-1].reshape(-1, x.shape[1])
    return (x @ flat.T).reshape(len(x), *w.shape[:2]) / scale[:, None] + w[..., -1]


def _groups(part: ClientPlan, device: str) -> list[tuple[tuple[int, int, int], Tensor, Tensor, Tensor]]:
    """Group models by training samples: (size, repeat, fold), and the positions, targets and scales of the models."""
    members: dict[tuple[int, int, int], list[int]] = {}
    listed = part.models()
    for place, (pair, _, repeat, fold) in enumerate(listed):
        members.setdefault((part.sizes[pair], repeat, fold), []).append(place)
    grouped: list[Any] = []
    for key, places in members.items():
        pairs = [listed[place][0] for place in places]
        targets = [abs(part.targets[listed[place][0]] - listed[place][1]) for place in places]
        scales = [part.scales[pair] for pair in pairs]
        grouped.append(
            (
                key,
                torch.tensor(places, device=device),
                torch.tensor(targets, dtype=torch.float32, device=device),
                torch.tensor(scales, dtype=torch.float32, device=device),
            )
        )
    return grouped


def _parts(part: ClientPlan, silo: Silo, repeat: int) -> list[folding.Ints]:
    return folding.cut(part.seed, silo.lot, repeat, labels(silo), part.folds, part.label_counts, silo.arrays.groups)
