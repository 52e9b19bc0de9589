"""How a local step is taken, where it is not plain SGD: Adam, and weight decay with either.

    Adam      m <- b1 m + (1 - b1) g;   v <- b2 v + (1 - b2) g^2
              w <- w - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps),    g with the algorithm's extra term
    decay     w <- (1 - lr decay) w  after each step

The moments of Adam begin anew in every round, because the weights do: they are the server's.

Kingma, Ba: Adam: a method for stochastic optimization. ICLR 2015, Algorithm 1. Loshchilov, Hutter: Decoupled weight
decay regularization. ICLR 2019.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcollab.training.batches import Batch
from fedcollab.training.gradient import Gradient

B1, B2, EPS = 0.9, 0.999, 1e-8


class Around(Gradient):
    """A gradient that takes its steps in another way than the one that it is made from.

    Parameters
    ----------
    inner : Gradient
        Computes gradients, losses and outputs.
    """

    def __init__(self, inner: Gradient) -> None:
        super().__init__(inner.network, inner.lr, inner.clients)
        self.inner = inner

    @property
    def mean_loss(self) -> Tensor:
        """Each client's mean training loss."""
        return self.inner.mean_loss

    def __call__(self, w: Tensor, batch: Batch) -> Tensor:
        """Return the gradient of the mean loss; arguments as in `Gradient.__call__`."""
        return self.inner(w, batch)

    def logits(self, w: Tensor, x: Tensor) -> Tensor:
        """Return the model's outputs; arguments as in `Gradient.logits`."""
        return self.inner.logits(w, x)


@dataclass(eq=False)
class Moments:
    """What Adam remembers of earlier steps: the first and second moment of each weight, and each client's steps."""

    first: Tensor
    second: Tensor
    steps: Tensor


class Adam(Around):
    """Local steps by Adam.

    Parameters
    ----------
    inner : Gradient
        Computes the gradients.
    """

    def __init__(self, inner: Gradient) -> None:
        super().__init__(inner)
        self._moments: dict[int, Moments] = {}

    def descend(self, w: Tensor, batch: Batch, extra: Tensor | None = None, *, lr: float | None = None) -> None:
        """Take one step of Adam in place; arguments as in `Gradient.descend`."""
        gradient = self.inner(w, batch)
        if extra is not None:
            gradient.add_(extra)
        known = self._moments.get(w.data_ptr())  # the stack shrinks from its end, so that its first row stays in place
        if known is None:
            known = Moments(torch.zeros_like(w), torch.zeros_like(w), torch.zeros((len(w), 1), device=w.device))
            self._moments[w.data_ptr()] = known
        rows = len(w)
        first, second, steps = known.first[:rows], known.second[:rows], known.steps[:rows]
        first.lerp_(gradient, 1 - B1)
        second.mul_(B2).addcmul_(gradient, gradient, value=1 - B2)
        steps.add_(1)
        scale = (self.lr if lr is None else lr) / (1 - B1**steps)
        trained = slice(None, self.network.parameters)
        w[:, trained].sub_(scale * first[:, trained] / ((second[:, trained] / (1 - B2**steps)).sqrt_().add_(EPS)))


class Decayed(Around):
    """Steps after which the weights shrink a little.

    Parameters
    ----------
    inner : Gradient
        Takes the steps.
    decay : float
        The weights shrink by this share of the step size.
    """

    def __init__(self, inner: Gradient, decay: float) -> None:
        super().__init__(inner)
        self.decay = decay

    def descend(self, w: Tensor, batch: Batch, extra: Tensor | None = None, *, lr: float | None = None) -> None:
        """Take the step of the inner gradient, then shrink the weights; arguments as in `Gradient.descend`."""
        self.inner.descend(w, batch, extra, lr=lr)
        w[:, : self.network.parameters].mul_(1 - self.decay * (self.lr if lr is None else lr))
