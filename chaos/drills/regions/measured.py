"""Times of a drill in regions, read from its history."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from chaos.checkers.history.events import AnyEvent, Change, Invoke, Reply
from chaos.drills.load.load import CROWD
from chaos.drills.load.processes import SDK_WORKER
from chaos.drills.load.sdk_client import PROCESS as SDK_CLIENT
from chaos.drills.regions.world import NODES, REGIONS
from chaos.drills.rounds import Round

_SECOND: Final = 1_000_000
"""In the units of a history."""


class Call(NamedTuple):
    """A call that was answered with success."""

    process: str
    at: int
    took_ms: float


class Times(NamedTuple):
    """Of so many calls, in milliseconds."""

    calls: int
    p50: float
    p99: float


def calls(events: Sequence[AnyEvent], f: str) -> list[Call]:
    """Return the successful calls of a kind, by the time of their answers."""
    begun = {event.op: event for event in events if isinstance(event, Invoke) and event.f == f}
    return [
        Call(begun[event.op].process, event.t, (event.t - begun[event.op].t) / 1000)
        for event in events
        if isinstance(event, Reply) and event.type == "ok" and event.op in begun
    ]


def times_of(found: Sequence[Call], process: str, begin: int, end: int) -> Times:
    """Return the times of one process, or of all processes whose names begin so, between two moments."""
    took = sorted(call.took_ms for call in found if call.process.startswith(process) and begin <= call.at < end)
    if not took:
        return Times(0, 0.0, 0.0)
    return Times(len(took), took[len(took) // 2], took[len(took) * 99 // 100])


def user_of(number: int) -> str:
    """Return the beginning of the names of raw HTTP's user of a node, who asks no other."""
    return f"user-n{number}"


def client_of(number: int) -> str:
    return f"{SDK_CLIENT}-{number}."


def longest_call_seconds(submits: Sequence[Call], cut: Round) -> float:
    """Return the longest call of the SDK that ended in a round, without the clients in the region that was cut off."""
    inside = client_of(REGIONS.index(cut.target) + NODES.start)
    took = [
        call.took_ms
        for call in submits
        if call.process.startswith(SDK_CLIENT) and not call.process.startswith(inside) and cut.begin < call.at < cut.end
    ]
    return max(took, default=0.0) / 1000


def writes_per_second(submits: Sequence[Call], begin: int, end: int) -> float:
    """Return the accepted submits of all crowds between two moments, by second."""
    count = sum(call.process.startswith(CROWD) and begin <= call.at < end for call in submits)
    return count * _SECOND / (end - begin)


def workers_that_stopped(events: Sequence[AnyEvent], cut: Round) -> Iterator[str]:
    """Yield the workers that had reported no outcome from the heal of a cut to the end of the drill."""
    reported = {call.process for call in calls(events, "outcome") if call.at > cut.heal}
    for number in NODES:
        name = f"{SDK_WORKER}-{number}"
        if not any(process.startswith(f"{name}-") for process in reported):
            yield name


def leases_lost_by_workers(events: Sequence[AnyEvent]) -> tuple[int, int]:
    """Return how many leases of the SDK's workers, who are never silent, expired, and of how many."""
    by_op = {event.op: event for event in events if isinstance(event, Invoke) and event.f == "lease"}
    tokens = {
        grant.token
        for event in events
        if isinstance(event, Reply) and event.op in by_op and by_op[event.op].worker.startswith(SDK_WORKER)
        for grant in event.grants
    }
    expired = [event for event in events if isinstance(event, Change) and event.f == "expire" and event.token in tokens]
    return len(expired), len(tokens)
