"""Mutators that break what workers were promised, and users about the runs of their jobs."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from chaos.checkers import History
from chaos.checkers.history.events import AnyEvent, Change, Downstream, Effect, Granted
from tests.chaos.histories_broken import (
    FINISHED,
    Events,
    NoPlace,
    answer_of,
    appended,
    asked,
    breaks,
    change_of,
    edit,
    first,
    inserted,
    set_up,
    without,
)

# -- leases -----------------------------------------------------------------------------------------------------------


@breaks("tokens_rise")
def token_is_used_again(history: History) -> Events:
    """As a leader would that keeps the counter in memory."""
    token = max(history.grant_of)
    if token < 2:
        raise NoPlace
    return edit(history, (history.grant_of[token], {"token": 1}))


@breaks("lease_intervals_disjoint", "legal_transitions")
def run_is_leased_twice(history: History) -> Events:
    granted = change_of(history, lambda change: change.f == "lease")
    again = replace(granted, token=granted.token, attempt=granted.attempt + 1, position=granted.position + 100)
    return inserted(history, history.events[history.events.index(granted) + 1], again)


@breaks("lease_intervals_disjoint")
def lease_ends_by_an_older_token(history: History) -> Events:
    ended = change_of(history, lambda change: change.f == "outcome" and change.token > 1)
    return edit(history, (ended, {"token": ended.token - 1}))


@breaks("one_holder_per_token")
def two_workers_get_one_token(history: History) -> Events:
    answer, grant = first(history.grants)
    other = answer_of(history, "lease", lambda each: each.call.worker != answer.call.worker)
    return edit(history, (other.reply, {"grants": (*other.reply.grants, grant)}))


@breaks("one_holder_per_token", "acknowledged_is_kept")
def tokens_are_swapped(history: History) -> Events:
    single = [answer for answer in history.answers("lease") if len(answer.reply.grants) == 1]
    reported = {answer.call.token for answer in history.answers("outcome")}
    used = [answer for answer in single if answer.reply.grants[0].token in reported]
    if len(used) < 2:
        raise NoPlace
    one, two = used[0].reply.grants[0], used[1].reply.grants[0]
    if one.job == two.job:
        raise NoPlace
    return edit(
        history,
        (used[0].reply, {"grants": (Granted(one.job, one.run, one.attempt, two.token),)}),
        (used[1].reply, {"grants": (Granted(two.job, two.run, two.attempt, one.token),)}),
    )


def _held(history: History, token: int, worker: str = "") -> dict[str, Any]:
    """A call by the holder of a token."""
    granted = history.grant_of[token]
    return {"job": granted.job, "run": 1, "token": token, "worker": worker or granted.worker}


@breaks("authority", "linearizable")
def heartbeat_keeps_an_ended_lease(history: History) -> Events:
    last = history.changes[-1].index
    return asked(history, "heartbeat", call=_held(history, 1), reply={"valid": True, "applied": last})


@breaks("authority", "linearizable", "acknowledged_is_kept")
def outcome_is_accepted_after_the_lease_expired(history: History) -> Events:
    lost = change_of(history, lambda change: change.f == "expire" and change.status != "cancelled")
    call = _held(history, lost.token) | {"outcome": "failed", "completion_id": "late"}
    return asked(history, "outcome", call=call, reply={"revision": history.changes[-1].index})


@breaks("authority")
def outcome_is_accepted_before_it_is_recorded(history: History) -> Events:
    answer = answer_of(history, "outcome", lambda answer: history.end_of[answer.call.token].index > 1)
    early = history.end_of[answer.call.token].index - 1
    return edit(history, (answer.reply, {"revision": early, "applied": early}))


# -- outcomes ---------------------------------------------------------------------------------------------------------


@breaks("one_outcome_per_token")
def attempt_has_two_outcomes(history: History) -> Events:
    answer = answer_of(history, "outcome")
    call = _held(history, answer.call.token) | {"outcome": "failed", "completion_id": "second"}
    return asked(history, "outcome", call=call, reply={"revision": history.changes[-1].index})


@breaks("one_outcome_per_token", "lease_intervals_disjoint", "legal_transitions")
def outcome_is_applied_twice(history: History) -> Events:
    """A replay that isn't idempotent."""
    ended = change_of(history, lambda change: change.f == "outcome")
    return inserted(history, ended, replace(ended, position=ended.position + 100))


@breaks("one_end_per_run")
def run_is_completed_twice(history: History) -> Events:
    answer = answer_of(history, "outcome", lambda answer: answer.call.outcome == "completed")
    call = _held(history, answer.call.token) | {"token": 10**6, "outcome": "completed", "completion_id": "second"}
    return asked(history, "outcome", call=call, reply={"revision": history.changes[-1].index})


@breaks("one_end_per_run", "legal_transitions")
def completed_job_is_leased_again(history: History) -> Events:
    """Fired twice: the new leader did not know that it was done."""
    ended = change_of(history, lambda change: change.status == "completed" and change.job not in history.purged)
    token = max(history.grant_of) + 1
    last = history.changes[-1]
    again = Change(
        index=last.index,
        position=last.position + 100,
        f="lease",
        job=ended.job,
        status="running",
        now_ms=last.now_ms,
        attempt=ended.attempt + 1,
        token=token,
        worker="w0",
    )
    return appended(history, again)


@breaks("end_is_absorbing", "linearizable")
def ended_job_is_seen_running(history: History) -> Events:
    answer = answer_of(history, "get", lambda answer: answer.reply.status in FINISHED)
    call = {"job": answer.call.job, "tenant": answer.call.tenant}
    return asked(history, "get", call=call, reply={"status": "running", "attempt": 1})


@breaks("attempts_within_limits", "legal_transitions")
def job_fails_more_often_than_allowed(history: History) -> Events:
    failed = change_of(history, lambda change: change.outcome == "failed" and change.status == "retrying")
    made = history.changes_of[failed.job][0]
    asked_for = [operation.call for operation in history.operations if operation.call.body == made.body]
    events: list[AnyEvent] = [made, *asked_for]
    return edit(history, *((event, {"max_attempts": 0}) for event in events))


@breaks("attempts_within_limits", "legal_transitions")
def job_kills_more_workers_than_allowed(history: History) -> Events:
    change_of(history, lambda change: (change.outcome, change.status) == ("worker_lost", "queued"))
    return set_up(history, lost_attempts_max=0)


@breaks("legal_transitions")
def log_says_another_status(history: History) -> Events:
    ended = change_of(history, lambda change: change.status == "completed")
    return edit(history, (ended, {"status": "dead_letter"}))


@breaks("one_change_at_a_place")
def two_changes_at_one_place(history: History) -> Events:
    change = history.changes[3]
    return inserted(history, change, change)


# -- effects ----------------------------------------------------------------------------------------------------------


@breaks("effects_disjoint")
def attempts_overlap(history: History) -> Events:
    """A worker goes on after its lease is over."""
    for job, changes in history.changes_of.items():
        tokens = [change.token for change in changes if change.f == "lease" and change.token in history.effects_of]
        if len(tokens) > 1 and history.timeouts[job] == 0:
            return without(history, [event for event in history.effects_of[tokens[0]] if event.phase == "end"])
    raise NoPlace


@breaks("effects_follow_grants")
def run_is_fired_twice_under_one_token(history: History) -> Events:
    begun = first(history.of(Effect), lambda effect: effect.phase == "begin")
    return appended(history, begun)


@breaks("effects_follow_grants")
def worker_runs_what_it_was_not_granted(history: History) -> Events:
    return appended(history, Effect(phase="begin", job="j", run=1, attempt=1, token=10**6, worker="w0"))


@breaks("completed_was_executed")
def run_is_completed_that_never_ran(history: History) -> Events:
    answer = answer_of(history, "outcome", lambda answer: answer.call.outcome == "completed")
    return without(history, history.effects_of[answer.call.token])


@breaks("fenced_tokens_never_fall")
def receiver_takes_an_older_token(history: History) -> Events:
    taken = first(history.of(Downstream), lambda event: event.token > 1)
    return appended(history, replace(taken, token=taken.token - 1))


@breaks("fenced_tokens_never_fall")
def newer_lease_has_the_smaller_token(history: History) -> Events:
    taken = first(history.of(Downstream), lambda event: event.accepted)
    return appended(history, replace(taken, token=10**6, accepted=False))
