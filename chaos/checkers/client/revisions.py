"""Properties of revisions: layer A of linearizability, in O(n log n) (RELIABILITY section 3).

Theory of operation. Every answer names the log index it rests on: `applied`, the state that answered, and `revision`,
the latest change of the job that it shows. So the order of answers in real time can be held against the order of the
log directly. This layer trusts the numbers; `linearizability` does not, and looks at values only.

Operations of one log entry share its index. So one revision may cover several changes of a job, of which reads see
the last.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from chaos.checkers.history.events import Change
from chaos.checkers.history.views import Answer, History
from chaos.checkers.model import stage_of
from chaos.checkers.report import Violation


def revisions_rise_per_process(history: History) -> list[Violation]:
    """The revisions that a process is shown never get older from one operation to the next (I18)."""
    latest: dict[str, tuple[int, int]] = {}
    violations = []
    for answer in history.current_answers:
        ended_at, index = latest.get(answer.call.process, (-1, 0))
        shown = answer.operation.shown
        if shown and ended_at <= answer.operation.start and shown < index:
            violations.append(Violation(f"{answer.operation} shows index {shown}, after {index}", answer.reply.t))
        if shown > index:
            latest[answer.call.process] = (answer.operation.end, shown)
    return violations


def answers_are_current(history: History) -> list[Violation]:
    """An answer rests on everything that any client was shown before it asked (G2: strict, over all jobs)."""
    known = _Floor((answer.operation.end, answer.reply.applied) for answer in history.current_answers)
    return [
        Violation(f"{answer.operation} rests on index {answer.reply.applied}, {floor} was shown before", answer.reply.t)
        for answer in history.current_answers
        if answer.reply.applied and answer.reply.applied < (floor := known.before(answer.operation.start))
    ]


class _Floor:
    """The greatest index shown by any answer that had ended before a moment."""

    def __init__(self, shown: Iterable[tuple[int, int]]) -> None:
        self._ends: list[int] = []
        self._greatest: list[int] = []
        greatest = 0
        for end, index in sorted(shown):
            greatest = max(greatest, index)
            self._ends.append(end)
            self._greatest.append(greatest)

    def before(self, moment: int) -> int:
        position = bisect_left(self._ends, moment)
        return self._greatest[position - 1] if position else 0


# -- one job ----------------------------------------------------------------------------------------------------------


class _Shown(NamedTuple):
    """The part of a job that an answer shows."""

    answer: Answer
    revision: int
    stage: str
    """ "" = not shown."""
    attempt: int
    """-1 = not shown."""
    is_write: bool
    """This very operation made the revision."""


def job_revisions_in_order(history: History) -> list[Violation]:
    """For each job, answers show what the log holds at their revision, and the newest that was known when asked (G2).

    A write's own revision is greater than all that were shown before it was asked for, and no answer shows a revision
    before the operation that made it was asked for.
    """
    askers = {(match.change.job, match.change.index): match.first_start for match in history.matches if match.answered}
    violations: list[Violation] = []
    for job, shown in _shown_of_jobs(history).items():
        changes: dict[int, list[Change]] = defaultdict(list)
        for change in history.changes_of.get(job, ()):
            changes[change.index].append(change)
        violations.extend(_out_of_order(shown))
        violations.extend(_otherwise_in_log(shown, changes) if changes else _contradicting(shown))
        violations.extend(
            Violation(f"{each.answer.operation} shows revision {each.revision} before it was asked for")
            for each in shown
            if each.answer.operation.end < askers.get((job, each.revision), 0)
        )
    return violations


def _shown_of_jobs(history: History) -> dict[str, list[_Shown]]:
    shown: dict[str, list[_Shown]] = defaultdict(list)
    for answer in history.current_answers:
        reply, f = answer.reply, answer.call.f
        if f in ("submit", "get", "cancel", "outcome") and reply.revision:
            is_write = f == "submit" and not reply.duplicate
            shown[answer.operation.job].append(
                _Shown(answer, reply.revision, stage_of(reply.status), reply.attempt, is_write)
            )
    for answer, grant in history.grants:
        change = history.grant_of.get(grant.token)
        if change is not None:
            shown[grant.job].append(_Shown(answer, change.index, "running", grant.attempt, is_write=True))
    return shown


def _out_of_order(shown: list[_Shown]) -> Iterator[Violation]:
    floors = _Floor((each.answer.operation.end, each.revision) for each in shown)
    for each in shown:
        floor = floors.before(each.answer.operation.start)
        if each.revision < floor + each.is_write:
            verb = "makes" if each.is_write else "shows"
            what = f"{each.answer.operation} {verb} revision {each.revision}, {floor} was shown before"
            yield Violation(what, each.answer.reply.t)


def _otherwise_in_log(shown: list[_Shown], changes: dict[int, list[Change]]) -> Iterator[Violation]:
    """Answers whose revision the log does not have, or has with another content."""
    indexes = sorted(changes)
    for each in shown:
        operation, reply = each.answer.operation, each.answer.reply
        made = changes.get(each.revision)
        if made is None:
            yield Violation(f"{operation} shows revision {each.revision}, but the log has no change", reply.t)
            continue
        if each.answer.call.f == "get":
            made = made[-1:]
            newest = bisect_left(indexes, reply.applied + 1) - 1
            if reply.applied and newest >= 0 and indexes[newest] != each.revision:
                what = f"{operation} shows revision {each.revision} at index {reply.applied}"
                yield Violation(f"{what}, but {indexes[newest]} is the newest", reply.t)
        if not any(_agrees(each, change) for change in made):
            what = (
                f"{operation} shows {each.stage or 'a job'} after {each.attempt} attempts at revision {each.revision}"
            )
            yield Violation(f"{what}, but the log has {made[-1].status} after {made[-1].attempt}", reply.t)


def _agrees(shown: _Shown, change: Change) -> bool:
    return shown.stage in ("", stage_of(change.status)) and shown.attempt in (-1, change.attempt)


def _contradicting(shown: list[_Shown]) -> Iterator[Violation]:
    """Without the log: reads of one revision that differ."""
    seen: dict[int, tuple[str, int]] = {}
    for each in shown:
        if each.answer.call.f == "get" and seen.setdefault(each.revision, each[2:4]) != each[2:4]:
            what = (
                f"{each.answer.operation} shows {each[2:4]} at revision {each.revision}, another {seen[each.revision]}"
            )
            yield Violation(what, each.answer.reply.t)


def replies_name_the_log(history: History) -> list[Violation]:
    """A submit that made a job answers with the log index of just that change; no answer is ahead of its log (I17)."""
    first = {job: changes[0] for job, changes in history.changes_of.items()}
    violations = []
    for answer in history.answers("submit"):
        change = first.get(answer.reply.job)
        is_named = answer.reply.duplicate or change is None or not answer.reply.revision
        if not is_named and change is not None and change.index != answer.reply.revision:
            what = f"{answer.operation} answers with revision {answer.reply.revision}, the log has it at {change.index}"
            violations.append(Violation(what, answer.reply.t))
    violations.extend(
        Violation(
            f"{answer.operation} shows revision {answer.reply.revision} of index {answer.reply.applied}", answer.reply.t
        )
        for answer in history.current_answers
        if 0 < answer.reply.applied < answer.reply.revision
    )
    return violations


def shown_is_applied(history: History) -> list[Violation]:
    """No client is shown a log index before any node has applied it (G1: what is shown is committed)."""
    applied_at: dict[int, int] = {}
    for change in history.changes:
        if change.t >= 0:
            applied_at.setdefault(change.index, change.t)
    indexes = sorted(applied_at)
    times = [applied_at[index] for index in indexes]
    violations = []
    for answer in history.current_answers:
        position = bisect_left(indexes, answer.operation.shown + 1) - 1
        if position >= 0 and times[position] > answer.reply.t:
            what = f"{answer.operation} shows index {indexes[position]}, which nobody has applied yet"
            violations.append(Violation(what, answer.reply.t))
    return violations
