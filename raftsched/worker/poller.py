"""Ask the leader for jobs: with as few requests as the load allows, and none too late.

One request at a time. Under light load a request for a free slot is sent at once, and waits at the leader for a job to
become due. While handlers are fast and slots are busy, it pays to wait a moment for more free slots: the request then
brings many jobs, and as many again are leased ahead, so that slots don't idle for a round trip.

A request that is cut off may have leased jobs that nobody knows. Therefore it is repeated under the same request id and
then gets the same leases, counted from its first sending. It is also short, and draining waits for its end instead of
cutting it off. A node that has not answered a second after the end of the wait is taken for gone, and the request is
repeated at another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from importlib.metadata import version

import msgspec

from raftsched import limits
from raftsched.client.http.connection import Connection
from raftsched.client.http.hedge import Request
from raftsched.client.http.idempotency_keys import KeyFactory
from raftsched.client.http.problems import TooLargeForProxy
from raftsched.client.http.retries import Failure, Retries
from raftsched.errors import OutcomeUnknown
from raftsched.wire.calls import Kind
from raftsched.wire.workers import LeaseRequest, LeasesDocument
from raftsched.worker.execution.executor import Executor
from raftsched.worker.outage_log import Outage
from raftsched.worker.runs.runs import Grant
from raftsched.worker.settings import WorkerSettings

_VERSION = version("raftsched")
_WAIT_SHARE = 1 / 4
"""A request for jobs waits at most this share of a lease."""
_MORE_THAN_EVER = 2 * limits.LEASE_CAPACITY_MAX
_SHORT_WAIT_SECONDS = 1.0
"""Used until a first lease has shown how long leases are, and while jobs come: a lost node is noticed sooner."""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(LeasesDocument[Grant]).decode


class Poller:
    """Lease jobs into `executor` until `finish`; `on_leased` receives the length of the leases."""

    def __init__(
        self,
        connection: Connection,
        executor: Executor,
        settings: WorkerSettings,
        *,
        worker: str,
        queues: Sequence[str],
        region: str | None,
        names: Sequence[str],
        executes: Sequence[Kind] | None,
        on_leased: Callable[[float, float], None],
    ) -> None:
        self._connection = connection
        self._executor = executor
        self._settings = settings
        self._worker = worker
        self._queues = queues
        self._region = region
        self._names = names
        """Job names that it has handlers for."""
        self._executes = executes
        """Kinds of jobs that it executes without a handler; None = none."""
        self._on_leased = on_leased
        self._wait_seconds = min(settings.wait_seconds, _SHORT_WAIT_SECONDS)
        self._wait_seconds_max = self._wait_seconds
        """By the length of leases, once that is known."""
        self._enough = max(1, settings.concurrency // 2)
        self._wanted = 1
        self._has_room = asyncio.Event()
        self._is_finishing = False
        self._retries = Retries(settings.client, connection.randomness)
        self._outage = Outage(connection.clock)
        self._keys = KeyFactory(connection.clock, connection.randomness)
        self._request: tuple[str, float] | None = None
        """Id and start of a request whose reply hasn't come yet."""

    def finish(self) -> None:
        """Ask no more; `run` returns when the current request has ended."""
        self._is_finishing = True
        self._has_room.set()

    def room_changed(self) -> None:
        """Note that a slot is free."""
        if self._executor.room >= self._wanted:
            self._has_room.set()

    async def run(self) -> None:
        """Lease jobs until `finish`. Raises errors that no retry can fix: `Invalid`, or `Rejected` as for a wrong token."""
        while True:
            await self._wait_for_room()
            if self._is_finishing:
                return
            room = self._executor.room  # less than before if handlers turned out to be slow meanwhile
            if room > 0:
                await self._ask(room)

    async def _wait_for_room(self) -> None:
        """Return once there are free slots to ask for, or this is finishing."""
        await self._until_room(1, None)
        if self._executor.is_busy and self._executor.is_fast:
            await self._until_room(self._enough, self._settings.linger_seconds)

    async def _until_room(self, wanted: int, seconds: float | None) -> None:
        """Return once there are `wanted` free slots, at the latest after `seconds` (None: without end)."""
        if self._executor.room >= wanted or self._is_finishing:
            return
        self._wanted = wanted
        self._has_room.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._has_room.wait()
        except TimeoutError:
            return

    async def _ask(self, capacity: int) -> None:
        if self._request is None:
            self._request = (self._keys.next(), self._connection.clock.monotonic())
        request_id, asked_at = self._request
        ask = LeaseRequest(
            worker=self._worker,
            queues=self._queues,
            capacity=capacity,
            wait_seconds=self._wait_seconds,
            request_id=request_id,
            region=self._region,
            names=self._names,
            executes=self._executes,
            version=_VERSION,
        )
        reply = await self._connection.attempt(
            Request("POST", "/leases", _encode(ask)),
            timeout_seconds=self._wait_seconds + self._settings.client.hedge_seconds,
        )
        answer = reply if isinstance(reply, Failure) else _read(reply)
        if isinstance(answer, Failure):
            await self._failed(answer)
            return
        self._outage.answered()
        self._retries = Retries(self._settings.client, self._connection.randomness)
        self._request = None
        self._wait_seconds = self._wait_seconds_max
        if answer:
            lease_seconds = min(grant.lease_seconds for grant in answer)
            self._wait_seconds_max = min(self._settings.wait_seconds, lease_seconds * _WAIT_SHARE)
            self._wait_seconds = min(self._wait_seconds_max, _SHORT_WAIT_SECONDS)
            self._executor.accept(answer, asked_at)
            self._on_leased(lease_seconds, asked_at)

    async def _failed(self, failure: Failure) -> None:
        error = failure.error
        if not error.retryable and not isinstance(error, TooLargeForProxy):
            raise error
        self._outage.failed(str(error))
        pause = self._retries.next_pause(failure.retry_after_seconds)
        await self._until_room(_MORE_THAN_EVER, pause)  # only `finish` ends this pause early


def _read(reply: bytes) -> Sequence[Grant] | Failure:
    try:
        return _decode(reply).leases
    except msgspec.DecodeError as error:
        return Failure(OutcomeUnknown(f"the reply can't be read: {error}"))
