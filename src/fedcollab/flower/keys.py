"""Silos' key pairs (elliptic curve P-384, which Flower asks for) and their names, which are also names of files."""

from __future__ import annotations

import datetime
import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedcollab.errors import InputError
from fedcollab.files import now

#: days after which a silo's key should be renewed, and days before that from which on there are warnings
KEY_DAYS, WARN_DAYS = 730, 60


@contextmanager
def private_files() -> Iterator[None]:
    """Within the block, new files (0600) and folders (0700) are open to their owner alone."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def make_silo_key(path: Path, comment: str) -> Path:
    """Make a silo's key pair in OpenSSH's format.

    Parameters
    ----------
    path : Path
        Where to write the private key.
    comment : str
        A comment for the public key: the silo's name.

    Returns
    -------
    Path
        The public key's file, beside the private one with the suffix .pub.

    Raises
    ------
    InputError
        If one of the files exists.
    """
    public_path = path.with_suffix(".pub")
    for existing in (path, public_path):
        if existing.exists():
            raise InputError(f"`{existing}` exists; a key is never overwritten")
    key = ec.generate_private_key(ec.SECP384R1())
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    path.parent.mkdir(parents=True, exist_ok=True)
    with private_files():
        path.write_bytes(key.private_bytes(*form))
        public_path.write_bytes(public + b" " + comment.encode() + b"\n")
    return public_path


def renew_silo_key(path: Path, comment: str) -> Path:
    """Make a silo's key pair anew; the old files stay, with the day in their names.

    Parameters
    ----------
    path : Path
        The private key.
    comment : str
        The silo's name.

    Returns
    -------
    Path
        The new public key's file.

    Raises
    ------
    InputError
        If there is no key to renew, or it was renewed today already.
    """
    if not path.is_file():
        raise InputError(f"`{path}` does not exist; make the silo's key with `fedcollab silo init`")
    day = now()[:10]
    for old in (path, path.with_suffix(".pub")):
        kept = old.with_name(f"{old.stem}-until-{day}{old.suffix}")
        if kept.exists():
            raise InputError(f"`{kept}` exists: the key was renewed today already")
        if old.exists():
            old.replace(kept)
    return make_silo_key(path, comment)


def age_warnings(path: Path) -> list[str]:
    """Return a line if a silo's key is older than `KEY_DAYS` days, or will be within `WARN_DAYS`."""
    if not path.is_file():
        return []
    days = KEY_DAYS - (time.time() - path.stat().st_mtime) / 86_400
    if days >= WARN_DAYS:
        return []
    when = f"should be renewed in {days:.0f} days" if days >= 0 else f"should have been renewed {-days:.0f} days ago"
    return [f"this silo's key {when}: `fedcollab silo renew`, then send the new public key to the coordinator"]


def days_left(certificate: bytes) -> int:
    """Return in how many days a certificate ends; negative if it has ended.

    Parameters
    ----------
    certificate : bytes
        The certificate, in PEM format.

    Raises
    ------
    InputError
        If it cannot be read.
    """
    try:
        end = x509.load_pem_x509_certificate(certificate).not_valid_after_utc
    except (ValueError, UnsupportedAlgorithm, x509.InvalidVersion) as error:
        raise InputError(f"a certificate cannot be read: {error}") from None
    return (end - datetime.datetime.now(datetime.UTC)).days


def fingerprint(public: bytes) -> str:
    """Return the fingerprint of a public key in OpenSSH's format, by which people compare keys: SHA-256, 64 digits.

    Parameters
    ----------
    public : bytes
        The content of a .pub file; the comment does not count.
    """
    return hashlib.sha256(b" ".join(public.split()[:2])).hexdigest()


def sign(path: Path, content: bytes) -> tuple[str, str]:
    """Sign with a silo's private key.

    Parameters
    ----------
    path : Path
        The private key's file.
    content : bytes
        What to sign.

    Returns
    -------
    signature, public : str
        The ECDSA signature in hexadecimal digits, and the public key in OpenSSH's format.

    Raises
    ------
    InputError
        If the key cannot be read.
    """
    key = _private_key(path)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return key.sign(content, ec.ECDSA(hashes.SHA384())).hex(), public.decode()


def signed_by(path: Path, content: bytes, signature: str) -> bool:
    """Return whether a signature is that of a silo's own private key.

    Parameters
    ----------
    path : Path
        The private key's file.
    content : bytes
        What was signed.
    signature : str
        The signature, in hexadecimal digits.
    """
    try:
        _private_key(path).public_key().verify(bytes.fromhex(signature), content, ec.ECDSA(hashes.SHA384()))
    except (InvalidSignature, ValueError):
        return False
    return True


def _private_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Read a silo's private key."""
    try:
        key = serialization.load_ssh_private_key(path.read_bytes(), None)
    except (
        OSError,
        TypeError,
        ValueError,
        UnsupportedAlgorithm,
        NotImplementedError,
    ) as error:  # TypeError: passphrase
        raise InputError(f"`{path}` cannot be read as this silo's key: {error}") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InputError(f"`{path}` must be a key that `fedcollab silo init` made")
    return key


def check_name(name: str) -> None:
    """Check a silo's name.

    Parameters
    ----------
    name : str
        The name.

    Raises
    ------
    InputError
        If it cannot be the name of a file.
    """
    if not name.strip() or "/" in name or "\\" in name or name.startswith("."):
        raise InputError(f"`name` (={name!r}) must be a name without slashes that does not begin with a dot")


def read_identity(path: Path) -> bytes:
    """Return a silo's private key as its file has it; empty for a silo that was admitted without one."""
    return path.read_bytes() if path.is_file() else b""


def read_partners(folder: Path) -> dict[str, str]:
    """Return the public keys of other silos that an administrator put into a folder.

    Parameters
    ----------
    folder : Path
        The folder, with a file NAME.pub for each silo; it need not exist.

    Returns
    -------
    dict
        The keys in OpenSSH's format, by name of the silo.

    Raises
    ------
    InputError
        If a file is something else than a public key of the right kind.
    """
    return {path.stem: read_public_key(path).decode() for path in sorted(folder.glob("*.pub"))}


def read_public_key(path: Path) -> bytes:
    """Read a silo's public key.

    Parameters
    ----------
    path : Path
        The file.

    Raises
    ------
    InputError
        If it is missing or something else than a public key of the right kind.
    """
    try:
        content = path.read_bytes()
        fits = isinstance(serialization.load_ssh_public_key(content), ec.EllipticCurvePublicKey)
    except FileNotFoundError:
        raise InputError(f"`{path}` does not exist; expected the public key of a silo") from None
    except OSError as error:
        raise InputError(f"`{path}` cannot be read: {error.strerror}") from None
    except (ValueError, UnsupportedAlgorithm, NotImplementedError):  # the last: a compressed point
        fits = False
    if not fits:
        raise InputError(f"`{path}` must be a silo's public key (NAME.pub, made by `fedcollab silo init`)")
    return content
