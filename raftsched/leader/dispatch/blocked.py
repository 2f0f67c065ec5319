"""Take jobs whose concurrency key is at its limit out of the ready index, so that they are not read again and again.

Theory of operation. `ready` sets such a job aside when it meets one; here it is proposed to mark it blocked. Once that
is applied, the job is out of the index until a job of its key ends, which offers it again. If it is rejected, because a
place became free in the meantime, the job is offered at once; if a job in flight takes the place, a moment later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from raftsched import limits
from raftsched.core.operations.base import Operation
from raftsched.core.operations.control import BlockJobs
from raftsched.core.records.ids import JobId
from raftsched.core.state.results import Result
from raftsched.leader.dispatch.ready import ReadyJobs
from raftsched.leader.now import NEVER_MS, Now


class BlockedJobs:
    """Propose `BlockJobs`; `offer` is called with jobs that were not blocked."""

    name: Final = "blocked jobs"

    def __init__(self, ready: ReadyJobs, offer: Callable[[Sequence[JobId], Now], None]) -> None:
        self._ready: Final = ready
        self._offer: Final = offer

    def step(self, now: Now) -> Sequence[Operation]:  # noqa: ARG002
        job_ids = self._ready.next_to_block(limits.BLOCK_JOBS_MAX)
        return (BlockJobs(job_ids),) if job_ids else ()

    def on_result(self, operation: Operation, result: Result | None, now: Now) -> None:
        """Note the result; if it is unknown (None), those jobs are tried again."""
        assert isinstance(operation, BlockJobs)
        left = [job_id for job_id in operation.job_ids if self._ready.is_aside(job_id)]
        if result is None:
            for job_id in left:
                self._ready.block_again(job_id)
        else:
            self._offer(left, now)

    def next_call_ms(self, now: Now) -> int:  # noqa: ARG002
        return 0 if self._ready.has_to_block else NEVER_MS
