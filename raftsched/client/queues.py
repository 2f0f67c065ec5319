"""Queues: what they hold, and what operators say about them. Every queue exists; one that nobody uses has zeros."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypedDict, Unpack

import msgspec

from raftsched.client.http.calls import Calls, given, part
from raftsched.client.records import PauseInfo
from raftsched.client.specs import Moment


class Rate(msgspec.Struct, frozen=True):
    """At most `count` leases in `per_seconds`, evenly spread, and up to `burst` at once after a rest.

    A span of `per_seconds` sees at most `count + burst - 1` leases: with `burst` 1 never more than `count`. Without
    `burst` it is what flows in within 100 ms, at least 1.
    """

    count: int
    per_seconds: float = 1.0
    burst: int | None = None


class QueueChanges(TypedDict, total=False):
    """What to change of a queue's settings; None takes one away, what is left out stays as it is."""

    rate: Rate | Mapping[str, Any] | None
    """Leases per time."""
    concurrency: int | None
    """Jobs that run at the same time."""
    key_concurrency: int | None
    """Jobs of one concurrency key that run at the same time; 1 by default."""
    ageing_seconds: float | None
    """A waiting job gains one priority for each of these."""
    retention_seconds: float | None
    """How long finished jobs are kept."""
    max_lost_workers: int | None
    """Lost workers that end a job in the dead letters; 3 by default, and 1,000,000 is any number."""
    weights: Mapping[str, int] | None
    """Shares of tenants; those that are not named have 1."""


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What operators said about a queue; None where nobody said anything."""

    pause: PauseInfo | None = None
    """While it is paused no worker gets a job of it."""
    rate: Rate | None = None
    concurrency: int | None = None
    key_concurrency: int | None = None
    ageing_seconds: float | None = None
    retention_seconds: float | None = None
    max_lost_workers: int | None = None
    weights: dict[str, int] = {}
    revision: int | None = None
    updated_at: datetime | None = None


class QueueInfo(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs of each status a queue holds, and its settings."""

    name: str
    tenant: str = ""
    scheduled: int = 0
    waiting_dependencies: int = 0
    queued: int = 0
    running: int = 0
    cancelling: int = 0
    paused: int = 0
    retrying: int = 0
    completed: int = 0
    failed: int = 0
    dead_letter: int = 0
    cancelled: int = 0
    skipped: int = 0
    exact: bool = True
    """False: so many timed jobs came due that some count as they were before."""
    oldest_wait_ms: int = 0
    waiting_workers: int | None = None
    settings: QueueSettings = QueueSettings()


class QueueScale(msgspec.Struct, frozen=True, kw_only=True):
    """What decides how many workers a queue should have."""

    ready: int = 0
    """Jobs that are due and wait for nothing but a worker, and the queue's limits."""
    exact: bool = True
    running: int = 0
    oldest_wait_ms: int = 0
    waiting_workers: int = 0
    worker_slots: int = 1
    wanted_workers: int = 0


class Queue:
    """A queue by its name; making the handle does no I/O. All calls raise `Invalid` and `Unavailable`."""

    __slots__ = ("_calls", "_path", "name")

    def __init__(self, calls: Calls, name: str) -> None:
        self._calls = calls
        self._path = f"/queues/{part(name, field='name')}"
        self.name = name

    def __repr__(self) -> str:
        return f"Queue({self.name!r})"

    async def get(self) -> QueueInfo:
        """Read its counts and settings."""
        return await self._calls.call(QueueInfo, "GET", self._path)

    async def configure(self, **changes: Unpack[QueueChanges]) -> QueueSettings:
        """Change its settings and return all of them; what runs goes on."""
        return await self._calls.call(QueueSettings, "PATCH", self._path, changes)

    async def pause(
        self, *, until: Moment | None = None, for_seconds: float | None = None, reason: str | None = None
    ) -> QueueSettings:
        """Give out no more jobs of it until a time, or until it is resumed; what runs goes on."""
        document = given(until=until, for_seconds=for_seconds, reason=reason)
        return await self._calls.call(QueueSettings, "POST", f"{self._path}/pause", document)

    async def resume(self) -> QueueSettings:
        """Give out jobs of it again."""
        return await self._calls.call(QueueSettings, "POST", f"{self._path}/resume")

    async def scale(self) -> QueueScale:
        """Read the numbers by which to add or remove workers."""
        return await self._calls.call(QueueScale, "GET", f"{self._path}/scale", has_consistency=False)
