"""Record what the leader does with jobs that carry a `traceparent`: their commit, their wait, and their outcomes.

A span is made when its operation was applied, from the times that are known by then: so nothing is recorded for
operations that fail, and nothing is kept meanwhile. Jobs without a `traceparent` have no spans, and a node that is not set
up for tracing has no `JobSpans`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import LeaseJobs, RecordOutcome, SubmitJob, SubmitWorkflow
from raftsched.core.records.ids import job_id_text, run_id_text
from raftsched.core.records.job import AttemptEnd, Job
from raftsched.core.records.spec import JobSpec
from raftsched.core.state.results import Leased, OutcomeRecorded, Result, Submitted, WorkflowSaved
from raftsched.tracing import record

_TRACED: Final = (SubmitJob, SubmitWorkflow, LeaseJobs, RecordOutcome)


class JobSpans:
    """Records spans; `now_ns` returns the Unix time."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns

    def follow(self, operation: Operation, proposal: asyncio.Future[Result]) -> asyncio.Future[Result]:
        """Record the spans of `operation` when it is applied; return its proposal."""
        if isinstance(operation, _TRACED):
            proposal.add_done_callback(partial(self._record, operation, self._now_ns()))
        return proposal

    def _record(self, operation: Operation, began_ns: int, done: asyncio.Future[Result]) -> None:
        if done.cancelled() or done.exception() is not None:
            return
        result = done.result()
        match operation, result:
            case SubmitJob(), Submitted(duplicate=False):
                self._committed(operation, began_ns)
            case SubmitWorkflow(), WorkflowSaved(duplicate=False):
                for job in operation.jobs:
                    self._committed(job, began_ns)
            case LeaseJobs(), Leased():
                for grant in result.grants:
                    self._waited(grant.job)
            case RecordOutcome(), OutcomeRecorded(repeated=False):
                self._ended(operation, result.job, began_ns)

    def _committed(self, submit: SubmitJob, began_ns: int) -> None:
        if parent := _parent_of(submit.spec):
            record(
                f"commit {submit.spec.name}",
                "INTERNAL",
                parent=parent,
                began_ns=began_ns,
                ended_ns=self._now_ns(),
                attributes={"raftsched.job_id": job_id_text(submit.id), "raftsched.queue": submit.spec.queue},
            )

    def _waited(self, job: Job) -> None:
        if (parent := _parent_of(job.spec)) and job.lease is not None:
            due_ms = max(job.due_at_ms, job.created_at_ms)
            record(
                f"wait {job.spec.name}",
                "INTERNAL",
                parent=parent,
                began_ns=1_000_000 * min(due_ms, job.started_at_ms),
                ended_ns=self._now_ns(),
                attributes=_run_attributes(job) | {"raftsched.worker": job.lease.worker},
            )

    def _ended(self, outcome: RecordOutcome, job: Job, began_ns: int) -> None:
        if parent := _parent_of(job.spec):
            record(
                f"record {job.spec.name}",
                "INTERNAL",
                parent=parent,
                began_ns=began_ns,
                ended_ns=self._now_ns(),
                attributes=_run_attributes(job) | {"raftsched.outcome": outcome.end.name.lower()},
                error=outcome.error.type if outcome.end is AttemptEnd.FAILED and outcome.error else "",
            )


def _parent_of(spec: JobSpec) -> str:
    return spec.options.traceparent if spec.options is not None else ""


def _run_attributes(job: Job) -> dict[str, str | int]:
    return {
        "raftsched.job_id": job_id_text(job.id),
        "raftsched.run_id": run_id_text(job.id, job.run_number),
        "raftsched.attempt": job.attempt_number,
        "raftsched.queue": job.spec.queue,
    }
