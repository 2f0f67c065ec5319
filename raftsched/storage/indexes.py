"""What follows from a job's record: its index entries, as a pure function.

Nobody writes an index entry by hand: entries are derived from the record before and the record after, and only the
difference is applied. So an index can't disagree with the records by a forgotten line, and a transition touches as few
keys as it can: a lease takes one entry away and adds one, a cancel of a running job touches none.
"""

from __future__ import annotations

from raftsched.core.job import FINISHED, LEASED, WAITING, Job
from raftsched.errors import InvariantBroken
from raftsched.storage import keys
from raftsched.storage.store import Table

Entry = tuple[Table, bytes, bytes]
"""Table, key and value."""


def index_entries(job: Job | None) -> tuple[Entry, ...]:
    """The entries by which `job` is found for its status; none where there is no job."""
    if job is None:
        return ()
    status = job.status
    if status in WAITING:
        return _waiting_entries(job)
    if status in LEASED:
        return ((Table.LEASED, job.id, b""),)
    if status in FINISHED:
        return ((Table.FINISHED, keys.finished_key(status, job.finished_at_ms, job.id), b""),)
    raise InvariantBroken(f"format 1 has no index for a job that is {status.label}")


def _waiting_entries(job: Job) -> tuple[Entry, ...]:
    key = keys.waiting_key(job.queue, job.priority, job.due_at_ms, job.id)
    ready = (Table.WAITING, key, b"")
    if not job.timed:
        return (ready,)
    value = keys.timer_value(job.status, job.priority, job.queue)
    return (ready, (Table.TIMERS, keys.timer_key(job.due_at_ms, job.id), value))


def difference(old: Job | None, new: Job | None) -> tuple[list[tuple[Table, bytes]], list[Entry]]:
    """Return the entries to remove and to put when `old` becomes `new`."""
    before = index_entries(old)
    after = index_entries(new)
    places = [(table, key) for table, key, _ in after]
    removed = [(table, key) for table, key, _ in before if (table, key) not in places]
    return removed, [entry for entry in after if entry not in before]
