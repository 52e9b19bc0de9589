"""Images encoded per second: what a client does, against a plain batched forward pass, interleaved in one run.

    python benchmarks/encoding.py --images 1024 --threads 1

Ours: raw 32 x 32 images through `encoders.features.encoded`, that is scaling, resizing, the network, and hashing and
writing the cache. Plain: the package's network in evaluation mode to the same block, on batches of 64 that are scaled
and resized already. Forward alone: our folded network without all that is around it. CPU seconds, best of the repeats.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable

import numpy as np
import torch

from fedcollab.encoders import features, find
from fedcollab.encoders.efficientnet import BLOCKS, pretrained

BATCH = 64


def plain(network, x: torch.Tensor, block: int | str) -> None:
    with torch.inference_mode():
        for start in range(0, len(x), BATCH):
            h = network._swish(network._bn0(network._conv_stem(x[start : start + BATCH])))
            for part in network._blocks[: BLOCKS if block == "final" else block + 1]:
                h = part(h)
            if block == "final":
                h = network._swish(network._bn1(network._conv_head(h)))
            h.mean((2, 3))


def alone(network, x: torch.Tensor, batch: int) -> None:
    with torch.inference_mode():
        for start in range(0, len(x), batch):
            network.layers(x[start : start + batch]).mean((2, 3))


def seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--block", default="10")
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    block = int(options.block) if options.block.isdecimal() else options.block
    encoder = find(f"efficientnet-lite0:block={block},size={options.size}")
    network, _ = pretrained(options.size)
    rng = np.random.default_rng(0)
    raw = rng.normal(size=(options.images, 3, 32, 32)).astype(np.float32)
    ready = torch.from_numpy(rng.normal(size=(options.images, 3, options.size, options.size)).astype(np.float32))
    last = ready.contiguous(memory_format=torch.channels_last)
    taken: dict[str, list[float]] = {"ours": [], "plain": [], "forward alone": []}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        for repeat in range(options.repeats + 1):  # the first warms up
            found = {
                "ours": seconds(lambda again=raw + repeat: features.encoded(encoder, again)),
                "plain": seconds(lambda: plain(network, ready, block)),
                "forward alone": seconds(lambda: alone(encoder.function, last, 32)),
            }
            for name, value in found.items():
                taken[name] += [value] if repeat else []
    rates = {name: options.images / min(values) for name, values in taken.items()}
    print(f"{encoder.name}, {options.images} images of 32 x 32, {options.threads} thread(s), images per CPU second")
    for name, rate in rates.items():
        print(f"    {name:<14}{rate:8.0f}    ours is {rates['ours'] / rate:.2f} of it")


if __name__ == "__main__":
    main()
