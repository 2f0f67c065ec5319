"""Properties demanded once all faults are over (L1). They say nothing about a history without `Healed`."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from itertools import accumulate, zip_longest
from typing import NamedTuple

from chaos.checkers.history.events import BackgroundWorkChanged, Change, Healed, Invoke, Members, QueueChanged
from chaos.checkers.history.views import NEVER, History
from chaos.checkers.report import Violation

NEEDED = ("submit", "lease", "outcome")
"""Requests that must work at every node: a job's whole way."""


def every_node_serves(history: History) -> list[Violation]:
    """Within a bound after the heal, submit, lease and outcome each succeed at every node's endpoint (L1)."""
    healed = _healed_at(history)
    if healed < 0:
        return []
    limit = healed + history.setup.operation_bound_ms * 1_000
    served = {(answer.call.node, "lease") for answer, _ in history.grants if healed <= answer.operation.end <= limit}
    for f in ("submit", "outcome"):
        served |= {(answer.call.node, f) for answer in history.answers(f) if healed <= answer.operation.end <= limit}
    return [
        Violation(f"{node} serves no {' and no '.join(missing)} within {limit - healed} µs of the heal", limit)
        for node in _voters(history)
        if (missing := [f for f in NEEDED if (node, f) not in served])
    ]


def nodes_converge(history: History) -> list[Violation]:
    """Within a bound after the heal, all nodes have applied the same index, the last one (L1)."""
    healed = _healed_at(history)
    if healed < 0:
        return []
    limit = healed + history.setup.convergence_bound_ms * 1_000
    last = max((final.index for final in history.finals.values()), default=0)
    violations = []
    for node in _voters(history):
        final = history.finals.get(node)
        if final is None or final.t > limit or final.index != last:
            what = "has no final state" if final is None else f"ends at index {final.index} of {last}, at {final.t} µs"
            violations.append(Violation(f"{node} {what}; the limit is {limit} µs", limit))
    return violations


def no_lease_outlives_its_term(history: History) -> list[Violation]:
    """After the heal, a lease whose worker is silent ends within its term and a bound, a cancelled one within the grace.

    (L1.) One that awaits a callback ends within its job's timeout, if that is longer. Silence counts from the grant,
    the latest valid heartbeat, or the heal, whatever came last. It counts in cluster
    time where that is slow: a time that is ahead of all clocks runs at half speed (`ClusterClock`), and the log ends no
    lease before a term of it. In no case may it take twice as long as allowed.
    """
    healed = _healed_at(history)
    if healed < 0:
        return []
    setup = history.setup
    allowed = setup.lease_ttl_ms * (1_000 + setup.rate_error_thousandths) + setup.lease_bound_ms * 1_000
    heard: dict[int, int] = {}
    for answer in history.answers("heartbeat"):
        if answer.reply.valid:
            heard[answer.call.token] = max(heard.get(answer.call.token, 0), answer.operation.end)
    stamped = _Stamps(history)
    awaited = {change.token for change in history.changes if change.f == "await"}
    violations = []
    for token, granted in history.grant_of.items():
        ended = history.end_of.get(token)
        end = history.end if ended is None else ended.t
        begin = max(healed, granted.t, heard.get(token, 0))
        silent = end - begin
        timeout_ms = history.timeouts.get(granted.job, 0) if token in awaited else 0
        limit = allowed + max(0, timeout_ms - setup.lease_ttl_ms) * 1_000
        if silent > limit and (silent > 2 * limit or stamped.between(begin, end) > limit):
            violations.append(Violation(f"token {token} is current after {silent} µs of silence", end))
    violations.extend(_never_stopped(history, healed))
    return violations


class _Stamps:
    """Cluster time as the log's stamps tell it: at each moment the latest one that was applied."""

    def __init__(self, history: History) -> None:
        changes = sorted((change.t, change.now_ms) for change in history.changes if change.t >= 0)
        self._moments = [t for t, _ in changes]
        self._stamps_ms = list(accumulate((now_ms for _, now_ms in changes), max))

    def between(self, begin: int, end: int) -> int:
        """Return the microseconds of cluster time between two moments; what no entry shows counts as real time."""
        first, last = bisect_right(self._moments, begin) - 1, bisect_right(self._moments, end) - 1
        if first < 0:
            return end - begin
        known = (self._stamps_ms[last] - self._stamps_ms[first]) * 1_000
        return known + end - self._moments[last]


def _never_stopped(history: History, healed: int) -> list[Violation]:
    """Cancelled jobs whose lease continues although the grace is over."""
    setup = history.setup
    grace_ms = max(setup.cancel_grace_ms, setup.lease_ttl_ms) + setup.lease_bound_ms
    allowed = grace_ms * (1_000 + setup.rate_error_thousandths)
    last: dict[str, Change] = {change.job: change for change in history.changes}
    return [
        Violation(f"job {change.job} is still cancelling", history.end)
        for change in last.values()
        if change.status == "cancelling" and history.end - max(healed, change.t) > allowed
    ]


def background_work_ends(history: History) -> list[Violation]:
    """After the heal, no long work of the cluster is left undone for longer than a moment (L1)."""
    healed = _healed_at(history)
    if healed < 0:
        return []
    since: dict[tuple[str, str], int] = {}
    for event in history.log_of(BackgroundWorkChanged):
        assert isinstance(event, BackgroundWorkChanged)
        if event.is_open:
            since.setdefault((event.kind, event.subject), event.t)
        else:
            since.pop((event.kind, event.subject), None)
    allowed = history.setup.background_bound_ms * 1_000
    return [
        Violation(f"the chore {kind} of {subject} is not done", history.end)
        for (kind, subject), t in since.items()
        if history.end - max(t, healed) > allowed
    ]


def deadlines_are_handled(history: History) -> list[Violation]:
    """At the end, no node's state holds an alarm whose time has long passed (L1)."""
    if _healed_at(history) < 0:
        return []
    return [
        Violation(f"{node} ends with an alarm of {what}, {late_ms} ms late", final.t)
        for node, final in history.finals.items()
        for what, late_ms in final.overdue.items()
        if node in _voters(history) and late_ms > history.setup.background_bound_ms
    ]


def ready_jobs_are_given(history: History) -> list[Violation]:
    """After the heal, no worker is left without a job while one that nothing keeps back waits in a queue that it asks for.

    (L1.) Said of jobs without a concurrency key in queues about whose limits nobody has said anything, of the worker's
    region or of none, of its tenant if it is bound to one, that it has a handler for.
    """
    healed = _healed_at(history)
    if healed < 0:
        return []
    waits = _waits(history)
    violations = []
    for answer in history.answers("lease"):
        start, end = answer.operation.start, answer.operation.end
        if answer.reply.grants or start < healed or end - start < _WAIT_US_MIN:
            continue
        for queue in answer.call.queues:
            for wait in waits.get(queue, ()):
                if wait.start < start and end < wait.end and _is_for(wait.job, answer.call):
                    what = f"{answer.operation} gets nothing of {queue}, although {wait.job.job} waits"
                    violations.append(Violation(what, end))
                    break
    return violations


def _is_for(job: Change, call: Invoke) -> bool:
    """Whether a worker that asks may have the job."""
    return (
        job.region in ("", call.region) and job.name in (call.names or (job.name,)) and call.tenant in ("", job.tenant)
    )


def nobody_is_passed_over(history: History) -> list[Violation]:
    """After the heal, no job waits for longer than a moment while workers that may have it get jobs from behind it.

    (L1.) Behind it are those of its queue, tenant and priority that are due later, whatever their region. Said of the
    same jobs as `ready_jobs_are_given`.
    """
    healed = _healed_at(history)
    if healed < 0:
        return []
    violations = []
    names = {grant.token: answer.call.names for answer, grant in history.grants}
    for waits in _waits(history).values():
        leases: dict[tuple[str, int], list[_Wait]] = defaultdict(list)
        for wait in sorted(waits, key=lambda wait: wait.end):
            if wait.lease is not None and wait.end >= healed:
                leases[wait.job.tenant, wait.job.priority].append(wait)
        for wait in waits:
            if wait.end - healed > _MOMENT_US:
                given = leases.get((wait.job.tenant, wait.job.priority), ())
                times = [each.end for each in given if _passes_over(each, wait, healed, names)]
                if times and times[-1] - times[0] > _MOMENT_US:
                    what = (
                        f"{len(times)} jobs of {wait.job.queue} pass over {wait.job.job} in {times[-1] - times[0]} µs"
                    )
                    violations.append(Violation(what, times[-1]))
    return violations


_WAIT_US_MIN = 300_000
_MOMENT_US = 1_500_000
"""A job that was picked for a worker who can't have it after all is offered again well within this."""
_WAITS = ("queued", "scheduled", "retrying")


class _Wait(NamedTuple):
    """A job was due, and waited from `start` to `end`."""

    start: int
    end: int
    job: Change
    """The job as it waited."""
    lease: Change | None
    """The change that ended the wait, if that was a lease."""


def _passes_over(given: _Wait, wait: _Wait, healed: int, names: dict[int, tuple[str, ...]]) -> bool:
    """Whether a worker got one job after the heal who could have had another, which waited and was due before it.

    `names` are those that the worker with a token has handlers for. Of one that never heard of its lease nothing is known.
    """
    if given.job.due_ms <= wait.job.due_ms or not max(wait.start, healed) <= given.end < wait.end:
        return False
    if given.lease is None or wait.job.region not in ("", given.lease.worker_region):
        return False
    known = names.get(given.lease.token, ("",))
    return not known or wait.job.name in known


def _waits(history: History) -> dict[str, list[_Wait]]:
    """Of each queue without settings: who waited there, and was due."""
    limited = {event.queue for event in history.of(QueueChanged)}
    times = [(change.now_ms, change.t) for change in history.changes]
    waits: dict[str, list[_Wait]] = defaultdict(list)
    for changes in history.changes_of.values():
        for change, following in zip_longest(changes, changes[1:]):
            is_plain = change.queue and change.queue not in limited and not change.concurrency_key
            if is_plain and change.status in _WAITS and not change.blocked:
                position = bisect_left(times, (change.due_ms, 0))
                due_at = times[position][1] if position < len(times) else NEVER
                end = NEVER if following is None else following.t
                lease = following if following is not None and following.f == "lease" else None
                waits[change.queue].append(_Wait(max(change.t, due_at), end, change, lease))
    return waits


def lease_count(history: History) -> int:
    return len(history.grant_of) if _healed_at(history) >= 0 else 0


def healed_count(history: History) -> int:
    return len(history.of(Healed))


def _healed_at(history: History) -> int:
    """The time at which the last fault was over; -1 = never."""
    healed = history.of(Healed)
    return healed[-1].t if healed else -1


def _voters(history: History) -> tuple[str, ...]:
    members = history.of(Members)
    return members[-1].nodes if members else history.setup.nodes
