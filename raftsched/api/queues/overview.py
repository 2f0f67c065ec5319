"""Summarise all queues for people: totals, the busiest queues, the longest waits, pauses, and dead letters by reason.

Totals come from counts in memory, at two tenths of a microsecond for each queue and status: some milliseconds for ten
thousand queues. The longest waits cost a look into the ready index for each queue. So only the
`limits.OVERVIEW_QUEUES_MAX` queues with the most due jobs are looked at.
"""

from __future__ import annotations

from collections import Counter
from heapq import nlargest
from itertools import chain, islice
from typing import Final

from aiohttp import web

from raftsched import limits
from raftsched.api.access.principal import Principal, principal_of
from raftsched.api.access.rules import Access
from raftsched.api.backend import Backend
from raftsched.api.event_log import EventLog
from raftsched.api.http.consistency import Reading, read
from raftsched.api.http.routes import Route, route
from raftsched.api.queues.routes import Queues
from raftsched.core.records.job import Status
from raftsched.leader.dispatch.depths import due_by_time, oldest_wait_ms
from raftsched.storage.tables.counters import QueueTally
from raftsched.wire.common import ReadQuery
from raftsched.wire.queues import OverviewReply, RatesReply

_SHOWN_MAX: Final = 12
"""Queues in each of the lists."""
_RATES_MS: Final = 60_000
_EVENTS_MAX: Final = 5_000
"""Events that the rates are counted from: two milliseconds."""


class Overview:
    """The route of the overview."""

    def __init__(self, backend: Backend, queues: Queues) -> None:
        self._backend = backend
        self._queues = queues

    def routes(self) -> tuple[Route, ...]:
        return (route(Access.READ, "GET", "/overview", self.get_overview, OverviewReply, query=ReadQuery),)

    async def get_overview(self, request: web.Request) -> web.Response:
        """Read how much there is to do, the queues that need a look, and the dead letters by reason."""
        _, reading = read(self._backend, request, ReadQuery)
        caller = principal_of(request)
        tally, is_exact = _tally(reading, caller)
        paused = [queue.name for queue in reading.state.queues() if queue.paused and caller.sees_queue(queue.name)]
        busiest = nlargest(_SHOWN_MAX, sorted(tally.queues), key=lambda queue: _busyness(tally, queue))
        waits, all_looked_at = _longest_waits(reading, caller, tally, set(paused))
        lists = (busiest, waits, paused[:_SHOWN_MAX])
        by_name = {each.name: each for each in self._queues.replies(reading, caller, sorted({*chain(*lists)}))}
        shown = [[by_name[name] for name in names] for names in lists]
        return reading.response(
            OverviewReply(
                tenant=caller.scope,
                jobs={status.label: tally.totals[status] for status in Status},
                exact=is_exact and all_looked_at,
                queue_count=len(tally.queues),
                busiest=shown[0],
                longest_waits=shown[1],
                paused=shown[2],
                paused_count=len(paused),
                dead_letters=_dead_letters(reading, caller),
                rates=_rates(self._backend.events, caller, reading.now_ms),
            )
        )


def _tally(reading: Reading, caller: Principal) -> tuple[QueueTally, bool]:
    """Return the jobs by the status that users see, and whether these are exact."""
    tally = reading.state.queue_tally(caller.scope)
    due, is_exact = due_by_time(reading.state, reading.now_ms)
    for job in due:
        if caller.sees(job.tenant):
            tally.totals[job.status] -= 1
            tally.totals[Status.QUEUED] += 1
            tally.queued[job.spec.queue] = tally.queued.get(job.spec.queue, 0) + 1
    return tally, is_exact


def _busyness(tally: QueueTally, queue: str) -> tuple[int, int]:
    return tally.queued.get(queue, 0), tally.running.get(queue, 0)


def _longest_waits(reading: Reading, caller: Principal, tally: QueueTally, paused: set[str]) -> tuple[list[str], bool]:
    """Return the queues in which a job waits for longest, the longest first, and whether all queues were looked at."""
    waiting = [queue for queue in tally.queued if queue not in paused]
    looked_at = nlargest(limits.OVERVIEW_QUEUES_MAX, waiting, key=tally.queued.__getitem__)
    waits = {queue: oldest_wait_ms(reading.state, queue, reading.now_ms, caller.scope) for queue in looked_at}
    longest = sorted((queue for queue in waits if waits[queue]), key=waits.__getitem__, reverse=True)
    return [*islice(longest, _SHOWN_MAX)], len(looked_at) == len(waiting)


def _rates(events: EventLog, caller: Principal, now_ms: int) -> RatesReply:
    """Return the rates of the events of the last minute, as far as this node has kept them."""
    latest, are_all = events.latest(now_ms - _RATES_MS, _EVENTS_MAX)
    oldest_ms = now_ms - _RATES_MS if are_all or not latest else latest[-1].at_ms
    seconds = max(1.0, (now_ms - oldest_ms) / 1000)
    counts = Counter(event.type for event in latest if caller.sees(event.tenant))
    return RatesReply(
        submitted=counts["job.created"] / seconds,
        completed=counts["job.completed"] / seconds,
        failed=counts["job.retrying"] / seconds,
        dead_letter=counts["job.dead_letter"] / seconds,
        over_seconds=seconds,
    )


def _dead_letters(reading: Reading, caller: Principal) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for (tenant, reason), count in reading.state.dead_letter_counts().items():
        if caller.sees(tenant):
            counts[reason] += count
    return dict(counts.most_common())
