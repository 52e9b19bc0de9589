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
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from fedcollab.training.batches import Batch

if TYPE_CHECKING:
    from fedcollab.training.models import Network

_relu_backward = torch.ops.aten.threshold_backward


class Gradient(ABC):
    """The gradient oracle that an algorithm's hooks are given.

    lr          the learning rate of `descend`
    mean_loss   [K] mean training loss over the points where a gradient was taken; 0 where none was
    """

    def __init__(self, network: Network, lr: float, clients: int = 1) -> None:
        self.network = network
        self.lr = lr
        self.clients = clients

    @property
    @abstractmethod
    def mean_loss(self) -> Tensor:
        """Computed when asked for: a step keeps only what it needs."""

    @abstractmethod
    def __call__(self, w: Tensor, batch: Batch) -> Tensor:
        """The gradient at `w` ([K, P]), of the same shape; zero for buffers."""

    @abstractmethod
    def descend(self, w: Tensor, batch: Batch, extra: Tensor | None = None, *, lr: float | None = None) -> None:
        """In place: w <- w - lr (gradient at w + extra)."""

    @abstractmethod
    def logits(self, w: Tensor, x: Tensor) -> Tensor:
        """The model's outputs, [n, classes], for one client's weights [P]."""


@dataclass(frozen=True, eq=False)
class Layer:
    """A layer's weights as the products take them, all views of the flat weights."""

    weight: Tensor  # [K, out, in]
    turned: Tensor  # [K, in, out]
    bias: Tensor  # [K, 1, out]


class Dense(Gradient):
    """Fully connected layers with ReLU between them.

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
        """From each step's log-probabilities of the true labels."""
        loss, calls = torch.zeros(self.clients, dtype=torch.float64), torch.zeros(self.clients)
        for log_p, share in self._seen:
            loss[: len(share)] -= (log_p * share).sum((1, 2)).cpu()
            calls[: len(share)] += 1
        return loss / calls.clamp(min=1)

    def __call__(self, w: Tensor, batch: Batch) -> Tensor:
        """By hand."""
        gradient = torch.empty_like(w)
        gradient[:, self.network.parameters :] = 0
        self._update(gradient, self._backward(w, batch), batch, beta=0, alpha=1)
        return gradient

    def descend(self, w: Tensor, batch: Batch, extra: Tensor | None = None, *, lr: float | None = None) -> None:
        """Fused: no gradient is stored."""
        lr = self.lr if lr is None else lr
        parts = self._backward(w, batch)
        if extra is not None:
            w.sub_(extra, alpha=lr)
        self._update(w, parts, batch, beta=1, alpha=-lr)

    def logits(self, w: Tensor, x: Tensor) -> Tensor:
        """Layer after layer."""
        h = x.flatten(1)
        layers = self._layers(w[None])
        for layer in layers[:-1]:
            h = torch.addmm(layer.bias[0], h, layer.turned[0]).relu_()
        return torch.addmm(layers[-1].bias[0], h, layers[-1].turned[0])

    def _layers(self, w: Tensor) -> list[Layer]:
        """Views of `w`, kept, since steps repeat."""
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
        """-share [K, B, 1] and ones [K, 1, B], kept, since few kinds of batches come again and again."""
        known = self._constants.get(id(share))
        if known is None:
            if len(self._constants) == self._known:
                self._constants.clear()
            known = self._constants[id(share)] = (share, -share, torch.ones_like(share).transpose(1, 2))
        return known[1:]

    def _update(
        self, target: Tensor, parts: list[tuple[Tensor, Tensor]], batch: Batch, *, beta: float, alpha: float
    ) -> None:
        """In place: target <- beta target + alpha gradient."""
        ones = self._ones(batch.share)[1]
        for layer, (h, delta) in zip(self._layers(target), parts, strict=True):
            layer.weight.baddbmm_(delta.transpose(1, 2), h, beta=beta, alpha=alpha)
            layer.bias.baddbmm_(ones, delta, beta=beta, alpha=alpha)

    def _backward(self, w: Tensor, batch: Batch) -> list[tuple[Tensor, Tensor]]:
        """Each layer's input and delta. `w` is not changed."""
        layers = self._layers(w)
        inputs = [batch.x.flatten(2)]
        for layer in layers[:-1]:
            inputs.append(torch.baddbmm(layer.bias, inputs[-1], layer.turned).relu_())
        log_p = torch.log_softmax(torch.baddbmm(layers[-1].bias, inputs[-1], layers[-1].turned), 2)
        label = batch.y.unsqueeze(2)
        self._seen.append((log_p.gather(2, label), batch.share))
        delta = log_p.exp_().mul_(batch.share).scatter_add_(2, label, self._ones(batch.share)[0])
        parts = [(inputs[-1], delta)]
        for depth in range(len(layers) - 1, 0, -1):
            delta = _relu_backward(torch.bmm(delta, layers[depth].weight), inputs[depth], 0)
            parts.append((inputs[depth - 1], delta))
        return parts[::-1]


class Automatic(Gradient):
    """Any module, by autograd: its parameters are made to point into the flat weights, one client at a time.

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
        """Added up step by step."""
        return self._loss / self._calls.clamp(min=1)

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
        self._loss[row] += loss.item()
        self._calls[row] += 1
        return list(grads)


def _fast(x: Tensor) -> Tensor:
    """Images channels last in memory, which PyTorch's kernels work much faster on."""
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x
