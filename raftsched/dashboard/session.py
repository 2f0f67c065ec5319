"""Find out who reads a page, and sign people in and out.

The cookie of a session holds the token itself: `HttpOnly`, `SameSite=Strict`, and `Secure` under TLS. So every node
accepts it, and no node keeps sessions. The API checks it with every request, so a revoked token ends at once. A client
with a certificate that the API knows needs no cookie. If access control is off, nobody signs in.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from aiohttp import web

from raftsched.dashboard.csrf import form_token
from raftsched.tls.names import client_names

ROOT: Final = "/ui"
SESSION_COOKIE: Final = "raftsched_session"
VISITOR_COOKIE: Final = "raftsched_visitor"
"""A random text, from which the form tokens of people without a token are derived."""
_TOKEN: Final = re.compile(r"[!-~]{1,512}")
_NO_COOKIE: Final = re.compile(r'[",;\\]')
"""Characters that a cookie can't hold; no token has them."""
_VISITOR: Final = re.compile(r"[A-Za-z0-9_-]{20,100}")
_LOCAL: Final = re.compile(rf"{ROOT}/[A-Za-z0-9_.~!$&'()*+,;=:@%/?-]{{0,2000}}")


class Door(Protocol):
    """The part of the API's door that knows about callers."""

    @property
    def is_open(self) -> bool:
        """Return whether everybody may come in."""

    def voucher(self, names: Sequence[str]) -> str | None:
        """Return the credentials of a client with a verified certificate of these names; None if it has none."""


@dataclass(frozen=True, slots=True)
class Session:
    """The reader: the token to send to the API, and the text to which forms are bound."""

    token: str
    """"" if access control is off, or if nobody has signed in."""
    is_open: bool
    """Whether access control is off."""
    has_cookie: bool
    """Whether somebody signed in, and so can sign out."""
    secret: str
    """The token, or the visitor's random text."""
    is_new_visitor: bool
    """Whether `secret` has still to be stored as the visitor's cookie."""

    @property
    def is_signed_in(self) -> bool:
        return self.is_open or bool(self.token)

    @property
    def csrf(self) -> str:
        """Return the token that every form of this session carries."""
        return form_token(self.secret)


def read_session(request: web.Request, door: Door) -> Session:
    """Return who makes the request. Nothing is checked yet; the API does that."""
    token = "" if door.is_open else _checked(request.cookies.get(SESSION_COOKIE, ""))
    if token:
        return Session(token, is_open=False, has_cookie=True, secret=token, is_new_visitor=False)
    visitor = request.cookies.get(VISITOR_COOKIE, "")
    is_new = _VISITOR.fullmatch(visitor) is None
    secret = secrets.token_urlsafe(32) if is_new else visitor
    names = client_names(request.get_extra_info("peercert"))
    voucher = door.voucher(names) if names and not door.is_open else None
    token = (voucher or "").removeprefix("Bearer ")
    return Session(token, is_open=door.is_open, has_cookie=False, secret=secret, is_new_visitor=is_new)


def _checked(token: str) -> str:
    return token if _TOKEN.fullmatch(token) and not _NO_COOKIE.search(token) else ""


def is_possible(token: str) -> bool:
    """Return whether a text can be a token, and so be asked for and stored in a cookie."""
    return bool(_checked(token))


def sign_in(response: web.StreamResponse, token: str, *, secure: bool) -> None:
    """Store the token in the cookie of the session, which ends with the browser."""
    _set(response, SESSION_COOKIE, token, secure=secure)


def is_secure(request: web.Request) -> bool:
    """Return whether the browser uses TLS, to this node or to a proxy that says so."""
    return request.secure or request.headers.get("X-Forwarded-Proto") == "https"


def sign_out(response: web.StreamResponse) -> None:
    """Remove the token from the browser."""
    response.del_cookie(SESSION_COOKIE, path=ROOT, httponly=True, samesite="Strict")


def remember_visitor(response: web.StreamResponse, session: Session, *, secure: bool) -> None:
    """Store the visitor's random text, if it is new."""
    if session.is_new_visitor:
        _set(response, VISITOR_COOKIE, session.secret, secure=secure)


def _set(response: web.StreamResponse, name: str, text: str, *, secure: bool) -> None:
    response.set_cookie(name, text, path=ROOT, httponly=True, samesite="Strict", secure=secure)


def local_path(wanted: str) -> str:
    """Return `wanted` if it is a path of the dashboard, else the first page: no redirect leaves the dashboard."""
    return wanted if _LOCAL.fullmatch(wanted) else f"{ROOT}/"
