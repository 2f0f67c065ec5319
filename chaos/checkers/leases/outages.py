"""Outages of the cluster: what no leader could receive is nobody's silence.

Theory of operation. While leases run, a leader stamps an entry a few times in each term. So the stamps of the log alone say
when nobody led: an outage ends with the first stamp of a new leader, if it is more than a lease later than the last one of
its predecessors. The log notes it there, so that every leader knows of it from then on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from chaos.checkers.history.events import Applied, Change
from chaos.checkers.history.views import History
from chaos.checkers.report import Violation


class _Entry(NamedTuple):
    at: int
    """Its index in the log."""
    term: int
    now_ms: int
    t: int


def outages_lose_no_worker(history: History) -> list[Violation]:
    """A lease whose worker was not heard after an outage does not end as that of a lost worker (D22)."""
    return [
        Violation(
            f"token {change.token} is unheard since the outage before {outage.at}, and counts as lost",
            change.t,
        )
        for change, outage in _unheard(history)
        if change.outcome == "worker_lost"
    ]


def outage_count(history: History) -> int:
    return len(_outages(list(_entries(history)), history.setup.lease_ttl_ms))


def _unheard(history: History) -> Iterator[tuple[Change, _Entry]]:
    """Expiries, each with the first stamp after an outage in its lease, if after that no heartbeat for it can have been
    heard.
    """
    entries = list(_entries(history))
    outages = _outages(entries, history.setup.lease_ttl_ms)
    heard_until = _heard_until(history)
    for change in history.changes if outages else ():
        granted = history.grant_of.get(change.token)
        if change.f != "expire" or granted is None:
            continue
        for outage in outages:
            if granted.index < outage.at <= change.index and heard_until.get(change.token, 0) < outage.t:
                yield change, outage
                break


def _heard_until(history: History) -> dict[int, int]:
    """Return, by token, until when a leader can have heard a heartbeat; one without an answer, at any time."""
    until: dict[int, int] = {}
    for operation in history.operations:
        if operation.call.f == "heartbeat":
            until[operation.call.token] = max(operation.end, until.get(operation.call.token, 0))
    return until


def _entries(history: History) -> Iterator[_Entry]:
    """The log, in its order, as it was first applied."""
    latest = 0
    for event in history.of(Applied):
        if event.index > latest:
            latest = event.index
            yield _Entry(event.index, event.term, event.now_ms, event.t)


def _outages(entries: list[_Entry], lease_ttl_ms: int) -> list[_Entry]:
    """Return the first stamp after each outage."""
    found: list[_Entry] = []
    since_ms, term, is_first = 0, 0, False
    for entry in entries:
        if entry.term != term:
            term, is_first = entry.term, True
        if is_first and entry.now_ms > since_ms:
            is_first = False
            if 0 < since_ms < entry.now_ms - lease_ttl_ms:
                found.append(entry)
        since_ms = max(since_ms, entry.now_ms)
    return found
