"""Submit jobs, joined into requests `POST /jobs/batch`."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import msgspec

from raftsched.client.http.batches import Answers, BatchSender, OutgoingItem
from raftsched.client.http.connection import Connection
from raftsched.client.http.gather import Gatherer, GatherLimits
from raftsched.client.http.problems import problem_error
from raftsched.client.http.retries import definite
from raftsched.errors import OutcomeUnknown, RaftschedError
from raftsched.wire.jobs import BatchItem, BatchReply


class Accepted(NamedTuple):
    """The id of a job that is stored on the disks of a majority."""

    job_id: str
    is_duplicate: bool


_decode = msgspec.json.Decoder(BatchReply).decode
_CREATED = 201


class _Submit(OutgoingItem):
    __slots__ = ("future",)

    def __init__(self, body: bytes, deadline: float, future: asyncio.Future[Accepted]) -> None:
        super().__init__(body, deadline)
        self.future = future

    def deliver(self, answer: object | RaftschedError) -> None:
        if self.future.done():  # the caller gave up waiting; the job may well be stored
            return
        if isinstance(answer, Accepted):
            self.future.set_result(answer)
        elif isinstance(answer, RaftschedError):
            self.future.set_exception(definite(answer, maybe_applied=self.maybe_applied))
            self.future.exception()  # the caller may be gone, as when a program ends: the error must not be logged


class Submitter:
    """Sends encoded jobs; jobs that are submitted at the same time share a request."""

    def __init__(self, connection: Connection) -> None:
        settings = connection.settings
        self._connection = connection
        self._sender = BatchSender(connection, "/jobs/batch", b'{"jobs":[', _read)
        self._gatherer: Gatherer[_Submit] = Gatherer(
            self._sender.send,
            GatherLimits(
                items_max=settings.batch_jobs_max,
                bytes_max=settings.batch_bytes_max,
                in_flight_max=settings.requests_in_flight_max,
                early_items=settings.early_batch_jobs,
                late_seconds=settings.late_seconds,
                late_max=settings.late_requests_max,
                waiting_max=settings.waiting_jobs_max,
            ),
        )

    def submit(self, body: bytes) -> asyncio.Future[Accepted]:
        """Submit the job `body`, which must carry its idempotency key, and return the future answer."""
        self._connection.bind()
        future: asyncio.Future[Accepted] = asyncio.get_running_loop().create_future()
        deadline = self._connection.clock.monotonic() + self._connection.settings.retry_seconds
        self._gatherer.add(_Submit(body, deadline, future))
        return future

    @property
    def is_full(self) -> bool:
        """Return whether too many submits wait; then call `wait_for_capacity` first."""
        return self._gatherer.is_full

    async def wait_for_capacity(self) -> None:
        self._connection.bind()
        await self._gatherer.wait_for_capacity()

    async def close(self) -> None:
        """End the submits in progress: with `Unavailable` if never sent, else with `OutcomeUnknown`."""
        self._connection.bind()
        await self._gatherer.close()


def _read(body: bytes) -> Answers:
    return [_answer(result) for result in _decode(body).results]


def _answer(result: BatchItem) -> Accepted | RaftschedError:
    if result.problem:
        return problem_error(result.problem, result.status)
    if result.id:
        return Accepted(result.id, result.status != _CREATED)
    return OutcomeUnknown(f"an answer with neither id nor problem, status {result.status}")
