"""Which functions may tell two clients apart: the class over which a distance takes its maximum.

Every head reads a sample through x~ = (x / sigma, 1) and holds one weight row of that length, or several:

    free        f(x, y) = 1[x~ . (W_0 + W_{1+y}) > 0]    any share of each class's feature space: C-divergence
    features    f(x)    = 1[x~ . W_0 > 0]                the same without the label: H-delta-H
    hypothesis  f(x, y) = 1[h(x) = y], h(x) = argmax_k x~ . W_k    what makes a classifier right here, wrong there
    bounded     f(x, y) = 1 - l(h(x) - y), h(x) = x~ . W_0         what makes a regression close here, far off there

A numeric target is part of the sample that `free` reads (`distances.samples`), and the label is then 0 for all.
`sigma` is the root mean square length of x in the two clients, so that one step size fits pixels and tables. A head has
`outputs` per sample, linear in its weights; `residual` is the derivative of the loss with respect to them.
`gate` is the factor between two samples' labels in the kernel: <phi, phi'> = (x.x' / sigma^2 + 1) gate(y, y').
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcollab.errors import choose


@dataclass(frozen=True)
class Head:
    """A family of discriminators with weights of shape (rows, features + 1).

    Parameters
    ----------
    name : str
        Its name in `HEADS`.
    step : float
        The step size: the inverse of the loss's largest curvature, given mean |x~|^2 = 2.
    directions : int
        1 where swapping the clients negates the outputs; 2 where both must be tried.
    target : str
        How it sees a numeric target: "part" of the sample, a "number" beside it, "hidden", or "never": classes alone.
    """

    name: str
    step: float
    directions: int = 1
    target: str = "part"

    def rows(self, classes: int) -> int:
        """Return how many weight rows a model has."""
        raise NotImplementedError

    def width(self, classes: int) -> int:
        """Return how many outputs a model has per sample."""
        return 1

    def outputs(self, raw: Tensor, y: Tensor) -> Tensor:
        """Return the outputs of samples, from the responses of all weight rows.

        Parameters
        ----------
        raw : Tensor
            Responses (..., rows).
        y : Tensor
            Labels, which broadcast against the leading axes.

        Returns
        -------
        Tensor
            (..., outputs).
        """
        return raw

    def spread(self, values: Tensor, y: Tensor, classes: int) -> Tensor:
        """Return values of outputs as values of weight rows: the transpose of `outputs`.

        Parameters
        ----------
        values : Tensor
            (..., outputs).
        y : Tensor
            Labels, which broadcast against the leading axes.
        classes : int
            Labels in the federation.

        Returns
        -------
        Tensor
            (..., rows).
        """
        return values

    def gate(self, first: Tensor, second: Tensor) -> Tensor | float:
        """Return the labels' factor in the kernel, for labels that broadcast against each other."""
        return 1.0

    def residual(self, outputs: Tensor, y: Tensor, target: Tensor) -> Tensor:
        """Return d loss / d outputs.

        Parameters
        ----------
        outputs : Tensor
            (..., outputs).
        y : Tensor
            Labels.
        target : Tensor
            1 where the outputs should be positive, 0 where they should be negative.

        Returns
        -------
        Tensor
            (..., outputs).
        """
        return torch.sigmoid(outputs) - target[..., None]

    def correct(self, outputs: Tensor, y: Tensor, target: Tensor) -> Tensor:
        """Return whether each sample is attributed to its own client, or how far.

        Parameters
        ----------
        outputs : Tensor
            (..., outputs).
        y : Tensor
            Labels.
        target : Tensor
            1 for samples of the first client, 0 for those of the second.

        Returns
        -------
        Tensor
            (...,), bool or shares from 0 to 1.
        """
        return (outputs[..., 0] > 0) == (target > 0.5)


class Features(Head):
    """A half-space of the features alone."""

    def rows(self, classes: int) -> int:
        """Return 1: all labels share one weight row."""
        return 1


class Free(Head):
    """A half-space of the features for every label, with a part that all labels share."""

    def rows(self, classes: int) -> int:
        """Return one shared row and one a class."""
        return classes + 1

    def outputs(self, raw: Tensor, y: Tensor) -> Tensor:
        """Return z = z_0 + z_{1+y}: the shared row's response and the label's own."""
        return raw[..., :1] + raw.gather(-1, _index(y + 1, raw))

    def spread(self, values: Tensor, y: Tensor, classes: int) -> Tensor:
        """Copy `values` to the shared row and to the row of the label `y`, of `classes` rows and a shared one."""
        rows = values.new_zeros((*values.shape[:-1], classes + 1))
        rows[..., :1] = values
        return rows.scatter(-1, _index(y + 1, values), values)

    def gate(self, first: Tensor, second: Tensor) -> Tensor:
        """Return 1 + [y = y'] for the labels of two samples."""
        return 1.0 + (first == second).float()


class Hypothesis(Head):
    """A linear classifier: right on the first client (-log p_y), wrong on the second (-log(1 - p_y))."""

    def rows(self, classes: int) -> int:
        """Return the number of classes: one weight row each."""
        return classes

    def width(self, classes: int) -> int:
        """Return the number of classes: one output each."""
        return classes

    def residual(self, outputs: Tensor, y: Tensor, target: Tensor) -> Tensor:
        """Return d loss / d `outputs` at label `y`.

        p - e_y where h should be right (`target` 1); -p_y / (1 - p_y) (p - e_y) where it should be wrong (`target` 0).
        """
        share = torch.softmax(outputs, dim=-1)
        own = _index(y, outputs)
        right = share.scatter_add(-1, own, torch.full_like(own, -1, dtype=share.dtype))
        hit = share.gather(-1, own)
        # 1 - p_y = 0 only where float32 rounds p_y up to 1; the ratio stays finite and the step bounded
        return right * torch.where(target[..., None] > 0.5, 1.0, -hit / (1.0 - hit).clamp(min=1e-6))

    def correct(self, outputs: Tensor, y: Tensor, target: Tensor) -> Tensor:
        """Return whether h(x) = y at the first client (`target` 1) and h(x) != y at the second.

        h(x) is the class with the largest of the `outputs`, and `y` the label.
        """
        return (outputs.argmax(dim=-1) == y) == (target > 0.5)


class Bounded(Head):
    """A linear regression, l(e) = 1 - exp(-e^2 / 2) its loss: close on the first client, far off on the second.

    Errors e are counted in the target's standard deviation over all clients: the loss is e^2 / 2 far below 1, and 1 far
    above. Its largest curvature is 1.
    """

    def rows(self, classes: int) -> int:
        """Return 1: a regression has one weight row; there are no `classes`."""
        return 1

    def residual(self, outputs: Tensor, y: Tensor, target: Tensor) -> Tensor:
        """Return d l / d `outputs` at the numbers `y` where `target` is 1, and its negative where it is 0."""
        error = outputs - y[..., None]
        return error * torch.exp(-error.square() / 2) * (2 * target[..., None] - 1)

    def correct(self, outputs: Tensor, y: Tensor, target: Tensor) -> Tensor:
        """Return 1 - l at the first client (`target` 1) and l at the second, of `outputs` and numbers `y`."""
        close = torch.exp(-(outputs[..., 0] - y).square() / 2)
        return torch.where(target > 0.5, close, 1 - close)


def _index(y: Tensor, values: Tensor) -> Tensor:
    """Return labels as an index into the last axis of `values`."""
    return y.expand(values.shape[:-1])[..., None]


HEADS: dict[str, Head] = {
    "free": Free("free", step=1.0),
    "features": Features("features", step=2.0, target="hidden"),
    "hypothesis": Hypothesis("hypothesis", step=1.0, directions=2, target="never"),
    "bounded": Bounded("bounded", step=0.5, directions=2, target="number"),
}


def find(name: str) -> Head:
    """Return the head of this name.

    Raises
    ------
    InputError
        If there is none.
    """
    return choose("head", name, HEADS)
