"""What an encoder is: a frozen function from samples to feature vectors, known by its name and its checksum.

    phi: (n, channels, height, width) -> (n, F)

It takes samples as a model of `train` would: prepared by the schema, so that each channel has mean 0 and spread 1 over
the federation. Pretrained encoders bring them to the statistics that they were trained with. Weights never travel: a
message names an encoder, every client has it from its own installation, and equal checksums say that all have the same.

A name may carry options: "efficientnet-lite0:block=14,size=64"; what is agreed on carries all of them.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from copy import deepcopy
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedcollab.encoders.efficientnet import efficientnet_lite0
from fedcollab.encoders.resnet import resnet18_encoder
from fedcollab.errors import InputError, first_line, unknown
from fedcollab.threads import in_threads

Floats = NDArray[np.float32]
Function = Callable[[Any], Any]
Watch = Callable[[int], None]

BATCH = {"cpu": 32}  # more leaves the processor's caches and is slower
BATCH_ELSEWHERE = 512


class Encoder:
    """A frozen encoder: `encoder(x)` gives one feature vector a sample.

    Parameters
    ----------
    name : str
        The name by which messages and files refer to it.
    function : torch.nn.Module or function of a batch
        A module (a copy of it is kept, in evaluation mode), or any function that takes a tensor with one sample a row.

    Attributes
    ----------
    checksum : str
        16 digits of a module's structure and weights; of a plain function, of its name alone.

    Examples
    --------
    >>> Encoder("mean", lambda x: x.mean((2, 3)))(np.ones((2, 3, 4, 4), dtype=np.float32)).tolist()
    [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    """

    def __init__(self, name: str, function: Function) -> None:
        self.name = name
        self.function = deepcopy(function).eval().requires_grad_(False) if isinstance(function, nn.Module) else function
        self._probes: dict[tuple[int, ...], bytes | None] = {}
        self.checksum = str(getattr(function, "checksum", "")) or _checksum(function)

    def __call__(self, x: Floats, device: str = "cpu", watch: Watch = lambda count: None) -> Floats:
        """Encode prepared samples, batch by batch.

        Parameters
        ----------
        x : array of shape (n, ...)
            Prepared samples.
        device : str
            Where to compute.
        watch : function of int
            Called after each batch with the number of samples in it.

        Returns
        -------
        array of shape (n, features)

        Raises
        ------
        InputError
            If the function does not take such samples, or gives anything but one row of finite numbers a sample.
        """
        size = BATCH.get(device, BATCH_ELSEWHERE)
        threads = 1
        if isinstance(self.function, nn.Module):
            self.function.to(device)
            threads = torch.get_num_threads() if device == "cpu" else 1  # a function may not be safe in threads
        starts = list(range(0, len(x), size))
        parts: dict[int, Floats] = {}

        def work(mine: list[int]) -> None:
            for start in mine:
                parts[start] = self._batch(x[start : start + size], device)
                watch(len(parts[start]))

        in_threads(work, [starts[thread::threads] for thread in range(min(threads, len(starts)))])
        return np.concatenate([parts[start] for start in starts])

    def probe(self, shape: tuple[int, ...]) -> bytes | None:
        """Return the features of two noise samples as bytes, or None if the encoder is not deterministic."""
        if shape not in self._probes:
            noise = np.random.default_rng(0).normal(size=(2, *shape)).astype(np.float32)
            first, second = self(noise).tobytes(), self(noise).tobytes()
            self._probes[shape] = first if first == second else None
        return self._probes[shape]

    def _batch(self, x: Floats, device: str) -> Floats:
        """Encode one batch and check what comes back."""
        try:
            with torch.inference_mode():
                features = self.function(torch.from_numpy(np.array(x)).to(device))
        except InputError:
            raise
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            raise InputError(
                f"encoder '{self.name}' does not take samples of shape {x.shape[1:]}: {first_line(error)}"
            ) from None
        array = features.cpu().numpy() if isinstance(features, Tensor) else np.asarray(features)
        if array.ndim == 0 or len(array) != len(x) or array.dtype.kind not in "buif":
            raise InputError(
                f"encoder '{self.name}' gives {array.dtype} of shape {array.shape} for {len(x)} samples; expected one "
                "row of numbers a sample"
            )
        rows = np.ascontiguousarray(array.reshape(len(x), -1), dtype=np.float32)
        if not np.isfinite(rows).all():
            raise InputError(f"encoder '{self.name}' gives NaN or infinite features")
        return rows

    def __repr__(self) -> str:
        return f"Encoder({self.name!r})"


ENCODERS: dict[str, Callable[..., nn.Module]] = {
    "efficientnet-lite0": efficientnet_lite0,
    "resnet18": resnet18_encoder,
}
OWN: dict[str, Encoder] = {}  # registered in this process


def register_encoder(name: str, function: Function | Encoder) -> Encoder:
    """Register a module or function under a name, so that messages, scenario files and later runs can refer to it.

    Parameters
    ----------
    name : str
        The name to register it under.
    function : torch.nn.Module, Encoder or function of a batch
        What to register.

    Returns
    -------
    Encoder

    Raises
    ------
    InputError
        If `function` cannot be called.
    """
    if not callable(function):
        raise InputError(f"`encoder` (={function!r}) must be a name, a torch.nn.Module or a function of a batch")
    OWN[name] = Encoder(name, function.function if isinstance(function, Encoder) else function)
    return OWN[name]


def name_encoder(encoder: str | Encoder | Function | None) -> str | None:
    """Return the full name of an encoder; a module or function without a name is registered under a new one.

    Parameters
    ----------
    encoder : str, Encoder, torch.nn.Module, function of a batch or None
        A name, an object, or "none" or None for no encoder.

    Returns
    -------
    str or None

    Raises
    ------
    InputError
        If the name is unknown, or `encoder` cannot be called.

    Examples
    --------
    >>> name_encoder("none") is None
    True
    """
    if encoder is None or encoder == "none":
        return None
    if isinstance(encoder, str):
        return find(encoder).name
    known = next((name for name, own in OWN.items() if own is encoder or _origin.get(name) is encoder), None)
    if known is not None:
        return known
    name = encoder.name if isinstance(encoder, Encoder) else _own_name(encoder)
    register_encoder(name, encoder)
    _origin[name] = encoder
    return name


_origin: dict[str, Any] = {}  # the objects that names were made for: kept, so that their ids stay theirs


def find(text: str) -> Encoder:
    """Return an encoder by name: one registered in this process, or built from what is installed here.

    Parameters
    ----------
    text : str
        The name, with options after a colon: "efficientnet-lite0:block=14,size=64".

    Returns
    -------
    Encoder

    Raises
    ------
    InputError
        If the name or an option is unknown.
    """
    return OWN[text] if text in OWN else _build(text)


@lru_cache(maxsize=8)
def _build(text: str) -> Encoder:
    """Build one of `ENCODERS`; its name carries all options, defaults included."""
    name, _, rest = text.partition(":")
    if name not in ENCODERS:
        raise InputError(unknown("encoder", name, ["none", *ENCODERS, *OWN]))
    known = inspect.signature(ENCODERS[name]).parameters
    options: dict[str, Any] = {key: parameter.default for key, parameter in known.items()}
    for part in filter(None, rest.split(",")):
        key, _, value = part.partition("=")
        if key not in known:
            raise InputError(unknown(f"option of encoder {name}", key, known))
        options[key] = int(value) if value.isdecimal() else value
    full = ",".join(f"{key}={value}" for key, value in options.items())  # so that defaults may change, names do not
    return Encoder(f"{name}:{full}", ENCODERS[name](**options))


def _own_name(function: Any) -> str:
    """Return a name for a module or function that was given without one."""
    if not callable(function):
        raise InputError(f"`encoder` (={function!r}) must be a name, a torch.nn.Module or a function of a batch")
    if isinstance(function, nn.Module):
        return f"{type(function).__qualname__}#{_checksum(function)[:8]}"
    return f"{getattr(function, '__qualname__', type(function).__qualname__)}#{id(function):x}"


def _checksum(function: Function) -> str:
    """Return 16 digits of a module's structure and weights, or of a function's name."""
    digest = hashlib.sha256()
    if isinstance(function, nn.Module):
        digest.update(repr(function).encode())
        for key, value in sorted(function.state_dict().items()):
            digest.update(key.encode() + value.detach().cpu().contiguous().numpy().tobytes())
    else:
        digest.update(getattr(function, "__qualname__", type(function).__qualname__).encode())
    return digest.hexdigest()[:16]
