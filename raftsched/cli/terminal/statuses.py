"""Define how commands show each status of a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class StatusStyle(NamedTuple):
    """Define how a status is shown to people, and to shells."""

    style: str = ""
    exit_code: int | None = None
    """The exit code of a command that waited for this end. 1 is for errors of the command itself, 2 for its wrong use."""
    heading: str = ""
    """Its column in the list of queues; "" = its name."""


STATUSES: Final[Mapping[str, StatusStyle]] = {
    "scheduled": StatusStyle(),
    "waiting_dependencies": StatusStyle(heading="dependent"),
    "queued": StatusStyle("blue"),
    "running": StatusStyle("cyan"),
    "cancelling": StatusStyle("yellow"),
    "retrying": StatusStyle("yellow"),
    "paused": StatusStyle("yellow"),
    "completed": StatusStyle("green", 0),
    "dead_letter": StatusStyle("red", 3, "dead"),
    "cancelled": StatusStyle("dim", 4),
    "skipped": StatusStyle("dim", 5),
}
"""In the order in which they are listed."""
