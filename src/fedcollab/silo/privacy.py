"""Differential privacy of `few-round`: Gaussian noise on both replies, added at the client, accounted by Opacus.

    release + N(0, (noise * sensitivity)^2)      noise: the multiplier, the same for both releases

    moments       (clipped x / clip, 1) has length at most sqrt(2), so that exchanging one sample for another changes
                  all M_fk together by at most 2 sqrt(2) (off-diagonal entries count twice: they are sent times sqrt(2))
    accuracies    the sample changes each of the P pairs' shares by at most 1 / n, all together by sqrt(P) / n

Neighbours are data sets of equal size that differ in one sample; a client's number of samples is not hidden. The two
releases are composed by Renyi accounting (Mironov, 2017): epsilon holds for everything that this procedure sends, and
for nothing sent before it: schema, means and label counts of `clients.schema` are not covered.

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
    """What the user asked for as {noise, epsilon, delta, clip}: a number is epsilon.

    clip   lengths of (projected) samples above it are cut; without one sqrt(features), the length of a sample whose
           features have variance 1
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
    """Epsilon of this many Gaussian releases with one noise multiplier."""
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
    """The smallest noise multiplier that spends at most `epsilon`, within one part in ten thousand."""
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
    """How far one sample moves the accuracies of all of a client's pairs together."""
    return float(np.sqrt(pairs) / samples)


def noise(scale: float, shape: tuple[int, ...]) -> Floats:
    """Gaussian noise that nobody can repeat."""
    return np.random.default_rng(secrets.randbits(256)).normal(0.0, scale, shape)


def clipped(x: Floats, clip: float) -> Floats:
    """x / clip, and rows longer than 1 cut to 1."""
    lengths = np.linalg.norm(x, axis=1, keepdims=True) / clip
    cut: Floats = x / clip / np.maximum(lengths, 1.0)
    return cut
