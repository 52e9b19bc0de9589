"""Rotating images without black corners.

The image is padded symmetrically by half its size on each side, rotated about its centre, and cropped back; a corner
then shows the image's own reflection, and no constant value tells a discriminator which client an image is from.
Bilinear interpolation takes four source pixels with fixed weights for each target pixel: they are worked out once per
angle, and then gathered from all images at a time. The padding is an index: nothing is copied for it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedcollab.errors import InputError, number


def rotate(images: NDArray[np.float32], degrees: float) -> NDArray[np.float32]:
    """Turn images (n, channels, size, size) counter-clockwise."""
    degrees = number("degrees", degrees)
    size = images.shape[-1]
    if images.ndim != 4 or images.shape[-2] != size:
        raise InputError(f"`images` has shape {images.shape}; expected square ones, (n, channels, size, size)")
    flat = np.ascontiguousarray(images.reshape(-1, size * size).T, dtype=np.float32)  # a row a pixel: fast to gather
    turned = np.zeros_like(flat)
    for source, weight in corners(size, degrees):
        part = flat[source]
        part *= weight[:, None]
        turned += part
    return np.ascontiguousarray(turned.T).reshape(images.shape)


def corners(size: int, degrees: float) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """Return, for each of the four neighbours, the source pixel of every target pixel and its bilinear weight."""
    centre = (size - 1) / 2
    angle = np.deg2rad(degrees)
    row, column = np.meshgrid(np.arange(size) - centre, np.arange(size) - centre, indexing="ij")
    # Rows grow downwards: a counter-clockwise turn takes its value from the point turned clockwise.
    source_row = np.round(np.cos(angle) * row + np.sin(angle) * column + centre, 9).ravel()
    source_column = np.round(-np.sin(angle) * row + np.cos(angle) * column + centre, 9).ravel()
    top, left = np.floor(source_row).astype(np.int64), np.floor(source_column).astype(np.int64)
    down, right = source_row - top, source_column - left
    return [
        (_reflect(top + below, size) * size + _reflect(left + beside, size), (rows * columns).astype(np.float32))
        for below, rows in ((0, 1 - down), (1, down))
        for beside, columns in ((0, 1 - right), (1, right))
    ]


def _reflect(index: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Return the pixel that symmetric padding shows: ... 1 0 | 0 1 ... size-1 | size-1 size-2 ..."""
    index = np.mod(index, 2 * size)
    return np.where(index < size, index, 2 * size - 1 - index)
