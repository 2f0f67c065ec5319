"""Submit, lease and complete jobs for a while, at a fixed rate or as fast as the cluster takes them.

At a fixed rate (open loop) lag and commit latency mean something, since nothing queues up by design; as fast as
possible (closed loop, `window` jobs under way) jobs per second and CPU per job do.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any

from raftsched.cli.bench import NOOP
from raftsched.cli.bench.processes import cpu_by_role
from raftsched.client import Client, JobSpec
from raftsched.errors import RaftschedError

_TICK_SECONDS = 0.01
_SAMPLE_JOBS = 2_000
WARM_UP_SECONDS = 2.0
_DRAIN_SECONDS_MAX = 30.0


@dataclass(slots=True)
class Measurement:
    """The results of one phase; times in milliseconds, CPU in milliseconds a job."""

    jobs: int
    seconds: float
    jobs_per_second: float
    cpu_ms_per_job: float
    cpu_ms_per_job_by_role: dict[str, float]
    commit_ms_p50: float
    commit_ms_p99: float
    lag_ms_p50: float
    lag_ms_p99: float
    errors: int = 0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Load:
    """Jobs in flight and their results so far.

    All jobs are as `spec`, in the queue `spec.queue`. `pids` are the processes whose CPU time counts, by role.
    """

    def __init__(self, client: Client, pids: dict[str, list[int]], spec: JobSpec = NOOP) -> None:
        self._spec = spec
        self._client = client
        self._pids = pids
        self._commit_seconds: list[float] = []
        self._ids: list[str] = []
        self._errors = 0
        self._open: set[asyncio.Task[None]] = set()

    async def at_rate(self, jobs_per_second: float, seconds: float) -> Measurement:
        """Submit evenly at `jobs_per_second` for `seconds`, regardless of the cluster's speed."""

        async def pace(deadline: float) -> None:
            sent, start = 0, time.monotonic()
            while (now := time.monotonic()) < deadline:
                for _ in range(int((now - start) * jobs_per_second) - sent):
                    self._start()
                    sent += 1
                await asyncio.sleep(_TICK_SECONDS)

        return await self._measure(pace, seconds)

    async def flat_out(self, window: int, seconds: float) -> Measurement:
        """Keep `window` jobs submitted and not yet completed for `seconds`."""

        async def fill(deadline: float) -> None:
            base = await self._completed() - len(self._ids)
            while time.monotonic() < deadline:
                room = window - (len(self._ids) + len(self._open) - (await self._completed() - base))
                for _ in range(room):
                    self._start()
                await asyncio.sleep(_TICK_SECONDS)

        return await self._measure(fill, seconds)

    async def _measure(self, drive: Callable[[float], Awaitable[None]], seconds: float) -> Measurement:
        warm = asyncio.create_task(_call(drive, time.monotonic() + WARM_UP_SECONDS + seconds))
        await asyncio.sleep(WARM_UP_SECONDS)
        self._commit_seconds.clear()
        start_jobs, start_cpu, start = await self._completed(), cpu_by_role(self._pids), time.monotonic()
        first_id = len(self._ids)
        await warm
        elapsed = time.monotonic() - start
        jobs = await self._completed() - start_jobs
        cpu = {role: used - start_cpu[role] for role, used in cpu_by_role(self._pids).items()}
        await self._drain()
        lags = await self._lags(self._ids[first_id:])
        return Measurement(
            jobs=jobs,
            seconds=round(elapsed, 2),
            jobs_per_second=round(jobs / elapsed, 1),
            cpu_ms_per_job=round(1000 * sum(cpu.values()) / max(1, jobs), 3),
            cpu_ms_per_job_by_role={role: round(1000 * used / max(1, jobs), 3) for role, used in cpu.items()},
            commit_ms_p50=_percentile(self._commit_seconds, 50),
            commit_ms_p99=_percentile(self._commit_seconds, 99),
            lag_ms_p50=_percentile(lags, 50),
            lag_ms_p99=_percentile(lags, 99),
            errors=self._errors,
        )

    def _start(self) -> None:
        task = asyncio.get_running_loop().create_task(self._submit())
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _submit(self) -> None:
        start = time.monotonic()
        try:
            job = await self._client.submit(self._spec.name, self._spec.payload, **self._spec.options)
        except RaftschedError:
            self._errors += 1
            return
        self._commit_seconds.append(time.monotonic() - start)
        self._ids.append(job.id)

    async def _completed(self) -> int:
        """Return the number of completed jobs, from the cluster's own counters."""
        return (await self._client.queue(self._spec.queue).get()).completed

    async def _drain(self) -> None:
        if self._open:
            await asyncio.wait(self._open, timeout=_DRAIN_SECONDS_MAX)
        deadline = time.monotonic() + _DRAIN_SECONDS_MAX
        while await self._completed() < len(self._ids) and time.monotonic() < deadline:
            await asyncio.sleep(10 * _TICK_SECONDS)

    async def _lags(self, ids: list[str]) -> list[float]:
        """Return seconds from due to leased, of a sample spread evenly over the phase."""
        lags = []
        for job_id in ids[:: max(1, len(ids) // _SAMPLE_JOBS)]:
            job = await self._client.get(job_id)
            if job.started_at:
                lags.append((job.started_at - job.run_at).total_seconds())
        return lags


async def _call(drive: Callable[[float], Awaitable[None]], deadline: float) -> None:
    await drive(deadline)


def _percentile(seconds: list[float], share: int) -> float:
    """Return the `share`-th percentile in milliseconds; 0 for an empty sample."""
    if not seconds:
        return 0.0
    ordered = sorted(seconds)
    return round(1000 * ordered[min(len(ordered) - 1, len(ordered) * share // 100)], 2)
