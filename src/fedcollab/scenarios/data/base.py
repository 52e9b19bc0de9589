"""What a data set is: a name, the files it is read from, where they come from, and how their content is checked."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcollab.errors import InputError

Arrays = dict[str, NDArray[Any]]
Say = Callable[[str], None]


def silent(line: str) -> None:
    """Say nothing."""


@dataclass(frozen=True)
class Layout:
    """One way in which a data set lies in a folder: its files, and how their bytes become arrays."""

    files: tuple[str, ...]
    decode: Callable[[Sequence[Path]], Arrays]

    def find(self, folder: Path) -> list[Path] | None:
        """The files, if the folder holds all of them."""
        paths = [folder / name for name in self.files]
        return paths if all(path.is_file() for path in paths) else None


@dataclass(frozen=True)
class Source:
    """A place that a data set can be got from: `fetch` puts its files into a folder, and may go on where it stopped."""

    name: str
    fetch: Callable[[Path, Say], None]


@dataclass(frozen=True)
class DataSet:
    """A data set that fedcollab knows.

    layouts     the ways its files may lie in a folder, tried in turn
    folders     names of sub-folders in which people keep it, beside its own name
    installed   folders where a system package puts it
    sources     where to get it from, in order
    mean, std   per channel, of pixels divided by `top`; the normalisation that scenarios use
    """

    name: str
    title: str
    content: str
    licence: str
    citation: str
    layouts: tuple[Layout, ...]
    sources: tuple[Source, ...] = ()
    folders: tuple[str, ...] = ()
    installed: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    top: float = 255.0

    def find(self, root: Path) -> tuple[Layout, list[Path]] | None:
        """The first layout of which every file is in `root` or in a sub-folder with one of the data set's names."""
        for folder in [root, *(root / name for name in (self.name, *self.folders))]:
            for layout in self.layouts:
                paths = layout.find(folder)
                if paths:
                    return layout, paths
        return None

    def expected(self) -> str:
        """The files it can be read from, for messages."""
        return ", or ".join(
            layout.files[0] if len(layout.files) == 1 else f"{layout.files[0]} and {len(layout.files) - 1} more"
            for layout in self.layouts
        )


@dataclass(frozen=True, eq=False)
class Images:
    """Labelled images: `pixels` (n, channels, height, width) whole numbers from 0 to `top`, `labels` from 0.

    `normalised(index)` gives float32 features: (pixels / top - mean) / std, per channel.
    """

    name: str
    pixels: NDArray[np.uint8]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    top: float = 255.0

    def __post_init__(self) -> None:
        if self.pixels.ndim != 4 or len(self.pixels) != len(self.labels):
            raise InputError(
                f"`pixels` of `{self.name}` have shape {self.pixels.shape} for {len(self.labels)} labels; "
                "expected (samples, channels, height, width)"
            )
        if not len(self.mean) == len(self.std) == self.pixels.shape[1]:
            raise InputError(f"`mean` and `std` of `{self.name}` must have one number per channel")
        if len(self.labels) == 0:
            raise InputError(f"`labels` of `{self.name}` is empty")
        if self.labels.min() < 0 or self.labels.max() >= len(self.classes):
            raise InputError(f"`labels` of `{self.name}` must be from 0 to {len(self.classes) - 1}")

    def normalised(self, index: NDArray[np.int64]) -> NDArray[np.float32]:
        """Features of the samples at `index`."""
        return self.normalise(self.pixels[index].astype(np.float32))

    def normalise(self, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        """(pixels / top - mean) / std, in place."""
        mean, std = (np.array(value, dtype=np.float32).reshape(1, -1, 1, 1) for value in (self.mean, self.std))
        pixels -= mean * np.float32(self.top)
        pixels /= std * np.float32(self.top)
        return pixels


def check_md5(content: bytes | memoryview, expected: str, where: object) -> None:
    """Refuse content that is not what its publisher put out."""
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != expected:
        raise InputError(f"`{where}` is damaged or not the expected file: md5 {found}, expected {expected}")
