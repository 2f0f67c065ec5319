"""Keep decoded records of jobs: those that the store does not have yet, and some of those that it got lately.

Theory of operation. A job is usually leased and completed soon after it was submitted. So a record is written behind:
the store gets it, and the list entries that follow from it, when somebody looks at them there, or at the commit. What a
job goes through in between is never encoded. A record that the store has is kept for a while, because most are changed
once more. Two generations of half the size each, the younger of which replaces the older if it is full, bound the memory
without bookkeeping at each read.
"""

from __future__ import annotations

from raftsched.core.records.ids import JobId
from raftsched.core.records.job import Job
from raftsched.errors import InvariantBroken

Unstored = tuple[Job | None, Job]
"""A job as the store has it, None if it has not, and as it was written last."""


class JobCache:
    """Each record as it was written last: all that are not stored yet, and at most `jobs_max` others."""

    def __init__(self, jobs_max: int) -> None:
        self._generation_jobs = max(1, jobs_max // 2)
        self._unstored: dict[JobId, Unstored] = {}
        self._young: dict[JobId, Job] = {}
        self._old: dict[JobId, Job] = {}

    def get(self, job_id: JobId) -> Job | None:
        unstored = self._unstored.get(job_id)
        if unstored is not None:
            return unstored[1]
        return self._young.get(job_id) or self._old.get(job_id)

    def put(self, old: Job | None, new: Job) -> None:
        """Keep `new` in place of `old`; raises `InvariantBroken` if a job that is new is known already."""
        unstored = self._unstored.get(new.id)
        if unstored is not None:
            if old is None:
                raise InvariantBroken(f"job {new.id.hex()} is there already")
            old = unstored[0]
        self._unstored[new.id] = (old, new)

    def remove(self, job: Job) -> Job | None:
        """Forget a job; return it as the store has it, None if it has not."""
        self._young.pop(job.id, None)
        self._old.pop(job.id, None)
        unstored = self._unstored.pop(job.id, None)
        return job if unstored is None else unstored[0]

    def take_unstored(self) -> list[Unstored]:
        """Return what the store does not have yet, for the caller to store now."""
        taken = list(self._unstored.values())
        self._unstored.clear()
        for _, job in taken:
            if job.finished_at_ms:  # nothing is about to change it
                self._young.pop(job.id, None)
                self._old.pop(job.id, None)
            else:
                self._young[job.id] = job
                if len(self._young) >= self._generation_jobs:
                    self._old, self._young = self._young, {}
        return taken

    def __len__(self) -> int:
        return len(self._unstored.keys() | self._young.keys() | self._old.keys())
