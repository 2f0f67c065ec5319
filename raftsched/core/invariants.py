"""What must hold in every state, checked in two ways.

`check` walks everything: each record by `record_rules`, and each index, key, counter, payload and result against the
records. Tests call it after each step, drills and `raftsched check` on what a node left behind. It is written apart from
the storage code that derives indexes, so that a fault there can't hide itself. An index is held against the records in
both directions without being loaded: each of its entries must be what its job calls for, and as many must be there as
there are jobs that call for one. Only where the numbers differ does a second pass name the jobs that are missing.
Memory: some bits per fencing token, and nothing per job.

`assert_change` is the cheap part that `apply` runs in production, on each change of a job before it is returned; a
broken invariant stops the process, and nothing is written.

Left out: what one state can't show. That tokens never fall and that finished jobs never change are properties of a
history; `assert_change` and the tests' model watch them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple

from raftsched import limits
from raftsched.core.bounds import PRIORITY_MAX
from raftsched.core.ids import JobId
from raftsched.core.job import FINISHED, LEASED, WAITING, Job, Status
from raftsched.core.record_rules import RULES, Facts
from raftsched.core.view import AuditableView, CounterKey, TimerEntry, WaitingEntry
from raftsched.errors import InvariantBroken

VIOLATIONS_MAX: Final = 1_000
"""A report that is longer is read by nobody."""


class Violation(NamedTuple):
    """One property that doesn't hold: which, of what, and what was found."""

    rule: str
    subject: str
    found: str


def check(view: AuditableView, *, limit: int = VIOLATIONS_MAX) -> list[Violation]:
    """Return what is wrong with the state, at most `limit` violations; [] = nothing.

    Reads every record once and, for each index entry, its record again.
    """
    return list(islice(_violations(view), limit))


def assert_change(old: Job | None, new: Job) -> None:
    """Raise `InvariantBroken` where `new` can't be what became of `old` (None = a new job). Cost: about a microsecond."""
    status = new.status
    if (new.lease is not None) is not (status in LEASED):
        raise _broken(new, "a lease is held exactly while leased")
    if (new.finished_at_ms > 0) is not (status in FINISHED):
        raise _broken(new, "finished_at is set exactly when finished")
    if new.timed and status not in WAITING:
        raise _broken(new, "only a waiting job has a timer")
    if new.failure_count > new.max_attempts or new.lost_count > limits.LOST_ATTEMPTS_MAX:
        raise _broken(new, "attempts are bounded")
    if old is None:
        return
    if old.status in FINISHED:
        raise _broken(new, f"a job that is {old.status.label} stays so")
    if new.updated_at_ms < old.updated_at_ms or new.revision < old.revision:
        raise _broken(new, "neither time nor revision runs backward")
    if new.lease is not None and new.attempts and new.lease.token <= new.attempts[-1].token:
        raise _broken(new, "fencing tokens rise")


def _broken(job: Job, rule: str) -> InvariantBroken:
    return InvariantBroken(f"job {job.id.hex()} at revision {job.revision}, {job.status.label}: {rule}")


# -- the walk ---------------------------------------------------------------------------------------------------------


def _violations(view: AuditableView) -> Iterator[Violation]:
    census = _Census()
    yield from _check_records(view, census)
    for index in _INDEXES:
        yield from _check_index(view, index, census.expected[index.name])
    yield from _check_counters(view, census)
    yield from _check_payloads(view)
    yield from _check_results(view)


class _BitSet:
    """A set of non-negative integers, a bit each, in pages, since tokens are many and lie close together."""

    _PAGE_BITS = 1 << 16

    def __init__(self) -> None:
        self._pages: dict[int, bytearray] = {}

    def add(self, number: int) -> bool:
        """Add `number`; False where it was in the set already."""
        page_number, bit = divmod(number, self._PAGE_BITS)
        page = self._pages.get(page_number)
        if page is None:
            page = self._pages[page_number] = bytearray(self._PAGE_BITS // 8)
        mask = 1 << (bit & 7)
        if page[bit >> 3] & mask:
            return False
        page[bit >> 3] |= mask
        return True


@dataclass(slots=True)
class _Census:
    """What the records call for: entries in each index, the counters; and the tokens seen in them."""

    expected: Counter[str] = field(default_factory=Counter)
    counters: Counter[CounterKey] = field(default_factory=Counter)
    tokens: _BitSet = field(default_factory=_BitSet)


def _check_records(view: AuditableView, census: _Census) -> Iterator[Violation]:
    facts = Facts(view.cluster_time_ms, view.fence)
    for job in view.all_jobs():
        for rule in RULES:
            if not rule.holds(job, facts):
                yield Violation(rule.text, _subject(job.id), repr(job))
        for token in _tokens(job):
            if token >= 0 and not census.tokens.add(token):
                yield Violation("a fencing token is given out once", _subject(job.id), f"token {token} again")
        census.counters[CounterKey(job.tenant, job.queue, job.status)] += 1
        for index in _INDEXES:
            census.expected[index.name] += index.entry_of(job) is not None


def _tokens(job: Job) -> list[int]:
    tokens: list[int] = [kept.token for kept in job.attempts]
    if job.lease is not None:
        tokens.append(job.lease.token)
    return tokens


def _subject(job_id: JobId) -> str:
    return f"job {job_id.hex()}"


# -- indexes ----------------------------------------------------------------------------------------------------------


class _Index(NamedTuple):
    """An index to hold against the records.

    `entry_of` gives the entry that a job calls for, or None. `group_and_key` says the order that readers rely on:
    within a group keys rise strictly, and a group is in one piece; None = no order is promised.
    """

    name: str
    entries: Callable[[AuditableView], Iterator[Any]]
    entry_of: Callable[[Job], Hashable]
    job_id: Callable[[Any], JobId]
    group_and_key: Callable[[Any], tuple[str, Any]] | None = None


def _waiting_entry(job: Job) -> WaitingEntry | None:
    return WaitingEntry(job.queue, job.priority, job.due_at_ms, job.id) if job.status in WAITING else None


def _timer_entry(job: Job) -> TimerEntry | None:
    if not job.timed or job.status not in WAITING:
        return None
    return TimerEntry(job.due_at_ms, job.id, job.queue, job.priority)


_INDEXES: Final = (
    _Index(
        "ready index",
        lambda view: view.all_waiting(),
        _waiting_entry,
        lambda entry: entry.job_id,
        lambda entry: (entry.queue, (PRIORITY_MAX - entry.priority, entry.due_at_ms, entry.job_id)),
    ),
    _Index(
        "timers",
        lambda view: view.all_timers(),
        _timer_entry,
        lambda entry: entry.job_id,
        lambda entry: ("", (entry.due_at_ms, entry.job_id)),
    ),
    _Index(
        "leased index",
        lambda view: view.all_leased(),
        lambda job: job.id if job.status in LEASED else None,
        lambda entry: entry,
    ),
    _Index(
        "finished index",
        lambda view: view.all_finished(),
        lambda job: (job.finished_at_ms, job.id) if job.status in FINISHED else None,
        lambda entry: entry[1],
    ),
    _Index(
        "idempotency keys",
        lambda view: view.all_keys(),
        lambda job: (job.tenant, job.idempotency_key, job.id) if job.idempotency_key else None,
        lambda entry: entry[2],
    ),
)


def _check_index(view: AuditableView, index: _Index, expected_count: int) -> Iterator[Violation]:
    count = 0
    previous: object = None
    for entry in index.entries(view):
        job = view.job(index.job_id(entry))
        if job is None:
            yield Violation(f"{index.name}: each entry has its job", _subject(index.job_id(entry)), repr(entry))
        elif index.entry_of(job) != entry:
            yield Violation(f"{index.name}: each entry is what its job calls for", _subject(job.id), repr(entry))
        elif entry == previous:
            yield Violation(f"{index.name}: no entry is there twice", _subject(job.id), repr(entry))
        else:
            count += 1
        previous = entry
    if count != expected_count:
        yield from _missing(view, index)
    if index.group_and_key is not None:
        yield from _check_order(view, index, index.group_and_key)


def _missing(view: AuditableView, index: _Index) -> Iterator[Violation]:
    present = set(index.entries(view))
    for job in view.all_jobs():
        entry = index.entry_of(job)
        if entry is not None and entry not in present:
            yield Violation(f"{index.name}: each job that calls for an entry has one", _subject(job.id), repr(job))


def _check_order(
    view: AuditableView, index: _Index, group_and_key: Callable[[Any], tuple[str, Any]]
) -> Iterator[Violation]:
    groups: set[str] = set()
    group: str | None = None
    key: Any = None
    for entry in index.entries(view):
        next_group, next_key = group_and_key(entry)
        in_order = next_key > key if next_group == group else next_group not in groups
        if not in_order:
            yield Violation(f"{index.name}: entries are in order", _subject(index.job_id(entry)), repr(entry))
        groups.add(next_group)
        group, key = next_group, next_key


# -- the rest ---------------------------------------------------------------------------------------------------------


def _check_counters(view: AuditableView, census: _Census) -> Iterator[Violation]:
    found = view.counters()
    for key in sorted(found.keys() | census.counters.keys()):
        if found.get(key, 0) != census.counters[key]:
            detail = f"{found.get(key, 0)} counted, {census.counters[key]} there"
            yield Violation("counters agree with the records", f"{key.tenant}/{key.queue}/{key.status.label}", detail)


def _check_payloads(view: AuditableView) -> Iterator[Violation]:
    for job_id in view.all_payload_ids():
        if view.job(job_id) is None:
            yield Violation("a payload has its job", _subject(job_id), "no such job")


def _check_results(view: AuditableView) -> Iterator[Violation]:
    for job_id in view.all_result_ids():
        job = view.job(job_id)
        if job is None or job.status is not Status.COMPLETED:
            yield Violation("only a completed job has a result", _subject(job_id), repr(job))
