"""What the scheduler should do, once more and dumber: one dict per job, no table, no types of the core, no sharing.

Written from the promises (RELIABILITY sections 2 and 3), not from `raftsched.core`. It answers each operation with a
plain tuple, and `seen` says how a job looks. Exact fractions stand in for the integer arithmetic of retries.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

Record = dict[str, Any]
Answer = tuple[Any, ...]

LOST_MAX = 3
REASONS = {"failed": "attempts_exhausted", "timeout": "timeout"}


class Model:
    def __init__(self) -> None:
        self.jobs: dict[bytes, Record] = {}
        self.last_token = 0
        self.now = 0

    # -- operations

    def submit(self, job_id: bytes, *, tenant: str, key: str, body: bytes, due: int, rest: Record) -> Answer:
        for known_id, known in self.jobs.items():
            if key and (known["tenant"], known["key"]) == (tenant, key):
                return ("submitted", known_id, True) if known["body"] == body else ("refused", "idempotency_mismatch")
        if job_id in self.jobs:
            known = self.jobs[job_id]
            same = (known["tenant"], known["key"], known["body"]) == (tenant, key, body)
            return ("submitted", job_id, True) if same else ("refused", "invalid")
        due = due or self.now
        self.jobs[job_id] = {
            "tenant": tenant, "key": key, "body": body, "due": due, "failures": 0, "losses": 0, "leases": 0,
            "status": "scheduled" if due > self.now else "queued",
            "holder": None, "ended": [], "result": b"", "reason": "", "finished": 0, **rest,
        }  # fmt: skip
        return ("submitted", job_id, False)

    def lease(self, job_ids: list[bytes], worker: str, ttl: int) -> Answer:
        given, missed, looked_at = [], [], []
        for job_id in job_ids:
            if job_id in looked_at:
                continue
            looked_at.append(job_id)
            job = self.jobs.get(job_id)
            if job and job["status"] in {"scheduled", "queued", "retrying"} and job["due"] <= self.now:
                self.last_token += 1
                job["status"] = "running"
                job["holder"] = {"token": self.last_token, "worker": worker, "since": self.now, "ttl": ttl}
                job["leases"] += 1
                given.append((job_id, self.last_token))
            else:
                missed.append(job_id)
        return ("leased", given, missed)

    def report(self, job_id: bytes, token: int, end: str, *, completion: str, result: bytes, extra: Record) -> Answer:
        job = self.jobs.get(job_id)
        if job is None:
            return ("refused", "not_found")
        if job["holder"] is None or job["holder"]["token"] != token:
            return self._late(job, job_id, token, end, completion)
        if job["status"] == "cancelling":
            self._end(job, "cancelled", completion)
            self._finish(job, "cancelled")
            return ("refused", "cancelled")
        self._end(job, end, completion)
        if end == "completed":
            job["result"] = result
            self._finish(job, "completed", "")
        elif end == "snoozed":
            self._wait(job, "scheduled", extra["delay"])
        elif not extra["retryable"]:
            job["failures"] += 1
            self._finish(job, "dead_letter", "rejected")
        else:
            self._fail(job, "failed", extra["delay"], extra["jitter"], extra["error"])
        return ("recorded", job_id, False)

    def expire(self, suspects: list[tuple[bytes, int, str, int]]) -> Answer:
        ended: list[bytes] = []
        kept: list[bytes] = []
        for job_id, token, cause, jitter in suspects:
            job = self.jobs.get(job_id)
            if job and job["holder"] and job["holder"]["token"] == token and self._over(job, cause):
                self._expire_one(job, cause, jitter)
                ended.append(job_id)
            else:
                kept.append(job_id)
        return ("expired", ended, kept)

    def cancel(self, job_id: bytes, tenant: str) -> Answer:
        job = self.jobs.get(job_id)
        if job is None or job["tenant"] != tenant:
            return ("refused", "not_found")
        if job["status"] in {"completed", "dead_letter"}:
            return ("refused", "already_finished")
        if job["status"] == "running":
            job["status"] = "cancelling"
        elif job["status"] not in {"cancelling", "cancelled"}:
            self._finish(job, "cancelled")
        return ("cancelled", job_id)

    def purge(self, job_ids: list[bytes], before: int) -> Answer:
        over = {job_id for job_id in job_ids if job_id in self.jobs and 0 < self.jobs[job_id]["finished"] < before}
        for job_id in over:
            del self.jobs[job_id]
        return ("purged", len(over))

    # -- looks

    def seen(self, job_id: bytes) -> Record:
        """The fields of a job that must agree with the real record."""
        job = self.jobs[job_id]
        looks = ("status", "due", "failures", "losses", "leases", "holder", "ended", "reason", "finished")
        return {name: job[name] for name in looks} | {"result": job["result"]}

    # -- steps

    def _late(self, job: Record, job_id: bytes, token: int, end: str, completion: str) -> Answer:
        known = [one for one in job["ended"] if one["token"] == token]
        if not known or known[0]["end"] in {"timeout", "worker_lost"}:
            return ("refused", "lease_lost")
        if known[0]["end"] == "cancelled":
            return ("refused", "cancelled")
        if completion and (known[0]["completion"], known[0]["end"]) == (completion, end):
            return ("recorded", job_id, True)
        return ("refused", "already_recorded")

    def _over(self, job: Record, cause: str) -> bool:
        age = self.now - job["holder"]["since"]
        if cause == "cancelled":
            return bool(job["status"] == "cancelling")
        if cause == "timeout":
            return bool(job["timeout"] and age >= job["timeout"])
        return bool(age >= job["holder"]["ttl"])

    def _expire_one(self, job: Record, cause: str, jitter: int) -> None:
        if job["status"] == "cancelling":
            self._end(job, "cancelled", "")
            self._finish(job, "cancelled")
            return
        self._end(job, cause, "")
        if cause == "timeout":
            self._fail(job, "timeout", -1, jitter, "timeout")
            return
        job["losses"] += 1
        if job["losses"] == LOST_MAX:
            self._finish(job, "dead_letter", "worker_lost")
            return
        job["reason"] = "worker_lost"
        if job["losses"] == 1:
            self._wait(job, "queued", 0)
        else:
            self._wait(job, "retrying", min(1_000 * 2 ** (job["losses"] - 1), 60_000))

    def _fail(self, job: Record, how: str, delay: int, jitter: int, error: str) -> None:
        job["failures"] += 1
        if job["failures"] >= job["attempts_max"]:
            self._finish(job, "dead_letter", REASONS[how])
            return
        job["reason"] = error
        self._wait(job, "retrying", delay if delay >= 0 else self._backoff(job, jitter))

    def _backoff(self, job: Record, jitter: int) -> int:
        base, factor, cap, spread = job["retry"]
        delay = min(base * Fraction(factor) ** (job["failures"] - 1), Fraction(cap))
        delay *= 1 + Fraction(spread) * Fraction(jitter, 1_000)
        return int(min(delay, Fraction(cap)))

    def _wait(self, job: Record, status: str, delay: int) -> None:
        job["status"], job["due"] = status, self.now + delay

    def _end(self, job: Record, end: str, completion: str) -> None:
        job["ended"] = [*job["ended"], {"token": job["holder"]["token"], "end": end, "completion": completion}][-20:]
        job["holder"] = None

    def _finish(self, job: Record, status: str, reason: str | None = None) -> None:
        job["status"], job["finished"] = status, self.now
        if reason is not None:
            job["reason"] = reason
