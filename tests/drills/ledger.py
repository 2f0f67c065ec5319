"""Schedules of a grid and their ledgers: which instants were decided, how often, and what became of them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from raftsched.cli.local.cluster import LocalCluster
from tests.acceptance.http import all_pages, ask

_SOON_SECONDS: Final = 3


class Line(NamedTuple):
    """What was decided for one instant."""

    fire_time_ms: int
    job_id: str | None
    reason: str | None
    lateness_ms: int
    """How late the decision was: that of several instants counts from each."""


def first_fire_time(period_seconds: int) -> int:
    """Return a full period, in epoch seconds, that is some seconds ahead."""
    return (int(time.time()) + _SOON_SECONDS) // period_seconds * period_seconds + period_seconds


def save_grid(base: str, name: str, *, period_seconds: int, start_s: int, **fields: Any) -> None:
    """Save a schedule that fires every so many seconds from `start_s` on, whatever its earlier runs do."""
    job = {"name": "due", "queue": "due"}
    timing = {"every": f"{period_seconds}s", "start_at": datetime.fromtimestamp(start_s, UTC).isoformat()}
    ask(base, "POST", "/schedules", {"name": name, **timing, "overlap": "allow", "job": job, **fields})


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def ledger(base: str, name: str, period_seconds: int) -> list[Line]:
    """Return what was decided for each planned instant, the oldest first; one line may stand for several of them."""
    lines: list[Line] = []
    for each in all_pages(base, f"/schedules/{name}/firings?order=asc&limit=1000&kind=planned", "firings"):
        first, last = ms(each["instant"]), ms(each["last_instant"] or each["instant"])
        fire_times = range(first, last + 1, period_seconds * 1000)
        assert len(fire_times) == each["count"], each
        decided = ms(each["decided_at"])
        lines += [Line(fire_time, each["job_id"], each["reason"], decided - fire_time) for fire_time in fire_times]
    return lines


def faults(
    base: str,
    name: str,
    lines: Sequence[Line],
    *,
    start_s: int,
    period_seconds: int,
    made: Sequence[Any] | None = None,
) -> Iterator[str]:
    """Yield instants that are missing or stand there twice, and jobs that don't fit what was decided.

    `made` are the schedule's jobs, where they were read before.
    """
    counts = Counter(line.fire_time_ms for line in lines)
    last = max(counts, default=start_s * 1000)
    grid = range(start_s * 1000, last + 1, period_seconds * 1000)
    yield from (
        f"{name}: {fire_time} was decided {counts[fire_time]} times" for fire_time in grid if counts[fire_time] != 1
    )
    yield from (f"{name}: {fire_time} is no instant of the grid" for fire_time in counts if fire_time not in grid)
    decided = Counter((line.job_id, line.fire_time_ms) for line in lines if line.job_id)
    schedule = ask(base, "GET", f"/schedules/{name}")
    if made is None:
        made = all_pages(base, f"/jobs?schedule={schedule['id']}&limit=1000", "jobs")
    stored = Counter((job["id"], ms(job["instant"])) for job in made)
    if stored != decided:
        yield f"{name}: {len(stored)} jobs are there, {len(decided)} were decided: {(stored - decided) + (decided - stored)}"
    tallies = (schedule["fired_count"], schedule["skipped_count"])
    if tallies != (len(decided), len(lines) - len(decided)):
        yield f"{name}: it counts {tallies} fired and skipped, its ledger has {len(decided)} of {len(lines)} fired"


def decided_up_to(cluster: LocalCluster, base: str, names: Sequence[str], fire_time_ms: int, *, seconds: float) -> None:
    """Return once the instant, and so all before it, is decided for each of the schedules."""
    waiting = list(names)

    def done() -> bool:
        while waiting:
            last = ask(base, "GET", f"/schedules/{waiting[-1]}")["last_at"]
            if last is None or ms(last) < fire_time_ms:
                return False
            waiting.pop()
        return True

    cluster.wait_until(done, what="all schedules to be decided", seconds=seconds)
