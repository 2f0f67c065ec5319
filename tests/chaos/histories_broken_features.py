"""Mutators that break what schedules, dependencies, limits and control promise; each names the property that tells."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise, product
from typing import Any

from msgspec.structs import replace

from chaos.checkers import History
from chaos.checkers.history.events import (
    AnyEvent,
    BackgroundWorkChanged,
    Change,
    Decided,
    Effect,
    FinalState,
    Healed,
    QueueChanged,
    ScheduleChanged,
    WorkflowChanged,
)
from chaos.checkers.history.views import ENDS_LEASE
from chaos.checkers.leases.outages import _unheard
from chaos.checkers.leases.queue_limits import _leases, place_of
from chaos.checkers.model import ENDED, PURGED
from tests.chaos.histories_broken import Events, Mutation, Mutator, NoPlace, edit, first, inserted, without

FEATURE_MUTATIONS: list[Mutation] = []
_WAITS = ("queued", "scheduled", "retrying")


def breaks(*properties: str) -> Callable[[Mutator], Mutator]:
    def register(mutate: Mutator) -> Mutator:
        FEATURE_MUTATIONS.append(Mutation(mutate.__name__, mutate, properties))
        return mutate

    return register


def _planned(history: History) -> list[Decided]:
    return [line for line in history.log_of(Decided) if isinstance(line, Decided) and line.kind == "planned"]


def _followed(history: History) -> Iterator[tuple[Decided, Decided]]:
    """Neighbouring lines of one schedule and generation."""
    lines = sorted(_planned(history), key=lambda line: (line.schedule, line.index, line.position))
    return (
        (one, other)
        for one, other in pairwise(lines)
        if (one.schedule, one.generation) == (other.schedule, other.generation)
    )


def _settings(history: History, line: Decided) -> ScheduleChanged:
    """What was said last about the schedule of a line."""
    said = [event for event in history.of(ScheduleChanged) if event.schedule == line.schedule]
    return [event for event in said if (event.index, event.position) < (line.index, line.position)][-1]


# -- schedules --------------------------------------------------------------------------------------------------------


@breaks("fire_times_decided_once_in_order")
def an_fire_time_is_never_decided(history: History) -> Events:
    line, _ = first(_followed(history))
    return without(history, [line])


@breaks("fire_times_decided_once_in_order")
def an_fire_time_is_decided_twice(history: History) -> Events:
    _, line = first(_followed(history))
    return inserted(history, line, replace(line, position=line.position + 1_000))


@breaks("fire_times_decided_once_in_order")
def a_line_stands_for_more_fire_times_than_it_says(history: History) -> Events:
    line = first(_planned(history), lambda line: line.count > 1)
    return edit(history, (line, {"count": line.count - 1}))


@breaks("fire_times_decided_once_in_order")
def a_new_timing_passes_over_an_fire_time(history: History) -> Events:
    saved = first(history.of(ScheduleChanged), lambda event: event.f == "save" and event.period_ms and event.next_ms)
    return edit(history, (saved, {"next_ms": saved.next_ms + 2 * saved.period_ms}))


@breaks("fire_times_by_hand_decided_once")
def a_backfill_decides_an_fire_time_again(history: History) -> Events:
    line = first(history.of(Decided), lambda line: line.kind == "backfill" and line.job)
    return inserted(history, line, replace(line, position=line.position + 1_000))


@breaks("fire_times_never_early")
def an_fire_time_is_decided_before_its_time(history: History) -> Events:
    line = first(_planned(history))
    return edit(history, (line, {"now_ms": line.last_ms - 1}))


@breaks("fire_times_never_early")
def a_run_is_due_before_its_fire_time(history: History) -> Events:
    job = first(history.changes, lambda change: change.schedule and _is_planned(history, change))
    return edit(history, (job, {"due_ms": job.fire_time_ms - 1}))


def _is_planned(history: History, change: Change) -> bool:
    return any(line.job == change.job for line in _planned(history))


@breaks("ledger_equals_jobs")
def a_job_has_no_line(history: History) -> Events:
    line = first(_planned(history), lambda line: line.job)
    return edit(history, (line, {"job": "", "reason": "misfire"}))


@breaks("ledger_equals_jobs")
def a_line_names_a_job_of_another_fire_time(history: History) -> Events:
    one, other = first(_followed(history), lambda pair: pair[0].job and pair[1].job)
    return edit(history, (one, {"job": other.job}), (other, {"job": one.job}))


@breaks("nothing_fires_while_paused")
def a_paused_schedule_fires(history: History) -> Events:
    line = first(_planned(history))
    pause = replace(_settings(history, line), f="pause", paused=True, index=line.index, position=-1)
    return inserted(history, line, pause)


@breaks("nothing_fires_while_paused", "fire_times_decided_once_in_order")
def a_deleted_schedule_fires(history: History) -> Events:
    line = first(_planned(history))
    return inserted(history, line, replace(_settings(history, line), f="delete", index=line.index, position=-1))


@breaks("overlap_is_as_it_says")
def a_run_is_skipped_for_the_sake_of_none(history: History) -> Events:
    line = first(_planned(history), lambda line: line.job and _settings(history, line).overlap == "skip")
    skipped = edit(history, (line, {"job": "", "reason": "overlap"}))
    return [event for event in skipped if not (isinstance(event, Change) and event.job == line.job)]


@breaks("overlap_is_as_it_says")
def a_run_is_skipped_for_the_sake_of_a_backfill(history: History) -> Events:
    """A backfill, as the ledger says now, made the run that stands in the way."""
    run, _ = first(
        _followed(history),
        lambda pair: (
            pair[1].reason == "overlap"
            and _settings(history, pair[1]).overlap == "skip"
            and _unfinished(history, pair[1]) == {pair[0].job}
        ),
    )
    return edit(history, (run, {"kind": "backfill"}))


def _unfinished(history: History, line: Decided) -> set[str]:
    """The runs of a schedule that were not finished when a line was decided."""
    jobs = {change.job for change in history.changes if change.schedule == line.schedule and change.index < line.index}
    latest = {each.job: each.status for each in history.changes if each.job in jobs and each.index < line.index}
    return {job for job, status in latest.items() if status not in {*ENDED, PURGED}}


@breaks("overlap_is_as_it_says")
def a_run_joins_another_that_is_not_over(history: History) -> Events:
    line = first(_planned(history), lambda line: line.job and _settings(history, line).overlap == "skip")
    other = first(history.changes, lambda change: change.job == line.job)
    earlier = replace(other, job="another", position=-1)
    return inserted(history, line, earlier)


@breaks("schedules_go_on")
def a_schedule_stops_after_the_heal(history: History) -> Events:
    healed = history.of(Healed)[-1].t
    last: dict[str, ScheduleChanged] = {event.schedule: event for event in history.of(ScheduleChanged)}
    lines = [line for line in _planned(history) if line.t > healed and not last[line.schedule].paused]
    line = first(lines, lambda line: not last[line.schedule].max_firings and not last[line.schedule].end_ms)
    gone = [each for each in lines if each.schedule == line.schedule]
    events = without(history, gone)
    return [replace(event, background_bound_ms=1) if event is history.setup else event for event in events]


# -- dependencies and workflows ---------------------------------------------------------------------------------------


def _parents(history: History) -> dict[str, tuple[tuple[str, str], ...]]:
    return {change.job: change.depends_on for change in history.changes if change.depends_on}


@breaks("nothing_starts_before_its_parents")
def a_dependant_starts_before_its_parent_has_ended(history: History) -> Events:
    parents = _parents(history)
    released = first(history.changes, lambda change: change.f == "release" and change.job in parents)
    wanted = {parent for parent, condition in parents[released.job] if condition == "success"}
    end = first(history.changes, lambda change: change.job in wanted and change.status == "completed")
    return without(history, [end])


@breaks("who_ends_for_want_has_a_cause")
def a_job_ends_for_want_of_a_parent_in_another_way(history: History) -> Events:
    change = first(history.changes, lambda change: change.f == "skip")
    return edit(history, (change, {"status": "dead_letter" if change.status == "skipped" else "skipped"}))


@breaks("who_ends_for_want_has_a_cause")
def a_job_ends_although_its_parents_did_well(history: History) -> Events:
    parents = _parents(history)
    released = first(history.changes, lambda change: change.f == "release" and change.job in parents)
    return edit(history, (released, {"f": "skip", "status": "skipped"}))


@breaks("nobody_waits_in_vain")
def a_dependant_is_never_told(history: History) -> Events:
    parents = _parents(history)
    requeued = history.requeued
    released = first(
        history.changes,
        lambda change: change.f == "release" and change.job in parents and change.job not in requeued,
    )
    gone = [change for change in history.changes_of[released.job] if change.t >= released.t]
    events = without(history, gone)
    return [replace(event, background_bound_ms=0) if event is history.setup else event for event in events]


@breaks("workflows_are_whole_or_not_at_all")
def half_a_workflow_runs(history: History) -> Events:
    flows = {change.job: change.workflow for change in history.changes if change.workflow}
    lease = first(history.changes, lambda change: change.f == "lease" and change.job in flows)
    moved = [event for event in history.of(WorkflowChanged) if event.workflow == flows[lease.job]]
    return edit(history, *((event, {"stored_count": event.job_count - 1}) for event in moved))


@breaks("workflows_are_whole_or_not_at_all")
def a_workflow_lacks_a_job(history: History) -> Events:
    whole = {event.workflow for event in history.of(WorkflowChanged) if event.stored_count == event.job_count}
    job = first(history.changes, lambda change: change.workflow in whole)
    return without(history, history.changes_of[job.job])


@breaks("cancelled_workflows_start_nothing")
def a_cancelled_workflow_goes_on(history: History) -> Events:
    flows = {change.job: change.workflow for change in history.changes if change.workflow}
    requeued = history.requeued
    lease = first(
        history.changes, lambda change: change.f == "lease" and change.job in flows and change.job not in requeued
    )
    last = next(event for event in history.of(WorkflowChanged) if event.workflow == flows[lease.job])
    return inserted(history, lease, replace(last, f="cancel", index=lease.index, position=-1))


@breaks("workflow_counts_are_right")
def a_workflow_counts_one_job_too_many(history: History) -> Events:
    event = first(history.of(WorkflowChanged), lambda event: event.f != "remove")
    return edit(history, (event, {"unfinished_count": event.unfinished_count + 1}))


# -- limits -----------------------------------------------------------------------------------------------------------


def _said(lease: Change, **fields: Any) -> QueueChanged:
    """Something that is said about the queue right before a lease."""
    usual: dict[str, Any] = {"index": lease.index, "position": -1, "now_ms": lease.now_ms, "queue": lease.queue}
    return QueueChanged(**usual | {"key_concurrency_max": 1} | fields)


@breaks("queue_concurrency_is_kept")
def more_jobs_run_than_may(history: History) -> Events:
    for lease, queues in _leases(history):
        if queues.running[lease.queue, "", ""] > 1:
            return inserted(history, lease, _said(lease, concurrency_max=1, key_concurrency_max=9))
    raise NoPlace


@breaks("key_concurrency_is_kept")
def two_jobs_of_one_key_run(history: History) -> Events:
    for lease, queues in _leases(history):
        if lease.concurrency_key and queues.key_max(lease.queue) == 1:
            return inserted(history, lease, replace(lease, job="another", position=-1, token=10**6))
    raise NoPlace


@breaks("paused_queues_give_nothing")
def a_paused_queue_gives_a_job(history: History) -> Events:
    lease = first(history.changes, lambda change: change.f == "lease")
    return inserted(history, lease, _said(lease, paused=True))


@breaks("rate_is_kept")
def a_queue_gives_more_than_its_rate(history: History) -> Events:
    leases = [change for change in history.changes if change.f == "lease" and change.queue == "red"]
    lease = first(leases)
    return inserted(history, lease, _said(lease, rate_count=1, rate_period_ms=3_600_000, rate_burst=1))


@breaks("blocked_jobs_get_their_turn")
def a_blocked_job_is_not_offered_when_the_key_is_free(history: History) -> Events:
    offer = an_offer(history)
    return [event for event in with_others_blocked(history, offer) if event is not offer]


def an_offer(history: History) -> Change:
    """A held job is offered again, because a run of its key has just ended."""
    ended = {(each.index, *place_of(each)) for each in history.changes if each.f in ENDS_LEASE}
    pairs = (pair for changes in history.changes_of.values() for pair in pairwise(changes))
    _, offer = first(
        pairs,
        lambda pair: (
            pair[0].blocked
            and pair[1].f == "touch"
            and not pair[1].blocked
            and (pair[1].index, *place_of(pair[1])) in ended
        ),
    )
    return offer


def with_others_blocked(history: History, offer: Change) -> Events:
    """The same, but that of the key's waiting jobs in the region the offered one alone isn't held, within its entry."""
    latest = {each.job: each for each in history.changes if each.index <= offer.index and each is not offer}
    others = [
        each
        for each in latest.values()
        if place_of(each) == place_of(offer)
        and (each.job != offer.job and each.region == offer.region and each.status in _WAITS)
    ]
    following = first(history.changes, lambda change: change.index > offer.index)
    then: dict[str, Any] = {"f": "touch", "index": offer.index, "position": 1_000, "now_ms": offer.now_ms}
    blocked = [replace(each, **then, blocked=True) for each in others]
    later: dict[str, Any] = then | {"index": following.index, "position": -1, "now_ms": following.now_ms}
    freed = [replace(each, **later) for each in others]
    return inserted(history, following, *blocked, *freed)


@breaks("blocked_jobs_get_their_turn")
def a_blocked_job_waits_for_the_worker_of_another_region(history: History) -> Events:
    offer = an_offer(history)
    events = with_others_blocked(history, offer)
    first(events, lambda event: isinstance(event, Change) and event.index == offer.index and event.blocked)
    return [replace(event, region="elsewhere") if event is offer else event for event in events]


# -- tenants ----------------------------------------------------------------------------------------------------------


@breaks("leases_stay_in_their_tenant")
def the_log_leases_a_job_to_a_worker_of_another_tenant(history: History) -> Events:
    lease = first(history.changes, lambda change: change.f == "lease" and not change.worker_tenant)
    return edit(history, (lease, {"worker_tenant": "elsewhere"}))


@breaks("leases_stay_in_their_tenant")
def a_worker_hears_of_a_job_of_another_tenant(history: History) -> Events:
    answer, _ = first(history.grants, lambda found: bool(found[0].call.tenant))
    return edit(history, (answer.call, {"tenant": "elsewhere"}))


# -- regions ----------------------------------------------------------------------------------------------------------


def _lease_of_a_region(history: History) -> Change:
    return first(history.changes, lambda change: change.f == "lease" and change.region)


@breaks("jobs_keep_their_region")
def a_job_loses_its_region_with_its_lease(history: History) -> Events:
    ended = first(history.changes, lambda change: change.f in ENDS_LEASE and change.region and change.status in _WAITS)
    return edit(history, (ended, {"region": ""}))


@breaks("jobs_keep_their_region")
def a_job_never_gets_the_region_that_was_asked_for(history: History) -> Events:
    made = first(history.changes, lambda change: change.f == "submit" and change.op and change.region)
    return edit(history, *((change, {"region": ""}) for change in history.changes_of[made.job]))


@breaks("jobs_keep_their_region")
def a_schedule_makes_a_job_of_another_region(history: History) -> Events:
    line = first(_planned(history), lambda line: line.job)
    return edit(history, (_settings(history, line), {"region": "elsewhere"}))


@breaks("leases_stay_in_their_region")
def the_log_leases_a_job_to_a_worker_without_region(history: History) -> Events:
    return edit(history, (_lease_of_a_region(history), {"worker_region": ""}))


@breaks("leases_stay_in_their_region")
def a_worker_hears_of_a_job_of_another_region(history: History) -> Events:
    """The log believes that the worker is where it is not."""
    granted = {change.token for change in history.changes if change.f == "lease" and change.region}
    answer, _ = first(history.grants, lambda grant: grant[1].token in granted)
    return edit(history, (answer.call, {"region": "elsewhere"}))


@breaks("leases_stay_in_their_region")
def a_job_that_lost_its_region_goes_to_any_worker(history: History) -> Events:
    lease = _lease_of_a_region(history)
    return edit(history, (lease, {"region": "", "worker_region": ""}))


# -- handlers ---------------------------------------------------------------------------------------------------------


@breaks("leases_fit_their_handlers")
def a_worker_gets_a_job_that_it_does_not_know(history: History) -> Events:
    answer, _ = first(history.grants, lambda grant: bool(grant[0].call.names))
    return edit(history, (answer.call, {"names": ("another",)}))


# -- what there is one of ---------------------------------------------------------------------------------------------


def _started(history: History) -> Change:
    return first(history.changes, lambda change: change.f == "start" and not change.callback_digest)


@breaks("begins_at_most_once")
def a_started_run_is_leased_again(history: History) -> Events:
    started = _started(history)
    lease = first(history.changes_of[started.job], lambda change: change.f == "lease")
    again = replace(lease, index=started.index, position=started.position + 1_000, token=10**6)
    return inserted(history, history.events[history.events.index(started) + 1], again)


@breaks("begins_at_most_once")
def a_run_that_begins_once_begins_twice(history: History) -> Events:
    started = {answer.call.job for answer in history.answers("start") if not answer.call.callback_token}
    begun = first(history.of(Effect), lambda effect: effect.phase == "begin" and effect.job in started)
    return inserted(history, begun, replace(begun, token=10**6))


@breaks("begins_at_most_once")
def a_run_begins_before_its_start_is_committed(history: History) -> Events:
    started = {answer.call.token for answer in history.answers("start") if not answer.call.callback_token}
    begun = first(history.of(Effect), lambda effect: effect.phase == "begin" and effect.token in started)
    gone = [
        event
        for answer in history.answers("start")
        if answer.call.token == begun.token
        for event in (answer.call, answer.reply)
    ]
    return without(history, gone)


@breaks("one_unfinished_job_per_unique_key")
def two_jobs_are_there_for_one_purpose(history: History) -> Events:
    made = first(history.changes, lambda change: change.f == "submit" and change.unique)
    following = history.events[history.events.index(made) + 1]
    return inserted(history, following, replace(made, job="another", position=made.position + 1_000))


@breaks("unique_refusals_have_a_cause")
def a_submit_is_refused_for_the_sake_of_none(history: History) -> Events:
    refused = first(history.operations, lambda operation: operation.error == "unique_conflict")
    return edit(history, (refused.call, {"unique": "nobody's"}))


@breaks("acknowledged_control_is_kept")
def an_acknowledged_pause_of_a_queue_is_lost(history: History) -> Events:
    answer = first(history.answers("pause_queue"))
    said = [event for event in history.of(QueueChanged) if event.queue == answer.call.subject and event.paused]
    return without(history, said)


@breaks("acknowledged_control_is_kept")
def an_acknowledged_pause_of_a_schedule_is_lost(history: History) -> Events:
    answer = first(history.answers("control_schedule"), lambda answer: answer.call.action == "pause")
    said = [event for event in history.of(ScheduleChanged) if event.schedule == answer.call.subject and event.paused]
    return without(history, said)


@breaks("acknowledged_control_is_kept")
def an_acknowledged_deletion_is_lost(history: History) -> Events:
    answer = first(history.answers("control_schedule"), lambda answer: answer.call.action == "delete")
    said = [event for event in history.of(ScheduleChanged) if event.schedule == answer.call.subject]
    return without(history, [event for event in said if event.f == "delete"])


@breaks("refused_deletion_is_not_applied")
def a_refused_deletion_happened(history: History) -> Events:
    answer = first(history.answers("control_schedule"), lambda answer: answer.call.action == "delete")
    refused = {"type": "fail", "error": "not_found"}
    others = [
        operation
        for operation in history.operations
        if (operation.call.action, operation.call.subject) == ("delete", answer.call.subject)
        and operation.call.op != answer.call.op
    ]
    if others:
        raise NoPlace
    return edit(history, (answer.reply, refused))


@breaks("acknowledged_control_is_kept")
def an_acknowledged_cancel_of_a_workflow_is_lost(history: History) -> Events:
    answer = first(history.answers("cancel_workflow"))
    moved = [event for event in history.of(WorkflowChanged) if event.workflow == answer.call.subject]
    return edit(history, *((event, {"f": "move"}) for event in moved if event.f == "cancel"))


@breaks("legal_transitions")
def a_completed_job_runs_again(history: History) -> Events:
    requeue = first(history.changes, lambda change: change.f == "requeue")
    done = first(history.changes, lambda change: change.status == "completed")
    again = replace(requeue, job=done.job, index=done.index, position=done.position + 1_000)
    return inserted(history, history.events[history.events.index(done) + 1], again)


@breaks("legal_transitions")
def a_requeue_goes_on_with_the_old_run(history: History) -> Events:
    requeue = first(history.changes, lambda change: change.f == "requeue")
    return edit(history, (requeue, {"run": requeue.run - 1}))


# -- liveness ---------------------------------------------------------------------------------------------------------


@breaks("background_work_ends")
def background_work_is_left_undone(history: History) -> Events:
    change = first(history.changes)
    left = BackgroundWorkChanged(index=change.index, position=-1, kind="drop_ledger", subject="00", is_open=True)
    return inserted(history, change, left)


@breaks("deadlines_are_handled")
def a_deadline_is_never_handled(history: History) -> Events:
    final = first(history.of(FinalState), lambda final: final.node in history.setup.nodes)
    return edit(history, (final, {"overdue": {"job 00": 60_000}}))


@breaks("ready_jobs_are_given")
def a_worker_waits_beside_a_ready_job(history: History) -> Events:
    return a_worker_waits_beside(history, "")


def a_worker_waits_beside(history: History, region: str) -> Events:
    """After the heal a worker, in the north, gets nothing for a while, and a job of a region waits, called "left"."""
    healed = history.of(Healed)[-1].t
    late = first(
        history.answers("lease"),
        lambda answer: (
            answer.operation.end - 400_000 > healed and "red" in answer.call.queues and not answer.call.names
        ),
    )
    made = first(history.changes, lambda change: change.f == "submit" and change.queue == "red")
    waiting = replace(made, job="left", position=-1, due_ms=1, status="queued", region=region)
    fields: dict[int, dict[str, Any]] = {
        id(late.call): {"t": late.operation.end - 400_000, "region": "north", "tenant": "", "names": ()},
        id(late.reply): {"grants": ()},
    }
    return [replace(event, **fields.get(id(event), {})) for event in inserted(history, made, waiting)]


@breaks("outages_lose_no_worker")
def an_outage_counts_as_a_lost_worker(history: History) -> Events:
    expired, _ = first(_unheard(history))
    return edit(history, (expired, {"outcome": "worker_lost"}))


def _outlived(history: History) -> Iterator[Change]:
    """Lost workers that did not end their job, which has a number of its own."""
    lost = (change for change in history.changes if change.outcome == "worker_lost" and change.status in _WAITS)
    return (change for change in lost if history.changes_of[change.job][0].max_lost_workers > 1)


@breaks("attempts_within_limits", "legal_transitions")
def a_job_goes_on_after_as_many_lost_workers_as_it_may_have(history: History) -> Events:
    made = history.changes_of[first(_outlived(history)).job][0]
    calls = [operation.call for operation in history.operations if operation.call.body == made.body]
    events: list[AnyEvent] = [made, *calls]
    return edit(history, *((event, {"max_lost_workers": 1}) for event in events))


@breaks("attempts_within_limits", "legal_transitions")
def a_job_goes_on_after_as_many_lost_workers_as_its_queue_allows(history: History) -> Events:
    lost = (change for change in history.changes if change.outcome == "worker_lost" and change.status in _WAITS)
    said = first(
        said
        for change, said in product(lost, history.of(QueueChanged))
        if said.queue == change.queue and said.index < change.index
        if not any(each.max_lost_workers for each in history.changes_of[change.job])
    )
    later = [each for each in history.of(QueueChanged) if each.queue == said.queue]
    return edit(history, *((each, {"max_lost_workers": 1}) for each in later))


@breaks("nothing_from_nowhere")
def a_job_is_stored_with_another_number_of_lost_workers(history: History) -> Events:
    made = first(history.changes, lambda change: change.f == "submit" and change.max_lost_workers and not change.cause)
    return edit(history, (made, {"max_lost_workers": made.max_lost_workers + 1}))


@breaks("nobody_is_passed_over")
def a_job_is_passed_over_for_those_without_region(history: History) -> Events:
    """It waits from the first submit on, and after the heal the workers of its region go on getting the others."""
    return passed_over(history)


def passed_over(history: History, region: str = "") -> Events:
    """The same, but the job's region may be another one than that of these workers."""
    healed = history.of(Healed)[-1].t
    leases = [change for change in history.changes if change.f == "lease" and change.t > healed]
    early, _ = first(
        (one, other)
        for one, other in product(leases, leases)
        if one.queue in ("red", "blue") and one.worker_region and not one.region and not other.region
        if _line(one) == _line(other) and other.t - one.t > 2_000_000
    )
    made = first(history.changes, lambda change: change.f == "submit")
    line = {"queue": early.queue, "tenant": early.tenant, "priority": early.priority, "name": early.name}
    where = line | {"region": region or early.worker_region}
    left = replace(made, job="left", position=-1, op=0, status="queued", due_ms=1, concurrency_key="", **where)
    return inserted(history, made, left)


def _line(lease: Change) -> tuple[str, str, int, str, str]:
    return (lease.queue, lease.tenant, lease.priority, lease.worker_region, lease.name)
