"""A model's weights as tensors, as the arrays that messages and files carry, and as one flat vector."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcollab.training.hooks import State
from fedcollab.wire.message import Message


def tensor_of(value: NDArray[Any], device: str = "cpu") -> Tensor:
    """Return an array as a tensor, without a copy where the array is writeable (PyTorch has no read-only tensors)."""
    return (torch.from_numpy(value) if value.flags.writeable else torch.tensor(value)).to(device)


def arrays_of(values: State) -> Message:
    """Return tensors as NumPy arrays, for a message."""
    return {key: value.cpu().numpy() for key, value in values.items()}


def flatten(arrays: Mapping[str, NDArray[Any]], layout: list[tuple[str, tuple[int, ...]]]) -> NDArray[np.float32]:
    """Return one flat vector from arrays by parameter name."""
    return np.concatenate([np.asarray(arrays[name], dtype=np.float32).reshape(-1) for name, _ in layout])


def split_flat(flat: NDArray[np.float32], layout: list[tuple[str, tuple[int, ...]]]) -> dict[str, NDArray[np.float32]]:
    """Return the parts of a flat vector by parameter name; the opposite of `flatten`."""
    edges = np.cumsum([int(np.prod(shape)) for _, shape in layout])[:-1]
    parts = np.split(flat, edges)
    return {name: part.reshape(shape) for (name, shape), part in zip(layout, parts, strict=True)}
