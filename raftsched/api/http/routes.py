"""Define the entries of the route table: method, path, answering node, request and reply.

The router, the forwarding and the OpenAPI document are all built from the table, so they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from aiohttp import web

from raftsched.api.access.door import ACTOR_HEADER
from raftsched.api.access.rules import Access
from raftsched.wire.verbs import Verb

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
BASE_PATH: Final = "/api/v1"
KEY_HEADER: Final = "Idempotency-Key"
MATCH_HEADER: Final = "If-Match"
STREAM_TYPE: Final = "text/event-stream"
BACKUP_TYPE: Final = "application/vnd.raftsched.backup"


class Answered(Enum):
    """The node that answers; the others forward."""

    BY_LEADER = auto()
    BY_LEADER_UNLESS_STALE = auto()
    """The leader; with `?consistency=stale` any node."""
    HERE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One method of one path."""

    method: str
    path: str
    handler: Handler
    access: Access
    """The rights that it asks of its caller. It has no default, so that none is forgotten."""
    answered: Answered
    reply: type | None
    """Struct of the successful reply's body; None for a document of another kind."""
    reply_type: str = "application/json"
    statuses: tuple[int, ...] = (200,)
    """HTTP statuses of success; any other is a problem."""
    body: type | None = None
    body_required: bool = True
    query: type | None = None
    waits: bool = False
    """Whether it is a long poll, or takes long; the reply may take `limits.LEASE_WAIT_SECONDS_MAX`."""
    is_relayed: bool = False
    """Whether followers forward several of these requests in one (`submit_relay`)."""
    headers: tuple[str, ...] = ()
    """Request headers that the route reads."""
    verb: Verb | None = None
    """Its verb; None if it is not in the table of verbs."""

    @property
    def methods(self) -> tuple[str, ...]:
        """Return the methods. A GET route answers HEAD too, for load balancers; not a stream, which is endless or long."""
        has_head = self.method == "GET" and self.reply_type not in (STREAM_TYPE, BACKUP_TYPE)
        return ("GET", "HEAD") if has_head else (self.method,)

    @property
    def name(self) -> str:
        """Return the name, which is unique among the routes."""
        return f"{self.verb.name}_{self.verb.noun}" if self.verb is not None else self.handler.__name__

    @property
    def summary(self) -> str:
        """Return its summary in the OpenAPI document: the first line about its verb, or of the handler's docstring."""
        text = self.verb.help if self.verb is not None else self.handler.__doc__ or ""
        return text.strip().split("\n", 1)[0]


def route(
    access: Access,
    method: str,
    path: str,
    handler: Handler,
    reply: type | None,
    *,
    answered: Answered | None = None,
    optional: type | None = None,
    body: type | None = None,
    **fields: Any,
) -> Route:
    """Return the route of `path` below the API's base path; `optional` is a body that may be left out.

    By default the leader answers, and any node answers a GET with `?consistency=stale`.
    """
    default = Answered.BY_LEADER_UNLESS_STALE if method == "GET" else Answered.BY_LEADER
    return Route(
        method=method,
        path=f"{BASE_PATH}{path}",
        handler=handler,
        access=access,
        answered=answered or default,
        reply=reply,
        body=body or optional,
        body_required=optional is None,
        **fields,
    )


def change(
    access: Access,
    method: str,
    path: str,
    handler: Handler,
    reply: type,
    *,
    headers: tuple[str, ...] = (),
    **fields: Any,
) -> Route:
    """Return the route of a change, with the header of its actor."""
    return route(access, method, path, handler, reply, headers=(*headers, ACTOR_HEADER), **fields)


def verb_route(access: Access, verb: Verb, handler: Handler) -> Route:
    """Return the route of a verb."""
    return change(
        access,
        verb.method,
        verb.path(verb.object_path),
        handler,
        verb.reply,
        body=verb.body,
        optional=None if verb.is_body_required else verb.body,
        query=verb.query,
        headers=(KEY_HEADER,) * verb.is_keyed + (MATCH_HEADER,) * verb.is_conditional,
        statuses=verb.statuses,
        verb=verb,
    )
