"""Mutators of a drill's history: each breaks a promise whose evidence only the way from real processes gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

from chaos.checkers import History
from chaos.checkers.history.events import (
    AnyEvent,
    Change,
    Decided,
    Downstream,
    Effect,
    FinalState,
    Invoke,
    Leader,
    Reply,
    ScheduleChanged,
    WorkflowChanged,
)
from chaos.drills.load.processes import HTTP_EXECUTOR, SDK_WORKER
from tests.chaos.histories_broken import Events, Mutation, Mutator, NoPlace, edit, first, inserted, without

DRILL_MUTATIONS: list[Mutation] = []
_NO_TOKEN = 1 << 40
"""Of no lease."""


def breaks(*properties: str) -> Callable[[Mutator], Mutator]:
    def register(mutate: Mutator) -> Mutator:
        DRILL_MUTATIONS.append(Mutation(mutate.__name__, mutate, properties))
        return mutate

    return register


def _shown(history: History) -> Iterator[tuple[Change, Reply]]:
    """Changes with a time, each with the answer to the submit that made it."""
    replies = {answer.reply.job: answer.reply for answer in history.answers("submit") if not answer.reply.duplicate}
    return (
        (change, replies[change.job])
        for change in history.changes
        if change.f == "submit" and change.t >= 0 and change.job in replies
    )


# -- nodes ------------------------------------------------------------------------------------------------------------


@breaks("shown_is_applied")
def an_answer_comes_before_the_entry_is_applied(history: History) -> Events:
    change, reply = first(_shown(history))
    late = [event for event in history.of(Change) if event.index >= change.index and event.t < reply.t + 1]
    return edit(history, *((event, {"t": reply.t + 1}) for event in late))


@breaks("one_leader_per_term")
def two_nodes_lead_a_term(history: History) -> Events:
    leader = first(iter(history.of(Leader)))
    other = next(node for node in history.setup.nodes if node != leader.node)
    return inserted(history, leader, Leader(node=other, term=leader.term))


@breaks("equal_state_digests")
def a_disk_has_another_state(history: History) -> Events:
    finals = sorted(history.finals.values(), key=lambda final: final.index)
    one, _ = first((one, other) for one, other in pairwise(finals) if one.index == other.index)
    return edit(history, (one, {"state": "rotten"}))


@breaks("acknowledged_is_kept")
def a_disk_lacks_an_acknowledged_job(history: History) -> Events:
    final = first(iter(history.of(FinalState)))
    job = first(answer.reply.job for answer in history.answers("submit") if answer.reply.job in final.jobs)
    return edit(history, (final, {"jobs": {name: each for name, each in final.jobs.items() if name != job}}))


@breaks("deadlines_are_handled")
def a_timer_is_forgotten(history: History) -> Events:
    return edit(history, (first(iter(history.of(FinalState))), {"overdue": {"retry ab": 60_000}}))


# -- workers and targets ----------------------------------------------------------------------------------------------


@breaks("effects_disjoint")
def two_attempts_of_an_sdk_worker_overlap(history: History) -> Events:
    plain = {change.job for change in history.changes if change.f == "submit" and not change.timeout_ms}
    begun = first(
        effect
        for effect in history.of(Effect)
        if effect.phase == "begin" and effect.worker.startswith(SDK_WORKER) and effect.job in plain
    )
    other = Effect(phase="begin", job=begun.job, run=begun.run, attempt=9, token=_NO_TOKEN, worker=begun.worker)
    return inserted(history, begun, other)


@breaks("completed_was_received")
def a_target_never_saw_a_completed_request(history: History) -> Events:
    runs = {
        f"{answer.call.job}.{answer.call.run}"
        for answer in history.answers("outcome")
        if answer.call.worker.startswith(HTTP_EXECUTOR) and answer.call.outcome == "completed"
    }
    return without(history, [first(event for event in history.of(Downstream) if event.resource in runs)])


@breaks("fenced_tokens_never_fall")
def a_target_takes_an_older_token(history: History) -> Events:
    taken = first(event for event in history.of(Downstream) if event.accepted)
    older = Downstream(t=history.end, resource=taken.resource, token=taken.token - 1, accepted=True)
    return [*history.events, older]


@breaks("completed_was_executed")
def a_body_never_ran(history: History) -> Events:
    token = first(answer.call.token for answer in history.answers("outcome") if answer.call.outcome == "completed")
    return without(history, [effect for effect in history.of(Effect) if effect.token == token])


@breaks("effects_follow_grants")
def a_body_runs_twice_under_a_token(history: History) -> Events:
    begun = first(effect for effect in history.of(Effect) if effect.phase == "begin")
    return inserted(history, begun, begun)


@breaks("begins_at_most_once")
def a_run_that_begins_at_most_once_begins_again(history: History) -> Events:
    once = {change.job for change in history.changes if change.f == "submit" and change.once}
    begun = first(effect for effect in history.of(Effect) if effect.phase == "begin" and effect.job in once)
    again = Effect(phase="begin", job=begun.job, run=begun.run, attempt=2, token=_NO_TOKEN, worker=begun.worker)
    return inserted(history, history.events[-1], again)


@breaks("begins_at_most_once")
def a_start_is_not_committed(history: History) -> Events:
    once = {change.job for change in history.changes if change.f == "submit" and change.once}
    start = first(answer for answer in history.answers("start") if answer.call.job in once)
    return edit(history, (start.reply, {"type": "fail", "error": "lease_lost"}))


# -- schedules, workflows, queues -------------------------------------------------------------------------------------


def _planned(history: History) -> Iterator[Decided]:
    return (event for event in history.of(Decided) if event.kind == "planned")


@breaks("fire_times_decided_once_in_order")
def an_instant_is_left_out(history: History) -> Events:
    by_schedule = pairwise(sorted(_planned(history), key=lambda event: (event.schedule, event.index)))
    line, _ = first(
        (one, other) for one, other in by_schedule
        if (one.schedule, one.generation) == (other.schedule, other.generation)
    )  # fmt: skip
    return without(history, [line])


@breaks("fire_times_decided_once_in_order")
def an_instant_is_decided_twice(history: History) -> Events:
    line = first(_planned(history))
    return inserted(history, line, line)


@breaks("fire_times_never_early")
def an_instant_is_decided_early(history: History) -> Events:
    line = first(_planned(history))
    return edit(history, (line, {"now_ms": line.last_ms - 1}))


@breaks("ledger_equals_jobs")
def a_run_of_a_schedule_is_lost(history: History) -> Events:
    line = first(event for event in _planned(history) if event.job)
    return without(history, [event for event in history.of(Change) if event.job == line.job])


@breaks("acknowledged_control_is_kept")
def a_deletion_that_was_acknowledged_is_not_in_the_log(history: History) -> Events:
    deleted = first(answer.call for answer in history.answers("control_schedule") if answer.call.action == "delete")
    gone = [event for event in history.of(ScheduleChanged) if (event.schedule, event.f) == (deleted.subject, "delete")]
    return without(history, gone)


@breaks("nothing_starts_before_its_parents")
def a_job_of_a_workflow_starts_before_its_parent(history: History) -> Events:
    children = {change.job: change.depends_on for change in history.changes if change.f == "submit"}
    child, parent = first(
        (change.job, parent)
        for change in history.changes
        if change.f == "lease" and children.get(change.job)
        for parent, _ in children[change.job]
    )
    ends = [change for change in history.changes_of[parent] if change.f in ("outcome", "expire", "skip", "cancel")]
    assert child
    return without(history, ends)


@breaks("workflows_are_whole_or_not_at_all")
def a_job_of_a_workflow_is_lost(history: History) -> Events:
    job = first(change.job for change in history.changes if change.f == "submit" and change.workflow)
    return without(history, history.changes_of[job])


@breaks("workflow_counts_are_right")
def a_workflow_counts_wrongly(history: History) -> Events:
    event = first(event for event in history.of(WorkflowChanged) if event.f == "move")
    return edit(history, (event, {"unfinished_count": event.unfinished_count + 1}))


# -- clients ----------------------------------------------------------------------------------------------------------


@breaks("refused_is_not_applied")
def a_client_is_refused_what_happened(history: History) -> Events:
    alone = first(
        answer.reply for answer in history.answers("submit") if not answer.call.key and not answer.reply.duplicate
    )
    return edit(history, (alone, {"type": "fail", "error": "not_leader"}))


@breaks("answers_are_current")
def a_read_is_as_old_as_the_cluster(history: History) -> Events:
    read = [answer for answer in history.answers("get") if not answer.call.stale and answer.reply.applied]
    if not read:
        raise NoPlace
    return edit(history, (read[-1].reply, {"applied": 2, "revision": 2}))


@breaks("every_node_serves")
def a_node_serves_nobody_after_the_heal(history: History) -> Events:
    mute = history.setup.nodes[0]
    calls = {event.op for event in history.of(Invoke) if event.node == mute}
    gone: list[AnyEvent] = [event for event in history.of(Reply) if event.op in calls]
    return without(history, gone)
