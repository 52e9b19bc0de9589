"""Keys of secure aggregation: who is who, what two members share, and the streams and boxes made of it.

    identity     the key pair under which a silo was admitted (elliptic curve P-384); it signs
    group key    a new X25519 key pair for each group, certified by a signature of the identity
    pair secret  HKDF(X25519(own private, partner's public)), known to two members and to nobody else
    round seed   HKDF(pair secret, context), where the context names group, training, round and a digest of what was
                 sent: two members that were sent different things have different seeds
    stream       ChaCha20 under a seed: the mask
    box          ChaCha20-Poly1305 under a key of the pair secret, bound to the context

All of it is `cryptography`'s; nothing here is new but the order.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import msgspec
import numpy as np
from cryptography.exceptions import InvalidSignature, InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

from fedcollab.errors import InputError
from fedcollab.secure import shamir
from fedcollab.secure.quantise import Integers

LABEL = "fedcollab secure aggregation 1"
#: bytes that a box is longer than what is in it
BOX = 12 + 16


class Unproven(InputError):
    """A certificate, a signature or a box that is not what it should be."""


@dataclass(frozen=True)
class Certificate:
    """A member's group key, signed by the key under which its silo was admitted.

    Parameters
    ----------
    name : str
        The member.
    group : str
        The group that the key is for.
    members : list of str
        All members of the group, in order of name.
    threshold : int
        How many of them must remain for a sum.
    key : str
        The public X25519 key, as hexadecimal digits.
    identity : str
        The silo's public key in OpenSSH's format, without a comment.
    signature : str
        The signature of all but itself, as hexadecimal digits.
    """

    name: str
    group: str
    members: list[str]
    threshold: int
    key: str
    identity: str
    signature: str = ""

    def signed_bytes(self) -> bytes:
        """Return what the signature signs."""
        return json.dumps([LABEL, {**asdict(self), "signature": ""}], sort_keys=True).encode()

    def to_json(self) -> str:
        """Return the certificate as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Certificate:
        """Read a certificate whose signature is right.

        Parameters
        ----------
        text : str
            What `to_json` wrote; it may come from anyone.

        Raises
        ------
        Unproven
            If it cannot be read, or the signature is not the identity's.
        """
        try:
            found = msgspec.json.decode(text, type=cls)
            identity = serialization.load_ssh_public_key(found.identity.encode())
            assert isinstance(identity, ec.EllipticCurvePublicKey)
            identity.verify(bytes.fromhex(found.signature), found.signed_bytes(), ec.ECDSA(hashes.SHA384()))
        except InvalidSignature:
            raise Unproven(f"the certificate of `{found.name}` has a signature that is not its silo's") from None
        except (ValueError, AssertionError, RecursionError, UnsupportedAlgorithm, NotImplementedError):
            raise Unproven("a certificate of secure aggregation cannot be read") from None
        return found


def draw_identity() -> bytes:
    """Return a new private key for a silo that was admitted without one, in OpenSSH's format."""
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
    return ec.generate_private_key(ec.SECP384R1()).private_bytes(*form)


def public_of(private: bytes) -> str:
    """Return the public key of a private one, in OpenSSH's format without a comment."""
    key = _load_identity(private).public_key()
    return key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()


def without_comment(public: str) -> str:
    """Return a public key in OpenSSH's format without its comment, so that two can be compared."""
    return " ".join(public.split()[:2])


def fingerprint(public: str) -> str:
    """Return the fingerprint of a public key in OpenSSH's format: SHA-256, 64 digits; a comment does not count."""
    return hashlib.sha256(without_comment(public).encode()).hexdigest()


def certify(identity: bytes, name: str, group: str, members: Sequence[str], threshold: int, key: bytes) -> Certificate:
    """Return a certificate of a group key.

    Parameters
    ----------
    identity : bytes
        The silo's private key in OpenSSH's format.
    name : str
        The silo.
    group, members, threshold
        As in `Certificate`.
    key : bytes
        The private group key.
    """
    public = X25519PrivateKey.from_private_bytes(key).public_key().public_bytes_raw()
    plain = Certificate(name, group, list(members), threshold, public.hex(), public_of(identity))
    signature = _load_identity(identity).sign(plain.signed_bytes(), ec.ECDSA(hashes.SHA384()))
    return Certificate(**{**asdict(plain), "signature": signature.hex()})


def draw_key() -> bytes:
    """Return a new private group key."""
    return X25519PrivateKey.generate().private_bytes_raw()


def pair_secret(key: bytes, partner: Certificate, name: str) -> bytes:
    """Return the 32 bytes that two members of a group share.

    Parameters
    ----------
    key : bytes
        One's own private group key.
    partner : Certificate
        The other member's certificate, checked.
    name : str
        One's own name.

    Raises
    ------
    Unproven
        If the partner's key is none that a secret can be made with.
    """
    try:
        theirs = X25519PublicKey.from_public_bytes(bytes.fromhex(partner.key))
        shared = X25519PrivateKey.from_private_bytes(key).exchange(theirs)
    except ValueError:
        raise Unproven(f"the group key of `{partner.name}` cannot be used") from None
    about = json.dumps([LABEL, partner.group, sorted((name, partner.name))]).encode()
    return HKDF(hashes.SHA256(), 32, b"", about).derive(shared)


def round_seed(secret: bytes, context: bytes) -> int:
    """Return the seed of two members' mask in one round, a number that can be shared (see `shamir`)."""
    return shamir.from_bytes(_expand(secret, b"mask", context)[: shamir.BYTES])


def stream(seed: int, length: int) -> Integers:
    """Return the mask of a seed: integers modulo 2^32 that nobody without the seed can tell from random ones.

    Parameters
    ----------
    seed : int
        A round seed.
    length : int
        How many integers.
    """
    key = _expand(shamir.to_bytes(seed), b"stream", b"")
    zeros = bytes(4 * length)
    return np.frombuffer(Cipher(ChaCha20(key, bytes(16)), None).encryptor().update(zeros), dtype="<u4")


def seal(secret: bytes, sender: str, context: bytes, content: bytes) -> bytes:
    """Return content in a box that only the partner of the pair secret opens, and only in the same context.

    Parameters
    ----------
    secret : bytes
        The pair secret.
    sender : str
        Who sends it.
    context : bytes
        What it belongs to.
    content : bytes
        What is sent.
    """
    nonce = os.urandom(12)
    return nonce + ChaCha20Poly1305(_expand(secret, b"box", sender.encode())).encrypt(nonce, content, context)


def unseal(secret: bytes, sender: str, context: bytes, box: bytes) -> bytes:
    """Return the content of a box; arguments as in `seal`.

    Raises
    ------
    Unproven
        If the box is another sender's, belongs to another context or was changed.
    """
    try:
        return ChaCha20Poly1305(_expand(secret, b"box", sender.encode())).decrypt(box[:12], box[12:], context)
    except (InvalidTag, ValueError):
        raise Unproven(f"what `{sender}` sealed does not open") from None


def _expand(secret: bytes, label: bytes, context: bytes) -> bytes:
    """Return 32 bytes derived from a secret, for one purpose and context."""
    return HKDFExpand(hashes.SHA256(), 32, label + b"\x1f" + context).derive(secret)


def _load_identity(private: bytes) -> ec.EllipticCurvePrivateKey:
    """Read a silo's private key."""
    try:
        key = serialization.load_ssh_private_key(private, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise InputError("the silo's key cannot be read; expected one that `fedcollab silo init` made") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InputError("the silo's key is of another kind than `fedcollab silo init` makes")
    return key
