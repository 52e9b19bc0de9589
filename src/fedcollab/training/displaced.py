"""What models are trained on at a guarded silo: each training sample moved a fixed way from where it is.

    v~_i = m + (v_i - m + z_i) / (1 + TAU^2),      z_i = TAU sum_k e_ik a_k / sqrt(K)
    a_k = sum_j r_jk (v_j - m) / sqrt(n),          e_ik, r_jk = -1 or 1 by the silo's key and row i's, j's content

v_i are the features of sample i, with the target where it is a number; m is the mean over the n training samples. As
the a_k have the samples' own covariance S, z_i is close to N(0, TAU^2 S): in any combination of columns it is as large
as TAU times the samples' own spread there, so that columns that go together (pixels) do not average it away.

All that leaves a training (updates of any layer of any model, statistics of batch normalisation, losses of rounds,
measures of fold models) follows from the v~_i, so that no number of units, rounds, trainings or schemas shows more than
these: a sample has the same displacement each time, where errors of updates (`blur`) and of measures are drawn anew and
average out. Under another schema the displacement is scaled as the columns are, and another test split changes the a_k
by little.

Dividing by 1 + TAU^2 makes v~_i what is to be expected of a sample that was displaced so far (regression calibration):
a linear model has the same expected weights on the v~_i as on the v_i, where displacement alone would shrink them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcollab.data.samples import Features, is_table
from fedcollab.wire.silo import Silo

#: how far samples are displaced, as a share of their standard deviation
TAU = 0.25
#: K, how many combinations of samples a displacement is made of: half the bits of a checksum, at most 256
DIRECTIONS = 128


def displaced(silo: Silo) -> tuple[NDArray[np.float32], NDArray[Any]]:
    """Return the training samples as models may see them; as they are, where the silo's limits do not blur updates.

    Parameters
    ----------
    silo : Silo
        The silo, which has been prepared.

    Returns
    -------
    x, y : array
        Of the shapes and types of the silo's own; classes are not changed.
    """
    x, y = silo.arrays.x, silo.arrays.y
    if not silo.limits.blur_updates:
        return x, y
    numeric = y.dtype.kind == "f"
    values = np.concatenate([x.reshape(len(x), -1), *([y[:, None]] if numeric else [])], axis=1)
    signs = _signs(_contents(silo.with_test(silo.schema.test_share, silo.schema.seed).x), silo.secret)
    centre = values.mean(axis=0)
    away = values - centre
    shift = signs[:, 0] @ (signs[:, 1].T @ away) * np.float32(TAU / np.sqrt(DIRECTIONS * len(x)))
    moved = centre + (away + shift) / np.float32(1 + TAU**2)
    return (moved[:, :-1].reshape(x.shape), moved[:, -1].copy()) if numeric else (moved.reshape(x.shape), y)


def _signs(rows: Sequence[bytes], secret: str) -> NDArray[np.float32]:
    """Return signs for each row, [n, 2, K]: the bits of a checksum that only who has the secret can compute."""
    sums = [hashlib.blake2b(row, key=secret.encode(), person=b"displaced", digest_size=DIRECTIONS // 4) for row in rows]
    bits = np.unpackbits(np.frombuffer(b"".join(each.digest() for each in sums), dtype=np.uint8))
    return bits.reshape(len(rows), 2, DIRECTIONS).astype(np.float32) * 2 - 1


def _contents(x: Features) -> list[bytes]:
    """Return for each row bytes that follow from its values alone, as the silo has them before any schema."""
    if is_table(x):
        from pandas.util import hash_pandas_object

        return [row.tobytes() for row in hash_pandas_object(x, index=False).to_numpy()]
    return [row.tobytes() for row in np.ascontiguousarray(x)]
