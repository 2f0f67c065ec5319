"""Take a worker out of service, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raftsched.client.blocking import Blocking, blocking
from raftsched.client.http.calls import Calls, given, part
from raftsched.client.records import WorkerInfo
from raftsched.wire.verbs import WORKER


class WorkerHandle:
    """A worker by its name; making the handle does no I/O. All calls raise `NotFound`, `Invalid` and `Unavailable`."""

    __slots__ = ("_calls", "_path", "name")

    def __init__(self, calls: Calls, name: str) -> None:
        self._calls = calls
        self._path = f"/workers/{part(name, field='name')}"
        self.name = name

    def __repr__(self) -> str:
        return f"WorkerHandle({self.name!r})"

    async def drain(self, *, reason: str | None = None) -> WorkerInfo:
        """Give it no further jobs; its running jobs continue. It stays so across a change of the leader."""
        return await self._do("drain", given(reason=reason))

    async def undrain(self) -> WorkerInfo:
        """Give it jobs again."""
        return await self._do("undrain")

    async def _do(self, verb: str, fields: Mapping[str, Any] | None = None) -> WorkerInfo:
        return await self._calls.do(WorkerInfo, WORKER[verb], self._path, fields)


class BlockingWorkerHandle(Blocking[WorkerHandle]):
    """`WorkerHandle` without `await`."""

    drain = blocking(WorkerHandle.drain)
    undrain = blocking(WorkerHandle.undrain)
