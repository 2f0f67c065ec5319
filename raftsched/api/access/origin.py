"""Tell where the request that is being handled came from: the address of the other end of its connection.

A node that forwards a request, or asks its own API for a page of the dashboard, names the address in a header. Others can't:
with tokens the header counts only with the MAC of a node (`api.access.door`). There is no setting for proxies in front of
the nodes, so behind one the address is the proxy's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from aiohttp import web

from raftsched import limits
from raftsched.api.access.door import ORIGIN_HEADER, Door
from raftsched.api.access.principal import Principal
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import is_audited
from raftsched.core.records.origin import Origin

Told = Callable[[Mapping[str, str]], str]
"""Return the address that a node names in these headers; "" if none does."""


@dataclass(slots=True)
class _Handled:
    """A request that is being handled."""

    request: web.Request
    told: Told
    caller: Principal | None = None


_current: ContextVar[_Handled | None] = ContextVar("origin", default=None)


@contextmanager
def handling_for_origin(request: web.Request, told: Told) -> Iterator[None]:
    """Handle `request` meanwhile."""
    token = _current.set(_Handled(request, told))
    try:
        yield
    finally:
        _current.reset(token)


def note_caller(caller: Principal) -> None:
    """Note who makes the request that is being handled."""
    handled = _current.get()
    if handled is not None:
        handled.caller = caller


def current_address() -> str:
    """Return the address from which the request came that is being handled; "" outside of one, or if it is not known."""
    handled = _current.get()
    if handled is None:
        return ""
    headers = handled.request.headers
    named = handled.told(headers) if ORIGIN_HEADER in headers else ""
    return (named or handled.request.remote or "")[: limits.ADDRESS_CHARS_MAX]


def origin_headers(door: Door) -> Mapping[str, str]:
    """Return the headers by which the node of `door` tells another one where the request came from."""
    address = current_address()
    return {ORIGIN_HEADER: door.named_origin(address)} if address else {}


def origin_for(operation: Operation) -> Origin | None:
    """Return the origin of an operation that the request asks for; None if no line of the audit trail can have it."""
    if not is_audited(operation):
        return None
    handled, address = _current.get(), current_address()
    if handled is None or handled.caller is None or not address:
        return None
    caller = handled.caller
    return Origin(address, (caller.scope or "") if caller.is_bound else "")
