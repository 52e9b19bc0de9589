"""Several messages in one: they come apart as they were joined, and anything else is refused in one line."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcollab.errors import InputError
from fedcollab.wire.bundle import MOST, join_parts, split_parts
from fedcollab.wire.message import pack


@given(st.lists(st.tuples(st.text(max_size=9), st.binary(max_size=50)), max_size=20))
def test_what_was_joined_comes_apart(parts: list[tuple[str, bytes]]) -> None:
    assert split_parts(join_parts(parts)) == parts


@pytest.mark.parametrize(
    "content",
    [
        b"nothing of the kind",
        pack({"names": ["a"], "sizes": [3], "parts": np.zeros(2, dtype=np.uint8)}),
        pack({"names": ["a"], "sizes": [-1, 3], "parts": np.zeros(2, dtype=np.uint8)}),
        pack({"names": [1], "sizes": [2], "parts": np.zeros(2, dtype=np.uint8)}),
        pack({"names": ["a"], "sizes": [2.0], "parts": np.zeros(2, dtype=np.uint8)}),
        pack({"names": ["a"], "sizes": [1], "parts": np.zeros(1, dtype=np.float32)}),
        pack({"names": ["a"], "sizes": [0], "parts": np.zeros(0, dtype=np.uint8), "more": 1}),
        join_parts([("a", b"")] * (MOST + 1)),
    ],
)
def test_anything_else_is_refused(content: bytes) -> None:
    with pytest.raises(InputError):
        split_parts(content)


def test_a_bundle_larger_than_the_limit_is_refused() -> None:
    with pytest.raises(InputError, match="bytes allowed"):
        split_parts(join_parts([("a", b"x" * 100)]), 50)
