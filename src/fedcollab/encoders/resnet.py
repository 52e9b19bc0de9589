"""ResNet-18, with torchvision's parameter names, so that its ImageNet weights fit: as a model, and as an encoder.

He, Zhang, Ren, Sun: Deep residual learning for image recognition. CVPR 2016, Table 1.

Weights come from the first of: the safetensors file given as `weights`; `resnet18.safetensors` in the folder
`FEDCOLLAB_DATA`; torchvision's own download where it is installed and has it; the seed. The last layer is always new.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from fedcollab.encoders.pixels import Pixels, channels_last, pooled
from fedcollab.errors import InputError, number
from fedcollab.files import own_folder

FILE = "resnet18.safetensors"


class Block(nn.Module):
    """A residual block: two 3 x 3 convolutions and a shortcut."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.downsample: nn.Module | None = None
        if stride != 1 or before != after:
            self.downsample = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        """Return relu(x + F(x)): what the convolutions F make of x, added to x."""
        shortcut = x if self.downsample is None else self.downsample(x)
        h = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(h + shortcut)


class ResNet18(nn.Module):
    """ResNet-18: eight blocks of two convolutions, 64 to 512 channels, and a linear layer."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.weights_from = "seed"
        self.conv1 = nn.Conv2d(channels, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        widths = (64, 64, 128, 256, 512)
        for index in range(1, 5):
            before, after = widths[index - 1], widths[index]
            stride = 1 if index == 1 else 2
            setattr(self, f"layer{index}", nn.Sequential(Block(before, after, stride), Block(after, after, 1)))
        self.fc = nn.Linear(512, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of the classes."""
        scores: Tensor = self.fc(self.maps(x, 4).mean((2, 3)))
        return scores

    def maps(self, x: Tensor, layer: int) -> Tensor:
        """Return the feature maps (n, c, h, w) after layer 1, 2, 3 or 4."""
        h: Tensor = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
        for index in range(1, layer + 1):
            h = getattr(self, f"layer{index}")(h)
        return h


class ResNet18Encoder(nn.Module):
    """Features of one layer of the pretrained network, averaged over the image or over a grid of parts."""

    def __init__(self, network: ResNet18, layer: int, size: int, pool: int) -> None:
        super().__init__()
        self.pixels = Pixels(size)
        self.network = network
        channels_last(network)
        self.layer, self.pool = layer, pool

    def forward(self, x: Tensor) -> Tensor:
        """Return the features (n, features) of prepared images."""
        return pooled(self.network.maps(self.pixels(x), self.layer), self.pool)


def resnet18(shape: Sequence[int], classes: int, weights: str = "auto") -> nn.Module:
    """Build the paper's third model.

    Parameters
    ----------
    shape : sequence of int
        Channels, height and width of the images.
    classes : int
        How many scores the last layer gives.
    weights : str
        "auto" (ImageNet weights where this machine has them), "none", or a safetensors file with torchvision's names.

    Raises
    ------
    InputError
        If the samples are no images, or the weights do not fit.
    """
    if len(shape) != 3:
        raise InputError(f"model 'resnet18' needs images (channels first); the clients have {tuple(shape)}")
    module = ResNet18(shape[0], classes)
    if shape[0] == 3:
        _load(module, weights)
    return module


def resnet18_encoder(layer: int = 4, size: int = 64, pool: int = 1) -> nn.Module:
    """Build the paper's encoder (512 features after layer 4) from ImageNet weights on this machine.

    Parameters
    ----------
    layer : int
        The layer whose output is taken, 1 to 4.
    size : int
        Side in pixels to which images are resized.
    pool : int
        Features are averaged over a grid of `pool` x `pool` parts of the image.

    Raises
    ------
    InputError
        If there are no ImageNet weights on this machine, or an option is out of range.
    """
    layer = int(number("layer", layer, at_least=1, at_most=4, whole=True))
    network = ResNet18(3, 1)
    _load(network, "auto")
    if network.weights_from == "seed":
        raise InputError(
            f"`encoder` (='resnet18') needs ImageNet weights: torchvision with its download, or {FILE} in the folder "
            "that FEDCOLLAB_DATA names; without them: efficientnet-lite0"
        )
    return ResNet18Encoder(network, layer, size, int(number("pool", pool, at_least=1, at_most=8, whole=True)))


def _load(module: ResNet18, weights: str) -> None:
    """Put pretrained weights into all but the last layer, where there are some."""
    found, source = _weights(weights)
    if found is None:
        return
    kept = {key: value for key, value in found.items() if not key.startswith("fc.")}
    missing, unexpected = module.load_state_dict(kept, strict=False)
    wrong = [key for key in (*missing, *unexpected) if not key.startswith("fc.")]
    if wrong:
        raise InputError(f"`weights` (={weights!r}) are not ResNet-18's: {wrong[0]} does not fit")
    module.weights_from = source


def _weights(weights: str) -> tuple[dict[str, Any] | None, str]:
    """Return pretrained weights and where they are from, or None and "seed" where there are none."""
    if weights == "none":
        return None, "seed"
    folder = own_folder()
    path = Path(weights) if weights != "auto" else folder / FILE if folder else None
    if path is not None and (weights != "auto" or path.exists()):
        try:
            return load_file(path), f"file {path.name}"
        except (OSError, SafetensorError) as error:
            raise InputError(f"`weights` (={str(path)!r}) cannot be read as safetensors: {error}") from None
    checkpoints = Path(torch.hub.get_dir()) / "checkpoints"
    if find_spec("torchvision") and any(checkpoints.glob("resnet18-*.pth")):
        from torchvision.models import ResNet18_Weights  # type: ignore[import-not-found, unused-ignore]

        return dict(ResNet18_Weights.IMAGENET1K_V1.get_state_dict(check_hash=True)), "torchvision ImageNet"
    return None, "seed"
