"""Wake jobs exactly when they become due: the near horizon of the timers.

Theory of operation. The state's timers hold every job that is due later. The wheel holds a prefix of them, up to the
mark `covered`, which is a place (due time, id) in that index. Jobs that arrive before the mark are put into the wheel;
those behind it are left in the index and read when their time comes near. So 10 million scheduled jobs cost a new
leader one short read.

The wheel is a hint: a timer that fires only says that the job may be ready. Jobs that were cancelled or leased
meanwhile are not taken out; their lease is rejected when it is applied. If the wheel falls behind (more timers fall
into a moment than it holds, or the wall clock was set forward) nothing is fired one by one: every due job is in the
ready index, so it is enough to make `ReadyJobs` read again and to continue from the present.

The present may also go back: a leader's estimate of cluster time is corrected when clocks are. `ready` does not know
what fired and was left to the index, and a read by the earlier time does not show it. So then, too, everything is read
again.
"""

from __future__ import annotations

from typing import Final

from raftsched import limits
from raftsched.core.records.ids import JobId, NameTag, TimeMs, name_tag
from raftsched.core.records.job import WAITING, Job
from raftsched.core.state.entries import TimerEntry
from raftsched.leader.dispatch.ready import ReadyJobs
from raftsched.leader.now import NEVER_MS, Now
from raftsched.leader.timers.wheel import Wheel
from raftsched.leader.view import LeaderView

_READ_TIMERS: Final = 1_000
"""Timers per read of the index: a few milliseconds of work."""
_LOW_TIMERS: Final = _READ_TIMERS // 2
"""With fewer than this in the wheel, and more in the index, the index is read."""
_NEAR_MS: Final = limits.WHEEL_HORIZON_MS // 2
_LAST_ID: Final = JobId(b"\xff" * 16)
"""Behind every id of its millisecond."""
RETRY_MS: Final = 100
"""A job whose lease was not granted is offered again after this, so that a mistake can't cause a busy loop."""
CLOCK_CHECK_MS: Final = 1_000
"""A sleep until a due time is cut to this, which bounds how late a jump of the wall clock is noticed."""


class TimerHorizon:
    """Move jobs into `ready` when they become due."""

    def __init__(self, view: LeaderView, ready: ReadyJobs) -> None:
        self._view: Final = view
        self._ready: Final = ready
        self._wheel: Wheel[TimerEntry] = Wheel()
        self._covered: tuple[int, JobId] = (0, JobId(b""))
        """Every timed job up to this position is in the wheel, or due."""
        self._moved: Final[set[JobId]] = set()
        """Jobs whose timer in the wheel may be stale: they changed before they were due."""
        self._cluster_ms = 0

    def __len__(self) -> int:
        """Return the number of timers in memory; at most `limits.WHEEL_TIMERS_MAX`, and one read more."""
        return len(self._wheel)

    def start(self, now: Now) -> None:
        """Begin at the present; `ready` reads by itself the jobs that are already due."""
        self._cluster_ms = now.cluster_ms
        self._covered = (now.cluster_ms, _LAST_ID)
        self._read()

    def add(self, job: Job) -> None:
        """Add a job that waits for its time, unless it will be read from the index in time."""
        place = (job.due_at_ms, job.id)
        if place <= self._covered:
            self._wheel.add(job.due_at_ms, _entry(job))
            if len(self._wheel) > limits.WHEEL_TIMERS_MAX:
                self._start_over()

    def offer_again(self, job: Job, now: Now) -> None:
        """Offer a job again whose lease was not granted, after a moment if it is due."""
        if job.due_at_ms > now.cluster_ms:
            self.add(job)
        else:
            self._wheel.add(now.cluster_ms + RETRY_MS, _entry(job))

    def moved(self, job: Job) -> None:
        """Mark the timer of a job that changed to `job` as stale, so that its state is read again before the timer
        fires.

        If it fired unchecked, the job would stay in a queue that it has left, and be missing from its new one.
        """
        if job.due_at_ms > self._cluster_ms and (job.due_at_ms, job.id) <= self._covered:
            self._moved.add(job.id)
            if len(self._moved) > limits.WHEEL_TIMERS_MAX:
                self._start_over()

    def step(self, now: Now) -> None:
        """Fire due timers and read those that come near; `ready` must be read by `now` only after this."""
        went_back = now.cluster_ms < self._cluster_ms
        self._cluster_ms = now.cluster_ms
        if went_back:
            self._start_over()
        add = self._ready.add
        for entry in self._wheel.advance(now.cluster_ms):
            if entry.job_id in self._moved and not self._still_is(entry):
                continue
            add(
                entry.queue,
                entry.tenant,
                entry.priority,
                entry.due_at_ms,
                entry.job_id,
                tag=entry.tag,
                region=entry.region,
            )
        if self._covered[0] < now.cluster_ms:
            self._start_over()
        # The second is checked last, since it is mostly true.
        if self._covered[0] <= now.cluster_ms + _NEAR_MS and len(self._wheel) < _LOW_TIMERS:
            self._read()

    def next_call_ms(self, now: Now) -> int:
        """Return when `step` must be called next, in monotonic milliseconds."""
        next_ms = self._wheel.next_due()
        refill_ms = self._covered[0] - _NEAR_MS if len(self._wheel) < _LOW_TIMERS else NEVER_MS
        due_ms = refill_ms if next_ms is None else min(next_ms, refill_ms)
        return min(now.monotonic_at(due_ms), now.monotonic_ms + CLOCK_CHECK_MS)

    def _read(self) -> None:
        until_ms = self._cluster_ms + limits.WHEEL_HORIZON_MS
        after = TimerEntry(TimeMs(self._covered[0]), self._covered[1], "", "", 0, NameTag(b""))
        entries = self._view.timers(until_ms=until_ms, limit=_READ_TIMERS, after=after)
        for entry in entries:
            self._wheel.add(entry.due_at_ms, entry)
        whole = len(entries) < _READ_TIMERS
        self._covered = (until_ms, _LAST_ID) if whole else (entries[-1].due_at_ms, entries[-1].job_id)

    def _start_over(self) -> None:
        """Continue from the present with an empty wheel; its former timers are in one of the two indexes."""
        self._wheel = Wheel()
        self._moved.clear()
        self._covered = (self._cluster_ms, _LAST_ID)
        self._ready.doubt()

    def _still_is(self, entry: TimerEntry) -> bool:
        job = self._view.job(entry.job_id)
        return job is not None and job.status in WAITING and not job.blocked and _entry(job) == entry


def _entry(job: Job) -> TimerEntry:
    spec, tag = job.spec, name_tag(job.spec.handler)
    return TimerEntry(job.due_at_ms, job.id, spec.queue, job.tenant, spec.priority, tag, spec.region)
