"""Read the URL of a request, the first or that of a redirect, and judge what it names.

`yarl` reads it, as aiohttp does, so what is judged here is what is sent there.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

from yarl import URL

from raftsched.executors.http.targets import Targets, legacy_address, literal_address
from raftsched.executors.http.verdicts import TargetRefused

Origin = tuple[str, str | None, int | None]
"""Scheme, host and port: credentials are sent to the same one only."""


class Hop(NamedTuple):
    """A request of a chain: a URL whose host is a judged address, or a name whose addresses are judged later."""

    url: URL

    @property
    def origin(self) -> Origin:
        return self.url.scheme, self.url.raw_host, self.url.port


def hop_of(text: str, targets: Targets, previous: URL | None = None) -> Hop:
    """Return the hop to the address `text`, relative to the `previous` one; raises `TargetRefused` with the reason."""
    try:
        return _judged(text, targets, previous)
    except ValueError as error:  # yarl reads some parts late
        raise TargetRefused(f"not an address: {error}") from None


def _judged(text: str, targets: Targets, previous: URL | None) -> Hop:
    if previous is None and not (text.isascii() and text.isprintable() and " " not in text):
        raise TargetRefused("not an address: it has characters that must be encoded")
    url = URL(text) if previous is None else previous.join(URL(text))
    if url.scheme not in ("http", "https"):
        raise TargetRefused(f"the URL {_shown(url)} must begin with http:// or https://")
    if previous is not None and previous.scheme == "https" and url.scheme == "http":
        raise TargetRefused(f"the redirect to {_shown(url)} leads from https to http")
    host = url.raw_host
    if not host:
        raise TargetRefused("the URL names no host")
    if url.raw_user is not None or url.raw_password is not None or "\\" in text:
        raise TargetRefused("the URL contains a user name, a password or a backslash")
    if not url.port:
        raise TargetRefused("the URL must have a port from 1 to 65535")
    if ":" in host:
        host = host.replace("%25", "%")
    address = literal_address(host)
    if address is None:
        _check_name(host, targets)
        return Hop(_exact(url, text, previous))
    if fault := targets.address_fault(host, address, url.port):
        raise TargetRefused(fault)
    return Hop(_exact(url.with_host(str(address)), text, previous))


def _exact(url: URL, text: str, previous: URL | None) -> URL:
    """Return the URL to send: without its fragment, and with path and query as the job wrote them, as in signed URLs."""
    if previous is not None:
        return url.with_fragment(None)
    parts = urlsplit(text)
    return URL.build(
        scheme=url.scheme,
        host=url.raw_host or "",
        port=url.explicit_port,
        path=parts.path or "/",
        query_string=parts.query,
        encoded=True,
    )


def _check_name(host: str, targets: Targets) -> None:
    legacy = legacy_address(host)
    if legacy is not None:
        raise TargetRefused(f"{host} is another spelling of an address; write {legacy}")
    if fault := targets.name_fault(host):
        raise TargetRefused(fault)


def _shown(url: URL) -> str:
    """Return an URL for a message, without its query, which may hold what is private."""
    return str(url.with_query(None).with_fragment(None).with_user(None)) if url.absolute else str(url.with_query(None))
