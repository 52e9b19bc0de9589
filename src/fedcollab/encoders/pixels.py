"""From prepared samples to what a network that was pretrained on ImageNet expects: colour, statistics, size."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcollab.errors import InputError, number

MEAN = (0.485, 0.456, 0.406)  # of ImageNet's pixels in [0, 1], per channel
STD = (0.229, 0.224, 0.225)


class Pixels(nn.Module):
    """(n, 1 or 3, h, w) of mean 0 and spread 1 -> (n, 3, size, size) as (pixel - mean) / std of the pretraining.

    The schema has given every channel the federation's mean 0 and spread 1; here they get ImageNet's, whatever range
    the clients' pixels had. Grey becomes three equal channels; bilinear resizing.
    """

    factor: Tensor
    offset: Tensor

    def __init__(self, size: int, mean: tuple[float, ...] = MEAN, std: tuple[float, ...] = STD) -> None:
        super().__init__()
        self.size = int(number("size", size, at_least=8, at_most=1024, whole=True))
        # (z * STD + MEAN - mean) / std, as one multiplication and one addition
        factor = [own / theirs for own, theirs in zip(STD, std, strict=True)]
        offset = [(own - theirs) / by for own, theirs, by in zip(MEAN, mean, std, strict=True)]
        self.register_buffer("factor", torch.tensor(factor).view(1, 3, 1, 1))
        self.register_buffer("offset", torch.tensor(offset).view(1, 3, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Return the images as network inputs, channels last."""
        if x.ndim != 4 or x.shape[1] not in (1, 3):
            raise InputError(
                f"pretrained encoders need images with 1 or 3 channels (channels first); the clients have "
                f"{tuple(x.shape[1:])}"
            )
        pixels = torch.addcmul(self.offset, x, self.factor).contiguous(memory_format=torch.channels_last)
        if pixels.shape[2:] == (self.size, self.size):
            return pixels
        return functional.interpolate(pixels, size=(self.size, self.size), mode="bilinear", align_corners=False)


def channels_last(module: nn.Module) -> nn.Module:
    """Lay the convolutions of a module out channels last, which is the faster layout on processors."""
    changed: nn.Module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return changed


def pooled(maps: Tensor, pool: int) -> Tensor:
    """Average feature maps over a grid of pool x pool parts of the image: (n, c, h, w) -> (n, c * pool * pool)."""
    if pool == 1:
        return maps.mean((2, 3))
    return functional.adaptive_avg_pool2d(maps, pool).flatten(1)
