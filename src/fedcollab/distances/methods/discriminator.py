"""The paper's client discriminator: two layers, features and label entering by a map each.

    f_w(x, y) = v . relu(W x + b + 2 (V s e_y + a)) + c,     s = L / sqrt(L - 1)

W (H x D) and V (H x L) are the first-layer maps, each with its own bias b, a (H); v (H) and c the last layer; e_y the
one-hot label of L classes. s gives the one-hot unit variance, and the label's response weighs twice the features'.
f > 0 says "first client". Without labels (H-delta-H), V and a are left out.

One model is one flat vector of `parameters(D, L)` numbers, so that it travels as one row of an array. Bao, Wang, Wu, He
(ICML 2023), Section 4.1; the counts are those of its complexity table.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcollab import seeds

LABEL_WEIGHT = 2.0


def parameters(features: int, classes: int, hidden: int = 200) -> int:
    """Return how many numbers one discriminator has.

    Parameters
    ----------
    features : int
        D, features of a sample.
    classes : int
        L, or 0 for a discriminator without labels.
    hidden : int
        H, hidden units.

    Returns
    -------
    int
        The length of a flat vector of weights.

    Examples
    --------
    >>> parameters(512, 10), parameters(512, 20)
    (105001, 107001)
    """
    return sum(length for _, length in _layout(features, classes, hidden))


def macs(features: int, classes: int, hidden: int = 200) -> int:
    """Return the multiply-accumulate operations of one sample's forward pass.

    Parameters
    ----------
    features, classes, hidden : int
        As in `parameters`.

    Examples
    --------
    >>> macs(512, 10), macs(512, 20)
    (104600, 106600)
    """
    return hidden * (features + classes + 1)


def label_scale(classes: int) -> float:
    """Return s = L / sqrt(L - 1), which gives a one-hot label of L classes unit variance."""
    return float(classes / (classes - 1) ** 0.5)


@dataclass(frozen=True)
class Weights:
    """The layers of stacked models as views into their flat vectors; every tensor has the models first.

    Parameters
    ----------
    w, b : Tensor
        Map and bias of the features.
    v, a : Tensor or None
        Map and bias of the label; None without labels.
    out, c : Tensor
        Weights and bias of the last layer.
    """

    w: Tensor
    b: Tensor
    v: Tensor | None
    a: Tensor | None
    out: Tensor
    c: Tensor


def unflatten(flat: Tensor, features: int, classes: int, hidden: int = 200) -> Weights:
    """Return the layers of stacked models.

    Parameters
    ----------
    flat : Tensor
        Weights (G, P) of G models.
    features, classes, hidden : int
        As in `parameters`.

    Returns
    -------
    Weights
        Views into `flat`.
    """
    parts, start = {}, 0
    for name, length in _layout(features, classes, hidden):
        parts[name] = flat[:, start : start + length]
        start += length
    with_labels = classes > 0
    return Weights(
        parts["w"].reshape(-1, hidden, features),
        parts["b"],
        parts["v"].reshape(-1, hidden, classes) if with_labels else None,
        parts["a"] if with_labels else None,
        parts["out"],
        parts["c"][:, 0],
    )


def initial(seed: int, features: int, classes: int, hidden: int = 200) -> Tensor:
    """Return the initial weights that all pairs share: uniform within 1 / sqrt(inputs) of the layer, biases too.

    Parameters
    ----------
    seed : int
        The weights are drawn from it.
    features, classes, hidden : int
        As in `parameters`.
    """
    generator = seeds.torch_generator(seed, "discriminator")
    inputs = {"w": features, "b": features, "v": classes, "a": classes, "out": hidden, "c": hidden}
    return torch.cat(
        [
            (2 * torch.rand(length, generator=generator) - 1) / inputs[name] ** 0.5
            for name, length in _layout(features, classes, hidden)
        ]
    )


def forward(flat: Tensor, x: Tensor, y: Tensor, classes: int, hidden: int = 200) -> tuple[Tensor, Tensor]:
    """Return the outputs of stacked models on one client's samples.

    Parameters
    ----------
    flat : Tensor
        Weights (G, P) of G models.
    x, y : Tensor
        Features (m, D) and labels (m) of the samples.
    classes, hidden : int
        As in `parameters`.

    Returns
    -------
    logits : Tensor
        (G, m); positive says "first client".
    before : Tensor
        The pre-activations (G, m, H).
    """
    net = unflatten(flat, x.shape[1], classes, hidden)
    before = (x @ net.w.reshape(-1, x.shape[1]).T).reshape(len(x), len(flat), hidden).transpose(0, 1)
    before = before + net.b[:, None]
    if net.v is not None and net.a is not None:
        label = net.v.transpose(1, 2)[:, y] * label_scale(classes) + net.a[:, None]
        before = before + LABEL_WEIGHT * label
    return torch.einsum("gmh,gh->gm", before.relu(), net.out) + net.c[:, None], before


def descend(flat: Tensor, x: Tensor, y: Tensor, target: Tensor, lr: float, classes: int, hidden: int = 200) -> Tensor:
    """Return the weights after one step on the mean logistic loss over the samples.

    Parameters
    ----------
    flat : Tensor
        Weights (G, P) of G models.
    x, y : Tensor
        Features (m, D) and labels (m) of the samples.
    target : Tensor
        What each model should say of these samples (G,): 1 for the first client, 0 for the second.
    lr : float
        The step size.
    classes, hidden : int
        As in `parameters`.
    """
    net = unflatten(flat, x.shape[1], classes, hidden)
    logits, before = forward(flat, x, y, classes, hidden)
    residual = (torch.sigmoid(logits) - target[:, None]) / len(x)
    inner = residual[:, :, None] * net.out[:, None, :] * (before > 0)
    gradient = [torch.einsum("gmh,md->ghd", inner, x).flatten(1), inner.sum(1)]
    if classes:
        onehot = torch.nn.functional.one_hot(y, classes).to(x.dtype) * label_scale(classes)
        gradient.append(LABEL_WEIGHT * torch.einsum("gmh,ml->ghl", inner, onehot).flatten(1))
        gradient.append(LABEL_WEIGHT * inner.sum(1))
    gradient += [torch.einsum("gm,gmh->gh", residual, before.relu()), residual.sum(1, keepdim=True)]
    return flat - lr * torch.cat(gradient, dim=1)


def _layout(features: int, classes: int, hidden: int) -> list[tuple[str, int]]:
    label = [("v", hidden * classes), ("a", hidden)] if classes else []
    return [("w", hidden * features), ("b", hidden), *label, ("out", hidden), ("c", 1)]
