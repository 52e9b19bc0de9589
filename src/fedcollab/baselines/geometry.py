"""Distances and angles between clients' weights or updates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def distance_matrix(vectors: Sequence[Tensor]) -> NDArray[np.float64]:
    """Return the Euclidean distances of vectors, symmetric with a zero diagonal."""
    stacked = torch.stack(list(vectors)).double()
    distances = torch.cdist(stacked, stacked, compute_mode="donot_use_mm_for_euclid_dist").numpy()
    np.fill_diagonal(distances, 0.0)
    symmetric: NDArray[np.float64] = (distances + distances.T) / 2
    return symmetric


def cosine_matrix(vectors: Sequence[Tensor]) -> NDArray[np.float64]:
    """Return the cosine similarities of vectors, symmetric with a diagonal of 1; 0 for a vector of length 0."""
    stacked = torch.stack(list(vectors)).double()
    length = stacked.norm(dim=1, keepdim=True).clamp(min=1e-300)
    unit = stacked / length
    similarity = (unit @ unit.T).clamp(-1, 1).numpy()
    np.fill_diagonal(similarity, 1.0)
    symmetric: NDArray[np.float64] = (similarity + similarity.T) / 2
    return symmetric
