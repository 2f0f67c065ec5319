"""Mutators that break what clients were promised."""

from __future__ import annotations

from msgspec.structs import replace

from chaos.checkers import History
from chaos.checkers.history.events import Change, FinalState, Granted, Invoke, Reply
from chaos.checkers.history.views import Answer
from tests.chaos.histories_broken import (
    FINISHED,
    Events,
    NoPlace,
    all_of_job,
    answer_of,
    appended,
    asked,
    breaks,
    change_of,
    edit,
    finals_without,
    first,
    inserted,
    rebuilt,
    without,
)

# -- durability -------------------------------------------------------------------------------------------------------


@breaks("acknowledged_is_kept")
def acknowledged_submit_is_lost(history: History) -> Events:
    """Everywhere: in the log and at every node."""
    granted = {grant.job for _, grant in history.grants}
    made = answer_of(history, "submit", lambda answer: answer.reply.job not in granted)
    gone = rebuilt(without(history, all_of_job(history, made.reply.job)))
    return edit(gone, *finals_without(gone, made.reply.job))


@breaks("acknowledged_is_kept")
def acknowledged_outcome_is_lost(history: History) -> Events:
    answer = answer_of(history, "outcome")
    return without(history, [history.end_of[answer.call.token]])


@breaks("acknowledged_is_kept")
def acknowledged_cancel_is_lost(history: History) -> Events:
    answer = answer_of(history, "cancel")
    return without(history, [c for c in history.changes_of[answer.call.job] if c.f == "cancel"])


@breaks("acknowledged_is_kept")
def lease_is_granted_outside_the_log(history: History) -> Events:
    lost = change_of(history, lambda change: change.f == "expire" and history.timeouts[change.job] == 0)
    if lost.token not in {grant.token for _, grant in history.grants}:
        raise NoPlace
    return without(history, [history.grant_of[lost.token], lost])


@breaks("acknowledged_is_kept")
def unknown_outcome_is_taken_for_success(history: History) -> Events:
    logged = {change.key for change in history.changes}
    for operation in history.operations:
        call, reply = operation.call, operation.reply
        if call.f == "submit" and reply is not None and reply.type == "info" and call.key not in logged:
            return edit(history, (reply, {"type": "ok", "job": "nobody-has-it"}))
    raise NoPlace


@breaks("refused_is_not_applied")
def refused_submit_is_applied(history: History) -> Events:
    """Refused for lack of a leader, so for good; and yet it is there."""
    answer = answer_of(history, "submit", lambda answer: not answer.call.key)
    return edit(history, (answer.reply, {"type": "fail", "error": "not_leader"}))


@breaks("refused_is_not_applied")
def refused_outcome_is_applied(history: History) -> Events:
    tries: dict[int, list[Reply]] = {}
    for operation in history.operations:
        if operation.call.f == "outcome" and operation.reply is not None:
            tries.setdefault(operation.call.token, []).append(operation.reply)
    once = first(history.answers("outcome"), lambda answer: len(tries[answer.call.token]) == 1)
    return edit(history, (once.reply, {"type": "fail", "error": "not_leader"}))


@breaks("nothing_from_nowhere")
def log_cancels_what_nobody_cancelled(history: History) -> Events:
    asked_for = {operation.call.job for operation in history.operations if operation.call.f == "cancel"}
    last = first(history.changes, lambda change: change.f == "submit" and change.job not in asked_for)
    fields = {"f": "cancel", "status": "cancelled", "position": last.position + 100, "op": 0}
    return inserted(history, history.events[history.events.index(last) + 1], replace(last, **fields))


@breaks("nothing_from_nowhere")
def log_leases_to_a_worker_that_never_asked(history: History) -> Events:
    answered = {grant.token for _, grant in history.grants}
    grant = first(history.grant_of.values(), lambda change: change.token not in answered)
    return edit(history, (grant, {"worker": "stranger"}))


@breaks("nothing_from_nowhere")
def job_is_stored_with_another_body(history: History) -> Events:
    made = history.changes_of[history.answers("submit")[0].reply.job][0]
    return edit(history, (made, {"body": "scrambled"}))


@breaks("nothing_from_nowhere")
def job_is_stored_with_another_due_time(history: History) -> Events:
    made = history.changes_of[history.answers("submit")[0].reply.job][0]
    return edit(history, (made, {"due_ms": made.due_ms - 60_000}))


# -- idempotency ------------------------------------------------------------------------------------------------------


@breaks("one_job_per_key")
def repeat_is_answered_with_another_job(history: History) -> Events:
    repeat = answer_of(history, "submit", lambda answer: answer.reply.duplicate)
    other = answer_of(history, "submit", lambda answer: answer.call.key != repeat.call.key)
    return edit(history, (repeat.reply, {"job": other.reply.job}))


@breaks("one_job_per_key")
def repeat_makes_a_second_job(history: History) -> Events:
    made = change_of(history, lambda change: change.f == "submit" and change.key and change.job not in history.purged)
    twin = replace(made, job="twin", position=made.position + 100)
    finals = [(final, {"jobs": final.jobs | {"twin": final.jobs[made.job]}}) for final in history.of(FinalState)]
    return inserted(rebuilt(edit(history, *finals)), made, twin)


@breaks("one_body_per_key")
def repeat_with_another_body_is_accepted(history: History) -> Events:
    repeat = answer_of(history, "submit", lambda answer: answer.reply.duplicate)
    return edit(history, (repeat.call, {"body": "other"}))


@breaks("mismatch_has_a_cause")
def repeat_with_the_same_body_is_refused(history: History) -> Events:
    repeat = answer_of(history, "submit", lambda answer: answer.reply.duplicate)
    others = {o.call.body for o in history.operations if o.call.key == repeat.call.key}
    refusal = {"type": "fail", "error": "idempotency_mismatch"}
    if len(others) > 1:
        raise NoPlace
    return edit(history, (repeat.reply, refusal))


# -- cancels ----------------------------------------------------------------------------------------------------------


def _cancelled(history: History) -> Answer:
    return answer_of(history, "cancel", lambda answer: answer.call.job not in history.purged)


@breaks("cancel_is_final", "linearizable")
def cancelled_job_is_leased(history: History) -> Events:
    answer = _cancelled(history)
    grant = Granted(answer.call.job, 1, max(c.attempt for c in history.changes_of[answer.call.job]) + 1, 10**6)
    return asked(history, "lease", call={"worker": "w0"}, reply={"grants": (grant,)})


@breaks("cancel_is_final", "linearizable")
def cancelled_job_is_completed(history: History) -> Events:
    answer = _cancelled(history)
    call = {
        "job": answer.call.job,
        "run": 1,
        "token": 10**6,
        "worker": "w0",
        "outcome": "completed",
        "completion_id": "x",
    }
    return asked(history, "outcome", call=call, reply={"revision": history.changes[-1].index})


@breaks("cancel_is_final", "linearizable")
def cancelled_job_is_seen_waiting(history: History) -> Events:
    answer = _cancelled(history)
    call = {"job": answer.call.job, "tenant": answer.call.tenant}
    return asked(history, "get", call=call, reply={"status": "queued"})


@breaks("nothing_follows_a_cancel", "legal_transitions")
def cancelled_run_is_recorded_as_completed(history: History) -> Events:
    for change in history.changes:
        if change.f == "outcome" and change.status == "cancelled":
            return edit(history, (change, {"status": "completed"}))
    raise NoPlace


# -- reads ------------------------------------------------------------------------------------------------------------


def _older_view(history: History) -> tuple[Change, Change]:
    """An earlier and the latest change of a job that looks different since, and isn't purged."""
    for job, changes in history.changes_of.items():
        if job not in history.purged and len(changes) > 1 and changes[-1].status in FINISHED and changes[0].key:
            return changes[0], changes[-1]
    raise NoPlace


def _is_shown(history: History, change: Change) -> bool:
    return any(answer.operation.shown >= change.index for answer in history.current_answers)


@breaks("answers_are_current", "job_revisions_in_order", "linearizable")
def stale_read(history: History) -> Events:
    """A deposed leader answers from its old state, and says so by its index."""
    views = _older_view(history)
    if not any(a.reply.revision == views[1].index for a in history.current_answers):
        raise NoPlace
    old, _ = views
    reply = {"status": "queued", "attempt": 0, "revision": old.index, "applied": old.index}
    return asked(history, "get", call={"job": old.job, "tenant": old.tenant}, reply=reply)


@breaks("job_revisions_in_order", "linearizable")
def stale_read_under_a_new_revision(history: History) -> Events:
    """The old value with the newest numbers: only values can tell."""
    views = _older_view(history)
    if not _is_shown(history, views[1]):
        raise NoPlace
    old, new = views
    reply = {"status": "queued", "attempt": 0, "revision": new.index, "applied": history.changes[-1].index}
    return asked(history, "get", call={"job": old.job, "tenant": old.tenant}, reply=reply)


@breaks("linearizable")
def acknowledged_job_is_not_found(history: History) -> Events:
    answer = answer_of(history, "get", lambda answer: answer.call.job not in history.purged)
    return edit(history, (answer.reply, {"type": "fail", "error": "not_found"}))


@breaks("linearizable")
def another_tenant_sees_the_job(history: History) -> Events:
    answer = answer_of(history, "get")
    return edit(history, (answer.call, {"tenant": "green"}))


@breaks("linearizable")
def cancel_is_refused_without_a_reason(history: History) -> Events:
    """The job has not finished yet; yet its cancel is told that it has."""
    changes = {job: changes for job, changes in history.changes_of.items() if changes[-1].f != "purge"}
    for answer in history.answers("cancel"):
        if [c.f for c in changes.get(answer.call.job, ())] == ["submit", "cancel"]:
            return edit(history, (answer.reply, {"type": "fail", "error": "already_finished"}))
    raise NoPlace


@breaks("revisions_rise_per_process")
def process_is_shown_an_older_state(history: History) -> Events:
    answer = answer_of(history, "get", lambda answer: answer.reply.applied > 1)
    calls = [Invoke(process="x", op=10**9 + number, f="get", job=answer.call.job) for number in (1, 2)]
    shown = [replace(answer.reply, process="x", op=call.op, applied=1 if call is calls[1] else 10**6) for call in calls]
    return appended(history, calls[0], shown[0], calls[1], shown[1])


@breaks("replies_name_the_log")
def submit_names_another_index(history: History) -> Events:
    answer = answer_of(history, "submit", lambda answer: not answer.reply.duplicate and answer.reply.revision > 1)
    return edit(history, (answer.reply, {"revision": answer.reply.revision - 1}))


@breaks("replies_name_the_log")
def reply_is_ahead_of_its_own_state(history: History) -> Events:
    answer = answer_of(history, "get")
    return edit(history, (answer.reply, {"applied": answer.reply.revision - 1}))


@breaks("job_revisions_in_order")
def read_shows_a_revision_that_the_log_lacks(history: History) -> Events:
    known = {(change.job, change.index) for change in history.changes}
    answer = answer_of(history, "get", lambda each: (each.call.job, each.reply.revision - 1) not in known)
    return edit(history, (answer.reply, {"revision": answer.reply.revision - 1}))
