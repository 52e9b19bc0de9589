"""Algorithm 2 for thousands of clients: the matrix is read by rows, in its own precision, and never copied.

Clients are first inserted one by one, each to the best coalition of those before it (the first pass of Algorithm 2
with the others still to come). Then, for every client k and coalition T, the sums
    near_kT = sum_{j in T} D_kj   and   pull_kT = sum_{j in T} m_j D_kj
price every move at once; clients that gain by moving are visited in random order, and a move updates two rows of the
sums. Joins of coalitions come from the same sums. It ends when no move and no join lowers L.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedcollab.coalitions.constraints import Constraints
from fedcollab.coalitions.inputs import Floats, Inputs, Labels, Matrix, first_appearance
from fedcollab.seeds import generator


def search_large(inputs: Inputs, constraints: Constraints, C: float, restarts: int, seed: int) -> Labels:
    """The best partition of the clients over the restarts."""
    raise NotImplementedError
