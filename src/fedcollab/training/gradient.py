"""Gradients of the mean loss with respect to flat weights, for many clients at once where that is known how.

`Dense` knows the layers of the MLP and of logistic regression: its gradients are derived by hand, its products are
batched over clients, and a plain step is fused: `W -= lr * delta.T @ h` is one product, and no gradient is stored.
`Automatic` takes any PyTorch module and lets autograd do it, one client at a time.

With z_l = h_{l-1} W_l^T + b_l, h_l = relu(z_l), and the loss's derivative by the outputs (`training.losses`):

    delta_L = dloss / dz_L / B,      delta_{l-1} = (delta_l W_l) * [h_{l-1} > 0]
    dW_l = delta_l^T h_{l-1},   db_l = sum over the batch of delta_l
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from fedcollab.training.batches import Batch

if TYPE_CHECKING:
    from fedcollab.training.models import Network

_relu_backward = torch.ops.aten.threshold_backward


class Gradient(ABC):
    """Computes gradients for the hooks of an algorithm, for K stacked clients.

    Parameters
    ----------
    network : Network
        The model.
    lr : float
        Step size of `descend` where none is given.
    clients : int, default 1
        K, how many clients are stacked.
    """

    def __init__(self, network: Network, lr: float, clients: int = 1) -> None:
        self.network = network
        self.lr = lr
        self.clients = clients

    @property
    @abstractmethod
    def mean_loss(self) -> Tensor:
        """Each client's mean training loss over the points where a gradient was taken, [K]; 0 where none was."""

    @abstractmethod
    def __call__(self, w: Tensor, batch: Batch) -> Tensor:
        """Return the gradient of the mean loss.

        Parameters
        ----------
        w : Tensor
            Weights, [K, P].
        batch : Batch
            A batch of each client.

        Returns
        -------
        Tensor
            Of the shape of `w`; zero for buffers.
        """

    @abstractmethod
    def descend(self, w: Tensor, batch: Batch, extra: Tensor | None = None, *, lr: float | None = None) -> None:
        """Take a step in place: w <- w - lr (gradient at w + extra).

        Parameters
        ----------
        w : Tensor
            Weights, [K, P].
        batch : Batch
            A batch of each client.
        extra : Tensor, optional
            Added to the gradient; of the shape of `w`.
        lr : float, optional
            Another step size than the usual one.
        """

    @abstractmethod
    def logits(self, w: Tensor, x: Tensor) -> Tensor:
        """Return the model's outputs.

        Parameters
        ----------
        w : Tensor
            One client's weights, [P].
        x : Tensor
            Features of n samples.
        """


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer's weights in the shapes that the products need, all views of the flat weights."""

    weight: Tensor  # [K, out, in]
    turned: Tensor  # [K, in, out]
    bias: Tensor  # [K, 1, out]


class Dense(Gradient):
    """Gradients of fully connected layers with ReLU between them.

    Every call from Python takes the interpreter's lock, for which the threads of other clients wait: views are made
    once and kept, sums over a batch are products with a row of ones, and the loss is worked out at the end.
    """

    _known: ClassVar[int] = 4

    def __init__(self, network: Network, lr: float, clients: int = 1) -> None:
        super().__init__(network, lr, clients)
        self._cache: dict[int, tuple[Tensor, list[Layer]]] = {}
        self._constants: dict[int, tuple[Tensor, Tensor, Tensor]] = {}
        self._seen: list[tuple[Tensor, Tensor]] = []

    @property
    def mean_loss(self) -> Tensor:
        """Each client's mean training loss, from the loss of each sample in each step."""
        loss, calls = torch.zeros(self.clients, dtype=torch.float64), torch.zeros(self.clients)
        for each, share in self._seen:
            loss[: len(share)] += (each * share).sum((1, 2)).cpu()
            calls[: len(share)] += 1
        return loss / calls.clamp(min=1)

    def __call__(self, w: Tensor, batch: Batch) -> Tensor:
        """Return the gradient by the formulas of this module."""
        gradient = torch.empty_like(w)
        gradient[:, self.network.parameters :] = 0
        self._update(gradient, self._backward(w, batch), batch, beta=0, alpha=1)
        return gradient

    def descend(self, w: Tensor, batch: Batch, extra: Tensor | None = None, *, lr: float | None = None) -> None:
        """Take a step in place without storing a gradient."""
        lr = self.lr if lr is None else lr
        parts = self._backward(w, batch)
        if extra is not None:
            w.sub_(extra, alpha=lr)
        self._update(w, parts, batch, beta=1, alpha=-lr)

    def logits(self, w: Tensor, x: Tensor) -> Tensor:
        """Return the model's outputs, computed layer after layer."""
        h = x.flatten(1)
        layers = self._layers(w[None])
        for layer in layers[:-1]:
            h = torch.addmm(layer.bias[0], h, layer.turned[0]).relu_()
        return torch.addmm(layers[-1].bias[0], h, layers[-1].turned[0])

    def stacked_logits(self, w: Tensor, x: Tensor) -> Tensor:
        """Return the outputs of several models at once.

        Parameters
        ----------
        w : Tensor
            The weights of K models, [K, P].
        x : Tensor
            Features of as many samples for each, [K, n, ...].

        Returns
        -------
        Tensor
            Of shape [K, n, classes].
        """
        h = x.flatten(2)
        layers = self._layers(w)
        for layer in layers[:-1]:
            h = torch.baddbmm(layer.bias, h, layer.turned).relu_()
        return torch.baddbmm(layers[-1].bias, h, layers[-1].turned)

    def _layers(self, w: Tensor) -> list[Layer]:
        """Return the layers as views of `w`, which are kept because steps repeat."""
        known = self._cache.get(id(w))
        if known is not None:
            return known[1]
        if len(self._cache) == self._known:
            self._cache.clear()
        count, start, layers = len(w), 0, []
        for before, after in self.network.widths:
            middle, stop = start + before * after, start + (before + 1) * after
            weight = w[:, start:middle].view(count, after, before)
            layers.append(Layer(weight, weight.transpose(1, 2), w[:, None, middle:stop]))
            start = stop
        self._cache[id(w)] = (w, layers)
        return layers

    def _ones(self, share: Tensor) -> tuple[Tensor, Tensor]:
        """Return -share [K, B, 1] and ones [K, 1, B], kept because few kinds of batches come again and again."""
        known = self._constants.get(id(share))
        if known is None:
            if len(self._constants) == self._known:
                self._constants.clear()
            known = self._constants[id(share)] = (share, -share, torch.ones_like(share).transpose(1, 2))
        return known[1:]

    def _update(
        self, target: Tensor, parts: list[tuple[Tensor, Tensor]], batch: Batch, *, beta: float, alpha: float
    ) -> None:
        """Set, in place, target <- beta target + alpha gradient."""
        ones = self._ones(batch.share)[1]
        for layer, (h, delta) in zip(self._layers(target), parts, strict=True):
            layer.weight.baddbmm_(delta.transpose(1, 2), h, beta=beta, alpha=alpha)
            layer.bias.baddbmm_(ones, delta, beta=beta, alpha=alpha)

    def _backward(self, w: Tensor, batch: Batch) -> list[tuple[Tensor, Tensor]]:
        """Return each layer's input and delta (see the formulas of this module); `w` is not changed."""
        layers = self._layers(w)
        inputs = [batch.x.flatten(2)]
        for layer in layers[:-1]:
            inputs.append(torch.baddbmm(layer.bias, inputs[-1], layer.turned).relu_())
        outputs = torch.baddbmm(layers[-1].bias, inputs[-1], layers[-1].turned)
        loss, delta = self.network.loss.backward(outputs, batch.y, batch.share, self._ones(batch.share)[0])
        self._seen.append((loss, batch.share))
        parts = [(inputs[-1], delta)]
        for depth in range(len(layers) - 1, 0, -1):
            delta = _relu_backward(torch.bmm(delta, layers[depth].weight), inputs[depth], 0)
            parts.append((inputs[depth - 1], delta))
        return parts[::-1]


class Automatic(Gradient):
    """Gradients of any module by autograd, one client at a time: its parameters point into the flat weights.

    Batch-norm statistics are part of the flat weights, after the parameters: a step updates them, servers average
    them, and no gradient or proximal term touches them. A batch of one sample, from which batch-norm can learn
    nothing, is skipped by modules that have it.
    """

    def __init__(self, network: Network, lr: float, clients: int = 1) -> None:
        super().__init__(network, lr, clients)
        self._loss = torch.zeros(clients, dtype=torch.float64)
        self._calls = torch.zeros(clients)

    @property
    def mean_loss(self) -> Tensor:
        """Each client's mean training loss, summed step by step."""
        return self._loss / self._calls.clamp(min=1)

    def __call__(self, w: Tensor, batch: Batch) -> Tensor:
        """Return the gradient by autograd, client by client."""
        gradient = torch.zeros_like(w)
        for row in range(len(w)):
            for part, value in zip(self.network.split(gradient[row])[0], self._grads(w, batch, row), strict=False):
                part.copy_(value)
        return gradient

    def descend(self, w: Tensor, batch: Batch, extra: Tensor | None = None, *, lr: float | None = None) -> None:
        """Take a step in place on each client's weights, one client after the other."""
        lr = self.lr if lr is None else lr
        for row in range(len(w)):
            grads = self._grads(w, batch, row)
            if extra is not None:
                w[row, : self.network.parameters].sub_(extra[row, : self.network.parameters], alpha=lr)
            if grads:
                torch._foreach_add_(self.network.split(w[row])[0], grads, alpha=-lr)

    def logits(self, w: Tensor, x: Tensor) -> Tensor:
        """Return the model's outputs in evaluation mode, computed in parts that fit in memory."""
        module = self.network.point(w).eval()
        with torch.no_grad():
            return torch.cat([module(_fast(part)) for part in torch.split(x, 512)])

    def _grads(self, w: Tensor, batch: Batch, row: int) -> list[Tensor]:
        """Return one client's gradients in the shapes of the parameters; empty if its batch is too small."""
        size = batch.sizes[row]
        if size < (2 if self.network.buffers else 1):
            return []
        module = self.network.point(w[row]).train()
        with torch.enable_grad():
            loss = self.network.loss.mean(module(_fast(batch.x[row, :size])), batch.y[row, :size])
            grads = torch.autograd.grad(loss, list(module.parameters()))
        self._loss[row] += loss.item()
        self._calls[row] += 1
        return list(grads)


def _fast(x: Tensor) -> Tensor:
    """Return images channels last in memory, which PyTorch's kernels work much faster on."""
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x
