"""Carry the result of an action to the page that the browser is sent to, in a cookie that is read once."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

from aiohttp import web

from raftsched.dashboard.session import ROOT

_COOKIE: Final = "raftsched_notice"
_CHARS_MAX: Final = 600
_SECONDS: Final = 30


def leave(response: web.StreamResponse, text: str, *, is_error: bool = False) -> None:
    """Store a text for the next page."""
    kept = quote(("!" if is_error else "") + text[:_CHARS_MAX], safe=" ")
    response.set_cookie(_COOKIE, kept, path=ROOT, httponly=True, samesite="Strict", max_age=_SECONDS)


def take(request: web.Request) -> tuple[str, str]:
    """Return the notice and the error that the last action left; "" for none."""
    text = unquote(request.cookies.get(_COOKIE, ""))
    return ("", text[1:]) if text.startswith("!") else (text, "")


def forget(request: web.Request, response: web.StreamResponse) -> None:
    """Remove the text once a page has shown it."""
    if _COOKIE in request.cookies:
        response.del_cookie(_COOKIE, path=ROOT, httponly=True, samesite="Strict")
