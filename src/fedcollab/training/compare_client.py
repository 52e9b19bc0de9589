"""The client side of comparing models: several models on the same test samples. Counts, means and covariances leave.

Each model is sent (`w0`, `w1`, ...), or is one that stayed with the client: then its training is named, and the client
knows what that model did with each sample (`training.outcomes`). Last comes always giving the most frequent class.
"""

from __future__ import annotations

import json
from typing import Annotated, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

from fedcollab.training import outcomes
from fedcollab.training.arrays import tensor_of
from fedcollab.training.client import limit_setting
from fedcollab.training.client_side import data_of, lend_network
from fedcollab.training.compare_measures import compared
from fedcollab.training.descend import Setting, gradient
from fedcollab.training.losses import LOSSES, Loss, choose_loss
from fedcollab.training.outcomes import Outcome
from fedcollab.training.plausible import impossible_comparison
from fedcollab.training.scores import SCORES
from fedcollab.wire.action import Refused, Release, Step, action
from fedcollab.wire.fields import FurtherArrays, Sides, Whole
from fedcollab.wire.limits import Limits
from fedcollab.wire.silo import Silo

#: what a client answers about classes, and about a numeric target
COMPARED = ({"right", "loss", "spread"}, {"loss", "spread", "unexplained", "unexplained_spread"})
Lists = Annotated[list[str], Sides("K")]


class CompareMessage(TypedDict):
    """What a client is sent to compare K models; further arrays `w0`, `w1`, ... are the weights of those that are sent.

    Attributes
    ----------
    trainings : list of str
        Which training each model is of (see `checkpoint.identity`).
    settings : list of str
        The model and the settings of each training (`Setting`), as JSON.
    """

    trainings: Lists
    settings: Lists


class CompareReply(TypedDict):
    """What a client answers about the models, and last about always giving its most frequent class (so M is K + 1).

    Attributes
    ----------
    samples : int
        The number of test samples.
    known : list of bool
        Whether the client knows the model's outcome: it was sent, or kept.
    loss : array, optional
        The mean loss of each model; missing, as is all else, where there are fewer test samples than the silo's limit.
        What is about models that are not known is 0.
    spread : array, optional
        The covariances of the models' losses over test samples.
    right : array, optional
        Of classes, how many test samples each two models both get right.
    unexplained, unexplained_spread : array, optional
        Of a numeric target, the share of its variance that each model does not explain (1 - R2), and the covariances of
        the samples' parts in it.
    """

    samples: Whole
    known: Annotated[list[bool], Sides("M")]
    loss: NotRequired[Annotated[NDArray[np.float64], Sides("M")]]
    spread: NotRequired[Annotated[NDArray[np.float64], Sides("M", "M")]]
    right: NotRequired[Annotated[NDArray[np.int64], Sides("M", "M", low=0)]]
    unexplained: NotRequired[Annotated[NDArray[np.float64], Sides("M", low=0)]]
    unexplained_spread: NotRequired[Annotated[NDArray[np.float64], Sides("M", "M")]]


def _limit(message: CompareMessage, silo: Silo, limits: Limits) -> None:
    """Refuse settings and weights that do not fit the data that were prepared."""
    weights = {key: value for key, value in message.items() if isinstance(value, np.ndarray)}
    wanted = [f"w{position}" for position in range(len(message["settings"]))]
    unknown = sorted(weights.keys() - set(wanted))
    if unknown:
        raise Refused(f"`{unknown[0][:40]}` is the weights of no model")
    for key, setting in zip(wanted, message["settings"], strict=True):
        if key in weights:
            limit_setting({"setting": setting, "w": weights[key]}, silo, limits)


def _one_more(message: CompareMessage, reply: CompareReply) -> str | None:
    """Return what is wrong with a reply that is not about every model and one more, or whose counts are not counts."""
    if len(reply["known"]) != len(message["trainings"]) + 1:
        return "the reply is about another number of models"
    given = reply.keys() - {"samples", "known"}
    if given and given not in COMPARED:
        return f"`{'`, `'.join(sorted(given))}` do not belong together"
    return impossible_comparison(reply)


@action(
    "compare",
    purpose="compared models on its test samples: counts of right ones, mean losses and their covariances",
    release=Release.EXACT,
    step=Step.TESTING,
    limit=_limit,
    cost=lambda message, silo: {"models": len(message["trainings"])},
    consistent=_one_more,
    reads=lambda message, silo: [{name: outcomes.model_of(silo, name) for name in message["trainings"]}],
)
def compare(message: Annotated[CompareMessage, FurtherArrays], silo: Silo) -> CompareReply:
    """Compare models, and always giving the most frequent class, on one client's test split."""
    constant = outcomes.of_constant(silo, _loss(message, silo))
    found = [*(_outcome(message, position, silo) for position in range(len(message["trainings"]))), constant]
    samples = len(silo.arrays.y_test)
    reply: CompareReply = {"samples": samples, "known": [outcome is not None for outcome in found]}
    if samples < max(2, silo.limits.min_test):
        return reply
    nothing = Outcome(np.zeros(samples, dtype=constant.right.dtype), np.zeros(samples))
    asked = [
        message.get(f"w{place}", f"{name}\x1f{outcomes.model_of(silo, name)}")
        for place, name in enumerate(message["trainings"])
    ]
    outcomes_of = [outcome or nothing for outcome in found]
    known = np.array(reply["known"])
    parts = compared(outcomes_of, silo, [*asked, "majority"])  # type: ignore[list-item]
    masks = {1: known, 2: np.outer(known, known)}
    return {**reply, **{key: part * masks[part.ndim] for key, part in parts.items()}}  # type: ignore[typeddict-item]


def _loss(message: CompareMessage, silo: Silo) -> Loss:
    """Return the loss of the first model that is compared."""
    named = [json.loads(json.loads(setting)["model"]).get("loss") for setting in message["settings"][:1]]
    return LOSSES[choose_loss(named[0] if named else None, silo.schema.task)]


def _outcome(message: CompareMessage, position: int, silo: Silo) -> Outcome | None:
    """Return what one of the models does with each test sample, or None if that is not known."""
    w = message.get(f"w{position}")
    if not isinstance(w, np.ndarray):
        return outcomes.kept_of(silo, message["trainings"][position])
    setting, data = Setting.from_json(message["settings"][position]), data_of(silo)
    with lend_network(setting, silo.device) as network:
        logits = gradient(network, setting).logits(tensor_of(w, silo.device), data["x_test"])
        return outcomes.of_outputs(
            network.loss, logits, data["y_test"], SCORES[network.loss.task].spread(silo.arrays.y)
        )
