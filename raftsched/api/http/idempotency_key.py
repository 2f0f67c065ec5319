"""Read the idempotency key of a request."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from aiohttp import web

from raftsched.api.http.routes import KEY_HEADER
from raftsched.errors import Invalid, Malformed
from raftsched.wire.common import KEY_PATTERN, KEY_RULE

_match_key: Final = re.compile(KEY_PATTERN).match


def key_of(request: web.Request, in_body: str | None) -> str:
    """Return the idempotency key, from header or body; "" if there is none."""
    return key_named(request.headers.getall(KEY_HEADER, []), in_body)


def key_named(values: Sequence[str], in_body: str | None) -> str:
    """Return the idempotency key, from the values of the header or from the body; "" if there is none."""
    if not values:
        return in_body or ""
    if len(values) > 1 or not _match_key(values[0]):
        raise Malformed(f"{KEY_HEADER}: expected {KEY_RULE}, once", field=KEY_HEADER)
    if in_body not in (None, values[0]):
        raise Invalid(f"{KEY_HEADER}: is not the idempotency_key of the body; give one of them", field=KEY_HEADER)
    return values[0]
