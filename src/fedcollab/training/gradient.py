"""Gradients of the mean cross-entropy with respect to flat weights, for many clients at once where that is known how.

`Dense` knows the layers of the MLP and of logistic regression: its gradients are derived by hand, its products are
batched over clients, and a plain step is fused: `W -= lr * delta.T @ h` is one product, and no gradient is stored.
`Automatic` takes any PyTorch module and lets autograd do it, one client at a time.

With z_l = h_{l-1} W_l^T + b_l, h_l = relu(z_l), softmax output p and one-hot label e:

    delta_L = (p - e) / B,      delta_{l-1} = (delta_l W_l) * [h_{l-1} > 0]
    dW_l = delta_l^T h_{l-1},   db_l = sum over the batch of delta_l
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from fedcollab.training.batches import Batch

if TYPE_CHECKING:
    from fedcollab.training.models import Network

Layers = list[tuple[Tensor, Tensor]]
_relu_backward = torch.ops.aten.threshold_backward


class Gradient(ABC):
    """The gradient oracle that an algorithm's hooks are given.

    lr      the learning rate of `descend`
    loss    [K] sum of the training loss at every point where a gradient was taken; `calls` says how many there were
    """

    def __init__(self, network: Network, lr: float, clients: int = 1) -> None:
        self.network = network
        self.lr = lr
        self.loss = torch.zeros(clients)
        self.calls = torch.zeros(clients)

    @abstractmethod
    def __call__(self, w: Tensor, batch: Batch) -> Tensor:
        """The gradient at `w` ([K, P]), of the same shape; zero for buffers."""

    @abstractmethod
    def descend(self, w: Tensor, batch: Batch, extra: Tensor | None = None, *, lr: float | None = None) -> None:
        """In place: w <- w - lr (gradient at w + extra)."""

    @abstractmethod
    def logits(self, w: Tensor, x: Tensor) -> Tensor:
        """The model's outputs, [n, classes], for one client's weights [P]."""


class Dense(Gradient):
    """Fully connected layers with ReLU between them."""

    _known: ClassVar[int] = 4

    def __init__(self, network: Network, lr: float, clients: int = 1) -> None:
        super().__init__(network, lr, clients)
        self._cache: dict[int, tuple[Tensor, Layers]] = {}

    def __call__(self, w: Tensor, batch: Batch) -> Tensor:
        """By hand."""
        gradient = torch.empty_like(w)
        gradient[:, self.network.parameters :] = 0
        for (weight, bias), (h, delta) in zip(self._views(gradient), self._backward(w, batch), strict=True):
            weight.baddbmm_(delta.transpose(1, 2), h, beta=0)
            torch.sum(delta, 1, out=bias)
        return gradient

    def descend(self, w: Tensor, batch: Batch, extra: Tensor | None = None, *, lr: float | None = None) -> None:
        """Fused: no gradient is stored."""
        lr = self.lr if lr is None else lr
        parts = self._backward(w, batch)
        if extra is not None:
            w.sub_(extra, alpha=lr)
        for (weight, bias), (h, delta) in zip(self._views(w), parts, strict=True):
            weight.baddbmm_(delta.transpose(1, 2), h, alpha=-lr)
            bias.sub_(delta.sum(1), alpha=lr)

    def logits(self, w: Tensor, x: Tensor) -> Tensor:
        """Layer after layer."""
        h = x.flatten(1)
        w = w[None]
        layers = self._views(w)
        for weight, bias in layers[:-1]:
            h = torch.addmm(bias[0], h, weight[0].T).relu_()
        return torch.addmm(layers[-1][1][0], h, layers[-1][0][0].T)

    def _views(self, w: Tensor) -> Layers:
        """Weight [K, out, in] and bias [K, out] of each layer, as views of `w`; kept, since steps repeat."""
        known = self._cache.get(id(w))
        if known is not None:
            return known[1]
        if len(self._cache) == self._known:
            self._cache.clear()
        count, start, layers = len(w), 0, []
        for before, after in self.network.widths:
            middle, stop = start + before * after, start + (before + 1) * after
            layers.append((w[:, start:middle].view(count, after, before), w[:, middle:stop]))
            start = stop
        self._cache[id(w)] = (w, layers)
        return layers

    def _backward(self, w: Tensor, batch: Batch) -> list[tuple[Tensor, Tensor]]:
        """Each layer's input and delta. `w` is not changed."""
        layers = self._views(w)
        inputs = [batch.x.flatten(2)]
        for weight, bias in layers[:-1]:
            inputs.append(torch.baddbmm(bias.unsqueeze(1), inputs[-1], weight.transpose(1, 2)).relu_())
        weight, bias = layers[-1]
        log_p = torch.log_softmax(torch.baddbmm(bias.unsqueeze(1), inputs[-1], weight.transpose(1, 2)), 2)
        label = batch.y.unsqueeze(2)
        self.loss[: len(w)] -= (log_p.gather(2, label) * batch.share).sum((1, 2)).cpu()
        self.calls[: len(w)] += 1
        delta = log_p.exp_().scatter_add_(2, label, torch.full_like(batch.share, -1.0)).mul_(batch.share)
        parts = [(inputs[-1], delta)]
        for layer in range(len(layers) - 1, 0, -1):
            delta = _relu_backward(torch.bmm(delta, layers[layer][0]), inputs[layer], 0)
            parts.append((inputs[layer - 1], delta))
        return parts[::-1]


class Automatic(Gradient):
    """Any module, by autograd: its parameters are made to point into the flat weights, one client at a time.

    Batch-norm statistics are part of the flat weights, after the parameters: a step updates them, servers average
    them, and no gradient or proximal term touches them. A batch of one sample, from which batch-norm can learn
    nothing, is skipped by modules that have it.
    """

    def __call__(self, w: Tensor, batch: Batch) -> Tensor:
        """By autograd."""
        gradient = torch.zeros_like(w)
        for row in range(len(w)):
            for part, value in zip(self.network.split(gradient[row])[0], self._grads(w, batch, row), strict=False):
                part.copy_(value)
        return gradient

    def descend(self, w: Tensor, batch: Batch, extra: Tensor | None = None, *, lr: float | None = None) -> None:
        """A step on each client's weights."""
        lr = self.lr if lr is None else lr
        for row in range(len(w)):
            grads = self._grads(w, batch, row)
            if extra is not None:
                w[row, : self.network.parameters].sub_(extra[row, : self.network.parameters], alpha=lr)
            if grads:
                torch._foreach_add_(self.network.split(w[row])[0], grads, alpha=-lr)

    def logits(self, w: Tensor, x: Tensor) -> Tensor:
        """In evaluation mode, in parts that fit in memory."""
        module = self.network.point(w).eval()
        with torch.no_grad():
            return torch.cat([module(_fast(part)) for part in torch.split(x, 512)])

    def _grads(self, w: Tensor, batch: Batch, row: int) -> list[Tensor]:
        size = batch.sizes[row]
        if size < (2 if self.network.buffers else 1):
            return []
        module = self.network.point(w[row]).train()
        with torch.enable_grad():
            loss = functional.cross_entropy(module(_fast(batch.x[row, :size])), batch.y[row, :size])
            grads = torch.autograd.grad(loss, list(module.parameters()))
        self.loss[row] += loss.detach().cpu()
        self.calls[row] += 1
        return list(grads)


def _fast(x: Tensor) -> Tensor:
    """Images channels last in memory, which PyTorch's kernels work much faster on."""
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x
