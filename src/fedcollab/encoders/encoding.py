"""What a federation agrees on when it uses an encoder: part of its schema.

z = (phi(x) - mean) / std        mean and std of each feature, over the federation's training samples
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedcollab import encoders
from fedcollab.errors import InputError
from fedcollab.parsing import Finite


@dataclass(frozen=True)
class Encoding:
    """An encoder by name and checksum, and the scaling of its features."""

    encoder: str
    checksum: str
    mean: tuple[Finite, ...]
    std: tuple[Finite, ...]

    @property
    def width(self) -> int:
        """Numbers in one feature vector."""
        return len(self.mean)

    def apply(self, x: NDArray[np.float32], device: str = "cpu") -> NDArray[np.float32]:
        """Return the scaled features of prepared samples.

        Raises
        ------
        InputError
            If the encoder of that name is another one here than the federation agreed on.
        """
        encoder = encoders.find(self.encoder)
        if encoder.checksum != self.checksum:
            raise InputError(
                f"encoder '{self.encoder}' has the checksum {encoder.checksum} here; "
                f"the federation agreed on {self.checksum}"
            )
        mean, std = (np.array(part, dtype=np.float32) for part in (self.mean, self.std))
        return np.ascontiguousarray((encoders.encoded(encoder, x, device) - mean) / std)

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Encoding:
        """Make an encoding from its JSON object."""
        found = msgspec.convert(content, cls)
        if len(found.mean) != len(found.std) or min(found.std, default=1.0) <= 0:
            raise ValueError("`encoding` has other means than deviations, or one that is not positive")
        return found
