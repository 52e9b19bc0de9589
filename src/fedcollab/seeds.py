"""Randomness derived from (seed, stage, round, client name): never from global state or from call order.

Two runs with one seed are equal, and a client draws the same numbers whoever else takes part, in whatever order
the clients are given, and in whatever runtime it runs.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def derive(seed: int, *path: str | int) -> int:
    """A 63-bit integer that depends on the seed and on every element of the path.

    >>> derive(0, "train", 3, "north") == derive(0, "train", 3, "north")
    True
    >>> derive(0, "train", 3, "north") == derive(0, "train", 4, "north")
    False
    """
    text = "\x1f".join([str(int(seed)), *(f"{type(part).__name__}:{part}" for part in path)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def generator(seed: int, *path: str | int) -> np.random.Generator:
    """A NumPy generator for one use, named by its path."""
    return np.random.default_rng(derive(seed, *path))


def torch_generator(seed: int, *path: str | int) -> torch.Generator:
    """A PyTorch generator (on the CPU) for one use, named by its path."""
    import torch

    return torch.Generator().manual_seed(derive(seed, *path))
