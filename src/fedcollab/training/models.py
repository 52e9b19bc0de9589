"""The models: the paper's MLP, CNN and ResNet-18, logistic regression, boosted trees, and any module of the user's own.

A model is a factory `(shape, classes, **options) -> torch.nn.Module`. Messages name it; weights travel as one flat
vector, parameters first in the module's order, then its batch-norm statistics.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import lru_cache
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from fedcollab import seeds
from fedcollab.data.schema import Schema
from fedcollab.encoders.resnet import resnet18
from fedcollab.errors import InputError, choose, first_line, number, unknown
from fedcollab.training.hooks import check_options
from fedcollab.training.losses import CROSS_ENTROPY, LOSSES, choose_loss
from fedcollab.training.trees.forest import xgboost

Factory = Callable[..., nn.Module]


def mlp(shape: Sequence[int], classes: int, widths: Sequence[int] = (200, 200)) -> nn.Module:
    """Return fully connected layers with ReLU between them; the paper's are 784-200-200-10.

    Parameters
    ----------
    shape : sequence of int
        The shape of one sample.
    classes : int
        The number of outputs: of classes, or 1 for a numeric target.
    widths : sequence of int
        The sizes of the hidden layers.
    """
    for width in widths:
        number("widths", width, at_least=1, whole=True)
    sizes = [math.prod(shape), *widths, classes]
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def logistic(shape: Sequence[int], classes: int) -> nn.Module:
    """Return one linear layer: multinomial logistic regression, or linear regression; arguments as in `mlp`."""
    return mlp(shape, classes, ())


def cnn(shape: Sequence[int], classes: int, channels: Sequence[int] = (32, 64, 64), width: int = 64) -> nn.Module:
    """Return the paper's five layers: 3x3 convolutions with max-pool 2 after the first two, dense, dense.

    ReLU comes after the pooling: max(relu(.)) = relu(max(.)), with the same gradients, on a quarter of the values.

    Parameters
    ----------
    shape : sequence of int
        The shape of one image: channels, height, width.
    classes : int
        The number of classes.
    channels : sequence of int
        The channels of the three convolutions.
    width : int
        The size of the first dense layer.

    Raises
    ------
    InputError
        If the samples are no images, or smaller than 18 x 18.
    """
    if len(shape) != 3 or min(shape[1:]) < 18:
        raise InputError(
            f"model 'cnn' needs images of at least 18 x 18 (channels first); the clients have {tuple(shape)}"
        )
    first, second, third = channels
    height, breadth = (((side - 2) // 2 - 2) // 2 - 2 for side in shape[1:])
    return Convolutions(
        nn.Conv2d(shape[0], first, 3), nn.MaxPool2d(2), nn.ReLU(),
        nn.Conv2d(first, second, 3), nn.MaxPool2d(2), nn.ReLU(),
        nn.Conv2d(second, third, 3), nn.ReLU(), nn.Flatten(),
        nn.Linear(third * height * breadth, width), nn.ReLU(), nn.Linear(width, classes),
    )  # fmt: skip


class Convolutions(nn.Sequential):
    """The layers of `cnn`, computed without what does not reach the output, in the layout that the CPU is fastest in.

    A pooling drops the odd last row and column of its input, so that some last rows and columns of the image have no
    influence (two of 32). Up to the dense layers a CPU keeps values in oneDNN's blocked layout.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return scores [n, classes] of images [n, channels, height, width]."""
        height, breadth = (4 * (((side - 2) // 2 - 2) // 2) + 6 for side in x.shape[2:])
        x = x[:, :, :height, :breadth]
        if x.device.type == "cpu" and x.dtype == torch.float32 and len(x) and torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
            x = x.contiguous().to_mkldnn()
        for layer in self:
            if x.is_mkldnn and isinstance(layer, nn.Flatten):
                x = x.to_dense()
            x = layer(x)
        return x


MODELS: dict[str, Factory] = {"mlp": mlp, "logistic": logistic, "cnn": cnn, "resnet18": resnet18, "xgboost": xgboost}
DENSE = (mlp, logistic)
ALIGN = 16  # floats in a cache line


def register_model(name: str) -> Callable[[Factory], Factory]:
    """Make a model's factory known by a name, for users and for messages; a decorator.

    Parameters
    ----------
    name : str
        The name; one that is taken is replaced.

    Returns
    -------
    callable
        The decorator, which returns the factory unchanged.

    Examples
    --------
    >>> @register_model("tiny")
    ... def tiny(shape, classes):
    ...     return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes))
    >>> MODELS.pop("tiny") is tiny
    True
    """

    def add(factory: Factory) -> Factory:
        MODELS[name] = factory
        return factory

    return add


def name_model(model: str | Factory | nn.Module) -> str:
    """Return the registered name of a model; a factory or a module that has none is registered.

    Parameters
    ----------
    model : str, callable or torch.nn.Module
        A registered name, a factory `(shape, classes, **options)`, or a module to copy (weights included).

    Raises
    ------
    InputError
        If the name is unknown, or `model` is none of these.

    Examples
    --------
    >>> name_model(mlp)
    'mlp'
    """
    if isinstance(model, str):
        choose("model", model, MODELS)
        return model
    if isinstance(model, nn.Module):
        module = model
        return name_model(lambda: deepcopy(module))
    if not callable(model):
        raise InputError(f"`model` (={model!r}) must be a name, a factory of torch.nn.Module, or a module")
    name = next((key for key, factory in MODELS.items() if factory is model), None)
    if name is None:
        name = (
            f"{getattr(model, '__module__', '')}.{getattr(model, '__qualname__', type(model).__name__)}#{id(model):x}"
        )
        MODELS[name] = model
    return name


class Network:
    """A module seen as a function of one flat vector.

    Parameters
    ----------
    text : str
        The model's name, options, shape, outputs and loss as JSON (see `describe`): what messages carry.
    device : str, default "cpu"
        Where the module is put.
    seed : int, default 0
        The initial weights are derived from it.

    Attributes
    ----------
    size : int
        Length of the flat vector: `parameters` entries are trained, `buffers` follow, then zeros up to a multiple of
        16, so that every row of a stack starts on a cache line (products are twice as fast).
    layout : list of (str, tuple of int)
        Name and shape of each part of the flat vector.
    loss : Loss
        What it is trained with.
    widths : list of (int, int)
        (in, out) of each layer where the model is a plain stack of dense layers, else empty.
    weights_from : str
        Where the initial weights come from, if not from the seed alone.

    Raises
    ------
    InputError
        If the model is unknown, has nothing to train, or does not map a batch to one score for each class.
    """

    def __init__(self, text: str, device: str = "cpu", seed: int = 0) -> None:
        spec = json.loads(text)
        self.text = text
        self.loss = choose("loss", spec.get("loss", CROSS_ENTROPY), LOSSES)
        factory = choose("model", spec["name"], MODELS)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seeds.derive(seed, "model"))
            self.module = _build(factory, spec["name"], spec["shape"], spec["classes"], spec["options"])
        self.weights_from = str(getattr(self.module, "weights_from", "seed"))
        self.module.to(device).requires_grad_(True)
        self._parameters = list(self.module.parameters())
        floating = [(name, value) for name, value in self.module.named_buffers() if value.is_floating_point()]
        self._buffers = [value for _, value in floating]
        self.layout = [(name, tuple(value.shape)) for name, value in (*self.module.named_parameters(), *floating)]
        if not self._parameters:
            raise InputError(f"model '{spec['name']}' has no parameters to train")
        self.parameters = sum(value.numel() for value in self._parameters)
        self.buffers = sum(value.numel() for value in self._buffers)
        self.size = -(-(self.parameters + self.buffers) // ALIGN) * ALIGN
        self.widths: list[tuple[int, int]] = []
        if factory in DENSE:
            linear = [layer for layer in self.module.modules() if isinstance(layer, nn.Linear)]
            self.widths = [(layer.in_features, layer.out_features) for layer in linear]
        self._check(spec)

    @classmethod
    def describe(
        cls, name: str, options: Mapping[str, Any], shape: Sequence[int], classes: int, loss: str = CROSS_ENTROPY
    ) -> str:
        """Return the text that names a network in messages.

        Parameters
        ----------
        name : str
            The model's registered name.
        options : mapping
            The model's options.
        shape : sequence of int
            The shape of one sample.
        classes : int
            The number of outputs: of classes, or 1 for a numeric target.
        loss : str
            The name of the loss that it is trained with; that of classes is not written.
        """
        text = {"name": name, "options": dict(options), "shape": list(shape), "classes": classes}
        return json.dumps(text if loss == CROSS_ENTROPY else {**text, "loss": loss})

    def names_of(self, keep: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the parameters that are meant, in the order of the flat vector.

        Parameters
        ----------
        keep : sequence of str
            Parameter names ("5.weight"), names of layers ("5", all of its parameters), or "output-bias" (the last
            parameter, if it has one value for each class).

        Raises
        ------
        InputError
            If the model has no such parameter, or nothing would be left to train together.
        """
        if isinstance(keep, str):
            raise InputError(f"`keep` (={keep!r}) must be a list of names")
        known = [name for name, _ in self.module.named_parameters()]
        chosen: set[str] = set()
        for wanted in keep:
            if wanted == "output-bias":
                if tuple(self._parameters[-1].shape) != (json.loads(self.text)["classes"],):
                    raise InputError("`keep` (='output-bias'): the model's last parameter is no bias of its output")
                chosen.add(known[-1])
                continue
            matching = {name for name in known if name == wanted or name.startswith(f"{wanted}.")}
            if not matching:
                raise InputError(unknown("keep", wanted, [*known, "output-bias"]))
            chosen |= matching
        if len(chosen) == len(known):
            raise InputError(f"`keep` (={list(keep)!r}) leaves no parameter to train together")
        return tuple(name for name in known if name in chosen)

    def initial(self) -> Tensor:
        """Return the flat weights that the module was built with, on the CPU."""
        parts = [value.detach().reshape(-1).cpu().float() for value in (*self._parameters, *self._buffers)]
        return torch.cat([*parts, torch.zeros(self.size - self.parameters - self.buffers)])

    def split(self, w: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Return views of a flat vector in the shapes of the module's parameters and of its buffers."""
        values = (*self._parameters, *self._buffers)
        parts = torch.split(w[: self.parameters + self.buffers], [value.numel() for value in values])
        shaped = [part.view(value.shape) for part, value in zip(parts, values, strict=True)]
        return shaped[: len(self._parameters)], shaped[len(self._parameters) :]

    def point(self, w: Tensor) -> nn.Module:
        """Return the module with its parameters and buffers pointing into a flat vector."""
        parameters, buffers = self.split(w)
        for own, view in zip((*self._parameters, *self._buffers), (*parameters, *buffers), strict=True):
            own.data = view
        return self.module

    def _check(self, spec: Mapping[str, Any]) -> None:
        """Check that the module maps a batch to one score for each class."""
        where = f"model '{spec['name']}'"
        device = self._parameters[0].device
        self.module.eval()
        try:
            with torch.no_grad():
                output = self.module(torch.zeros(2, *spec["shape"], device=device))
        except (RuntimeError, ValueError, IndexError) as error:
            shape = tuple(spec["shape"])
            raise InputError(f"{where} does not take features of shape {shape}: {first_line(error)}") from None
        wanted = (2, spec["classes"])
        if not isinstance(output, Tensor) or tuple(output.shape) != wanted:
            got = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
            what = f"one score for each of {spec['classes']} classes"
            if self.loss.task == "regression":
                what = "one number for each"
            raise InputError(f"{where} gives output {got} for 2 samples; the labels need {wanted}, {what}")


def check_model(model: str | Factory | nn.Module, options: Mapping[str, Any] | None, schema: Schema) -> None:
    """Check that a model takes the clients' samples and gives one score for each class; "auto" always finds one.

    Parameters
    ----------
    model : str, callable or torch.nn.Module
        As in `train`.
    options : mapping or None
        The model's options.
    schema : Schema
        What the clients agreed on.

    Raises
    ------
    InputError
        If it does not, or an option is unknown.
    """
    if not (isinstance(model, str) and model == "auto"):
        Network(
            Network.describe(
                name_model(model), options or {}, schema.shape, schema.outputs, choose_loss(None, schema.task)
            )
        )


@lru_cache(maxsize=16)
def size_of(text: str) -> int:
    """Return the length of a network's flat vector without allocating it; `text` is as `Network.describe` writes it."""
    return -(-sum(math.prod(shape) for _, shape in layout_of(text)) // ALIGN) * ALIGN


@lru_cache(maxsize=16)
def layout_of(text: str) -> list[tuple[str, tuple[int, ...]]]:
    """Return a network's layout, as `Network` has it, without memory for its weights."""
    try:
        module = _outline(text)
    except (RuntimeError, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"a model cannot be made: {str(error).splitlines()[0]}") from None
    floating = [(name, value) for name, value in module.named_buffers() if value.is_floating_point()]
    return [(name, tuple(value.shape)) for name, value in (*module.named_parameters(), *floating)]


@lru_cache(maxsize=16)
def positions_of(text: str, keep: tuple[str, ...]) -> Tensor:
    """Return where parameters stand in a network's flat vector.

    Parameters
    ----------
    text : str
        The network, as `Network.describe` writes it.
    keep : tuple of str
        Parameter names; a name that the network does not have is passed over.

    Returns
    -------
    Tensor
        Positions in ascending order.
    """
    start, found = 0, [torch.zeros(0, dtype=torch.int64)]
    for name, value in _outline(text).named_parameters():
        if name in keep:
            found.append(torch.arange(start, start + value.numel()))
        start += value.numel()
    return torch.cat(found)


def _outline(text: str) -> nn.Module:
    """Return the module that a text describes, without memory for its weights."""
    spec = json.loads(text)
    factory = choose("model", spec["name"], MODELS)
    with torch.device("meta"):
        return _build(factory, spec["name"], spec["shape"], spec["classes"], spec["options"])


def _build(factory: Factory, name: str, shape: Sequence[int], classes: int, options: Mapping[str, Any]) -> nn.Module:
    """Call a factory as `(shape, classes, **options)`, or without arguments if that is what it takes."""
    parameters = list(inspect.signature(factory).parameters.values())
    required = [
        p for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    positional: tuple[Any, ...] = (tuple(shape), classes) if len(required) >= 2 else ()
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        check_options(f"model '{name}'", options, {p.name: p.default for p in parameters[len(positional) :]})
    module = factory(*positional, **options)
    if not isinstance(module, nn.Module):
        raise InputError(f"model '{name}' gave a {type(module).__name__}; expected a torch.nn.Module")
    return module
