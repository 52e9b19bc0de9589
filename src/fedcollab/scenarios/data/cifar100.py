"""CIFAR-100 with its 20 coarse labels: the full official binary version (60,000 images), or a subset of it (40,000).

A record is a coarse label, a fine label and 3,072 pixel bytes (R, G, B planes of 32 x 32). The subset holds 2,000
images of each coarse label, from train and test together; the paper's concept shift uses 1,810 of each.
"""

from __future__ import annotations

import lzma
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from fedcollab.errors import InputError
from fedcollab.scenarios.data.archive import members
from fedcollab.scenarios.data.base import Arrays, DataSet, Layout, Source, check_all
from fedcollab.scenarios.data.fetch import Remote, official

MD5 = {"train.bin": "6172c7755cfe09b2fe270c85cebc1b15", "test.bin": "4499cfba6c016c1be1438163640a0898"}
SUBSET, SUBSET_MD5 = "cifar100-subset.bin", "0d6f6c604fcb2015faf87594f96f704d"
ARCHIVE = "cifar-100-binary.tar.gz"


def decode_binary(paths: Sequence[Path]) -> Arrays:
    """Decode the two official files, train first."""
    return _arrays(((path.read_bytes(), path) for path in paths), *MD5.values())


def decode_archive(paths: Sequence[Path]) -> Arrays:
    """Decode the official archive of the two files."""
    return _arrays(members(paths[0], tuple(MD5)), *MD5.values())


def decode_subset(paths: Sequence[Path]) -> Arrays:
    """Decode the subset, which has the same records, plain or xz-compressed."""
    content = paths[0].read_bytes()
    if paths[0].suffix == ".xz":
        try:
            content = lzma.decompress(content)
        except (lzma.LZMAError, EOFError) as error:
            raise InputError(f"`{paths[0]}` cannot be unpacked: {error}") from None
    return _arrays([(content, paths[0])], SUBSET_MD5)


def _arrays(parts: Iterable[tuple[bytes, object]], *checksums: str) -> Arrays:
    """Check the files and split their records into coarse labels, fine labels and pixels."""
    records = np.frombuffer(b"".join(check_all(parts, checksums)), np.uint8).reshape(-1, 3074)
    pixels = np.ascontiguousarray(records[:, 2:]).reshape(-1, 3, 32, 32)
    return {"pixels": pixels, "labels": records[:, 0].copy(), "fine": records[:, 1].copy()}


CIFAR_100 = DataSet(
    name="cifar-100",
    title="CIFAR-100 with coarse labels",
    content="60,000 colour images of 32 x 32 (or a subset of 40,000), 20 classes",
    licence="none stated by its authors; cite the report",
    citation="Krizhevsky: Learning Multiple Layers of Features from Tiny Images, technical report, 2009",
    layouts=(
        Layout(tuple(MD5), decode_binary),
        Layout((ARCHIVE,), decode_archive),
        Layout((f"{SUBSET}.xz",), decode_subset),
        Layout((SUBSET,), decode_subset),
    ),
    folders=("cifar100", "cifar-100-binary"),
    sources=(
        Source(
            "the official address",
            official(
                Remote(f"https://www.cs.toronto.edu/~kriz/{ARCHIVE}", ARCHIVE, "03b5dce01913d631647c71ecec9e9cb8")
            ),
        ),
    ),
    classes=(
        "aquatic mammals",
        "fish",
        "flowers",
        "food containers",
        "fruit and vegetables",
        "household electrical devices",
        "household furniture",
        "insects",
        "large carnivores",
        "large man-made outdoor things",
        "large natural outdoor scenes",
        "large omnivores and herbivores",
        "medium-sized mammals",
        "non-insect invertebrates",
        "people",
        "reptiles",
        "small mammals",
        "trees",
        "vehicles 1",
        "vehicles 2",
    ),
    mean=(0.507, 0.487, 0.441),
    std=(0.267, 0.256, 0.276),
)
