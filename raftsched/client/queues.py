"""Queues: what they hold, and what operators say about them. Every queue exists; one that nobody uses has zeros."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict, Unpack

from raftsched.client.blocking import Blocking, blocking
from raftsched.client.http.calls import Calls, given, part
from raftsched.client.records import QueueInfo, QueueScale, QueueSettings, Rate
from raftsched.client.specs import Moment


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


class BlockingQueue(Blocking[Queue]):
    """`Queue` without `await`."""

    get = blocking(Queue.get)
    configure = blocking(Queue.configure)
    pause = blocking(Queue.pause)
    resume = blocking(Queue.resume)
    scale = blocking(Queue.scale)
