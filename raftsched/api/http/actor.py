"""Read the actor of a request: the name shown in job histories and the audit trail.

Until there are tokens, callers name themselves in the header `X-Actor`, and may act for every tenant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aiohttp import web
from msgspec.structs import replace

from raftsched import limits
from raftsched.core.operations.codec import SubmitJob
from raftsched.core.records.bounds import ANONYMOUS
from raftsched.errors import Malformed

ACTOR_HEADER: Final = "X-Actor"


def actor_of(request: web.Request) -> str:
    """Return the actor of the request; raises `Malformed` for a header that is not a name."""
    return actor_named(request.headers.getall(ACTOR_HEADER, []))


def actor_named(values: Sequence[str]) -> str:
    """Return the actor named by the values of the header; raises as `actor_of`."""
    if not values:
        return ANONYMOUS
    actor = values[0].strip()
    if len(values) > 1 or not actor or not actor.isprintable() or len(actor.encode()) > limits.ACTOR_CHARS_MAX:
        rule = f"1 to {limits.ACTOR_CHARS_MAX} bytes of printable text, once"
        raise Malformed(f"{ACTOR_HEADER}: expected {rule}", field=ACTOR_HEADER)
    return actor


def signed(operation: SubmitJob, actor: str) -> SubmitJob:
    """Return the submission with its actor; unchanged if the actor is anonymous."""
    return operation if actor == ANONYMOUS else replace(operation, actor=actor)
