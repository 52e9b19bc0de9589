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
    """Return a 63-bit integer that depends on the seed and on every element of the path.

    Parameters
    ----------
    seed : int
        The seed that the user gave.
    *path : str or int
        What the number is for, such as a stage, a round and a client's name. 1 and "1" differ.

    Returns
    -------
    int
        A number from 0 to 2^63 - 1.

    Examples
    --------
    >>> derive(0, "train", 3, "north") == derive(0, "train", 3, "north")
    True
    >>> derive(0, "train", 3, "north") == derive(0, "train", 4, "north")
    False
    """
    text = "\x1f".join([str(int(seed)), *(f"{type(part).__name__}:{part}" for part in path)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def generator(seed: int, *path: str | int) -> np.random.Generator:
    """Return a NumPy random generator that is seeded with `derive(seed, *path)`."""
    return np.random.default_rng(derive(seed, *path))


def torch_generator(seed: int, *path: str | int) -> torch.Generator:
    """Return a PyTorch random generator on the CPU that is seeded with `derive(seed, *path)`."""
    import torch

    return torch.Generator().manual_seed(derive(seed, *path))
