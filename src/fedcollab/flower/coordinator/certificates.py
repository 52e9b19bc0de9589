"""A federation's own certificate authority and the coordinator's certificate: elliptic curves (P-256) throughout."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedcollab.errors import InputError
from fedcollab.flower.keys import WARN_DAYS, days_left, private_files

DAYS = 730  # that the certificates are valid; the authority's twice as long


def make_certificates(folder: Path, name: str, host: str) -> None:
    """Write ca.crt, ca.key, server.crt and server.key; the keys are readable by their owner alone.

    Parameters
    ----------
    folder : Path
        Where to write.
    name : str
        The federation's name, in the authority's.
    host : str
        The name or address by which silos reach the coordinator; the certificate is valid for this and for the machine
        itself (localhost).
    """
    _write(folder, name, host, ec.generate_private_key(ec.SECP256R1()), new_authority=True)


def renew_certificate(folder: Path, name: str, host: str) -> None:
    """Make the coordinator's certificate and key anew, signed by the federation's own authority; silos need do nothing.

    Parameters
    ----------
    folder, name, host
        As in `make_certificates`.

    Raises
    ------
    InputError
        If the authority's key cannot be read, or its own certificate ends before a new one would.
    """
    try:
        authority = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"`{folder / 'ca.key'}` cannot be read as the authority's key: {error}") from None
    if not isinstance(authority, ec.EllipticCurvePrivateKey):
        raise InputError(f"`{folder / 'ca.key'}` is not a key that `fedcollab federation init` made")
    if ends(folder / "ca.crt") < datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=WARN_DAYS):
        raise InputError("the federation's authority itself ends soon; make a new federation and send new invitations")
    _write(folder, name, host, authority, new_authority=False)


def ends(path: Path) -> datetime.datetime:
    """Return when a certificate ends, in UTC.

    Parameters
    ----------
    path : Path
        The certificate, in PEM format.

    Raises
    ------
    InputError
        If it cannot be read.
    """
    try:
        return x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
    except (OSError, ValueError) as error:
        raise InputError(f"`{path}` cannot be read as a certificate: {error}") from None


def expiry_warnings(path: Path, what: str, remedy: str) -> list[str]:
    """Return a line if a certificate has ended or ends soon; no line otherwise.

    Parameters
    ----------
    path : Path
        The certificate.
    what : str
        Whose it is, for the line.
    remedy : str
        What to do.
    """
    days = days_left(path.read_bytes())
    if days >= WARN_DAYS:
        return []
    when = f"ends in {days} days" if days >= 0 else f"ended {-days} days ago"
    return [f"{what} {when} ({ends(path):%Y-%m-%d}); {remedy}"]


def _write(folder: Path, name: str, host: str, authority: ec.EllipticCurvePrivateKey, *, new_authority: bool) -> None:
    """Write the coordinator's certificate and key, and the authority's too if it is new."""
    server = ec.generate_private_key(ec.SECP256R1())
    issuer = f"{name} federation authority"
    others = "content_commitment key_encipherment data_encipherment key_agreement encipher_only decipher_only"

    def build(common: str, key: ec.EllipticCurvePrivateKey, is_authority: bool) -> x509.CertificateBuilder:
        now, public = datetime.datetime.now(datetime.UTC), key.public_key()
        usage = {"key_cert_sign": is_authority, "crl_sign": is_authority, **dict.fromkeys(others.split(), False)}
        return (
            x509.CertificateBuilder()
            .subject_name(_subject(common))
            .issuer_name(_subject(issuer))
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=2 * DAYS if is_authority else DAYS))
            .add_extension(x509.BasicConstraints(is_authority, 0 if is_authority else None), critical=True)
            .add_extension(x509.KeyUsage(digital_signature=True, **usage), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        )

    names = [_alternative(each) for each in dict.fromkeys([host, "localhost", "127.0.0.1", "::1"])]
    own = build(host, server, is_authority=False)
    for extension in (
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]),
        x509.SubjectAlternativeName(names),
        x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()),
    ):
        own = own.add_extension(extension, critical=False)
    folder.mkdir(parents=True, exist_ok=True)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    made_now = [("server", server, own)]
    if new_authority:
        made_now.insert(0, ("ca", authority, build(issuer, authority, is_authority=True)))
    for stem, key, made in made_now:
        certificate = made.sign(authority, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        (folder / f"{stem}.crt").write_bytes(certificate)
        with private_files():
            (folder / f"{stem}.key").write_bytes(key.private_bytes(*form))


def _subject(common: str) -> x509.Name:
    """Return a distinguished name with a common name only."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common[:64])])


def _alternative(host: str) -> x509.GeneralName:
    """Return an IP address or a DNS name as a subject alternative name."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
