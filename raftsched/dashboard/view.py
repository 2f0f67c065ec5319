"""Define what a page gets: who reads it, through which client, and what they asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from raftsched.client import Client
from raftsched.client.records import Caller
from raftsched.dashboard.session import Session
from raftsched.wire.cluster import ClusterStatus


@dataclass(slots=True, kw_only=True)
class View:
    """One request for a page."""

    client: Client
    """Reads and changes with the rights of the reader; stale reads if there is no leader."""
    session: Session
    caller: Caller
    cluster: ClusterStatus
    """The cluster as this node knows it."""
    node_id: str
    path: str
    """Its path, with `/ui`."""
    match: Mapping[str, str]
    """The names in its path."""
    query: Mapping[str, str]
    """The fields of its URL that are not empty."""
    form: Mapping[str, str]
    """The fields of its form that are not empty; {} for GET."""
    lists: Mapping[str, list[str]]
    """All values of the fields of its URL or form that can be given more than once."""
    now: datetime
    error: str = ""
    """The reason why its form was refused, to be shown beside it."""
    notice: str = ""
    """The result of the previous action, shown once."""
    stale_since: datetime | None = None
    """The time of the latest state that this node has, if it is not known to be current."""

    def may(self, access: str) -> bool:
        """Return whether the reader's role has this right; the API decides all the same."""
        return access in self.caller.may


def utc_now() -> datetime:
    return datetime.now(UTC)


def filled(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields that hold a text, without spaces around it; of a repeated field the first."""
    texts = {name: value.strip() for name, value in reversed(list(fields.items())) if isinstance(value, str)}
    return {name: text for name, text in texts.items() if text}
