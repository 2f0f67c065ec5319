"""Make a certificate authority for one cluster, and certificates under it, as files in PEM.

Keys are ECDSA P-256, readable by their owner only. A node's certificate has its id as a DNS name, which other nodes
require (`contexts.node_contexts`), and the hosts at which clients reach its API; it serves both sides of a connection. A
client's certificate has its name as the common name and no DNS name, so no node takes it for a member.

Left out: intermediates, revocation lists, keys with a password.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from raftsched.errors import Invalid

CA_CERTIFICATE: Final = "ca.crt"
CA_KEY: Final = "ca.key"
DAYS_MAX: Final = 36_500
_BACKDATED: Final = timedelta(minutes=5)
"""Certificates are valid a little before they were made, for machines whose clocks are behind."""


@dataclass(frozen=True, slots=True)
class Issued:
    """The files of a new certificate."""

    certificate: Path
    key: Path
    expires: datetime


# -- make -------------------------------------------------------------------------------------------------------------


def new_authority(directory: Path, *, days: int, name: str = "") -> Issued:
    """Write a new authority into `directory`: its certificate and its key.

    Raises `Invalid` if one of the files exists, and OSError; then nothing is changed.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _named(name or f"raftsched CA {secrets.token_hex(4)}")
    builder = _builder(subject, subject, key.public_key(), days)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
    certificate = _signed(builder, key)
    return _write(directory, CA_CERTIFICATE, CA_KEY, certificate, key, replace=False)


def issue(
    authority: Path, out: Path, *, name: str, hosts: Sequence[str] = (), days: int, is_client: bool, replace: bool
) -> Issued:
    """Write the certificate of node or client `name` under the authority in a directory, and its key, into `out`.

    `hosts` are names and addresses at which clients reach a node. Raises `Invalid` naming what is wrong, a file that
    exists (unless `replace`) included, and OSError; then nothing is changed.
    """
    if is_client and hosts:
        raise Invalid("--host: a client has none; give it with a node's certificate", field="host")
    issuer, issuer_key = _read_authority(authority)
    if datetime.now(UTC) + timedelta(days=days) > issuer.not_valid_after_utc:
        left = max(0, (issuer.not_valid_after_utc - datetime.now(UTC)).days)
        raise Invalid(
            f"--days: the authority expires in {left} days; a certificate must expire before it", field="days"
        )
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(_named(name), issuer.subject, key.public_key(), days)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_key_usage(signs_certificates=False), critical=True)
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if not is_client:
        usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
        builder = builder.add_extension(_alternative_names((name, *hosts)), critical=False)
    builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    certificate = _signed(builder, issuer_key)
    return _write(out, f"{name}.crt", f"{name}.key", certificate, key, replace=replace)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _signed(builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    """Return the certificate, signed by the authority's key."""
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())
    return builder.add_extension(identifier, critical=False).sign(key, hashes.SHA256())


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _alternative_names(names: Sequence[str]) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName([_alternative_name(name) for name in dict.fromkeys(names)])


def _alternative_name(name: str) -> x509.GeneralName:
    with suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(name))
    try:
        return x509.DNSName(name)
    except ValueError as error:
        raise Invalid(f"--host: {name!r} is not a host name or an address", field="host") from error


# -- files ------------------------------------------------------------------------------------------------------------


def _read_authority(directory: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    certificate, key = directory / CA_CERTIFICATE, directory / CA_KEY
    try:
        found = x509.load_pem_x509_certificate(certificate.read_bytes())
        private = serialization.load_pem_private_key(key.read_bytes(), password=None)
    except (ValueError, TypeError) as error:
        raise Invalid(f"--ca: {directory}: {CA_CERTIFICATE} and {CA_KEY} are not both in PEM", field="ca") from error
    except OSError as error:
        raise Invalid(
            f"--ca: {error.filename}: {error.strerror}; make it with raftsched tls new-ca", field="ca"
        ) from error
    if not isinstance(private, ec.EllipticCurvePrivateKey) or private.public_key() != found.public_key():
        raise Invalid(f"--ca: {directory}: {CA_KEY} is not the key of {CA_CERTIFICATE}, or not ECDSA", field="ca")
    return found, private


def _write(
    directory: Path,
    certificate_name: str,
    key_name: str,
    certificate: x509.Certificate,
    key: ec.EllipticCurvePrivateKey,
    *,
    replace: bool,
) -> Issued:
    """Write both files, each whole or not at all, the key first."""
    directory.mkdir(parents=True, exist_ok=True)
    issued = Issued(directory / certificate_name, directory / key_name, certificate.not_valid_after_utc)
    for path in (issued.certificate, issued.key):
        if path.exists() and not replace:
            raise Invalid(f"{path} exists already, and is left as it is: choose another directory", field="out")
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    _write_file(issued.key, private, mode=0o600, replace=replace)
    _write_file(issued.certificate, certificate.public_bytes(serialization.Encoding.PEM), mode=0o644, replace=replace)
    return issued


def _write_file(path: Path, content: bytes, *, mode: int, replace: bool) -> None:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:  # noqa: PTH123
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            temporary.replace(path)
        else:
            path.hardlink_to(temporary)  # fails if another process has made it meanwhile
    finally:
        temporary.unlink(missing_ok=True)


# -- show -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shown:
    """The content of one certificate that matters to an operator."""

    subject: str
    issuer: str
    names: tuple[str, ...]
    kind: str
    """`authority`, `node`, `client`, `server` or `other`."""
    valid_from: datetime
    expires: datetime
    fingerprint: str
    """SHA-256 of the certificate, in hexadecimal."""

    @property
    def days_left(self) -> int:
        """Return the whole days until it expires; below 0 if it has expired."""
        return (self.expires - datetime.now(UTC)).days


def read_certificates(path: Path) -> list[Shown]:
    """Return all certificates in a file, in order; raises `Invalid` if it has none or can't be read."""
    try:
        found = x509.load_pem_x509_certificates(path.read_bytes())
    except OSError as error:
        raise Invalid(f"{path}: {error.strerror}", field="file") from error
    except ValueError as error:
        raise Invalid(f"{path}: not a certificate in PEM", field="file") from error
    return [_shown(certificate) for certificate in found]


def _shown(certificate: x509.Certificate) -> Shown:
    return Shown(
        subject=certificate.subject.rfc4514_string(),
        issuer=certificate.issuer.rfc4514_string(),
        names=_names_of(certificate),
        kind=_kind_of(certificate),
        valid_from=certificate.not_valid_before_utc,
        expires=certificate.not_valid_after_utc,
        fingerprint=certificate.fingerprint(hashes.SHA256()).hex(),
    )


def _names_of(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(str(name.value) for name in names)


def _kind_of(certificate: x509.Certificate) -> str:
    with suppress(x509.ExtensionNotFound):
        if certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            return "authority"
    try:
        usages = set(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except x509.ExtensionNotFound:
        return "other"
    serves, asks = ExtendedKeyUsageOID.SERVER_AUTH in usages, ExtendedKeyUsageOID.CLIENT_AUTH in usages
    return {(True, True): "node", (True, False): "server", (False, True): "client"}.get((serves, asks), "other")
