"""Show what is wrong first, most urgent first, and then how much there is to do."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from raftsched.client.records import JobInfo, QueueInfo, ScheduleInfo
from raftsched.dashboard.formats import duration, number, size, words
from raftsched.dashboard.page import Answer, Page, Rendered
from raftsched.dashboard.rendering import url
from raftsched.dashboard.view import View
from raftsched.wire.cluster import NodeStatus

_QUEUES_MAX: Final = 200
_DEAD_MAX: Final = 200
_SCHEDULES_MAX: Final = 200
_LONG_WAIT_MS: Final = 60_000
_CLOCK_OFF_MS: Final = 500
_SHOWN_QUEUES: Final = 12


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that is wrong: how badly, in words, and what to do about it."""

    kind: str
    """`bad` needs somebody now, `warn` soon."""
    label: str
    text: str
    todo: str
    link: str


async def show(view: View) -> Answer:
    """Return the first page."""
    queues, dead, workers, schedules = await asyncio.gather(
        view.client.page(QueueInfo, "/queues", "queues", {"limit": _QUEUES_MAX}),
        view.client.page(JobInfo, "/dead-letters", "jobs", {"limit": _DEAD_MAX}),
        view.client.workers(),
        view.client.page(ScheduleInfo, "/schedules", "schedules", {"limit": _SCHEDULES_MAX}),
    )
    troubles = [
        *_of_nodes(view),
        *_of_queues(queues[0], workers),
        *_of_dead_letters(dead[0], has_more=dead[1] is not None),
        *_of_schedules(schedules[0]),
    ]
    busiest = sorted(queues[0], key=lambda queue: (-queue.queued, -queue.running, queue.name))[:_SHOWN_QUEUES]
    return Rendered(
        "overview/overview.html",
        {
            "troubles": sorted(troubles, key=lambda trouble: trouble.kind != "bad"),
            "totals": _totals(queues[0]),
            "busiest": busiest,
            "has_more_queues": queues[1] is not None or len(queues[0]) > len(busiest),
            "workers": workers,
            "nodes": view.cluster.nodes,
        },
    )


def _totals(queues: Sequence[QueueInfo]) -> dict[str, int]:
    names = ("queued", "running", "scheduled", "retrying", "paused", "completed", "dead_letter")
    return {name: sum(getattr(queue, name) for queue in queues) for name in names}


def _of_nodes(view: View) -> Iterator[Trouble]:
    if not view.cluster.leader:
        yield Trouble(
            "bad",
            "no leader",
            "No node leads the cluster: no job starts, and nothing can be changed.",
            "Start the nodes that are down. A majority of them must reach each other.",
            url("/cluster"),
        )
    for node in view.cluster.nodes:
        yield from _of_node(node)


def _of_node(node: NodeStatus) -> Iterator[Trouble]:
    if node.state in ("down", "differs"):
        said = "is down or can't be reached" if node.state == "down" else "has a state that differs from the others'"
        todo = "Look at its process and its log." if node.state == "down" else "Replace it by a node with a new id."
        yield Trouble("bad", f"node {words(node.state)}", f"Node {node.id} {said}.", todo, url("/cluster"))
    if node.disk_low:
        yield Trouble(
            "bad",
            "disk low",
            f"Node {node.id} has {size(node.disk_free_bytes)} left on its disk.",
            "Free space, or lower the retention: at the reserve new work is refused.",
            url("/cluster"),
        )
    if node.clock_offset_ms is not None and abs(node.clock_offset_ms) > _CLOCK_OFF_MS:
        yield Trouble(
            "warn",
            "clock off",
            f"The clock of node {node.id} is off by {number(node.clock_offset_ms)} ms.",
            "Check its time service. A leader whose clock is off hands over.",
            url("/cluster"),
        )


def _of_queues(queues: Sequence[QueueInfo], workers: Sequence[dict[str, Any]]) -> Iterator[Trouble]:
    late = max(queues, key=lambda queue: queue.oldest_wait_ms if queue.settings.pause is None else 0, default=None)
    if late is not None and late.settings.pause is None and late.oldest_wait_ms > _LONG_WAIT_MS:
        todo = "Start more workers for it." if workers else "No worker runs: start one with `raftsched worker`."
        yield Trouble(
            "bad",
            "long wait",
            f"The oldest job of {late.name} has waited for {duration(late.oldest_wait_ms)};"
            f" {number(late.queued)} are due.",
            todo,
            url("/jobs", queue=late.name, status="queued"),
        )
    for queue in queues:
        if queue.settings.pause is not None:
            reason = f": {queue.settings.pause.reason}" if queue.settings.pause.reason else ""
            yield Trouble(
                "warn",
                "queue paused",
                f"{queue.name} is paused{reason}; {number(queue.queued)} jobs are due.",
                "Resume it when its reason is gone.",
                url("/queues", name=queue.name),
            )


def _of_dead_letters(jobs: Sequence[JobInfo], *, has_more: bool) -> Iterator[Trouble]:
    for reason, count in Counter(job.failure_reason or "unknown" for job in jobs).most_common():
        shown = f"{number(count)} or more" if has_more else number(count)
        yield Trouble(
            "warn",
            "dead letters",
            f"{shown} jobs were given up: {words(reason)}.",
            "Read the error, fix its cause, and requeue them together.",
            url("/jobs", status="dead_letter", reason=reason),
        )


def _of_schedules(schedules: Sequence[ScheduleInfo]) -> Iterator[Trouble]:
    for schedule in schedules:
        for alarm in schedule.alarms:
            yield Trouble(
                "warn",
                "schedule",
                f"{schedule.name or schedule.id}: {words(alarm.event)}.",
                "Look at its latest runs.",
                url(f"/schedules/{schedule.id}"),
            )


PAGES: Final = (Page(path="/", nav="Overview", show=show),)
