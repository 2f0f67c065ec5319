"""Properties of notices: each event of a schedule opens its alarm and notifies the owner, in its own entry, once.

Theory of operation. The alarms of each schedule are computed here along the log: from the starts and ends of its runs, the
lines of its ledger and its settings. A problem opens the alarm of its kind; while that is open, further problems of the
kind have no notices. A success closes all alarms, but not that of lateness if its run was late itself. Backfills count
neither as problems nor as successes, and without a watch there are no problems.

One problem has no other trace in the log: that no run has succeeded in time. There the log's own alarm says when it was
noticed, and must agree with the time that is computed here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from chaos.checkers.history.events import AlarmsChanged, Applied, Change, Decided, ScheduleChanged
from chaos.checkers.history.views import History
from chaos.checkers.model import COMPLETED, DEAD_LETTER, ENDED, PURGED
from chaos.checkers.report import Violation
from chaos.checkers.schedules.grids import PLANNED, Grid, change_settings

_MISSED, _LATE, _FAILED, _RECOVERED, _SUCCESS = "missed", "late", "failed", "recovered", "success"
_SERIOUS = frozenset({DEAD_LETTER, _MISSED})
"""Problems whose end is an event of its own."""
_BY_LEADER = ("misfire", "catchup_expired")
_WANTED_SKIPS = ("overlap", "max_firings", "paused")
_FAILURES = (("outcome", "failed"), ("expire", "timeout"))
_GAP_US_MAX = 300_000
"""A leader counts as active between two entries of its term for no longer than this."""


class _Notice(NamedTuple):
    """A message to the owner."""

    schedule: str
    entry: int
    """Its index."""
    number: int
    event: str
    job: str


@dataclass(slots=True)
class _Run:
    """A run of a schedule, along the log."""

    schedule: str
    fire_time_ms: int
    started_ms: int = 0
    """The start of its first attempt."""
    has_ended: bool = False


@dataclass(slots=True)
class _Watched:
    """A schedule along the log."""

    settings: ScheduleChanged
    counted_ms: int
    """The time without success is counted from here."""
    resumed_ms: int = 0
    alarms: set[str] = field(default_factory=set)
    """As computed here."""
    logged: set[str] = field(default_factory=set)
    """As the log has them."""
    active: set[str] = field(default_factory=set)
    """Its unfinished runs; those of backfills don't count."""
    overdue_by_ms: int = 0
    """The time by which a run must succeed, as of the latest entry; 0 = none."""
    active_us: int = 0
    """The time for which leaders have been active since then."""

    def success_by_ms(self, grid: Grid | None) -> int:
        """Return the time by which a run must succeed; 0 = none."""
        settings = self.settings
        is_over = (grid is None or grid.has_ended) and not self.active
        if not settings.success_within_ms or settings.paused or is_over or _MISSED in self.alarms:
            return 0
        return self.counted_ms + settings.success_within_ms

    def is_late(self, run: _Run) -> bool:
        limit_ms = self.settings.late_after_ms
        return 0 < limit_ms < run.started_ms - run.fire_time_ms


class _Walk:
    """Follow all schedules along the log."""

    def __init__(self, history: History) -> None:
        self.expected: Counter[_Notice] = Counter()
        self.violations: list[Violation] = []
        """Of alarms."""
        self.overdue: list[Violation] = []
        self._bound_us = history.setup.background_bound_ms * 1_000
        self._kinds = {line.job: line.kind for line in history.of(Decided) if line.job}
        self._runs: dict[str, _Run] = {}
        self._grids: dict[str, Grid] = {}
        self._schedules: dict[str, _Watched] = {}
        events = dict(history.log_by_index(Change, Decided, ScheduleChanged, AlarmsChanged))
        before = Applied(node="", index=0, term=0, digest="")
        for entry in _entries(history):
            for event in events.get(entry.index, ()):
                self._follow(event)
            self._look_at_alarms(entry)
            self._look_at_times(entry, before)
            before = entry

    def _follow(self, event: object) -> None:
        match event:
            case Change() if event.schedule and self._kinds.get(event.job) != "backfill":
                self._runs[event.job] = _Run(event.schedule, event.fire_time_ms)
            case ScheduleChanged():
                self._change(event)
            case Decided() if event.kind == PLANNED:
                self._decide(event)
            case AlarmsChanged() if event.schedule in self._schedules:
                self._set_alarms(event)
        if isinstance(event, Change) and event.job in self._runs:
            self._follow_run(event, self._runs[event.job])

    def _change(self, event: ScheduleChanged) -> None:
        change_settings(self._grids, event)
        known = self._schedules.get(event.schedule)
        if event.f == "delete":
            self._schedules.pop(event.schedule, None)
        elif known is None:
            self._schedules[event.schedule] = _Watched(event, event.now_ms)
        else:
            old, known.settings = known.settings, event
            if old.paused and not event.paused:
                known.resumed_ms = known.counted_ms = event.now_ms
            if (old.generation, old.success_within_ms) != (event.generation, event.success_within_ms):
                known.counted_ms = event.now_ms

    def _decide(self, line: Decided) -> None:
        if line.schedule in self._grids:
            self._grids[line.schedule].decide(line)
        known = self._schedules.get(line.schedule)
        if known is None or not line.reason or line.reason in _WANTED_SKIPS:
            return
        if line.reason not in _BY_LEADER or line.last_ms > known.resumed_ms:
            self._problem(known, line.index, _MISSED)

    def _follow_run(self, change: Change, run: _Run) -> None:
        is_over = change.status in ENDED or change.status == PURGED
        has_just_ended = is_over and not run.has_ended
        run.has_ended = is_over
        if change.f == "lease" and not run.started_ms:
            run.started_ms = change.now_ms
        known = self._schedules.get(run.schedule)
        if known is None:
            return
        (known.active.discard if is_over else known.active.add)(change.job)
        if has_just_ended and change.status == COMPLETED:
            self._success(known, change, run)
        elif has_just_ended and change.status == DEAD_LETTER:
            self._problem(known, change.index, DEAD_LETTER, change.job)
        elif not is_over and (change.f, change.outcome) in _FAILURES:
            self._problem(known, change.index, _FAILED, change.job)
        elif self._is_first_lease(change) and known.is_late(run):
            self._problem(known, change.index, _LATE, change.job)

    def _is_first_lease(self, change: Change) -> bool:
        """Return whether a run that time started begins; one by hand may be for any time of the past."""
        is_planned = self._kinds.get(change.job) == PLANNED
        return is_planned and change.f == "lease" and change.attempt == change.run == 1

    def _problem(self, known: _Watched, index: int, event: str, job: str = "") -> None:
        if known.settings.is_watched and event not in known.alarms:
            known.alarms.add(event)
            self._expect(known.settings, index, (event,), job)

    def _success(self, known: _Watched, change: Change, run: _Run) -> None:
        events = (_RECOVERED, _SUCCESS) if known.alarms & _SERIOUS else (_SUCCESS,)
        known.alarms &= {_LATE} if known.is_late(run) else set()
        known.counted_ms = change.now_ms
        self._expect(known.settings, change.index, events, change.job)

    def _expect(self, settings: ScheduleChanged, index: int, events: tuple[str, ...], job: str) -> None:
        """Expect of each notice one message, about the first of the events that it is for."""
        for number, wanted in enumerate(settings.notices):
            event = next((event for event in events if event in wanted), "")
            if event:
                self.expected[_Notice(settings.schedule, index, number, event, job)] += 1

    def _set_alarms(self, event: AlarmsChanged) -> None:
        known = self._schedules[event.schedule]
        known.logged = set(event.alarms)
        if _MISSED not in known.logged or _MISSED in known.alarms:
            return
        by_ms = known.success_by_ms(self._grids.get(event.schedule))
        if not by_ms or by_ms > event.now_ms:
            what = f"schedule {event.schedule} has missed a success at index {event.index}, {event.now_ms}"
            self.violations.append(Violation(f"{what}; it must have one by {by_ms or 'no time'}", event.t))
        self._problem(known, event.index, _MISSED)

    def _look_at_alarms(self, entry: Applied) -> None:
        for schedule, known in self._schedules.items():
            if known.alarms != known.logged:
                what = f"schedule {schedule} has the alarms {sorted(known.logged)} at index {entry.index}"
                self.violations.append(Violation(f"{what}, not {sorted(known.alarms)}", entry.t))
                known.alarms = set(known.logged)

    def _look_at_times(self, entry: Applied, before: Applied) -> None:
        """Add up for how long a leader was active, and did not notice what it must."""
        for schedule, known in self._schedules.items():
            by_ms = known.success_by_ms(self._grids.get(schedule))
            if by_ms != known.overdue_by_ms:
                known.overdue_by_ms, known.active_us = by_ms, 0
            elif by_ms and by_ms <= before.now_ms and entry.term == before.term:
                known.active_us += min(entry.t - before.t, _GAP_US_MAX)
                if known.active_us > self._bound_us:
                    what = (
                        f"schedule {schedule} has had no success by {by_ms}, and nobody has noticed by {entry.now_ms}"
                    )
                    self.overdue.append(Violation(f"{what}, at index {entry.index}", entry.t))
                    known.active_us = -(1 << 60)


def _entries(history: History) -> Iterator[Applied]:
    """Yield each entry of the log, as it was first applied."""
    latest = 0
    for event in history.of(Applied):
        if event.index > latest:
            latest = event.index
            yield event


def events_are_notified_once(history: History) -> list[Violation]:
    """Each event stores its notices in its own entry, and no notice is stored otherwise (DESIGN 12)."""
    expected = _Walk(history).expected
    stored = Counter(
        _Notice(change.notice_of, change.index, change.notice_number, change.notice_event, change.notice_job)
        for change in history.changes
        if change.notice_of
    )
    return [
        Violation(f"{notice} is stored {stored[notice]} times, not {expected[notice]}")
        for notice in sorted(expected.keys() | stored.keys())
        if expected[notice] != stored[notice]
    ]


def alarms_follow_events(history: History) -> list[Violation]:
    """At every index each schedule has the alarms that its events opened and no success has closed (DESIGN 12)."""
    return _Walk(history).violations


def missing_successes_are_noticed(history: History) -> list[Violation]:
    """That a schedule has no success in time is noticed, once a leader has been active for a bound (DESIGN 12)."""
    return _Walk(history).overdue


def notice_count(history: History) -> int:
    return sum(1 for change in history.changes if change.notice_of)


def alarm_count(history: History) -> int:
    return len(history.of(AlarmsChanged))


def expectation_count(history: History) -> int:
    return sum(1 for event in history.of(ScheduleChanged) if event.success_within_ms)
