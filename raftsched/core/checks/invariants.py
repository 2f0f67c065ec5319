"""Check the invariants of the state, in two ways.

`check` reads everything: each job by `record_rules`, each index and key against the records (`index_rules`), relations
(`relation_rules`), and counters, payloads and results. Tests call it after each step, drills and `raftsched check` on the
data of a stopped node. Memory: some bits per fencing token, and nothing per job.

`assert_change` is the cheap part, which `apply` runs in production on each change of a job before it returns it. A broken
invariant stops the process, and nothing is written.

Left out: properties that one state does not show. That tokens never fall, and that finished jobs change only by a new
run, are properties of a history; `assert_change` and the tests' model check them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from raftsched.core.checks.finished_statuses import RUN_AGAIN
from raftsched.core.checks.index_rules import JOB_INDEXES, check_job_indexes, check_other_indexes
from raftsched.core.checks.record_rules import RULES, Facts, most_lost_workers
from raftsched.core.checks.relation_rules import check_relations, check_relations_of
from raftsched.core.checks.violation import Violation, named
from raftsched.core.records.job import FINISHED, LEASED, WAITING, Job, Status
from raftsched.core.records.schedule import ScheduleId
from raftsched.core.state.entries import CounterKey
from raftsched.core.state.view import AuditableView
from raftsched.errors import InvariantBroken

__all__ = ["VIOLATIONS_MAX", "Violation", "assert_change", "check"]

VIOLATIONS_MAX: Final = 1_000
"""Length of a report; nobody reads a longer one."""
_PAUSED: Final = Status.PAUSED  # a member of an enumeration costs a look-up, and this is asked of every change


def check(view: AuditableView, *, limit: int = VIOLATIONS_MAX) -> list[Violation]:
    """Return the violations in the state, at most `limit`; [] = none.

    Reads every record once, and again for each of its index entries and relations.
    """
    return list(islice(_violations(view), limit))


def assert_change(old: Job | None, new: Job) -> None:
    """Raise `InvariantBroken` if `old` (None = a new job) can't have changed to `new`. Cost: about a microsecond."""
    status = new.status
    if (new.lease is not None) is not (status in LEASED):
        raise _broken(new, "a lease is held exactly while leased")
    if (new.finished_at_ms > 0) is not (status in FINISHED):
        raise _broken(new, "finished_at is set exactly when finished")
    if (new.timed or new.blocked) and (status not in WAITING or (new.blocked and new.due_at_ms > new.updated_at_ms)):
        raise _broken(new, "only a waiting job has a timer, and only one that is due is blocked")
    if (new.pause is not None) is not (status is _PAUSED):
        raise _broken(new, "a pause is set exactly while paused")
    if new.failure_count > new.spec.max_attempts or (new.lost_count and new.lost_count > most_lost_workers(new)):
        raise _broken(new, "attempts are bounded")
    if old is None:
        return
    if new.updated_at_ms < old.updated_at_ms or new.revision < old.revision:
        raise _broken(new, "neither time nor revision runs backward")
    if new.lease is not None and new.attempts and new.lease.token <= new.attempts[-1].token:
        raise _broken(new, "fencing tokens rise")
    if (old.status in FINISHED or new.run_number != old.run_number) and (rule := _impossible_run(old, new)):
        raise _broken(new, rule)


def _broken(job: Job, rule: str) -> InvariantBroken:
    return InvariantBroken(f"job {job.id.hex()} at revision {job.revision}, {job.status.label}: {rule}")


def _impossible_run(old: Job, new: Job) -> str:
    """Return why the change of runs is impossible, or ""; only a new run changes a finished job that did not complete."""
    if old.status not in FINISHED:
        return "a run lasts until it ends"
    if new.status in FINISHED:
        before = (old.status, old.finished_at_ms, old.run_number, old.attempts)
        stays = (new.status, new.finished_at_ms, new.run_number, new.attempts) == before
        return "" if stays else f"a job that is {old.status.label} stays so"
    if old.status in RUN_AGAIN and new.run_number == old.run_number + 1:
        return ""
    return f"a job that is {old.status.label} stays so, but for a new run of what did not complete"


# -- all records ------------------------------------------------------------------------------------------------------


def _violations(view: AuditableView) -> Iterator[Violation]:
    census = _Census()
    yield from _check_records(view, census)
    yield from check_job_indexes(view, census.expected)
    yield from check_other_indexes(view)
    yield from check_relations(view)
    yield from _check_counters(view, census)
    yield from _check_dead_letter_counts(view, census)
    yield from _check_running_counts(view, census)
    yield from _check_unfinished_counts(view, census)
    yield from _check_payloads(view)
    yield from _check_results(view)


class _BitSet:
    """Store a set of non-negative integers in pages of bits, since tokens are many and close together."""

    _PAGE_BITS = 1 << 16

    def __init__(self) -> None:
        self._pages: dict[int, bytearray] = {}

    def add(self, number: int) -> bool:
        """Add `number`; return False if it was in the set already."""
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
    """Count the index entries and counters that the records require, and collect their tokens."""

    expected: Counter[str] = field(default_factory=Counter)
    counters: Counter[CounterKey] = field(default_factory=Counter)
    dead_letters: Counter[tuple[str, str]] = field(default_factory=Counter)
    running: Counter[tuple[str, str]] = field(default_factory=Counter)
    tokens: _BitSet = field(default_factory=_BitSet)


def _check_records(view: AuditableView, census: _Census) -> Iterator[Violation]:
    facts = Facts(view.cluster_time_ms, view.fence)
    for job in view.all_jobs():
        for rule in RULES:
            if not rule.holds(job, facts):
                yield Violation(rule.text, named("job", job.id), repr(job))
        for token in _tokens(job):
            if token >= 0 and not census.tokens.add(token):
                yield Violation("a fencing token is given out once", named("job", job.id), f"token {token} again")
        census.counters[CounterKey(job.tenant, job.spec.queue, job.status)] += 1
        for index in JOB_INDEXES:
            census.expected[index.name] += len(index.expected_entries(job))
        if job.status is Status.DEAD_LETTER:
            census.dead_letters[job.tenant, job.reason] += 1
        if job.status in LEASED:
            census.running.update(_running_places(job))
        yield from check_relations_of(view, job)


def _tokens(job: Job) -> list[int]:
    tokens: list[int] = [kept.token for kept in job.attempts]
    if job.lease is not None:
        tokens.append(job.lease.token)
    return tokens


def _running_places(job: Job) -> set[tuple[str, str]]:
    return {(job.spec.queue, ""), (job.spec.queue, job.key_group)}


# -- the rest ---------------------------------------------------------------------------------------------------------


def _check_counters(view: AuditableView, census: _Census) -> Iterator[Violation]:
    found = view.counters()
    for key in sorted(found.keys() | census.counters.keys()):
        if found.get(key, 0) != census.counters[key]:
            detail = f"{found.get(key, 0)} counted, {census.counters[key]} there"
            yield Violation("counters agree with the records", f"{key.tenant}/{key.queue}/{key.status.label}", detail)


def _check_dead_letter_counts(view: AuditableView, census: _Census) -> Iterator[Violation]:
    found = view.dead_letter_counts()
    for key in sorted(found.keys() | census.dead_letters.keys()):
        if found.get(key, 0) != census.dead_letters[key]:
            detail = f"{found.get(key, 0)} counted, {census.dead_letters[key]} there"
            yield Violation("counts of dead letters agree with the records", "/".join(key), detail)


def _check_running_counts(view: AuditableView, census: _Census) -> Iterator[Violation]:
    found = view.running_counts()
    for place in sorted(found.keys() | census.running.keys()):
        if found.get(place, 0) != census.running[place]:
            detail = f"{found.get(place, 0)} counted, {census.running[place]} there"
            yield Violation("counts of running jobs agree with the records", "/".join(place), detail)


def _check_unfinished_counts(view: AuditableView, census: _Census) -> Iterator[Violation]:
    found = view.unfinished_counts()
    expected: Counter[str] = Counter()
    for key, count in census.counters.items():
        if key.status not in FINISHED:
            expected[key.tenant] += count
    for tenant in sorted(found.keys() | expected.keys()):
        if found.get(tenant, 0) != expected[tenant]:
            detail = f"{found.get(tenant, 0)} counted, {expected[tenant]} there"
            yield Violation("counts of unfinished jobs agree with the records", tenant, detail)


def _check_payloads(view: AuditableView) -> Iterator[Violation]:
    for job_id in view.all_payload_ids():
        if view.job(job_id) is None and view.schedule(ScheduleId(job_id)) is None:
            yield Violation("a payload has its job or schedule", named("job", job_id), "no such job")


def _check_results(view: AuditableView) -> Iterator[Violation]:
    for job_id in view.all_result_ids():
        job = view.job(job_id)
        if job is None or job.status is not Status.COMPLETED:
            yield Violation("only a completed job has a result", named("job", job_id), repr(job))
