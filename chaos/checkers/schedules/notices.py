"""Properties of notices: the owner of a schedule is notified of a dead letter in its own entry, once until a run succeeds.

Backfills count neither as dead letters nor as successes. A dead letter of a schedule without notices opens no alarm.
"""

from __future__ import annotations

from collections import Counter

from chaos.checkers.history.events import Change, Decided, ScheduleChanged
from chaos.checkers.history.views import History
from chaos.checkers.model import COMPLETED, DEAD_LETTER, ENDED
from chaos.checkers.report import Violation


def dead_letters_are_notified_once(history: History) -> list[Violation]:
    """Every first dead letter stores one notice in its own entry, and no notice is stored otherwise (DESIGN 12)."""
    expected = _expected(history)
    stored = Counter((change.notice_of, change.index) for change in history.changes if change.notice_of)
    return [
        Violation(
            f"schedule {schedule} has {stored[schedule, index]} notices at index {index}, not {expected[schedule, index]}",
            0,
        )
        for schedule, index in sorted(expected.keys() | stored.keys())
        if expected[schedule, index] != stored[schedule, index]
    ]


def notice_count(history: History) -> int:
    return _expected(history).total()


def _expected(history: History) -> Counter[tuple[str, int]]:
    """The number of notices of each schedule at each index."""
    backfills = {line.job for line in history.of(Decided) if line.kind == "backfill"}
    schedule_of: dict[str, str] = {}
    ended: set[str] = set()
    notifies: dict[str, bool] = {}
    alarmed: set[str] = set()
    expected: Counter[tuple[str, int]] = Counter()
    for event in history.log_of(Change, ScheduleChanged):
        if isinstance(event, ScheduleChanged):
            notifies[event.schedule] = event.notifies and event.f != "delete"
            continue
        assert isinstance(event, Change)
        schedule = schedule_of.setdefault(event.job, event.schedule)
        is_new_end = event.status in ENDED and event.job not in ended
        (ended.add if event.status in ENDED else ended.discard)(event.job)
        if not schedule or not is_new_end or event.job in backfills:
            continue
        if event.status == COMPLETED:
            alarmed.discard(schedule)
        elif event.status == DEAD_LETTER and notifies.get(schedule) and schedule not in alarmed:
            alarmed.add(schedule)
            expected[schedule, event.index] += 1
    return expected
