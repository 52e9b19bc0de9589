"""The losses that models are trained with: for classes the cross-entropy, for a numeric target two that grow with the
error e = f - y of a prediction f.

    cross-entropy   -log p_y,  p = softmax(f)     d/df = p - onehot(y)
    squared         e^2 / 2  up to |e| = 3,       d/df = e, at most 3 either way
                    3 |e| - 9 / 2  beyond
    absolute        |e|                           d/df = sign(e)

A numeric target y is centred and scaled (`Schema.target`), so that a squared loss of 1/2 is about that of always giving
the mean over all clients; measures are given in the target's own units (`training.scores`). A loss for times until an
event would be one more entry here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from fedcollab.errors import InputError, choose

#: how many deviations of the target an error may have before `squared` counts it in proportion
FAR = 3.0


class Loss(ABC):
    """A loss of each sample, and its derivative with respect to the model's outputs."""

    #: what a model predicts that is trained with this loss (see `federation.task`)
    task: ClassVar[str]

    @abstractmethod
    def each(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the loss of each sample.

        Parameters
        ----------
        outputs : Tensor
            What the model gives, [..., n, outputs].
        y : Tensor
            Class indices or targets, [..., n].

        Returns
        -------
        Tensor
            Of the shape of `y`.
        """

    @abstractmethod
    def backward(self, outputs: Tensor, y: Tensor, share: Tensor, minus: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss of each sample, and the derivative of the mean loss with respect to the outputs.

        Parameters
        ----------
        outputs : Tensor
            What K stacked models give for a batch each, [K, B, outputs].
        y : Tensor
            Class indices or targets, [K, B].
        share, minus : Tensor
            What each sample weighs in its client's mean, [K, B, 1], and the same with the other sign.

        Returns
        -------
        loss, delta : Tensor
            Of the shapes [K, B, 1] and [K, B, outputs].
        """

    def mean(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the mean loss over samples, for autograd; arguments as in `each`."""
        return self.each(outputs, y).mean()


class CrossEntropy(Loss):
    """Minus the logarithm of the probability of the true class."""

    task = "classification"

    def each(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the loss of each sample; arguments as in `Loss.each`."""
        return -torch.log_softmax(outputs, -1).gather(-1, y.unsqueeze(-1)).squeeze(-1)

    def backward(self, outputs: Tensor, y: Tensor, share: Tensor, minus: Tensor) -> tuple[Tensor, Tensor]:
        """Return losses and derivatives; arguments as in `Loss.backward`."""
        log_p, label = torch.log_softmax(outputs, 2), y.unsqueeze(2)
        loss = -log_p.gather(2, label)
        return loss, log_p.exp_().mul_(share).scatter_add_(2, label, minus)

    def mean(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the mean loss; arguments as in `Loss.each`."""
        return functional.cross_entropy(outputs, y)


class Squared(Loss):
    """Half the squared error; beyond `FAR` it grows in proportion to the error (Huber's loss).

    Without that end a few rows with far values make steps that overshoot ever further, until weights are infinite.
    """

    task = "regression"

    def each(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the loss of each sample; arguments as in `Loss.each`."""
        return functional.huber_loss(outputs.squeeze(-1), y, reduction="none", delta=FAR)

    def backward(self, outputs: Tensor, y: Tensor, share: Tensor, minus: Tensor) -> tuple[Tensor, Tensor]:
        """Return losses and derivatives; arguments as in `Loss.backward`."""
        error = outputs - y.unsqueeze(2)
        near = error.clamp(-FAR, FAR)
        return near * (error - near / 2), near * share


class Absolute(Loss):
    """The absolute error, which single far-off values count less in than in the squared one."""

    task = "regression"

    def each(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the loss of each sample; arguments as in `Loss.each`."""
        return (outputs.squeeze(-1) - y).abs()

    def backward(self, outputs: Tensor, y: Tensor, share: Tensor, minus: Tensor) -> tuple[Tensor, Tensor]:
        """Return losses and derivatives; arguments as in `Loss.backward`."""
        error = outputs - y.unsqueeze(2)
        return error.abs(), error.sign() * share


#: the losses by name; the first one of a task is its default
LOSSES: dict[str, Loss] = {"cross-entropy": CrossEntropy(), "squared": Squared(), "absolute": Absolute()}
CROSS_ENTROPY, SQUARED, ABSOLUTE = LOSSES


def choose_loss(loss: str | None, task: str) -> str:
    """Return the name of the loss to train with.

    Parameters
    ----------
    loss : str or None
        What the user asked for; None: the default of the task.
    task : str
        What models predict.

    Raises
    ------
    InputError
        If the name is unknown, or belongs to another task.

    Examples
    --------
    >>> choose_loss(None, "regression"), choose_loss("absolute", "regression")
    ('squared', 'absolute')
    """
    if loss is None:
        return next(name for name, each in LOSSES.items() if each.task == task)
    if choose("loss", loss, LOSSES).task != task:
        fitting = ", ".join(repr(name) for name, each in LOSSES.items() if each.task == task)
        raise InputError(f"`loss` (={loss!r}) is not for a {task}; expected {fitting}")
    return loss
