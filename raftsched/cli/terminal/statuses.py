"""Define how commands show each status of a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Shown(NamedTuple):
    """Define how a status is shown to people, and to shells."""

    style: str = ""
    exit_code: int | None = None
    """The exit code of a command that waited for this end. 1 is for errors of the command itself, 2 for its wrong use."""
    heading: str = ""
    """Its column in the list of queues; "" = its name."""


STATUSES: Final[Mapping[str, Shown]] = {
    "scheduled": Shown(),
    "waiting_dependencies": Shown(heading="dependent"),
    "queued": Shown("blue"),
    "running": Shown("cyan"),
    "cancelling": Shown("yellow"),
    "retrying": Shown("yellow"),
    "paused": Shown("yellow"),
    "completed": Shown("green", 0),
    "dead_letter": Shown("red", 3, "dead"),
    "cancelled": Shown("dim", 4),
    "skipped": Shown("dim", 5),
}
"""In the order in which they are listed."""
