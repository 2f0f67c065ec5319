"""Provide the handle of a job, with its reads and changes.

Every change is safe to retry, and is retried. If a repetition is rejected and an earlier attempt may have taken effect,
the call ends in `OutcomeUnknown`, since the rejection may mean success. All calls raise `NotFound` if the job does not
exist, and `Unavailable`. A rejected change raises `Rejected`, and changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, TypedDict, Unpack

from raftsched.client.blocking import Blocking, Runtime, blocking, blocking_each
from raftsched.client.errors import JobCancelled, JobFailed, JobUnfinished, wait_timeout_error
from raftsched.client.http.calls import Calls, given, part
from raftsched.client.records import Explanation, History, JobInfo, LogLine, Runs, lines_of
from raftsched.client.specs import Moment, Priority
from raftsched.wire.runs import LogReply
from raftsched.wire.verbs import JOB

_POLL_SECONDS_MIN = 0.02
_POLL_SECONDS_MAX = 2.0
_LOG_WAIT_SECONDS = 10.0
"""Time for which one request for more lines waits at the leader."""


class JobChanges(TypedDict, total=False):
    """Changes of a job that does not run. None removes a value; omitted fields stay as they are."""

    run_at: Moment
    delay_seconds: float
    priority: Priority
    queue: str
    payload: Any
    max_attempts: int
    max_retries: int
    max_lost_workers: int | None
    timeout_seconds: float | None
    expires_at: Moment | None
    expires_in_seconds: float
    deadline: Moment | None
    deadline_in_seconds: float
    tags: Sequence[str] | None


class Job:
    """A job of the cluster; making the handle does no I/O."""

    __slots__ = ("_calls", "_path", "duplicate", "id")

    def __init__(self, calls: Calls, job_id: str, *, duplicate: bool = False) -> None:
        self._calls = calls
        self._path = f"/jobs/{part(job_id, field='job_id')}"
        self.id = job_id
        self.duplicate = duplicate
        """True if the submit found an earlier job with the same idempotency key, or a unique job."""

    def __repr__(self) -> str:
        return f"Job({self.id!r})"

    # -- reading ------------------------------------------------------------------------------------------------------

    async def get(self) -> JobInfo:
        """Read the job; raises `Invalid` for an invalid id."""
        return await self._calls.call(JobInfo, "GET", self._path)

    async def wait(self, timeout: float | None = None) -> Any:  # noqa: ASYNC109  # as asyncio.wait_for
        """Wait until the job is finished and return its result; None if it has none.

        Raises `JobFailed` or `JobCancelled` for another end. Raises `TimeoutError` after `timeout` seconds; the job
        continues. It polls at once, then at growing intervals of up to 2 seconds.
        """
        pause = _POLL_SECONDS_MIN
        job: JobInfo | None = None
        try:
            async with asyncio.timeout(timeout):
                while not (job := await self.get()).is_finished:
                    await asyncio.sleep(pause * (0.75 + 0.5 * self._calls.connection.randomness.random()))
                    pause = min(pause * 1.5, _POLL_SECONDS_MAX)
        except TimeoutError:
            raise wait_timeout_error(f"job {self.id}", timeout, job.status if job else None) from None
        return result_of(job)

    async def result(self) -> Any:
        """Return the result now; raises `JobUnfinished`, or as `wait` does for an end without a result."""
        job = await self.get()
        if not job.is_finished:
            raise JobUnfinished(job)
        return result_of(job)

    async def runs(self) -> Runs:
        """Read its runs with their attempts: workers, times, errors."""
        return await self._calls.call(Runs, "GET", f"{self._path}/runs")

    async def history(self) -> History:
        """Read its history, in order: actions with their actors, attempts, and its end."""
        return await self._calls.call(History, "GET", f"{self._path}/history")

    async def explain(self) -> Explanation:
        """Explain why it is not running."""
        return await self._calls.call(Explanation, "GET", f"{self._path}/explain")

    async def logs(
        self, *, follow: bool = False, attempt: int | None = None, run: int | None = None
    ) -> AsyncIterator[LogLine]:
        """Yield the lines of the latest attempt's log, or of `attempt` (of `run`, by default the latest).

        With `follow` it waits for more lines: until the end of `attempt`, or without it through all further attempts
        until the job is finished.
        """
        query = given(attempt=attempt, run=run, wait_seconds=_LOG_WAIT_SECONDS if follow else None)
        timeout_seconds = _LOG_WAIT_SECONDS + self._calls.connection.settings.request_timeout_seconds
        while True:
            answer = await self._calls.call(
                LogReply, "GET", f"{self._path}/logs", query=query, timeout_seconds=timeout_seconds
            )
            for line in lines_of(answer):
                yield line
            if not answer.next_cursor or (not follow and not answer.text):
                return
            query["cursor"] = answer.next_cursor

    # -- changing -----------------------------------------------------------------------------------------------------

    async def cancel(self, *, force: bool = False) -> JobInfo:
        """Cancel it and return it: `cancelled`, or `cancelling` until its worker is notified.

        A call whose reply is lost is repeated. If somebody runs the job again in between, that run is cancelled, too.

        `force` ends a running attempt at once; its handler may still have effects. Cancelling twice is fine. Raises
        `Rejected` with code `already_finished` if it ended before in another status.
        """
        return await self._do("cancel", given(force=force or None))

    async def pause(
        self, *, until: Moment | None = None, for_seconds: float | None = None, reason: str | None = None
    ) -> JobInfo:
        """Pause it until it is resumed, or until a time; a running attempt continues."""
        return await self._do("pause", given(until=until, for_seconds=for_seconds, reason=reason))

    async def resume(self) -> JobInfo:
        """End its pause."""
        return await self._do("resume")

    async def retry(self, *, run_at: Moment | None = None, delay_seconds: float | None = None) -> JobInfo:
        """Run it again, now by default, as a new run; or start its next attempt early if it waits for one.

        A completed job cannot be retried; use `replay`.
        """
        return await self._do("retry", given(run_at=run_at, delay_seconds=delay_seconds))

    async def replay(self, *, idempotency_key: str | None = None, **changes: Unpack[ReplayChanges]) -> Job:
        """Submit a clone of it with `changes`, and return the clone; `JobInfo.replay_of` is the original."""
        clone = await self._do("replay", changes, key=idempotency_key)
        return Job(self._calls, clone.id)

    async def update(self, *, if_revision: int | None = None, **changes: Unpack[JobChanges]) -> JobInfo:
        """Change its time and options while it does not run.

        With `if_revision`, only if it has not changed since that revision; else raises `Rejected` with code
        `stale_revision`.
        """
        return await self._do("amend", changes, if_revision=if_revision)

    async def reschedule(self, run_at: Moment | None = None, *, delay_seconds: float | None = None) -> JobInfo:
        """Change its time; give exactly one of the two. Raises as `update` does."""
        return await self._do("reschedule", given(run_at=run_at, delay_seconds=delay_seconds))

    async def _do(self, verb: str, fields: Mapping[str, Any] | None = None, **options: Any) -> JobInfo:
        return await self._calls.do(JobInfo, JOB[verb], self._path, fields, **options)


class ReplayChanges(TypedDict, total=False):
    """Differences of a clone from its original."""

    run_at: Moment
    delay_seconds: float
    payload: Any
    queue: str
    priority: Priority


class BlockingJob(Blocking[Job]):
    """`Job` without `await`."""

    def __init__(self, runtime: Callable[[], Runtime[Any]], job_id: str, *, duplicate: bool = False) -> None:
        super().__init__(runtime, lambda client: client.job(job_id))
        self.id = job_id
        self.duplicate = duplicate

    def __repr__(self) -> str:
        return f"BlockingJob({self.id!r})"

    get = blocking(Job.get)
    wait = blocking(Job.wait)
    result = blocking(Job.result)
    runs = blocking(Job.runs)
    history = blocking(Job.history)
    explain = blocking(Job.explain)
    logs = blocking_each(Job.logs)
    cancel = blocking(Job.cancel)
    pause = blocking(Job.pause)
    resume = blocking(Job.resume)
    retry = blocking(Job.retry)
    update = blocking(Job.update)
    reschedule = blocking(Job.reschedule)

    def replay(self, *, idempotency_key: str | None = None, **changes: Unpack[ReplayChanges]) -> BlockingJob:
        """Submit a clone of it; see `Job.replay`."""
        runtime = self._runtime()
        clone = runtime.run(self._pick(runtime.client).replay(idempotency_key=idempotency_key, **changes))
        return BlockingJob(self._runtime, clone.id)


def result_of(job: JobInfo) -> Any:
    """Return the result of a finished job; raises `JobCancelled` or `JobFailed` if it has none."""
    if job.status == "completed":
        return job.result
    raise JobCancelled(job) if job.status == "cancelled" else JobFailed(job)
