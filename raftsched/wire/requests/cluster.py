"""What operators ask of the cluster."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from raftsched.wire.requests.common import MEMBER_ID_PATTERN, MEMBER_ID_RULE, Request


class MemberRequest(Request, frozen=True):
    """A node that is to join the cluster; it must be started with an empty data directory and this id."""

    id: Annotated[str, Meta(pattern=MEMBER_ID_PATTERN, description=MEMBER_ID_RULE)]
    raft: Annotated[str, Meta(max_length=300)]
    """host:port at which the other nodes reach it."""
    api: Annotated[str, Meta(max_length=300)]
    """host:port of its API."""
