"""TLS contexts from files, and the check that a peer is who it says it is.

Between nodes TLS is mutual: both sides show a certificate of the cluster's own authority, and a node's id must be among
the DNS names of its certificate, exactly: no wildcard, no common name. An authority that is used for nothing else keeps
out all but members; the name keeps one member from speaking for another.

Left out: revocation lists. A node whose key leaked is removed from the cluster, and a new id takes its place.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files of one node: its certificate (with intermediates), its key, and the authority it trusts."""

    certificate: Path
    key: Path
    authority: Path


def node_server_context(files: TlsFiles) -> ssl.SSLContext:
    """Return the context for links that peers open: TLS 1.3, a certificate of the authority required.

    Raises OSError where a file can't be read and `ssl.SSLError` where it isn't what it should be.
    """
    return _mutual(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), files)


def node_client_context(files: TlsFiles) -> ssl.SSLContext:
    """Return the context for links to peers; the server's name is checked by TLS as well. Raises as the server's."""
    return _mutual(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), files)


def _mutual(context: ssl.SSLContext, files: TlsFiles) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(files.authority)
    context.load_cert_chain(files.certificate, files.key)
    return context


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
