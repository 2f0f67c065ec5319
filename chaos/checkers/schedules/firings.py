"""Properties of schedules: each instant is decided once, in order and in time, and its decision is what became of it.

Theory of operation. The grid of a schedule is computed here from its anchor and period, apart from the code that fires
it. Along the log a schedule has one first undecided instant; a line of the ledger begins there and moves it on, and
nothing else does but a change of the timing. Times are the cluster's, as the log has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from chaos.checkers.history.events import Change, Decided, Healed, ScheduleChanged
from chaos.checkers.history.views import History
from chaos.checkers.model import CANCELLING, ENDED, PURGED
from chaos.checkers.report import Violation
from chaos.checkers.schedules.grids import PLANNED, Grid, change_settings

_BACKFILL = "backfill"
_BY_HAND = ("manual", _BACKFILL)


def _walk(history: History) -> Iterator[tuple[Decided | ScheduleChanged, Grid | None]]:
    """Each event of schedules with a grid in the order of the log, and the schedule as it was before it."""
    grids: dict[str, Grid] = {}
    for event in history.log_of(Decided, ScheduleChanged):
        assert isinstance(event, Decided | ScheduleChanged)
        grid = grids.get(event.schedule)
        yield event, grid
        if isinstance(event, ScheduleChanged):
            change_settings(grids, event)
        elif grid is not None and event.kind == PLANNED:
            grid.decide(event)


def fire_times_decided_once_in_order(history: History) -> list[Violation]:
    """Each instant of each generation of a schedule gets one decision, in order, and none is left out (I14, G9)."""
    violations = []
    for event, grid in _walk(history):
        if isinstance(event, ScheduleChanged):
            problem = _grid_problem(event, grid)
        elif event.kind in (PLANNED, "changed"):
            problem = _line_problem(event, grid)
        else:
            problem = ""
        if problem:
            violations.append(Violation(f"schedule {event.schedule} at index {event.index}: {problem}", event.t))
    return violations


_AHEAD_MS_MAX = 500
"""The time by which a leader's clock may be ahead of what a majority's clocks bear out (G8)."""


def _grid_problem(event: ScheduleChanged, grid: Grid | None) -> str:
    is_new = grid is None or event.generation != grid.settings.generation
    if not event.period_ms or not is_new or not event.next_ms:
        return ""
    if (event.next_ms - event.anchor_ms) % event.period_ms or event.next_ms < event.anchor_ms:
        return f"instant {event.next_ms} is not of the grid from {event.anchor_ms}"
    # A grid begins when its leader read the clock, which may be a little ahead of the stamp (seed 140).
    began_ms = max(event.now_ms, min(event.anchor_ms, event.now_ms + _AHEAD_MS_MAX))
    if event.next_ms > began_ms + event.period_ms and event.next_ms > event.anchor_ms:
        return f"it begins at {event.next_ms}, and passes over instants from {event.now_ms} on"
    return ""


def _line_problem(line: Decided, grid: Grid | None) -> str:
    if grid is None:
        return f"instant {line.fire_time_ms} is decided for a schedule that is not there"
    if line.generation != grid.settings.generation:
        return f"instant {line.fire_time_ms} is decided for generation {line.generation}"
    # Lines of one operation continue where its limit of firings is reached; the schedule ends with the operation.
    if line.fire_time_ms != grid.next_ms:
        return f"instant {line.fire_time_ms} is decided, and {grid.next_ms} is the first without a decision"
    if line.kind == PLANNED and not grid.is_whole(line):
        return f"a line of {line.count} instants goes from {line.fire_time_ms} to {line.last_ms}"
    most = grid.settings.max_firings
    return f"it fires more than {most} times" if line.job and 0 < most <= grid.fired_count else ""


def fire_times_by_hand_decided_once(history: History) -> list[Violation]:
    """No backfill decides an instant that one has decided, nor does a trigger, except for lack of room (I14, G8)."""
    decided: set[tuple[str, str, int]] = set()
    violations = []
    for line in history.log_of(Decided):
        assert isinstance(line, Decided)
        if line.kind not in _BY_HAND or line.reason in ("overlap_limit", "quota"):
            continue
        place = (line.schedule, line.kind, line.fire_time_ms)
        if place in decided:
            what = f"instant {line.fire_time_ms} of schedule {line.schedule} is decided twice by {line.kind} runs"
            violations.append(Violation(what, line.t))
        decided.add(place)
    return violations


def fire_times_never_early(history: History) -> list[Violation]:
    """No instant is decided before the cluster's time has reached it, and no run of it is due before it (I14, G8)."""
    due_of = {change.job: change.due_ms for change in history.changes if change.f == "submit" and change.schedule}
    violations = []
    for line in history.of(Decided):
        if line.kind != PLANNED:
            continue
        if line.last_ms > line.now_ms:
            what = (
                f"instant {line.last_ms} of schedule {line.schedule} is decided {line.last_ms - line.now_ms} ms early"
            )
            violations.append(Violation(what, line.t))
        if line.job and due_of.get(line.job, line.fire_time_ms) < line.fire_time_ms:
            violations.append(Violation(f"job {line.job} is due before its instant {line.fire_time_ms}", line.t))
    return violations


def ledger_equals_jobs(history: History) -> list[Violation]:
    """Each line of the ledger that fired made one job, with it, and schedules make no others (I14, G9)."""
    made: dict[str, Change] = {
        change.job: change for change in history.changes if change.f == "submit" and change.schedule
    }
    told: set[str] = set()
    violations = []
    for line in history.of(Decided):
        if not line.job:
            continue
        job = made.get(line.job)
        if job is None or (job.schedule, job.fire_time_ms, job.index) != (line.schedule, line.fire_time_ms, line.index):
            what = f"the line of instant {line.fire_time_ms} names job {line.job}, which schedule {line.schedule} did not make"
            violations.append(Violation(what, line.t))
        if line.job in told:
            violations.append(Violation(f"job {line.job} is in two lines of ledgers", line.t))
        told.add(line.job)
    violations.extend(
        Violation(f"job {job} of schedule {change.schedule} has no line in the ledger", change.t)
        for job, change in made.items()
        if job not in told
    )
    return violations


def nothing_fires_while_paused(history: History) -> list[Violation]:
    """In the log, no instant is decided while its schedule is paused, nor once it is deleted (I14, G9)."""
    violations = []
    for event, grid in _walk(history):
        if isinstance(event, Decided) and event.kind == PLANNED and (grid is None or grid.settings.paused):
            what = "deleted" if grid is None else "paused"
            violations.append(
                Violation(f"schedule {event.schedule} is {what}, and fires at index {event.index}", event.t)
            )
    return violations


# -- overlap ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Runs:
    """The runs of one schedule that are not finished, along the log; those of backfills block nobody."""

    overlap: str = ""
    unfinished: dict[str, str] = field(default_factory=dict)
    """Job -> status."""


def overlap_is_as_it_says(history: History) -> list[Violation]:
    """A run joins unfinished ones only as the schedule's policy allows, and is skipped only for their sake (I14, G9)."""
    runs: dict[str, _Runs] = {}
    owner: dict[str, str] = {}
    backfilled = {line.job for line in history.of(Decided) if line.kind == _BACKFILL}
    violations = []
    for event in history.log_of(Change, Decided, ScheduleChanged):
        if isinstance(event, ScheduleChanged):
            runs.setdefault(event.schedule, _Runs()).overlap = event.overlap
        elif isinstance(event, Change):
            if event.schedule and event.job not in backfilled:
                owner[event.job] = event.schedule
            _follow(runs, owner.get(event.job, ""), event)
        elif isinstance(event, Decided) and event.kind == PLANNED:
            own = runs.setdefault(event.schedule, _Runs())
            others = {job: status for job, status in own.unfinished.items() if job != event.job}
            if problem := _overlap_problem(event, own.overlap, others):
                violations.append(Violation(f"schedule {event.schedule} at index {event.index}: {problem}", event.t))
    return violations


def _follow(runs: dict[str, _Runs], schedule: str, change: Change) -> None:
    if not schedule:
        return
    unfinished = runs.setdefault(schedule, _Runs()).unfinished
    if change.status in ENDED or change.status == PURGED:
        unfinished.pop(change.job, None)
    else:
        unfinished[change.job] = change.status


def _overlap_problem(line: Decided, overlap: str, others: dict[str, str]) -> str:
    """`others` are the unfinished runs beside the new one."""
    count = len(others)
    if line.reason == "overlap":
        needed = {"skip": 1, "buffer_one": 2}.get(overlap, 1 << 30)
        return f"by {overlap} it skips for the sake of {count} runs" if count < needed else ""
    if not line.job:
        return ""
    match overlap:
        case "skip" | "terminate_previous" if count:
            return f"by {overlap} it fires beside {count} runs"
        case "buffer_one" if count > 1:
            return f"by {overlap} it fires behind {count} runs"
        case "cancel_previous" if any(status != CANCELLING for status in others.values()):
            return f"by {overlap} it leaves earlier runs as they were"
        case _:
            return ""


# -- liveness ---------------------------------------------------------------------------------------------------------


def schedules_go_on(history: History) -> list[Violation]:
    """After the heal, each schedule that is not paused has decided what is due, but for a moment (L1, G9)."""
    if not history.of(Healed):
        return []
    last: dict[str, Grid] = {}
    deleted: set[str] = set()
    for event, grid in _walk(history):
        if grid is not None:
            last[event.schedule] = grid
        if isinstance(event, ScheduleChanged) and event.f == "delete":
            deleted.add(event.schedule)
    now_ms = max((change.now_ms for change in history.changes), default=0)
    late_ms = now_ms - history.setup.background_bound_ms
    return [
        Violation(f"schedule {schedule} has not decided instant {grid.next_ms} by {now_ms}", history.end)
        for schedule, grid in last.items()
        if schedule not in deleted and not _is_over(grid) and 0 < grid.next_ms < late_ms
    ]


def _is_over(grid: Grid) -> bool:
    return grid.settings.paused or 0 < grid.settings.max_firings <= grid.fired_count


def by_hand_count(history: History) -> int:
    return sum(1 for line in history.of(Decided) if line.kind in _BY_HAND)


def fired_count(history: History) -> int:
    return sum(1 for line in history.of(Decided) if line.job)
