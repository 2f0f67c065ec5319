"""Read how the queues are, on the leader, from the counts that the state keeps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from raftsched.core.records.job import DEAD_LETTER_REASONS, WAITING, Status
from raftsched.leader.dispatch.depths import due_by_time, oldest_wait_ms
from raftsched.leader.leadership import Leadership
from raftsched.metrics import catalog
from raftsched.metrics.job_events import OTHER, JobEvents
from raftsched.metrics.longest_waits import LongestWaits
from raftsched.metrics.reading import Reading
from raftsched.storage.reader import StateReader


class ClusterGauges:
    """The gauges of the leader. Queues have the labels of `events`."""

    def __init__(self, events: JobEvents) -> None:
        self._events: Final = events
        self._longest: Final = LongestWaits()

    def readings(self, state: StateReader, leadership: Leadership, now_ms: int) -> Iterator[Reading]:
        """Yield the gauges of now, which is `now_ms` in cluster time."""
        named = self._events.named_queues(state)
        counts = self._counts(state, named, now_ms)
        for queue, of_queue in counts.items():
            for status in Status:
                yield Reading(catalog.JOBS, (queue, status.label), of_queue[status])
        for queue in named:
            is_waited_in = any(counts[queue][status] for status in WAITING)
            wait_ms = oldest_wait_ms(state, queue, now_ms) if is_waited_in else 0
            yield Reading(catalog.QUEUE_OLDEST_READY, (queue,), wait_ms / 1000)
        if OTHER in counts:
            wait_ms = self._longest.longest_ms(state, named, now_ms)
            yield Reading(catalog.QUEUE_OLDEST_READY, (OTHER,), wait_ms / 1000)
        yield from _pauses(state, named)
        dead = state.dead_letter_counts()
        for reason in DEAD_LETTER_REASONS:
            yield Reading(catalog.DEAD_LETTERS, (reason,), sum(n for (_, why), n in dead.items() if why == reason))
        if state.last_backup is not None:
            yield Reading(catalog.LAST_BACKUP, (), state.last_backup.taken_at_ms / 1000)
        yield Reading(catalog.WORKERS, (), leadership.worker_count())

    def _counts(self, state: StateReader, named: list[str], now_ms: int) -> dict[str, Counter[Status]]:
        """Return the jobs by label and by the status that users see."""
        counts = {queue: Counter(state.queue_counts(queue)) for queue in named}
        others = state.status_counts()
        for of_queue in counts.values():
            others.subtract(of_queue)
        if any(others.values()):
            counts.setdefault(OTHER, Counter()).update(others)
        due, _ = due_by_time(state, now_ms)
        for job in due:
            label = job.spec.queue if job.spec.queue in counts else OTHER
            counts[label][job.status] -= 1
            counts[label][Status.QUEUED] += 1
        return counts


def _pauses(state: StateReader, named: list[str]) -> Iterator[Reading]:
    """Yield which queues are paused, and since when; those without a label of their own count together."""
    paused = {queue.name: queue.paused_at_ms for queue in state.queues() if queue.paused}
    for queue in named:
        since_ms = paused.pop(queue, None)
        yield Reading(catalog.QUEUE_PAUSED, (queue,), int(since_ms is not None))
        if since_ms is not None:
            yield Reading(catalog.QUEUE_PAUSED_SINCE, (queue,), since_ms / 1000)
    if paused:
        yield Reading(catalog.QUEUE_PAUSED, (OTHER,), len(paused))
        yield Reading(catalog.QUEUE_PAUSED_SINCE, (OTHER,), min(paused.values()) / 1000)
