"""Make TLS contexts from files, and check the identity of a peer.

Between nodes TLS is mutual: both sides show a certificate of the cluster's own authority, and a node's id must be among
the DNS names of its certificate, exactly: no wildcard, no common name. An authority that is used for nothing else keeps
out all but members; the name keeps one member from speaking for another.

Left out: revocation lists. A node whose key leaked is removed from the cluster, and a new id takes its place.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from raftsched.errors import Invalid

_FLIGHTS_MAX: Final = 8
"""More than a handshake has, in either direction."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files of one node: its certificate (with intermediates), its key, and the authority it trusts."""

    certificate: Path
    key: Path
    authority: Path


@dataclass(frozen=True, slots=True)
class TlsContexts:
    """Both sides of mutual TLS; a node is a server to some peers and a client to others."""

    server: ssl.SSLContext
    client: ssl.SSLContext


def node_contexts(files: TlsFiles, node_id: str) -> TlsContexts:
    """Return both contexts of a node, after it has shaken hands with itself.

    Raises `Invalid`, naming the setting and the file, if a file can't be read or has the wrong content, and if
    other nodes would refuse the certificate: of another authority, for another name, expired, or not for both sides.
    """
    named = {"certificate": files.certificate, "key": files.key, "ca": files.authority}
    for name, path in named.items():
        try:
            path.read_bytes()
        except OSError as error:
            raise Invalid(f"peer_tls.{name}: {path}: {error.strerror}", field=f"peer_tls.{name}") from error
    contexts = TlsContexts(
        _of_setting(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), files),
        _of_setting(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), files),
    )
    try:
        _shake_hands(contexts, node_id)
    except ssl.SSLError as error:
        raise Invalid(
            f"peer_tls.certificate: {files.certificate}: other nodes would refuse it as {node_id}'s: {reason_of(error)}",
            field="peer_tls.certificate",
        ) from error
    return contexts


def _of_setting(context: ssl.SSLContext, files: TlsFiles) -> ssl.SSLContext:
    try:
        context.load_verify_locations(files.authority)
    except ssl.SSLError as error:
        raise Invalid(f"peer_tls.ca: {files.authority}: not a certificate in PEM: {reason_of(error)}") from error
    try:
        return _mutual(context, files)
    except ssl.SSLError as error:
        what = f"{files.key} and {files.certificate}"
        if error.reason == "KEY_VALUES_MISMATCH":
            raise Invalid(f"peer_tls.key: {what}: the key is not the certificate's") from error
        raise Invalid(f"peer_tls.key, peer_tls.certificate: {what}: not both in PEM: {reason_of(error)}") from error


def _shake_hands(contexts: TlsContexts, node_id: str) -> None:
    """Perform a handshake of both sides in memory; raises `ssl.SSLError` if one refuses the other."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = contexts.client.wrap_bio(to_client, to_server, server_hostname=node_id)
    server = contexts.server.wrap_bio(to_server, to_client, server_side=True)
    waiting = [client, server]
    for _ in range(_FLIGHTS_MAX):
        for side in list(waiting):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
                waiting.remove(side)


def tls_kind(error: ssl.SSLError) -> str:
    """Return one of OpenSSL's names of reasons, of which there are few."""
    return (error.reason or "tls").lower()


def reason_of(error: BaseException) -> str:
    """Return why TLS refused, in the words of OpenSSL, without the place in its source."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    return str(error) or type(error).__name__


def node_server_context(files: TlsFiles) -> ssl.SSLContext:
    """Return the context for links that peers open: TLS 1.3, a certificate of the authority required.

    Raises OSError if a file can't be read and `ssl.SSLError` if its content is wrong.
    """
    return _mutual(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), files)


def node_client_context(files: TlsFiles) -> ssl.SSLContext:
    """Return the context for links to peers; the server's name is checked by TLS as well. Raises as the server's."""
    return _mutual(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), files)


def _mutual(context: ssl.SSLContext, files: TlsFiles) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(files.authority)
    context.load_cert_chain(files.certificate, files.key, password=_no_password)
    return context


def _no_password() -> str:
    """Refuse an encrypted key: OpenSSL would ask the terminal for its password."""
    return ""


def api_server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return the context of an HTTPS server: TLS 1.2 or newer, clients show no certificate. Raises as the node's."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    return context


def api_client_context(authority: Path | None = None) -> ssl.SSLContext:
    """Return the context of an HTTPS client that trusts `authority`, or the system's where None."""
    context = ssl.create_default_context(cafile=authority)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def certificate_names(certificate: Mapping[str, object] | None) -> frozenset[str]:
    """Return the DNS names of a verified certificate, as `getpeercert` shows it; none for no certificate."""
    alternatives = (certificate or {}).get("subjectAltName", ())
    if not isinstance(alternatives, tuple):
        return frozenset()
    return frozenset(value for kind, value in alternatives if kind == "DNS")


def is_certified(certificate: Mapping[str, object] | None, node_id: str) -> bool:
    """Return whether a verified certificate was issued to `node_id`."""
    return node_id in certificate_names(certificate)
