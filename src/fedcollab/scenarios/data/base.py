"""What a data set is: a name, the files it is read from, where they come from, and how their content is checked."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcollab.errors import InputError

Arrays = dict[str, NDArray[Any]]
Say = Callable[[str], None]


def silent(line: str) -> None:
    """A message callback that ignores its argument."""


@dataclass(frozen=True)
class Layout:
    """One way in which a data set lies in a folder: its files, and how their bytes become arrays."""

    files: tuple[str, ...]
    decode: Callable[[Sequence[Path]], Arrays]

    def find(self, folder: Path) -> list[Path] | None:
        """Return the paths of the files, or None if the folder lacks one of them."""
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

    Parameters
    ----------
    name, title, content, licence, citation : str
        What it is called in commands, and what `fedcollab data list` tells about it.
    layouts : tuple of Layout
        The ways its files may lie in a folder, tried in turn.
    sources : tuple of Source
        Where to get it from, in order.
    folders : tuple of str
        Names of sub-folders in which people keep it, beside its own name.
    installed : tuple of str
        Folders where a system package puts it.
    classes : tuple of str
        Names of the labels.
    mean, std : tuple of float
        Per channel, of pixels divided by `top`; the normalisation that scenarios use.
    top : float
        The largest value of a pixel.
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
        """Return the first layout with all files in `root` or in a sub-folder with one of the data set's names."""
        for folder in [root, *(root / name for name in (self.name, *self.folders))]:
            for layout in self.layouts:
                paths = layout.find(folder)
                if paths:
                    return layout, paths
        return None

    def expected(self) -> str:
        """Return the files it can be read from as text, for messages."""
        return ", or ".join(
            layout.files[0] if len(layout.files) == 1 else f"{layout.files[0]} and {len(layout.files) - 1} more"
            for layout in self.layouts
        )


@dataclass(frozen=True, eq=False)
class Images:
    """Labelled images, to make scenarios from.

    Parameters
    ----------
    name : str
        Name of the data set.
    pixels : array of shape (n, channels, height, width)
        Whole numbers from 0 to `top`.
    labels : array of int
        The label of each image, from 0.
    classes : tuple of str
        Names of the labels.
    mean, std : tuple of float
        Per channel, of pixels divided by `top`: how features are normalised.
    top : float
        The largest value of a pixel.

    Raises
    ------
    InputError
        If the shapes do not fit each other, or a label has no name.
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
        """Return the float32 features of the samples at `index`: (pixels / top - mean) / std, per channel."""
        return self.normalise(self.pixels[index].astype(np.float32))

    def normalise(self, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        """Normalise pixels in place: (pixels / top - mean) / std, per channel."""
        mean, std = (np.array(value, dtype=np.float32).reshape(1, -1, 1, 1) for value in (self.mean, self.std))
        pixels -= mean * np.float32(self.top)
        pixels /= std * np.float32(self.top)
        return pixels


def check_md5(content: bytes | memoryview, expected: str, where: object) -> None:
    """Raise `InputError` if `content` has another md5 than `expected`; `where` names it in the message."""
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != expected:
        raise InputError(f"`{where}` is damaged or not the expected file: md5 {found}, expected {expected}")


def check_all(parts: Iterable[tuple[bytes, object]], checksums: Iterable[str]) -> list[bytes]:
    """Return the contents of (content, where) pairs, each checked against the md5 that its publisher states."""
    contents = []
    for (content, where), md5 in zip(parts, checksums, strict=True):
        check_md5(content, md5, where)
        contents.append(content)
    return contents
