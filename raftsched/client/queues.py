"""Read queues, and change their settings. Every queue exists; an unused one has zero counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict, Unpack

from raftsched.client.blocking import Blocking, blocking
from raftsched.client.http.calls import Calls, given, part
from raftsched.client.records import QueueInfo, QueueScale, QueueSettings, Rate
from raftsched.client.specs import JobSpec, Moment, field_of
from raftsched.wire.verbs import QUEUE


class QueueChanges(TypedDict, total=False):
    """Changes of a queue's settings. None removes a setting; omitted ones stay as they are."""

    rate: Rate | Mapping[str, Any] | None
    """Leases per time."""
    concurrency: int | None
    """Jobs that run at the same time."""
    key_concurrency: int | None
    """Jobs of one concurrency key that run at the same time; 1 by default."""
    ageing_seconds: float | None
    """A waiting job's priority rises by one each time this period passes."""
    retention_seconds: float | None
    """Time to keep finished jobs."""
    max_lost_workers: int | None
    """Lost workers until the dead-letter queue; 3 by default, and 1,000,000 means no limit."""
    weights: Mapping[str, int] | None
    """Shares of tenants; an unnamed tenant has 1."""
    on_failure: JobSpec | Mapping[str, Any] | None
    """A job to submit if one ends in the dead-letter queue that has no `on_failure` of its own."""
    on_success: JobSpec | Mapping[str, Any] | None
    """The same for jobs that complete."""


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
        """Change its settings and return all of them; running jobs continue."""
        return await self._do("configure", {name: field_of(value) for name, value in changes.items()})

    async def pause(
        self, *, until: Moment | None = None, for_seconds: float | None = None, reason: str | None = None
    ) -> QueueSettings:
        """Stop dispatching from it until a time, or until it is resumed; running jobs continue."""
        return await self._do("pause", given(until=until, for_seconds=for_seconds, reason=reason))

    async def resume(self) -> QueueSettings:
        """Dispatch from it again."""
        return await self._do("resume")

    async def scale(self) -> QueueScale:
        """Read the numbers by which to add or remove workers."""
        return await self._calls.call(QueueScale, "GET", f"{self._path}/scale", has_consistency=False)

    async def _do(self, verb: str, fields: Mapping[str, Any] | None = None) -> QueueSettings:
        return await self._calls.do(QueueSettings, QUEUE[verb], self._path, fields)


class BlockingQueue(Blocking[Queue]):
    """`Queue` without `await`."""

    get = blocking(Queue.get)
    configure = blocking(Queue.configure)
    pause = blocking(Queue.pause)
    resume = blocking(Queue.resume)
    scale = blocking(Queue.scale)
