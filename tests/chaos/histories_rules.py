"""The scheduler's rules in the plainest form, for `histories`: a dictionary of jobs, and a method for each operation.

They stand here once more, apart from `chaos.checkers.model` and from the server: a mistake in one of the three is found
by the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from chaos.checkers.history.events import Change, Granted, Invoke

TTL_MS = 1_000
LOST_MAX = 3
SNOOZE_MS = 120
RETRY_MS = 80

Fields = dict[str, Any]
"""Of a reply."""


@dataclass(slots=True)
class Job:
    call: Invoke
    status: str = "queued"
    due_ms: int = 0
    attempt: int = 0
    token: int = 0
    worker: str = ""
    failures: int = 0
    losses: int = 0
    granted_ms: int = 0
    cancelled_ms: int = 0
    ended_ms: int = 0
    revision: int = 0
    reports: dict[int, tuple[str, str]] = field(default_factory=dict)
    stopped: int = 0


class Refused(Exception):
    """The answer is a definite no; its text is the API's code."""


class State:
    """The scheduler's rules; every method is one operation of an entry, and notes its changes."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.keys: dict[tuple[str, str], str] = {}
        self.fence = 0
        self.now_ms = 0
        self.index = 0
        self.position = 0
        self.changes: list[Change] = []

    def _note(self, name: str, f: str, **fields: Any) -> None:
        job = self.jobs[name]
        job.revision = self.index
        waits = job.status in ("queued", "scheduled", "retrying")
        self.changes.append(
            Change(
                index=self.index,
                position=self.position,
                f=f,
                job=name,
                status="purged" if f == "purge" else job.status,
                now_ms=self.now_ms,
                attempt=job.attempt,
                due_ms=job.due_ms if waits else 0,
                **fields,
            )
        )

    def submit(self, call: Invoke) -> Fields:
        key = (call.tenant, call.key)
        name = self.keys.get(key, "") if call.key else ""
        if name:
            job = self.jobs[name]
            if job.call.body != call.body:
                raise Refused("idempotency_mismatch")
            return {"job": name, "duplicate": True, "revision": job.revision} | self.shown(name)
        name = f"j{self.index}-{self.position}"
        job = self.jobs[name] = Job(call, due_ms=call.due_ms or self.now_ms)
        job.status = "scheduled" if job.due_ms > self.now_ms else "queued"
        if call.key:
            self.keys[key] = name
        self._note(
            name,
            "submit",
            op=call.op,
            tenant=call.tenant,
            key=call.key,
            body=call.body,
            max_attempts=call.max_attempts,
            timeout_ms=call.timeout_ms,
        )
        return {"job": name, "revision": self.index} | self.shown(name)

    def shown(self, name: str) -> Fields:
        job = self.jobs[name]
        due = job.status in ("scheduled", "retrying") and job.due_ms <= self.now_ms
        return {"status": "queued" if due else job.status, "attempt": job.attempt}

    def find(self, call: Invoke) -> Job:
        job = self.jobs.get(call.job)
        if job is None or (call.tenant and job.call.tenant != call.tenant):
            raise Refused("not_found")
        return job

    def lease(self, call: Invoke, capacity: int) -> Fields:
        ready = [
            name
            for name, job in self.jobs.items()
            if job.status in ("queued", "scheduled", "retrying") and job.due_ms <= self.now_ms
        ]
        grants = []
        for name in ready[:capacity]:
            job = self.jobs[name]
            self.fence += 1
            job.status, job.token, job.worker, job.attempt = "running", self.fence, call.worker, job.attempt + 1
            job.granted_ms = self.now_ms
            grants.append(Granted(name, 1, job.attempt, self.fence))
            self._note(name, "lease", token=self.fence, worker=call.worker, ttl_ms=TTL_MS)
        return {"grants": tuple(grants)}

    def outcome(self, call: Invoke) -> Fields:
        job = self.find(call)
        if job.token != call.token:
            return self._late(job, call)
        refused = job.status == "cancelling"
        self._end(job, call.outcome, call.retryable)
        if not refused:
            job.reports[call.token] = (call.outcome, call.completion_id)
        self._note(
            call.job,
            "outcome",
            token=call.token,
            outcome=call.outcome,
            completion_id=call.completion_id,
            retryable=call.retryable,
            worker=call.worker,
        )
        if refused:
            raise Refused("cancelled")
        return {"revision": self.index}

    def _late(self, job: Job, call: Invoke) -> Fields:
        report = job.reports.get(call.token)
        if job.stopped == call.token:
            raise Refused("cancelled")
        if report is None:
            raise Refused("lease_lost")
        if report != (call.outcome, call.completion_id):
            raise Refused("already_recorded")
        return {"revision": job.revision}

    def _end(self, job: Job, how: str, retryable: bool) -> None:
        token, job.token, job.worker = job.token, 0, ""
        job.due_ms = self.now_ms
        if job.status == "cancelling":
            job.status, job.stopped = "cancelled", token
        elif how == "completed":
            job.status = "completed"
        elif how == "snoozed":
            job.status, job.due_ms = "scheduled", self.now_ms + SNOOZE_MS
        elif how == "worker_lost":
            job.losses += 1
            job.status = "dead_letter" if job.losses >= LOST_MAX else "queued"
        else:
            job.failures += 1
            is_over = not retryable or job.failures >= job.call.max_attempts
            job.status, job.due_ms = (
                ("dead_letter", 0) if is_over else ("retrying", self.now_ms + RETRY_MS * job.failures)
            )
        if job.status in ("completed", "dead_letter", "cancelled"):
            job.ended_ms = self.now_ms

    def expire(self, name: str, token: int, cause: str) -> Fields:
        job = self.jobs.get(name)
        if job is not None and job.token == token:
            self._end(job, cause, retryable=True)
            self._note(name, "expire", token=token, outcome=cause)
        return {}

    def cancel(self, call: Invoke) -> Fields:
        job = self.find(call)
        if job.status in ("completed", "dead_letter"):
            raise Refused("already_finished")
        if job.status not in ("cancelled", "cancelling"):
            job.status = "cancelling" if job.status == "running" else "cancelled"
            job.cancelled_ms = self.now_ms
            job.ended_ms = self.now_ms if job.status == "cancelled" else 0
            self._note(call.job, "cancel")
        return {"revision": job.revision} | self.shown(call.job)

    def purge(self, name: str) -> Fields:
        if name in self.jobs:
            self._note(name, "purge")
            self.keys.pop((self.jobs[name].call.tenant, self.jobs[name].call.key), None)
            del self.jobs[name]
        return {}
