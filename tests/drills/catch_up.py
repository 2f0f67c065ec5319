"""The whole cluster is down for a day, with every-minute schedules of each misfire policy (case D11).

    python -m tests.drills.catch_up --schedules 500 --hours 24

The nodes are killed, and started again with wall clocks that are so many hours ahead. What was missed must be made up
within the documented bound of each policy, in order of the instants, within overlap policy and rate limit; whoever
leads when catching up begins must still lead when it ends, and a schedule that is new then must miss no instant. Also
measured: how long the API's answers take meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final, NamedTuple

from raftsched import limits
from raftsched.cli.local.cluster import LocalCluster
from raftsched.client import Client
from tests.acceptance.http import all_pages, ask
from tests.drills.later_node import start_later
from tests.drills.ledger import decided_up_to, faults, first_fire_time, ledger, ms
from tests.drills.processes import drill_cluster
from tests.drills.workers import running_worker

PERIOD_SECONDS: Final = 60
_WINDOW_SECONDS: Final = 3_600
_FRESH: Final = "fresh"
_FRESH_SECONDS: Final = 5
"""The period of a schedule that is saved when the nodes are back."""
_RATE: Final = 100
"""Leases a second of the queue whose runs are bounded by a window."""
_WORKER_SLOTS: Final = 100
_PROBES_PER_SECOND: Final = 20
_FIELDS: Final = ("id", "instant", "status", "created_at", "started_at", "completed_at")
_P99_MS_MAX: Final = 1_000
_SECONDS_MAX: Final = 1_800.0


class Policy(NamedTuple):
    """What a schedule says, and how many missed instants it may make up for."""

    fields: dict[str, Any]
    made_up_max: int


POLICIES: Final = {
    "default": Policy({"overlap": "skip"}, 1),
    "skip": Policy({"misfire": "skip"}, 0),
    "run_once": Policy({"misfire": "run_once"}, 1),
    "run_all": Policy({"misfire": "run_all"}, limits.CATCHUP_RUNS_MAX),
    "run_all_within": Policy(
        {"misfire": "run_all", "overlap": "buffer_all", "catchup_window_seconds": _WINDOW_SECONDS},
        _WINDOW_SECONDS // PERIOD_SECONDS,
    ),
}


@dataclass
class CatchUp:
    """What was seen while the cluster caught up."""

    start_s: int
    """The first instant, decided before the nodes went down."""
    ahead_seconds: int
    """How long they were down."""
    missed_to_ms: int
    """Cluster time of the last instant that no leader could decide in time."""
    fresh_start_s: int = 0
    terms: list[int] = field(default_factory=list)
    decided_seconds: float = 0.0
    done_seconds: float = 0.0
    answers_ms: dict[str, list[float]] = field(default_factory=dict)
    made_up: Counter[str] = field(default_factory=Counter)
    """Runs of missed instants, by policy."""


def run(cluster: LocalCluster, schedule_count: int, hours: int) -> tuple[CatchUp, list[str]]:
    """Take the cluster down for so long; return what was seen then, and what is wrong in what was recorded."""
    base = cluster.nodes[0].api
    start_s = first_fire_time(PERIOD_SECONDS) + PERIOD_SECONDS  # all are saved by then
    names = [f"{policy}-{number}" for number in range(schedule_count // len(POLICIES)) for policy in POLICIES]
    ask(base, "PATCH", "/queues/run_all_within", {"rate": {"count": _RATE, "per_seconds": 1}})
    with running_worker(cluster, *POLICIES, _FRESH, concurrency=_WORKER_SLOTS):
        ask(base, "PUT", "/schedules", {"schedules": [_schedule(name, start_s) for name in names]}, timeout=60)
        decided_up_to(cluster, base, names, start_s * 1000, seconds=4 * PERIOD_SECONDS)
        asyncio.run(_all_done(cluster))
        cluster.kill()
        ahead_seconds = hours * 3_600
        back_ms = round((time.time() + ahead_seconds) * 1000)
        seen = CatchUp(start_s, ahead_seconds, missed_to_ms=back_ms - limits.MISFIRE_GRACE_MS)
        start_later(cluster, ahead_seconds)
        asyncio.run(_watch(cluster, names, seen))
    found = [f"the term was {seen.terms[0]}, and then {seen.terms[-1]}"] if len(set(seen.terms)) > 1 else []
    runs = _runs(base)
    for name in names:
        found += _schedule_faults(base, name, runs[name], seen)
    found += _fresh_faults(base, runs[_FRESH], seen.fresh_start_s)
    found += _rate_faults(run for name in names if _policy(name) == "run_all_within" for run in runs[name])
    return seen, found


def _policy(name: str) -> str:
    """The policy of the schedule of this name."""
    return name.rpartition("-")[0]


def _schedule(name: str, start_s: int) -> dict[str, Any]:
    """The schedule of this name, as its policy says."""
    policy = _policy(name)
    start_at = datetime.fromtimestamp(start_s, UTC).isoformat()
    job = {"name": "noop", "queue": policy}
    fields = {"name": name, "cron": "* * * * *", "start_at": start_at, "overlap": "allow", "job": job}
    return fields | POLICIES[policy].fields


# -- while it catches up ----------------------------------------------------------------------------------------------


async def _watch(cluster: LocalCluster, names: Sequence[str], seen: CatchUp) -> None:
    """Return once all that was missed is decided, all schedules are paused, and all runs are done."""
    await asyncio.to_thread(cluster.wait_for_leader)
    began = time.monotonic()
    now_s = int(time.time()) + seen.ahead_seconds
    seen.fresh_start_s = (now_s // _FRESH_SECONDS + 1) * _FRESH_SECONDS
    base = cluster.nodes[0].api
    async with Client(*cluster.urls) as client, asyncio.TaskGroup() as tasks:
        probes = tasks.create_task(_probe(client, seen.answers_ms))
        seen.terms.append((await client.cluster())["term"])
        await client.schedules.save(
            _FRESH,
            {"name": "noop", "queue": _FRESH},
            every=f"{_FRESH_SECONDS}s",
            start_at=datetime.fromtimestamp(seen.fresh_start_s, UTC),
            overlap="allow",
            misfire="skip",
        )
        last_ms = (now_s - PERIOD_SECONDS) * 1000
        await asyncio.to_thread(decided_up_to, cluster, base, names, last_ms, seconds=_SECONDS_MAX)
        seen.decided_seconds = time.monotonic() - began
        await _until_done(client)
        seen.done_seconds = time.monotonic() - began
        for name in (*names, _FRESH):
            await client.schedules.pause(name)
        await _until_done(client)
        seen.terms.append((await client.cluster())["term"])
        probes.cancel()


async def _all_done(cluster: LocalCluster) -> None:
    async with Client(*cluster.urls) as client:
        await _until_done(client)


async def _until_done(client: Client) -> None:
    """Return once no run waits or is under way."""
    async with asyncio.timeout(_SECONDS_MAX):
        while True:
            queues = [queue for queue in await client.queues() if queue["name"] in POLICIES]
            if not any(queue[status] for queue in queues for status in ("queued", "running", "waiting_dependencies")):
                return
            await asyncio.sleep(0.5)


async def _probe(client: Client, answers_ms: dict[str, list[float]]) -> None:
    """Submit and read jobs, evenly and whatever the answers take, until cancelled; note how long each took."""
    known = await client.submit("probe", queue="probes", delay_seconds=3_600)

    async def timed(kind: str) -> None:
        start = time.monotonic()
        if kind == "submit":
            await client.submit("probe", queue="probes", delay_seconds=3_600)
        else:
            await known.get()
        answers_ms.setdefault(kind, []).append((time.monotonic() - start) * 1000)

    async with asyncio.TaskGroup() as calls:
        while True:
            for kind in ("submit", "get"):
                calls.create_task(timed(kind))
                await asyncio.sleep(1 / _PROBES_PER_SECOND)


# -- what must not be -------------------------------------------------------------------------------------------------


def _runs(base: str) -> dict[str, list[Any]]:
    """Return what is asked here of the jobs of each schedule, by its name and the instant; of some 100,000 in all."""
    names = {schedule["id"]: schedule["name"] for schedule in all_pages(base, "/schedules?limit=100", "schedules")}
    runs: dict[str, list[Any]] = {name: [] for name in names.values()}
    cursor = ""
    while cursor is not None:
        page = ask(base, "GET", f"/jobs?limit=1000&cursor={cursor}" if cursor else "/jobs?limit=1000")
        for job in page["jobs"]:
            if job["schedule_id"]:
                runs[names[job["schedule_id"]]].append({field: job[field] for field in _FIELDS})
        cursor = page["next_cursor"]
    for each in runs.values():
        each.sort(key=lambda run: run["instant"])
    return runs


def _schedule_faults(base: str, name: str, runs: Sequence[Any], seen: CatchUp) -> Iterator[str]:
    """Yield what is otherwise in a schedule's runs and ledger than its policy says; count what it made up for."""
    policy = _policy(name)
    yield from _count_faults(name, ask(base, "GET", f"/schedules/{name}"), runs, seen.start_s)
    if policy != "run_all":  # whose ledger is longer than what is kept of it
        lines = ledger(base, name, PERIOD_SECONDS)
        yield from faults(base, name, lines, start_s=seen.start_s, period_seconds=PERIOD_SECONDS, made=runs)
    late = [ms(job["instant"]) for job in runs if _lateness_ms(job) > limits.MISFIRE_GRACE_MS]
    made_up_count = sum(fire_time_ms <= seen.missed_to_ms for fire_time_ms in late)
    most = POLICIES[policy].made_up_max
    # The last of all is in time if the nodes came back soon after it, and a window may begin between two.
    least = min(most, seen.ahead_seconds // PERIOD_SECONDS - 1) - (most > 1)
    if made_up_count > most or len(late) < least:
        yield f"{name}: {made_up_count} missed instants were made up for, {len(late)} ran late, not {least} to {most}"
    seen.made_up[policy] += made_up_count
    unfinished = [job for job in runs if job["status"] != "completed"]
    yield from (f"{name}: {job['id']} is {job['status']}" for job in unfinished)
    if not unfinished:
        yield from _order_faults(name, runs, one_by_one=policy == "run_all_within")


def _lateness_ms(job: Any) -> int:
    """How long after its instant a run was decided."""
    return ms(job["created_at"]) - ms(job["instant"])


def _fresh_faults(base: str, runs: Sequence[Any], start_s: int) -> Iterator[str]:
    """Yield instants that a schedule missed which had nothing to make up for."""
    lines = ledger(base, _FRESH, _FRESH_SECONDS)
    yield from faults(base, _FRESH, lines, start_s=start_s, period_seconds=_FRESH_SECONDS, made=runs)
    yield from (f"{_FRESH}: {line.fire_time_ms} was skipped: {line.reason}" for line in lines if line.reason)


def _count_faults(name: str, schedule: Any, runs: Sequence[Any], start_s: int) -> Iterator[str]:
    decided = (ms(schedule["last_at"]) // 1000 - start_s) // PERIOD_SECONDS + 1
    counted = (schedule["fired_count"], schedule["skipped_count"])
    if counted != (len(runs), decided - len(runs)):
        yield f"{name}: it counts {counted} fired and skipped of {decided}, and has {len(runs)} jobs"
    if len({job["instant"] for job in runs}) < len(runs):
        yield f"{name}: an instant has two jobs"


def _order_faults(name: str, runs: Sequence[Any], *, one_by_one: bool) -> Iterator[str]:
    """Yield runs that began before one of an earlier instant did, or had ended where they must go one by one."""
    before = "completed_at" if one_by_one else "started_at"
    for earlier, later in pairwise(runs):
        if later["started_at"] < earlier[before]:
            yield f"{name}: the run of {later['instant']} began before that of {earlier['instant']}"


def _rate_faults(runs: Iterable[Any]) -> Iterator[str]:
    """Yield seconds in which more jobs began than a full bucket and a second's leases."""
    starts = sorted(ms(run["started_at"]) for run in runs)
    for first, last in zip(starts, starts[2 * _RATE :], strict=False):
        if last - first < 1_000:
            yield f"more than {2 * _RATE} runs began in the second from {first}"


# -- the command ------------------------------------------------------------------------------------------------------


def _told(seen: CatchUp) -> Iterator[str]:
    yield f"all decided {seen.decided_seconds:.1f} s after there was a leader, all runs done after {seen.done_seconds:.1f} s"
    yield "make-up runs: " + ", ".join(f"{policy} {count}" for policy, count in seen.made_up.items())
    for kind, answers in seen.answers_ms.items():
        ordered = sorted(answers)
        p50, p99 = (ordered[len(ordered) * share // 100] for share in (50, 99))
        verdict = "OK" if p99 < _P99_MS_MAX else f"SLOW, over {_P99_MS_MAX} ms"
        yield f"{kind}: {len(answers)} answers, p50 {p50:.0f} ms, p99 {p99:.0f} ms, max {ordered[-1]:.0f} ms: {verdict}"
    yield f"terms {seen.terms}, load average {os.getloadavg()[0]:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedules", type=int, default=500)
    parser.add_argument("--hours", type=int, default=24)
    asked = parser.parse_args()
    with drill_cluster() as cluster:
        seen, found = run(cluster, asked.schedules, asked.hours)
    print("\n".join(_told(seen)))
    print("\n".join(found[:50]) or "what was missed was made up for as each policy says, in order, under one leader")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
