"""Give each request an id, by which its client, its reply, and the logs of all nodes that handle it name it.

A client may choose it; a node that forwards a request passes it on. It is no secret and needs not be unique.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from aiohttp import web

REQUEST_ID_HEADER: Final = "X-Request-Id"
_KEY: Final = web.RequestKey("request_id", str)
_CHOSEN: Final = re.compile(r"[A-Za-z0-9._:/+=~@-]{1,128}")
_RANDOM_BYTES: Final = 8
_current: ContextVar[str] = ContextVar("request_id", default="")


@contextmanager
def named(request: web.Request) -> Iterator[None]:
    """Give `request` the id that its client chose, or a new one if that is none or malformed."""
    chosen = request.headers.get(REQUEST_ID_HEADER, "")
    request[_KEY] = chosen if _CHOSEN.fullmatch(chosen) else secrets.token_hex(_RANDOM_BYTES)
    with handling(request[_KEY]):
        yield


@contextmanager
def handling(request_id: str) -> Iterator[None]:
    """Handle a request of this id meanwhile."""
    token = _current.set(request_id)
    try:
        yield
    finally:
        _current.reset(token)


def request_id_of(request: web.Request) -> str:
    """Return the id of a request; "" before it has one."""
    found: str = request.get(_KEY, "")
    return found


def current_request_id() -> str:
    """Return the id of the request that is being handled; "" outside of one."""
    return _current.get()
