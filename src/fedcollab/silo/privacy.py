"""Differential privacy of `few-round`: Gaussian noise on both replies, added at the client, accounted by Opacus.

    release + N(0, (noise * sensitivity)^2)      noise: the multiplier, the same for both releases

    moments       (clipped x / clip, 1) has length at most sqrt(2), so that exchanging one sample for another changes
                  all M_fk together by at most 2 sqrt(2) (off-diagonal entries count twice: they are sent times sqrt(2))
    accuracies    the sample changes each of the P pairs' shares by at most 1 / n, all together by sqrt(P) / n

Neighbours are data sets of equal size that differ in one sample; a client's number of samples is not hidden. The two
releases are composed by Renyi accounting (Mironov, 2017): epsilon holds for everything that this procedure sends, and
for nothing sent before it: schema, means and label counts of `federation.prepare_client` are not covered.

The noise comes from the operating system: noise that the server could repeat it could also take away. So two runs
differ, whatever the seed.
"""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcollab.errors import InputError, number, unknown

Floats = NDArray[np.float64]

SENSITIVITY = 2.0 * np.sqrt(2.0)
RELEASES = 2
ORDERS = np.concatenate([1 + np.logspace(-3, 0, 60), np.logspace(np.log10(2.1), 5, 200)]).tolist()


def read(privacy: float | Mapping[str, Any] | None, features: int) -> dict[str, float] | None:
    """Return the differential privacy that the user asked for, with every value filled in.

    Parameters
    ----------
    privacy : float, mapping or None
        Epsilon; or a mapping with `epsilon` or `noise` (the multiplier), and perhaps `delta` (default 1e-5) and `clip`,
        the length above which (projected) samples are cut.
    features : int
        Features of a sample. The default of `clip` is its square root: the length of a sample whose features have
        variance 1.

    Returns
    -------
    dict or None
        `noise`, `epsilon`, `delta` and `clip`; None if no privacy is asked for.

    Raises
    ------
    InputError
        If a key is unknown, a value is out of range, or neither `epsilon` nor `noise` is given.
    """
    if privacy is None:
        return None
    asked = dict(privacy) if isinstance(privacy, Mapping) else {"epsilon": privacy}
    known = ("epsilon", "noise", "delta", "clip")
    for key in asked:
        if key not in known:
            raise InputError(unknown("privacy", key, known))
    delta = number("privacy delta", asked.get("delta", 1e-5), above=0, at_most=0.5)
    clip = number("privacy clip", asked.get("clip", np.sqrt(features)), above=0)
    if "noise" in asked:
        noise = number("privacy noise", asked["noise"], above=0)
    elif "epsilon" in asked:
        noise = noise_for(number("privacy epsilon", asked["epsilon"], above=0), delta)
    else:
        raise InputError(f"`privacy` (={privacy!r}) must give `epsilon` or `noise`")
    return {"noise": noise, "epsilon": spent(noise, delta), "delta": delta, "clip": clip}


def spent(noise: float, delta: float, releases: int = RELEASES) -> float:
    """Return the epsilon that Gaussian releases spend together.

    Parameters
    ----------
    noise : float
        The noise multiplier of each release.
    delta : float
        The delta of differential privacy.
    releases : int
        How many releases there are.

    Returns
    -------
    float
        Epsilon, by Renyi accounting.

    Raises
    ------
    InputError
        If the package opacus is not installed.
    """
    try:
        from opacus.accountants import RDPAccountant
    except ImportError:
        raise InputError("`privacy` needs the package opacus: pip install 'fedcollab[privacy]'") from None
    accountant = RDPAccountant()
    accountant.history = [(noise, 1.0, releases)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the best order is among the outermost where epsilon is far from 1
        return float(accountant.get_epsilon(delta, alphas=ORDERS))


def noise_for(epsilon: float, delta: float, releases: int = RELEASES) -> float:
    """Return the smallest noise multiplier that spends at most `epsilon`, within one part in ten thousand.

    Parameters
    ----------
    epsilon, delta : float
        The differential privacy that is wanted.
    releases : int
        How many releases there are.

    Returns
    -------
    float
        The noise multiplier.

    Raises
    ------
    InputError
        If `epsilon` is too small to be reached.
    """
    low, high = 0.0, 1.0
    while spent(high, delta, releases) > epsilon:
        low, high = high, 2 * high
        if high > 1e7:
            raise InputError(f"`privacy epsilon` (={epsilon:g}) is too small for `delta` (={delta:g})")
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if spent(middle, delta, releases) > epsilon else (low, middle)
    return high


def accuracy_sensitivity(pairs: int, samples: int) -> float:
    """Return how far one sample can move the accuracies of all of a client's pairs together.

    Parameters
    ----------
    pairs : int
        How many accuracies the client sends.
    samples : int
        How many samples each is a mean of.

    Returns
    -------
    float
        The L2 sensitivity, sqrt(pairs) / samples.
    """
    return float(np.sqrt(pairs) / samples)


def noise(scale: float, shape: tuple[int, ...]) -> Floats:
    """Return Gaussian noise from the operating system's random source, which nobody can repeat.

    Parameters
    ----------
    scale : float
        The standard deviation.
    shape : tuple of int
        The shape of the array.

    Returns
    -------
    array
        The noise.
    """
    return np.random.default_rng(secrets.randbits(256)).normal(0.0, scale, shape)


def clipped(x: Floats, clip: float) -> Floats:
    """Return x / clip, with rows longer than 1 shortened to length 1."""
    lengths = np.linalg.norm(x, axis=1, keepdims=True) / clip
    cut: Floats = x / clip / np.maximum(lengths, 1.0)
    return cut
