"""Read the names in a verified certificate, in the form of `ssl.SSLObject.getpeercert`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

Certificate = Mapping[str, object]


def certificate_names(certificate: Certificate | None) -> frozenset[str]:
    """Return the DNS names of a verified certificate; none for no certificate."""
    return frozenset(_dns_names(certificate or {}))


def is_certified(certificate: Certificate | None, node_id: str) -> bool:
    """Return whether a verified certificate was issued to `node_id`."""
    return node_id in certificate_names(certificate)


def client_names(certificate: Certificate | None) -> tuple[str, ...]:
    """Return the DNS names of a verified certificate, then its common names, each once; none for no certificate."""
    certificate = certificate or {}
    return tuple(dict.fromkeys((*_dns_names(certificate), *_common_names(certificate))))


def _dns_names(certificate: Certificate) -> Iterator[str]:
    alternatives = certificate.get("subjectAltName", ())
    if isinstance(alternatives, tuple):
        yield from (value for kind, value in alternatives if kind == "DNS")


def _common_names(certificate: Certificate) -> Iterator[str]:
    subject = certificate.get("subject", ())
    if isinstance(subject, tuple):
        yield from (value for part in subject for kind, value in part if kind == "commonName")
