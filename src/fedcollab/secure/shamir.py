"""Shamir's secret sharing: of n shares any t give the secret, and t - 1 say nothing about it.

    f(x) = s + a_1 x + ... + a_{t-1} x^{t-1}  mod p,   p = 2^127 - 1,   share of member k: f(k),  k = 1 ... n

The coefficients a come from the operating system. A secret is a number below p, of 16 bytes.

Shamir: How to share a secret. Communications of the ACM 22, 1979.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

from fedcollab.errors import InputError

PRIME = 2**127 - 1
BYTES = 16


def draw() -> int:
    """Return a secret from the operating system's random source."""
    return secrets.randbelow(PRIME)


def split(secret: int, members: int, threshold: int) -> list[int]:
    """Return one share of a secret for each member.

    Parameters
    ----------
    secret : int
        From 0 to `PRIME` - 1.
    members : int
        How many shares are made.
    threshold : int
        How many of them give the secret.

    Returns
    -------
    list of int
        The shares of members 1, 2, ...
    """
    if not 1 <= threshold <= members or not 0 <= secret < PRIME:
        raise InputError(f"`threshold` (={threshold}) must be from 1 to {members}, the secret below 2^127 - 1")
    coefficients = [secrets.randbelow(PRIME) for _ in range(threshold - 1)]
    shares = []
    for x in range(1, members + 1):
        value = 0
        for coefficient in reversed((secret, *coefficients)):
            value = (value * x + coefficient) % PRIME
        shares.append(value)
    return shares


def factors(members: Sequence[int]) -> list[int]:
    """Return what each of these members' shares counts in the secret: the Lagrange polynomials at 0.

    Parameters
    ----------
    members : sequence of int
        The numbers of the members whose shares are there, from 1 on, as many as the threshold.
    """
    found = []
    for mine in members:
        above = below = 1
        for other in members:
            if other != mine:
                above = above * other % PRIME
                below = below * (other - mine) % PRIME
        found.append(above * pow(below, -1, PRIME) % PRIME)
    return found


def recover(shares: Mapping[int, int], threshold: int) -> int:
    """Return the secret from the shares of at least `threshold` members.

    Parameters
    ----------
    shares : mapping of int
        The share of each member, by its number from 1 on.
    threshold : int
        How many shares give the secret.

    Raises
    ------
    InputError
        If there are too few shares.

    Examples
    --------
    >>> shares = split(1234, 5, 3)
    >>> recover({1: shares[0], 4: shares[3], 5: shares[4]}, 3)
    1234
    """
    if len(shares) < threshold:
        raise InputError(f"{len(shares)} share(s) are there; {threshold} are needed")
    used = sorted(shares)[:threshold]
    return sum(shares[x] * factor for x, factor in zip(used, factors(used), strict=True)) % PRIME


def to_bytes(value: int) -> bytes:
    """Return a secret or a share as 16 bytes."""
    return value.to_bytes(BYTES, "big")


def from_bytes(value: bytes) -> int:
    """Return a secret or a share from its 16 bytes."""
    return int.from_bytes(value, "big") % PRIME
