"""Properties of queues: at no index of the log do leases exceed what was said about the queue (D36 to D40)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction

from chaos.checkers.history.events import BackgroundWorkChanged, Change, QueueChanged
from chaos.checkers.history.views import ENDS_LEASE, History
from chaos.checkers.model import WAITING, stage_of
from chaos.checkers.report import Violation

Place = tuple[str, str, str]
"""(queue, tenant, concurrency key); tenant and key are "" for the whole queue."""


def place_of(change: Change) -> Place:
    """The place that a job takes by its concurrency key, which is one of its tenant's."""
    return (change.queue, change.tenant if change.concurrency_key else "", change.concurrency_key)


@dataclass(slots=True)
class _Queues:
    """The running jobs and the settings of queues, along the log."""

    settings: dict[str, QueueChanged] = field(default_factory=dict)
    place_of: dict[str, Place] = field(default_factory=dict)
    """Job -> where it is leased."""
    running: dict[Place, int] = field(default_factory=lambda: defaultdict(int))

    def move(self, event: Change | QueueChanged) -> None:
        if isinstance(event, QueueChanged):
            self.settings[event.queue] = event
        elif event.f == "lease":
            place = self.place_of[event.job] = place_of(event)
            self._count(place, 1)
        elif event.f in ENDS_LEASE and event.job in self.place_of:
            self._count(self.place_of.pop(event.job), -1)

    def _count(self, place: Place, number: int) -> None:
        self.running[place[0], "", ""] += number
        if place[2]:
            self.running[place] += number

    def key_max(self, queue: str) -> int:
        return self.settings[queue].key_concurrency_max if queue in self.settings else 1


def _leases(history: History) -> Iterator[tuple[Change, _Queues]]:
    """Each lease of a queue that the log names, with all queues right after it."""
    queues = _Queues()
    for event in history.log_of(Change, QueueChanged):
        assert isinstance(event, Change | QueueChanged)
        queues.move(event)
        if isinstance(event, Change) and event.f == "lease" and event.queue:
            yield event, queues


def queue_concurrency_is_kept(history: History) -> list[Violation]:
    """No lease makes more jobs of a queue run than its limit says (D37)."""
    violations = []
    for lease, queues in _leases(history):
        settings, count = queues.settings.get(lease.queue), queues.running[lease.queue, "", ""]
        if settings is not None and 0 < settings.concurrency_max < count:
            what = f"{count} jobs of queue {lease.queue} run at index {lease.index}, and {settings.concurrency_max} may"
            violations.append(Violation(what, lease.t))
    return violations


def key_concurrency_is_kept(history: History) -> list[Violation]:
    """No lease makes more jobs of one concurrency key run than its queue allows (D38)."""
    violations = []
    for lease, queues in _leases(history):
        count, most = queues.running[place_of(lease)], queues.key_max(lease.queue)
        if lease.concurrency_key and count > most:
            what = f"{count} jobs of key {lease.concurrency_key} run at index {lease.index}, and {most} may"
            violations.append(Violation(what, lease.t))
    return violations


def paused_queues_give_nothing(history: History) -> list[Violation]:
    """While a queue is paused, nothing of it is leased (D36)."""
    return [
        Violation(f"job {lease.job} is leased at index {lease.index}, while queue {lease.queue} is paused", lease.t)
        for lease, queues in _leases(history)
        if lease.queue in queues.settings and queues.settings[lease.queue].paused
    ]


def rate_is_kept(history: History) -> list[Violation]:
    """In no span of the cluster's time does a queue give more leases than its bucket can hold and gain (D39)."""
    buckets: dict[str, _Bucket] = {}
    violations = []
    for event in history.log_of(Change, QueueChanged):
        assert isinstance(event, Change | QueueChanged)
        if isinstance(event, QueueChanged):
            buckets.setdefault(event.queue, _Bucket()).configure(event)
            continue
        bucket = buckets.get(event.queue) if event.f == "lease" else None
        if bucket is not None and not bucket.take(event.now_ms):
            what = f"job {event.job} is leased at index {event.index}, beyond the rate of queue {event.queue}"
            violations.append(Violation(what, event.t))
    return violations


class _Bucket:
    """The leases that a queue may still give, exactly."""

    def __init__(self) -> None:
        self._count, self._period_ms, self._burst = 0, 0, 0
        self._level = Fraction(0)
        self._at_ms = 0

    def configure(self, event: QueueChanged) -> None:
        if (event.rate_count, event.rate_period_ms, event.rate_burst) == (self._count, self._period_ms, self._burst):
            return
        was_limited = self._count > 0
        self._fill(event.now_ms)
        self._count, self._period_ms, self._burst = event.rate_count, event.rate_period_ms, event.rate_burst
        self._at_ms = event.now_ms
        self._level = min(self._level, Fraction(self._burst)) if was_limited else Fraction(self._burst)

    def _fill(self, now_ms: int) -> None:
        if self._count:
            gained = Fraction(max(0, now_ms - self._at_ms) * self._count, self._period_ms)
            self._level = min(Fraction(self._burst), self._level + gained)
        self._at_ms = now_ms

    def take(self, now_ms: int) -> bool:
        if not self._count:
            return True
        self._fill(now_ms)
        self._level -= 1
        return self._level >= 0


def lease_count(history: History) -> int:
    return sum(1 for _ in _leases(history))


def limited_count(history: History) -> int:
    """Leases of queues about which somebody said something."""
    return sum(1 for lease, queues in _leases(history) if lease.queue in queues.settings)


# -- jobs that are held -----------------------------------------------------------------------------------------------


def blocked_jobs_get_their_turn(history: History) -> list[Violation]:
    """Wherever a key has a place free and jobs of it are held, one of each region is offered, or is about to be.

    (D38, L1.)
    """
    queues = _Queues()
    waiting: dict[Place, dict[str, Change]] = defaultdict(dict)
    where: dict[str, Place] = {}
    offering: set[str] = set()
    """Queues whose held jobs are being offered again."""
    violations = []
    for index, events in history.log_by_index(Change, QueueChanged, BackgroundWorkChanged):
        touched: set[Place] = set()
        for event in events:
            if isinstance(event, BackgroundWorkChanged):
                if event.kind == "release_blocked":
                    (offering.add if event.is_open else offering.discard)(bytes.fromhex(event.subject).decode())
                continue
            assert isinstance(event, Change | QueueChanged)
            queues.move(event)
            if isinstance(event, Change):
                touched |= _follow(event, waiting, where)
        for place in touched:
            if queues.running[place] >= queues.key_max(place[0]) or place[0] in offering:
                continue
            blocked = [change.region for change in waiting[place].values() if change.blocked]
            offered = {change.region for change in waiting[place].values() if not change.blocked}
            if left := [region for region in blocked if region not in offered]:
                whose = f"key {place[2]}" + (f" and region {left[0]}" if left[0] else "")
                what = f"{len(left)} jobs of {whose} are held after index {index}, and nobody keeps them back"
                violations.append(Violation(what, events[-1].t))
    return violations


def _follow(change: Change, waiting: dict[Place, dict[str, Change]], where: dict[str, Place]) -> set[Place]:
    """Keep who waits where; return the places that changed."""
    touched = set()
    old = where.pop(change.job, None)
    if old is not None:
        del waiting[old][change.job]
        touched.add(old)
    if change.concurrency_key or (old is not None and change.f == "lease"):
        touched.add(place_of(change))
    if change.concurrency_key and stage_of(change.status) == WAITING:
        place = where[change.job] = place_of(change)
        waiting[place][change.job] = change
    return touched


def blocked_count(history: History) -> int:
    return sum(1 for change in history.changes if change.blocked)
