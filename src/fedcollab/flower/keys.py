"""Certificates and keys: a federation's own authority and the coordinator's certificate, and a key pair for each silo.

Elliptic curves throughout: P-256 for TLS, P-384 for silos (what Flower asks for). Private keys are readable by their
owner alone.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from pathlib import Path
from typing import TYPE_CHECKING

from fedcollab.errors import InputError

if TYPE_CHECKING:
    from cryptography import x509

DAYS = 730  # that the certificates are valid


def make_certificates(folder: Path, name: str, host: str) -> None:
    """ca.crt, ca.key, server.crt and server.key; the server's is for `host` and for this machine itself."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    now = datetime.datetime.now(datetime.UTC)

    def subject(common: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common[:64])])

    def build(common: str, issuer: str, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject(common))
            .issuer_name(subject(issuer))
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=DAYS))
        )

    authority, server = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    issuer = f"{name} federation authority"
    own = x509.SubjectKeyIdentifier.from_public_key(authority.public_key())
    others = "content_commitment key_encipherment data_encipherment key_agreement encipher_only decipher_only"
    usage = dict.fromkeys(others.split(), False)
    root = (
        build(issuer, issuer, authority.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(digital_signature=True, key_cert_sign=True, crl_sign=True, **usage), critical=True)
        .add_extension(own, critical=False)
        .sign(authority, hashes.SHA256())
    )
    names = list(dict.fromkeys([host, "localhost", "127.0.0.1", "::1"]))
    certificate = (
        build(host, issuer, server.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            x509.KeyUsage(digital_signature=True, key_cert_sign=False, crl_sign=False, **usage), critical=True
        )
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_alternative(each) for each in names]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(server.public_key()), critical=False)
        .sign(authority, hashes.SHA256())
    )
    from cryptography.hazmat.primitives import serialization

    folder.mkdir(parents=True, exist_ok=True)
    for stem, key, made in (("ca", authority, root), ("server", server, certificate)):
        (folder / f"{stem}.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
        _write_secret(
            folder / f"{stem}.key",
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ),
        )


def make_silo_key(path: Path, comment: str) -> Path:
    """A key pair in OpenSSH's format: the private one at `path`, the public one (returned) beside it as .pub."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    public_path = path.with_suffix(".pub")
    for existing in (path, public_path):
        if existing.exists():
            raise InputError(f"`{existing}` exists; a key is never overwritten")
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    _write_secret(path, private)
    public_path.write_bytes(public + b" " + comment.encode() + b"\n")
    return public_path


def check_name(name: str) -> None:
    """A silo's name is also a file's name."""
    if not name.strip() or "/" in name or "\\" in name or name.startswith("."):
        raise InputError(f"`name` (={name!r}) must be a name without slashes that does not begin with a dot")


def check_public_key(path: Path) -> bytes:
    """A silo's public key, or one clear line."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key

    try:
        content = path.read_bytes()
        fits = isinstance(load_ssh_public_key(content), ec.EllipticCurvePublicKey)
    except FileNotFoundError:
        raise InputError(f"`{path}` does not exist; expected the public key of a silo") from None
    except (ValueError, UnsupportedAlgorithm):
        fits = False
    if not fits:
        raise InputError(f"`{path}` must be a silo's public key (NAME.pub, made by `fedcollab silo init`)")
    return content


def _alternative(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write_secret(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
