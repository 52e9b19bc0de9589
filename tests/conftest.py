"""What tests share: small clients of planted types, and a federation over them in both in-process runtimes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings

from fedcollab.data import ClientData
from fedcollab.files import own_folder
from fedcollab.scenarios.data import place

# A busy machine is slow, not wrong: no deadlines. The same examples every time, so that a failure can be seen again.
settings.register_profile("fedcollab", deadline=None, derandomize=True)
settings.load_profile("fedcollab")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test marked `dataset(name)` where that data set is not on this machine.

    This is the only place that skips for want of data, so that `-m dataset` selects exactly the tests that a clone
    without data leaves out.
    """
    for mark in item.iter_markers("dataset"):
        for name in mark.args:
            if name == "federations":
                folder = own_folder()
                if folder is None or not (folder / name).is_dir():
                    pytest.skip("the folder that FEDCOLLAB_DATA names has no tables of real federations")
            elif place(name) is None:
                pytest.skip(f"{name} is not on this machine: run `fedcollab data get {name}`")


def blobs(
    name: str, count: int, *, shift: float = 0.0, flip: bool = False, seed: int = 0, test: int = 40
) -> ClientData:
    """Two Gaussian classes in four dimensions; `shift` moves the features, `flip` swaps the labels."""
    rng = np.random.default_rng([seed, *name.encode()])
    y = rng.integers(0, 2, count + test)
    x = rng.normal(0, 1, (count + test, 4)) + np.outer(2 * y - 1, [1.5, 0, 0, 0]) + shift
    y = 1 - y if flip else y
    return ClientData(name, x[:count], y[:count], x[count:], y[count:])


@pytest.fixture
def clients() -> list[ClientData]:
    """Six clients of two types: a, b, c agree; d, e, f have the labels swapped."""
    sizes = {"a": 60, "b": 40, "c": 25, "d": 60, "e": 40, "f": 25}
    return [blobs(name, size, flip=name in "def") for name, size in sizes.items()]
