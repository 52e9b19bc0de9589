"""Per-FedAvg: the coalition's model is trained to be good after one local step (MAML).

With the batch in parts, and inner step a equal to the outer step, as the paper runs it:

    w' = w - a g(w; part 1)
    first-order     w <- w - a g(w'; part 2)
    hessian-free    w <- w - a (v - a h),   v = g(w'; part 2),   h = (g(w + d v; part 3) - g(w - d v; part 3)) / (2 d)

Batches under 4 samples are skipped. The personal model is one step from w.

Fallah, Mokhtari, Ozdaglar: Personalized federated learning with theoretical guarantees: a model-agnostic meta-learning
approach. NeurIPS 2020, Algorithm 1, FO and HF variants of Section 5.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedcollab.errors import InputError
from fedcollab.training.batches import Batch
from fedcollab.training.gradient import Gradient
from fedcollab.training.hooks import Algorithm, Batches, State, fine_tuned, register

LEAST = 4
VARIANTS = ("first-order", "hessian-free")


@register("perfedavg")
@dataclass(frozen=True)
class PerFedAvg(Algorithm):
    """Train a coalition's model that is good after one local step (MAML).

    Parameters
    ----------
    variant : str, default "first-order"
        "first-order" ignores second derivatives, "hessian-free" approximates them by a finite difference.
    delta : float, default 1e-3
        Half the width of that finite difference.
    steps : int, default 1
        Local steps from the coalition's model to a client's personal model.

    Raises
    ------
    InputError
        If `variant` is unknown.
    """

    variant: str = "first-order"
    delta: float = 1e-3
    steps: int = 1
    personalises = True
    plain_steps = False

    def __post_init__(self) -> None:
        if self.variant not in VARIANTS:
            raise InputError(f"`variant` (={self.variant!r}) must be one of: {', '.join(VARIANTS)}")

    def step(self, w: Tensor, message: State, state: State, grad: Gradient, batch: Batch) -> None:
        """Take one step along the gradient that is found after a trial step."""
        parts = 2 if self.variant == "first-order" else 3
        ahead = w.clone()
        grad.descend(ahead, batch.part(0, parts, LEAST))
        v = grad(ahead, batch.part(1, parts, LEAST))
        if parts == 3:
            probe, third = v * self.delta, batch.part(2, parts, LEAST)
            hessian = (grad(w + probe, third) - grad(w - probe, third)) / (2 * self.delta)
            v = v - grad.lr * hessian
        w.sub_(v, alpha=grad.lr)

    def personal(self, message: State, state: State, grad: Gradient, batches: Batches) -> Tensor:
        """Return the coalition's model after `steps` plain steps on the client's own data."""
        return fine_tuned(message["w"], grad, batches(self.steps))
