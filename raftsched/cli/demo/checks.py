"""Check what must hold at the end of the demo, one function each: `Evidence` in, faults out.

They are pure, so that tests can give each of them a broken history. A check that finds nothing to check is a fault: no
evidence proves nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from raftsched.cli.demo.evidence import Evidence, Timetable
from raftsched.cli.demo.ledger import Span
from raftsched.cli.demo.plan import NARROW_AT_ONCE, RATE_COUNT, RATE_SECONDS, report_lines

_TICK = timedelta(milliseconds=1)
"""Times of the cluster are whole milliseconds."""


@dataclass(frozen=True, slots=True)
class Check:
    """The subject of a check, the number of things checked, and the faults."""

    wrong: str
    looked_at: int
    faults: Sequence[str]

    @property
    def holds(self) -> bool:
        return self.looked_at > 0 and not self.faults


# -- schedules ---------------------------------------------------------------------------------------------------------


def undecided(evidence: Evidence) -> Check:
    """Check that each fire time is decided, and decided to fire: no schedule here may skip one."""
    faults = []
    for table in evidence.timetables:
        fired = {line.instant for line in table.ledger if line.fired}
        faults += [f"{table.name}: no run for {each:%H:%M:%S}" for each in _grid(table) if each not in fired]
    return Check("instants undecided", sum(len(list(_grid(table))) for table in evidence.timetables), faults)


def decided_twice(evidence: Evidence) -> Check:
    """Check that no fire time has two lines in the ledger, two jobs, or two records at the receiver."""
    faults = []
    for table in evidence.timetables:
        lines = Counter(line.instant for line in table.ledger)
        jobs = Counter(job.instant for job in evidence.of_kind(table.name) if job.instant)
        ids = {job.id for job in evidence.of_kind(table.name)}
        effects = Counter(
            datetime.fromisoformat(value)
            for run_id, values in evidence.recorded.items()
            if run_id.rpartition(".")[0] in ids
            for value in values
        )
        faults += [
            f"{table.name}: {count} {what} for {instant:%H:%M:%S}"
            for what, counter in (("decisions", lines), ("jobs", jobs), ("records", effects))
            for instant, count in counter.items()
            if count > 1
        ]
    return Check("instants decided twice", sum(len(table.ledger) for table in evidence.timetables), faults)


def off_grid(evidence: Evidence) -> Check:
    """Check that all decisions are for fire times, and that the preview was right."""
    faults = []
    for table in evidence.timetables:
        decided = [line.instant for line in table.ledger]
        faults += [
            f"{table.name}: {instant.isoformat()} is no fire time of it"
            for instant in decided
            if (instant - table.first) % table.period or instant < table.first
        ]
        faults += [
            f"{table.name}: {instant:%H:%M:%S} was in the preview, and not decided"
            for instant in table.previewed
            if instant <= table.through and instant not in decided
        ]
    return Check("instants off their grid", sum(len(table.ledger) for table in evidence.timetables), faults)


def _grid(table: Timetable) -> Iterator[datetime]:
    instant = table.first
    while instant <= table.through:
        yield instant
        instant += table.period


# -- the workflow ------------------------------------------------------------------------------------------------------


def nodes_run_twice(evidence: Evidence) -> Check:
    """Check that each job of the workflow took effect in one run, and once; skipped ones never."""
    effects: Counter[str] = Counter()
    for run_id, values in evidence.recorded.items():
        effects[run_id.rpartition(".")[0]] += len(values)
    faults = [
        f"{node.task} took effect {effects[node.id]} times, as it ended {node.status}"
        for node in evidence.graph.nodes
        if effects[node.id] != (node.status == "completed")
    ]
    return Check("workflow jobs not run just once", len(evidence.graph.nodes), faults)


def run_before_parents(evidence: Evidence) -> Check:
    """Check that no job of the workflow began before its parents had ended."""
    nodes = {node.id: node for node in evidence.graph.nodes}
    faults = []
    for edge in evidence.graph.edges:
        parent, child = nodes[edge.parent], nodes[edge.child]
        if child.started_at and (parent.completed_at is None or child.started_at < parent.completed_at):
            faults.append(f"{child.task} began before {parent.task} had ended")
    return Check("workflow jobs run before their parents", len(evidence.graph.edges), faults)


# -- limits and order --------------------------------------------------------------------------------------------------


def too_many_at_once(evidence: Evidence) -> Check:
    """Check that, as the workers saw it, never more than the limit ran at the same time."""
    spans = [span for span in evidence.spans if span.queue == "narrow"]
    most = most_at_once(spans)
    faults = [] if most <= NARROW_AT_ONCE else [f"{most} ran at the same time, not {NARROW_AT_ONCE}"]
    return Check(f"more than {NARROW_AT_ONCE} at the same time", len(spans), faults)


def most_at_once(spans: Sequence[Span]) -> int:
    """Return the largest number of spans that overlap; one that begins as another ends does not overlap it."""
    steps = sorted([(span.ended_ms, -1) for span in spans] + [(span.began_ms, 1) for span in spans])
    most = now = 0
    for _, step in steps:
        now += step
        most = max(most, now)
    return most


def too_fast(evidence: Evidence) -> Check:
    """Check that no stretch of time has more starts than the bucket and its refill allow."""
    starts = sorted(job.started_at for job in evidence.of_kind("rate") if job.started_at)
    faults = []
    for index, first in enumerate(starts):
        for count, last in enumerate(starts[index:], start=1):
            seconds = (last - first + _TICK).total_seconds()
            if count > 1 + seconds * RATE_COUNT / RATE_SECONDS:
                faults.append(f"{count} started within {seconds:.3f} s")
    return Check(f"more than {RATE_COUNT} a second", len(starts), faults)


def out_of_order(evidence: Evidence) -> Check:
    """Check by fencing tokens, which rise with every lease, that no job began before one of a higher priority."""
    jobs = {job.run_id: job for job in evidence.of_kind("priority")}
    spans = sorted((span for span in evidence.spans if span.run_id in jobs), key=lambda span: span.token)
    faults = [
        f"priority {jobs[late.run_id].priority} began after priority {jobs[early.run_id].priority}"
        for early, late in pairwise(spans)
        if jobs[early.run_id].priority < jobs[late.run_id].priority
    ]
    return Check("out of the order of priority", len(spans), faults)


def too_early(evidence: Evidence) -> Check:
    """Check that no delayed job began before its time."""
    jobs = evidence.of_kind("delayed")
    faults = [
        f"job {job.id} began before it was due" for job in jobs if job.started_at is None or job.started_at < job.run_at
    ]
    return Check("delayed jobs run too early", len(jobs), faults)


# -- one job -----------------------------------------------------------------------------------------------------------


def begun_twice(evidence: Evidence) -> Check:
    """Check that an at-most-once job began once, even if it failed."""
    begun = Counter(span.run_id for span in evidence.spans if span.queue == "once")
    faults = [f"run {run_id} began {count} times" for run_id, count in begun.items() if count > 1]
    return Check("at-most-once jobs begun twice", len(begun), faults)


def not_unique(evidence: Evidence) -> Check:
    """Check that each submission of the unique job was answered with the same job."""
    ids = evidence.unique_ids
    return Check("unique jobs made twice", len(ids), [f"{job_id} is another job" for job_id in ids if job_id != ids[0]])


def run_while_paused(evidence: Evidence) -> Check:
    """Check that no paused job began before it was resumed."""
    faults = [
        f"job {job_id}: {', '.join(events)}"
        for job_id, events in evidence.histories.items()
        if "resumed" not in events or "attempt_started" in events[: events.index("resumed")]
    ]
    return Check("jobs run while they were paused", len(evidence.histories), faults)


def hooks_not_once(evidence: Evidence) -> Check:
    """Check that each end that asks for a job has submitted it, once."""
    asking = [
        job_id for job_id, job in evidence.planned.items() if job.spec.on_failure and job.ends_as == "dead_letter"
    ]
    hooks = Counter(job.hook_of for job in evidence.of_kind("hook"))
    faults = [f"the end of job {job_id} has {hooks[job_id]} hooks" for job_id in asking if hooks[job_id] != 1]
    faults += [f"a hook belongs to {job_id}, which asks for none" for job_id in hooks.keys() - set(asking)]
    return Check("ends without their hook, or with several", len(asking), faults)


def untold(evidence: Evidence) -> Check:
    """Check that each job that reports left all lines of its log, and its progress."""
    lines = report_lines()
    jobs = evidence.of_kind("report")
    faults = [
        f"job {job.id} left the log {evidence.logs.get(job.id)}" for job in jobs if evidence.logs.get(job.id) != lines
    ]
    faults += [f"job {job.id} left no progress" for job in jobs if not job.progress]
    return Check("logs or progress missing", len(jobs), faults)


ALL = (
    undecided, decided_twice, off_grid, nodes_run_twice, run_before_parents, too_many_at_once, too_fast, out_of_order,
    too_early, begun_twice, not_unique, run_while_paused, untold, hooks_not_once,
)  # fmt: skip
