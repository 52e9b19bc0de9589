"""Trained models as plain PyTorch reads them, without fedcollab: a `state_dict`, and what the model and its inputs are.

    NAME.safetensors    the state_dict
    NAME.pt             the same for `torch.load(..., weights_only=True)`, where that is asked for
    NAME.json           layers, inputs and classes (`describe_model`)

Trees are `NAME.xgboost.json` in place of tensors, which `xgboost.Booster` loads. Nothing that is written here needs to
be unpickled with more than `weights_only`.
"""

from __future__ import annotations

import inspect
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict
from urllib.parse import quote

import torch
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from fedcollab.data.schema import Schema
from fedcollab.files import dumps, write_bytes
from fedcollab.training.models import MODELS
from fedcollab.training.result import TrainingResult
from fedcollab.training.trained import load_model
from fedcollab.training.trees.forest import ForestModule

#: the version of the JSON files' format, which is written into them
FORMAT = 1
#: how far, by rounding alone, the outputs of a module that is built from its description may be from the model's
SAME = 1e-4


class Layer(TypedDict):
    """One layer of a stack: its name in `torch.nn`, and the arguments that make it."""

    kind: str
    arguments: dict[str, Any]


def export_models(result: TrainingResult, folder: str | Path, *, pt: bool = False) -> dict[str, str]:
    """Write every model that a client of a training would use, each once, as plain PyTorch reads it.

    Parameters
    ----------
    result : TrainingResult
        The training.
    folder : str or Path
        Where to write.
    pt : bool
        Whether to write .pt files beside those as safetensors.

    Returns
    -------
    dict of str to str
        The name of each client's model, without the endings; empty where clients' own models stayed at their silos.

    Raises
    ------
    InputError
        If a file cannot be written.

    Examples
    --------
    >>> export_models(TrainingResult.load("runs/hospitals"), "exported")     # doctest: +SKIP
    {'north': 'coalition-1', 'south': 'coalition-1', 'east': 'coalition-2'}
    """
    if result.personal and "personal" not in result.models:
        return {}
    names: dict[str, str] = {}
    schema = Schema.of(result.schema)
    if result.personal:
        groups = {quote(name, safe=" "): [name] for name in result.names}
    else:
        groups = {f"coalition-{number}": members for number, members in enumerate(result.coalitions, 1)}
    for name, members in groups.items():
        model = load_model(result, client=members[0]) if result.model["name"] in MODELS else None
        module = None if model is None else model.module
        if model is not None and isinstance(module, ForestModule):
            files = {".xgboost.json": model.xgboost_json().encode()}
        elif module is not None:
            state = {key: value.detach().clone().contiguous() for key, value in module.state_dict().items()}
            files = _tensor_files(state, pt)
        else:  # a model of the caller's own: the weights alone are known here
            arrays = result.weights(client=members[0], which="personal" if result.personal else "last")
            files = _tensor_files({key: torch.tensor(value) for key, value in arrays.items()}, pt)
        about = describe_model(module, result.model, schema, members)
        for ending, content in {**files, ".json": (dumps(about) + "\n").encode()}.items():
            write_bytes(Path(folder) / f"{name}{ending}", content, private=True)
        names |= dict.fromkeys(members, name)
    return names


def _tensor_files(tensors: dict[str, Tensor], pt: bool) -> dict[str, bytes]:
    """Return the content of the files with a model's tensors, by ending."""
    files = {".safetensors": save_tensors(tensors)}
    if pt:
        buffer = io.BytesIO()
        torch.save(tensors, buffer)
        files[".pt"] = buffer.getvalue()
    return files


def describe_model(
    module: nn.Module | None, model: Mapping[str, Any], schema: Schema, members: Sequence[str]
) -> dict[str, Any]:
    """Return what is needed to build a model with PyTorch alone, and to make its inputs.

    Parameters
    ----------
    module : torch.nn.Module or None
        The model; None where it is not known here.
    model : mapping
        Its name, options, shape and classes, as `TrainingResult.model` has them.
    schema : Schema
        How raw samples become its inputs.
    members : sequence of str
        The clients whose model it is.

    Returns
    -------
    dict
        Plain values: "clients"; "model" and "options", the name that it was asked for by; "layers", each with its
        `kind` in `torch.nn` and its `arguments`, in the order of an `nn.Sequential`, or None where the model is no such
        stack; "shape" of an input; "inputs" (`describe_inputs`); the "classes" that the scores are of; and the `mean`
        and `scale` of a numeric "target": output * scale + mean is in its units.
    """
    return {
        "format": FORMAT,
        "clients": list(members),
        "model": model["name"],
        "options": dict(model["options"]),
        "layers": None if module is None else layers_of(module, schema.shape),
        "shape": list(schema.shape),
        "inputs": describe_inputs(schema),
        "classes": list(schema.classes),
        "target": None if schema.classes else dict(zip(("mean", "scale"), schema.target, strict=True)),
    }


def describe_inputs(schema: Schema) -> Any:
    """Return how raw samples become inputs.

    Parameters
    ----------
    schema : Schema
        The schema.

    Returns
    -------
    list of dict, or dict
        For tables one entry an input, in order: the `column`, and `mean` and `std` of a number (missing: 0), the
        `category` that gives 1, or `missing`: true, which gives 1 where the value is missing. For arrays `mean` and
        `std`, shaped so that (x - mean) / std is the input.

    Examples
    --------
    >>> describe_inputs(Schema(("ill", "well"), (2,), None, (1.0, 2.0), (3.0, 4.0)))
    {'mean': [1.0, 2.0], 'std': [3.0, 4.0]}
    """
    if schema.columns is None:
        images = len(schema.mean) > 1 and len(schema.shape) == 3
        return {
            key: [[[value]] for value in values] if images else list(values)
            for key, values in (("mean", schema.mean), ("std", schema.std))
        }
    inputs: list[dict[str, Any]] = []
    for column in schema.columns:
        if column.categories is None:
            inputs.append({"column": column.name, "mean": column.mean, "std": column.std})
        else:
            inputs += [{"column": column.name, "category": category} for category in column.categories]
        if schema.missing_indicators:
            inputs.append({"column": column.name, "missing": True})
    return inputs


def layers_of(module: nn.Module, shape: Sequence[int]) -> list[Layer] | None:
    """Return a stack of PyTorch's own layers as plain values, if the model is one and is the same when built from them.

    Parameters
    ----------
    module : torch.nn.Module
        The model, in evaluation mode.
    shape : sequence of int
        The shape of one input.

    Examples
    --------
    >>> layers_of(nn.Sequential(nn.ReLU()), (2,))
    [{'kind': 'ReLU', 'arguments': {}}]
    """
    if not isinstance(module, nn.Sequential) or not all(_is_plain(layer) for layer in module):
        return None
    layers = [Layer(kind=type(layer).__name__, arguments=_arguments(layer)) for layer in module]
    try:
        built = nn.Sequential(*(getattr(nn, each["kind"])(**each["arguments"]) for each in layers)).eval()
        built.load_state_dict(module.state_dict())
        with torch.no_grad():
            x = torch.randn(4, *shape, generator=torch.Generator().manual_seed(0))
            same = torch.allclose(built(x), module(x), rtol=SAME, atol=SAME)
    except (TypeError, ValueError, RuntimeError):  # an argument that the layer does not keep under its name
        return None
    return layers if same else None


def _is_plain(layer: nn.Module) -> bool:
    """Return whether a layer is one of PyTorch's own, without layers inside."""
    return getattr(nn, type(layer).__name__, None) is type(layer) and not list(layer.children())


def _arguments(layer: nn.Module) -> dict[str, Any]:
    """Return the arguments that make a layer, without those that are the default anyway."""
    arguments: dict[str, Any] = {}
    for name, parameter in inspect.signature(type(layer)).parameters.items():
        value = getattr(layer, name, None)
        if isinstance(value, Tensor) or name == "bias":
            value = value is not None
        if isinstance(value, (bool, int, float, str, tuple)) and value != parameter.default:
            arguments[name] = value
    return arguments
