"""Fashion-MNIST: 70,000 images of clothes (train and test pooled, train first), from four IDX files."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedcollab.errors import InputError
from fedcollab.scenarios.data.base import Arrays, DataSet, Layout, Source, check_md5
from fedcollab.scenarios.data.fetch import Remote, debian_package, official

MD5 = {  # of the uncompressed files
    "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
    "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
    "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
    "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
}


def decode(paths: Sequence[Path]) -> Arrays:
    """Decode IDX files: a header of 16 bytes (images) or 8 (labels), then plain bytes; plain or gzipped."""
    parts = []
    for path, (name, md5) in zip(paths, MD5.items(), strict=True):
        content = path.read_bytes()
        if path.suffix == ".gz":
            try:
                content = gzip.decompress(content)
            except (OSError, EOFError, zlib.error) as error:
                raise InputError(f"`{path}` cannot be unpacked: {error}") from None
        check_md5(content, md5, path)
        parts.append(np.frombuffer(content, np.uint8, offset=16 if "images" in name else 8))
    return {
        "pixels": np.concatenate([parts[0], parts[2]]).reshape(-1, 1, 28, 28),
        "labels": np.concatenate([parts[1], parts[3]]),
    }


FASHION_MNIST = DataSet(
    name="fashion-mnist",
    title="Fashion-MNIST",
    content="70,000 grey images of 28 x 28, 10 classes",
    licence="MIT",
    citation="Xiao, Rasul, Vollgraf: Fashion-MNIST, arXiv:1708.07747, 2017",
    layouts=(Layout(tuple(f"{name}.gz" for name in MD5), decode), Layout(tuple(MD5), decode)),
    folders=("fashion_mnist", "FashionMNIST/raw"),
    installed=("/usr/share/datasets/fashion-mnist",),
    sources=(
        Source(
            "the official address",
            official(
                *(
                    Remote(f"http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/{name}.gz", f"{name}.gz")
                    for name in MD5
                )
            ),
        ),
        Source(
            "the Debian package dataset-fashion-mnist",
            debian_package("dataset-fashion-mnist", "usr/share/datasets/fashion-mnist"),
        ),
    ),
    classes=("T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"),
    mean=(0.2860,),
    std=(0.3530,),
)
