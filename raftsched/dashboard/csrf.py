"""Check that a form was sent by one of our own pages.

Two checks must pass. The browser's `Origin` is our own. And the form carries a token that follows from the session's
secret by HMAC, so that every node can check it and none stores it.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

from raftsched.errors import Forbidden

FIELD: Final = "csrf"
_PURPOSE: Final = b"raftsched dashboard form"


def form_token(secret: str) -> str:
    """Return the token of the forms of a session."""
    return hmac.new(secret.encode(), _PURPOSE, hashlib.sha256).hexdigest()


def check_origin(request: web.Request) -> None:
    """Raise `Forbidden` if the request was caused by a page of another site."""
    origin = request.headers.get("Origin")
    if origin is not None:
        is_own = urlsplit(origin).netloc == request.host
    else:
        is_own = request.headers.get("Sec-Fetch-Site", "same-origin") == "same-origin"
    if not is_own:
        raise Forbidden(f"the form was sent by another site, {(origin or 'unknown')[:200]}; nothing was changed")


def check_form(token: str, given: str) -> None:
    """Raise `Forbidden` unless the form carries the session's token."""
    if not hmac.compare_digest(token.encode(), given.encode()):
        raise Forbidden("the form does not belong to this session; open the page again, and send it from there")
