"""Make TLS contexts from files, and report in plain words why files or certificates are refused.

Between nodes TLS is mutual: both sides show a certificate of the cluster's own authority, and a node's id must be among
the DNS names of its certificate, exactly: no wildcard, no common name. An authority that is used for nothing else keeps
out all but members; the name keeps one member from speaking for another.

A server of the API shows a certificate for its host. It asks for one of the client only if it has an authority of
clients. No session outlives the files by which it was checked: TLS 1.3 resumes none, and TLS 1.2
only those of the same context.

Files are checked by a handshake in memory before they are used, so what is wrong with them is an error here and not in
the log of another machine. Left out: revocation lists. A node whose key leaked is removed from the cluster, and a new id
takes its place; or the authority is replaced.
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from raftsched.errors import Invalid
from raftsched.tls.names import Certificate

_FLIGHTS_MAX: Final = 8
"""More than a handshake has, in either direction."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files of one node: its certificate (with intermediates), its key, and the authority it trusts."""

    certificate: Path
    key: Path
    authority: Path


@dataclass(frozen=True, slots=True)
class ApiTlsFiles:
    """PEM files of an API: its certificate (with intermediates), its key, and authorities.

    `authority` is the one by which clients verify the certificate; None = those of the system. `client_authority`
    verifies certificates of clients; None = no client is asked for one.
    """

    certificate: Path
    key: Path
    authority: Path | None = None
    client_authority: Path | None = None


@dataclass(frozen=True, slots=True)
class TlsContexts:
    """Both sides of TLS; a node is a server to some and a client to others."""

    server: ssl.SSLContext
    client: ssl.SSLContext
    expires_at: float = 0.0
    """Time at which the server's certificate expires, in seconds since 1970; 0 if it was not checked."""


# -- between nodes ----------------------------------------------------------------------------------------------------


def node_contexts(files: TlsFiles, node_id: str) -> TlsContexts:
    """Return both contexts of a node, after it has shaken hands with itself.

    Raises `Invalid`, naming the setting and the file, if a file can't be read or has the wrong content, and if
    other nodes would refuse the certificate: of another authority, for another name, expired, or not for both sides.
    """
    setting = "peer_tls"
    _require_readable(setting, {"certificate": files.certificate, "key": files.key, "ca": files.authority})
    server, client = (_mutual_context(side) for side in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT))
    for context in (server, client):
        _trust(context, f"{setting}.ca", files.authority)
        _show(context, setting, files.certificate, files.key)
    refusal = f"other nodes would refuse it as {node_id}'s"
    return _checked(server, client, node_id, setting=setting, certificate=files.certificate, refusal=refusal)


def node_server_context(files: TlsFiles) -> ssl.SSLContext:
    """Return the context for links that peers open: TLS 1.3, a certificate of the authority required.

    Raises OSError if a file can't be read and `ssl.SSLError` if its content is wrong.
    """
    return _filled(_mutual_context(ssl.PROTOCOL_TLS_SERVER), files)


def node_client_context(files: TlsFiles) -> ssl.SSLContext:
    """Return the context for links to peers; the server's name is checked by TLS as well. Raises as the server's."""
    return _filled(_mutual_context(ssl.PROTOCOL_TLS_CLIENT), files)


def _mutual_context(side: int) -> ssl.SSLContext:
    context = ssl.SSLContext(side)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    if side == ssl.PROTOCOL_TLS_SERVER:
        _never_resume(context)
    return context


def _filled(context: ssl.SSLContext, files: TlsFiles) -> ssl.SSLContext:
    context.load_verify_locations(files.authority)
    context.load_cert_chain(files.certificate, files.key, password=_no_password)
    return context


# -- the API ----------------------------------------------------------------------------------------------------------


def api_contexts(files: ApiTlsFiles, host: str) -> TlsContexts:
    """Return the server's context of the API at `host`, and the client's for other nodes, after a handshake of both.

    Raises `Invalid`, naming the setting and the file, if a file can't be read or has the wrong content, and if
    other nodes would refuse the certificate: of another authority, for another host, or expired.
    """
    setting = "api_tls"
    named = {
        "certificate": files.certificate,
        "key": files.key,
        "ca": files.authority,
        "client_ca": files.client_authority,
    }
    _require_readable(setting, {name: path for name, path in named.items() if path is not None})
    server = api_server_context()
    _show(server, setting, files.certificate, files.key)
    if files.client_authority is not None:
        server.verify_mode = ssl.CERT_OPTIONAL
        _trust(server, f"{setting}.client_ca", files.client_authority)
    client = api_client_context() if files.authority is None else _client_context()
    if files.authority is not None:
        _trust(client, f"{setting}.ca", files.authority)
    refusal = f"other nodes would refuse it for {host}" + (
        " (api_tls.ca is not set)" if files.authority is None else ""
    )
    return _checked(server, client, host, setting=setting, certificate=files.certificate, refusal=refusal)


def api_server_context() -> ssl.SSLContext:
    """Return the context of an HTTPS server without files: TLS 1.2 or newer, clients show no certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _never_resume(context)
    return context


def api_client_context(
    authority: Path | None = None, certificate: Path | None = None, key: Path | None = None
) -> ssl.SSLContext:
    """Return the context of an HTTPS client, which trusts `authority`, or the system's authorities if None.

    It shows `certificate`, if given, whose key is in `key` or in the same file. Raises `Invalid` naming the file.
    """
    named = {"ca_file": authority, "client_certificate": certificate, "client_key": key}
    for name, path in named.items():
        if path is not None:
            _require_file(name, path)
    if authority is None:
        context = ssl.create_default_context()
    else:
        context = _client_context()
        _trust(context, "ca_file", authority)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if certificate is not None:
        try:
            context.load_cert_chain(certificate, key, password=_no_password)
        except ssl.SSLError as error:
            raise Invalid(
                f"client_certificate: {certificate}: not in PEM, or the key is another's: {reason_of(error)}",
                field="client_certificate",
            ) from error
    return context


def _client_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


# -- files ------------------------------------------------------------------------------------------------------------


def _require_readable(setting: str, named: dict[str, Path]) -> None:
    for name, path in named.items():
        _require_file(f"{setting}.{name}", path)


def _require_file(field: str, path: Path) -> None:
    try:
        path.read_bytes()
    except OSError as error:
        raise Invalid(f"{field}: {path}: {error.strerror}", field=field) from error


def _trust(context: ssl.SSLContext, field: str, authority: Path) -> None:
    try:
        context.load_verify_locations(authority)
    except ssl.SSLError as error:
        raise Invalid(f"{field}: {authority}: not a certificate in PEM: {reason_of(error)}", field=field) from error


def _show(context: ssl.SSLContext, setting: str, certificate: Path, key: Path) -> None:
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError as error:
        what = f"{key} and {certificate}"
        if error.reason == "KEY_VALUES_MISMATCH":
            raise Invalid(f"{setting}.key: {what}: the key is not the certificate's", field=f"{setting}.key") from error
        raise Invalid(
            f"{setting}.key, {setting}.certificate: {what}: not both in PEM: {reason_of(error)}", field=f"{setting}.key"
        ) from error


def _no_password() -> str:
    """Refuse an encrypted key: OpenSSL would ask the terminal for its password."""
    return ""


def _never_resume(context: ssl.SSLContext) -> None:
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET


def _checked(
    server: ssl.SSLContext, client: ssl.SSLContext, name: str, *, setting: str, certificate: Path, refusal: str
) -> TlsContexts:
    """Return both contexts after a handshake; raises `Invalid` with `refusal` if the client's refuses the server."""
    try:
        shown = _shake_hands(server, client, name)
    except ssl.SSLError as error:
        field = f"{setting}.certificate"
        raise Invalid(f"{field}: {certificate}: {refusal}: {reason_of(error)}", field=field) from error
    return TlsContexts(server, client, ssl.cert_time_to_seconds(str(shown["notAfter"])))


def _shake_hands(server_context: ssl.SSLContext, client_context: ssl.SSLContext, name: str) -> Certificate:
    """Return the server's certificate after a handshake in memory; raises `ssl.SSLError` if one side refuses."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server, server_hostname=name)
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    waiting = [client, server]
    for _ in range(_FLIGHTS_MAX):
        for side in list(waiting):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
                waiting.remove(side)
    return client.getpeercert() or {}


# -- errors -----------------------------------------------------------------------------------------------------------


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
