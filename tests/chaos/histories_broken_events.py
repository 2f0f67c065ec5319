"""Mutators that break what hooks, notices and callbacks promise; each names the property that tells."""

from __future__ import annotations

from msgspec.structs import replace

from chaos.checkers import History
from chaos.checkers.history.events import AlarmsChanged, Change, Decided, ScheduleChanged
from tests.chaos.histories_broken import Events, edit, first, inserted, without
from tests.chaos.histories_broken_features import breaks

# -- hooks ------------------------------------------------------------------------------------------------------------


def _a_hook(history: History) -> Change:
    return first(history.changes, lambda change: bool(change.hook_of))


@breaks("ends_submit_their_hooks")
def a_hook_is_left_out(history: History) -> Events:
    return edit(history, (_a_hook(history), {"hook_of": ""}))


@breaks("ends_submit_their_hooks")
def a_hook_comes_in_the_next_entry(history: History) -> Events:
    hook = _a_hook(history)
    return edit(history, (hook, {"index": hook.index + 1}))


@breaks("ends_submit_their_hooks")
def a_hook_comes_twice(history: History) -> Events:
    hook = _a_hook(history)
    return inserted(history, hook, replace(hook, job="00", position=hook.position + 1_000))


# -- notices ----------------------------------------------------------------------------------------------------------


def _a_notice(history: History) -> Change:
    return first(history.changes, lambda change: bool(change.notice_of))


@breaks("events_are_notified_once")
def a_notice_is_left_out(history: History) -> Events:
    return edit(history, (_a_notice(history), {"notice_of": ""}))


@breaks("events_are_notified_once")
def a_notice_comes_again(history: History) -> Events:
    notice = _a_notice(history)
    return inserted(history, notice, replace(notice, job="00", index=notice.index + 1))


@breaks("events_are_notified_once")
def a_notice_names_another_event(history: History) -> Events:
    return edit(history, (_a_notice(history), {"notice_event": "recovered and more"}))


@breaks("events_are_notified_once")
def a_notice_names_another_run(history: History) -> Events:
    return edit(history, (_a_notice(history), {"notice_job": "00"}))


@breaks("alarms_follow_events")
def an_alarm_is_never_closed(history: History) -> Events:
    closed = first(history.of(AlarmsChanged), lambda event: not event.alarms)
    return without(history, [closed])


@breaks("alarms_follow_events")
def an_alarm_opens_without_a_problem(history: History) -> Events:
    saved = first(history.of(ScheduleChanged), lambda event: event.is_watched)
    alarm = AlarmsChanged(
        index=saved.index, position=saved.position + 1, now_ms=saved.now_ms, schedule=saved.schedule, alarms=("missed",)
    )
    return inserted(history, history.events[history.events.index(saved) + 1], alarm)


@breaks("missing_successes_are_noticed")
def a_missing_success_is_never_noticed(history: History) -> Events:
    skipped = {(line.schedule, line.index) for line in history.of(Decided) if line.reason}
    noticed = first(
        history.of(AlarmsChanged),
        lambda event: event.alarms[-1:] == ("missed",) and (event.schedule, event.index) not in skipped,
    )
    gone = [event for event in history.of(AlarmsChanged) if event.schedule == noticed.schedule]
    events = without(history, gone)
    return [replace(event, background_bound_ms=0) if event is history.setup else event for event in events]


# -- callbacks --------------------------------------------------------------------------------------------------------


def _a_callback(history: History) -> Change:
    return first(history.changes, lambda change: change.completion_id.startswith("callback-"))


@breaks("callbacks_count_with_their_token")
def a_callback_counts_with_the_token_of_another_attempt(history: History) -> Events:
    ended = _a_callback(history)
    start = first(history.changes, lambda change: change.f == "start" and change.token == ended.token)
    return edit(history, (start, {"callback_digest": "00"}))


@breaks("callbacks_count_with_their_token")
def a_callback_counts_after_the_timeout(history: History) -> Events:
    accepted = {answer.call.token for answer in history.answers("outcome") if answer.call.callback_token}
    ended = first(
        history.changes, lambda change: change.token in accepted and change.completion_id.startswith("callback-")
    )
    return edit(history, (ended, {"f": "expire", "outcome": "timeout", "completion_id": ""}))


@breaks("awaited_runs_end_by_themselves")
def an_awaited_run_counts_as_lost(history: History) -> Events:
    awaited = {change.token for change in history.changes if change.f == "await"}
    ended = first(history.changes, lambda change: change.f == "expire" and change.token in awaited)
    return edit(history, (ended, {"outcome": "worker_lost"}))


@breaks("awaited_runs_end_by_themselves")
def an_acknowledged_wait_is_lost(history: History) -> Events:
    reported = {change.token for change in history.changes if change.completion_id.startswith("callback-")}
    answer = first(history.answers("await"), lambda answer: answer.call.token not in reported)
    return without(history, [each for each in history.changes if (each.f, each.token) == ("await", answer.call.token)])
