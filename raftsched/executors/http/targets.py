"""Decide which hosts and addresses the requests of jobs may go to.

Whoever submits a job names its URL, so a request must not reach what only this machine or its network can reach. An
address is judged by every address that it leads to: IPv6 has forms that carry an IPv4 address, and a gateway or the
kernel forwards them to it. Allowed are public unicast addresses, and what `allow` names; `deny` wins over both. The
cluster's own ports are refused in any case: a job is no way around the API's rules.

This module is pure. `connector` calls it for each address before it connects to that address. A proxy connects by
itself, so only names and literal addresses are judged then.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Iterator, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from raftsched.errors import Invalid

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_INNER: Final[Sequence[tuple[Network, str]]] = [
    (ip_network(text), reason)
    for text, reason in (
        ("0.0.0.0/8", "unspecified"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "shared by carrier-grade NAT"),
        ("127.0.0.0/8", "loopback"),
        ("168.63.129.16/32", "of a cloud's metadata"),
        ("169.254.0.0/16", "link-local, as that of a cloud's metadata"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "for protocols, as a cloud's metadata"),
        ("192.88.99.0/24", "of 6to4 relays"),
        ("192.168.0.0/16", "private"),
        ("224.0.0.0/4", "multicast"),
        ("255.255.255.255/32", "broadcast"),
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("64:ff9b:1::/48", "of a local NAT64"),
        ("2001::/32", "a Teredo tunnel"),
        ("fc00::/7", "unique-local"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "site-local"),
        ("ff00::/8", "multicast"),
    )
]
_NEVER: Final = ("unspecified", "multicast", "broadcast", "link-local")
"""Reasons against addresses that an API refuses at once; others can be allowed at an executor."""
_NAT64: Final = IPv6Network("64:ff9b::/96")
_PUBLIC: Final = IPv6Network("2000::/3")
_NOT_PUBLIC: Final = "not public"
_NAME: Final = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*")
_WILDCARD: Final = "*."


class Targets:
    """Judge hosts and addresses by `allow` and `deny`: networks, addresses, host names, and `*.suffix` of names.

    Raises `Invalid` for an entry that is none of these.
    """

    def __init__(self, *, allow: Iterable[str] = (), deny: Iterable[str] = ()) -> None:
        self._allowed = _Entries(allow, field="allow")
        self._denied = _Entries(deny, field="deny")
        self.own: frozenset[tuple[Address, int]] = frozenset()
        """Addresses and ports of the cluster's nodes."""

    def name_fault(self, host: str) -> str:
        """Return the reason to refuse a host name before it is resolved; "" if its addresses decide."""
        name = host.lower().rstrip(".")
        if not _NAME.fullmatch(name):
            return f"{host!r} is no host name"
        return f"{name} is denied" if self._denied.has_name(name) else ""

    def address_fault(self, host: str, address: Address, port: int) -> str:
        """Return the reason to refuse a connection to `address`, to which `host` leads; "" if it is allowed."""
        name, reached = host.lower().rstrip("."), list(reached_by(address))
        if self._is_own(reached, port):
            return f"{address} port {port} belongs to the cluster"
        if any(self._denied.has(each) for each in (address, *reached)):
            return f"{address} is denied"
        if self._allowed.has_name(name) or self._allowed.has(address):
            return ""
        reasons = (inner_reason(each) for each in reached if not self._allowed.has(each))
        reason = next(filter(None, reasons), "")
        return f"{address} is {reason}, and not allowed" if reason else ""

    def _is_own(self, reached: Sequence[Address], port: int) -> bool:
        """Return whether a node listens there; one on loopback may listen on every address of loopback."""
        ports = {own for address, own in self.own if address.is_loopback}
        return any((each, port) in self.own or (each.is_loopback and port in ports) for each in reached)


class _Entries:
    """A list of networks and names."""

    def __init__(self, texts: Iterable[str], *, field: str) -> None:
        self._networks: list[Network] = []
        self._names: set[str] = set()
        self._suffixes: list[str] = []
        for text in texts:
            self._add(text, field)

    def _add(self, text: str, field: str) -> None:
        try:
            self._networks.append(ip_network(text.strip("[]")))
        except ValueError as error:
            name = text.lower().rstrip(".")
            if "/" in text or not _NAME.fullmatch(name.removeprefix(_WILDCARD)) or legacy_address(name):
                advice = "a network as 10.1.0.0/16, an address, a host name, or *.example.org"
                raise Invalid(f"{field}: {text!r} is not {advice} ({error})", field=field) from None
            if name.startswith(_WILDCARD):
                self._suffixes.append(name.removeprefix("*"))
            else:
                self._names.add(name)

    def has(self, address: Address) -> bool:
        return any(address in network for network in self._networks)

    def has_name(self, name: str) -> bool:
        return name in self._names or name.endswith(tuple(self._suffixes))


def literal_address(host: str) -> Address | None:
    """Return the address that `host` spells in its usual form, a trailing dot or a zone included; None for a name."""
    try:
        return ip_address(host.rstrip("."))
    except ValueError:
        return None


def legacy_address(host: str) -> Address | None:
    """Return the IPv4 address that `host` spells in decimal, octal, hexadecimal or short form, as `inet_aton` reads it."""
    try:
        return IPv4Address(socket.inet_aton(host.rstrip(".")))
    except OSError:
        return None


def host_fault(host: str) -> str:
    """Return the reason for which no executor takes a host, whatever it allows; "" if addresses and lists decide."""
    address = literal_address(host)
    if address is None:
        if legacy_address(host):
            return f"{host} is another spelling of {legacy_address(host)}"
        return "" if _NAME.fullmatch(host.lower().rstrip(".")) else f"{host!r} is no host name"
    reasons = map(inner_reason, reached_by(address))
    return next((f"{host} is {reason}: no target" for reason in reasons if reason.startswith(_NEVER)), "")


def inner_reason(address: Address) -> str:
    """Return what makes an address inner, as "loopback"; "" for a public unicast address."""
    reason = next((reason for network, reason in _INNER if address in network), "")
    if reason:
        return reason
    if isinstance(address, IPv6Address):
        return "" if address in _NAT64 or (address in _PUBLIC and address.is_global) else _NOT_PUBLIC
    return "" if address.is_global else _NOT_PUBLIC


def reached_by(address: Address) -> Iterator[Address]:
    """Yield the addresses that packets to `address` may arrive at."""
    if isinstance(address, IPv4Address):
        yield address
        return
    if address.ipv4_mapped is not None:  # the kernel sends these as IPv4, so the form itself means nothing
        yield address.ipv4_mapped
        return
    yield address
    if address.sixtofour is not None:
        yield address.sixtofour
    if address in _NAT64:
        yield IPv4Address(int(address) & 0xFFFF_FFFF)
