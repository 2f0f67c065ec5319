"""All properties, and the one call that checks a history against them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from chaos.checkers import liveness
from chaos.checkers.client import durability, harness, idempotency, linearizability, revisions
from chaos.checkers.history.events import (
    Applied,
    BackgroundWorkChanged,
    Change,
    Decided,
    Downstream,
    Durable,
    Effect,
    Event,
    FinalState,
    Leader,
    Nemesis,
    ScheduleChanged,
)
from chaos.checkers.history.views import History
from chaos.checkers.jobs import callbacks, cancels, dependencies, effects, hooks, log, outcomes, singles
from chaos.checkers.leases import grants, handlers, outages, queue_limits, regions, tenants, terms
from chaos.checkers.raft import consensus, disks, states
from chaos.checkers.report import Property, Report
from chaos.checkers.schedules import firings, notices

Evidence = Callable[[History], int]


def _events(kind: type[Event]) -> Evidence:
    return lambda history: len(history.of(kind))


def _answers(*kinds: str) -> Evidence:
    return lambda history: sum(len(history.answers(f)) for f in kinds)


def _current(history: History) -> int:
    return len(history.current_answers)


def _placed(history: History) -> int:
    return len(history.current_answers) if history.changes else 0


def _operations(history: History) -> int:
    return len(history.operations)


def _digests(history: History) -> int:
    return len(states.digests(history))


def _grants(history: History) -> int:
    return len(history.grants)


PROPERTIES: Final = (
    Property(harness.well_formed, "section 3", _operations),
    Property(consensus.one_leader_per_term, "I2", _events(Leader)),
    Property(consensus.committed_never_changes, "I1", _events(Applied)),
    Property(consensus.applied_in_order, "I1", _events(Applied)),
    Property(consensus.terms_never_fall, "I1", _events(Applied)),
    Property(disks.log_matching, "I1", _events(Durable)),
    Property(disks.on_most_disks_when_applied, "G1", _events(Durable)),
    Property(disks.committed_stays_on_disk, "G1", _events(Durable)),
    Property(states.equal_state_digests, "I3", _digests),
    Property(states.snapshot_and_tail_equal_replay, "I3", states.replayed_count),
    Property(log.finals_follow_the_log, "I3", _events(FinalState)),
    Property(log.legal_transitions, "I17", _events(Change)),
    Property(log.one_change_at_a_place, "I17", _events(Change)),
    Property(durability.acknowledged_is_kept, "I4", _answers("submit", "lease", "outcome", "cancel")),
    Property(durability.nothing_from_nowhere, "I5", _events(Change)),
    Property(durability.refused_is_not_applied, "I6", durability.refused_count),
    Property(idempotency.one_job_per_key, "I7", idempotency.keyed_count),
    Property(idempotency.one_body_per_key, "I7", idempotency.keyed_count),
    Property(idempotency.mismatch_has_a_cause, "I7", idempotency.mismatch_count),
    Property(grants.tokens_rise, "I8", _events(Change)),
    Property(grants.lease_intervals_disjoint, "I8", _events(Change)),
    Property(grants.one_holder_per_token, "I8", _grants),
    Property(grants.authority, "I9", _answers("heartbeat", "outcome")),
    Property(grants.never_before_due, "I16", _events(Change)),
    Property(grants.never_before_true_time, "I16", grants.true_time_count),
    Property(grants.cluster_time_never_falls, "G8", _events(Change)),
    Property(terms.kept_for_its_term, "G3b", terms.expiry_count),
    Property(terms.believed_leases_disjoint, "I8b", _grants),
    Property(outcomes.one_outcome_per_token, "I10", _answers("outcome")),
    Property(outcomes.one_end_per_run, "I10", _answers("outcome")),
    Property(outcomes.end_is_absorbing, "I10", _answers("get")),
    Property(outcomes.attempts_within_limits, "I11", _events(Change)),
    Property(cancels.cancel_is_final, "I13", _answers("cancel")),
    Property(cancels.nothing_follows_a_cancel, "G10", _answers("cancel")),
    Property(effects.effects_disjoint, "I8b", effects.timed_effect_count),
    Property(effects.effects_follow_grants, "I11", _events(Effect)),
    Property(effects.completed_was_executed, "I11", _events(Effect)),
    Property(effects.fenced_tokens_never_fall, "I12", _events(Downstream)),
    Property(revisions.revisions_rise_per_process, "I18", _current),
    Property(revisions.answers_are_current, "G2", _current),
    Property(revisions.job_revisions_in_order, "G2", _current),
    Property(revisions.replies_name_the_log, "I17", _current),
    Property(revisions.shown_is_applied, "G1", _current),
    Property(linearizability.linearizable, "G2", _placed),
    Property(liveness.every_node_serves, "L1", liveness.healed_count),
    Property(liveness.nodes_converge, "L1", liveness.healed_count),
    Property(liveness.no_lease_outlives_its_term, "L1", liveness.lease_count),
)
"""Of plain jobs, and of whatever else there is."""

FEATURES: Final = (
    Property(firings.fire_times_decided_once_in_order, "I14", _events(Decided)),
    Property(firings.fire_times_by_hand_decided_once, "I14", firings.by_hand_count),
    Property(firings.fire_times_never_early, "I14", _events(Decided)),
    Property(firings.ledger_equals_jobs, "I14", firings.fired_count),
    Property(firings.nothing_fires_while_paused, "I14", _events(ScheduleChanged)),
    Property(firings.overlap_is_as_it_says, "I14", _events(Decided)),
    Property(firings.schedules_go_on, "L1", _events(ScheduleChanged)),
    Property(dependencies.nothing_starts_before_its_parents, "G11", dependencies.dependant_count),
    Property(dependencies.who_ends_for_want_has_a_cause, "G11", dependencies.dependant_count),
    Property(dependencies.nobody_waits_in_vain, "L1", dependencies.dependant_count),
    Property(dependencies.workflows_are_whole_or_not_at_all, "G11", dependencies.workflow_count),
    Property(dependencies.cancelled_workflows_start_nothing, "G10", dependencies.workflow_count),
    Property(dependencies.workflow_counts_are_right, "G11", dependencies.workflow_count),
    Property(queue_limits.queue_concurrency_is_kept, "D37", queue_limits.limited_count),
    Property(queue_limits.key_concurrency_is_kept, "D38", queue_limits.lease_count),
    Property(queue_limits.paused_queues_give_nothing, "D36", queue_limits.limited_count),
    Property(queue_limits.rate_is_kept, "D39", queue_limits.limited_count),
    Property(queue_limits.blocked_jobs_get_their_turn, "D38", queue_limits.blocked_count),
    Property(regions.jobs_keep_their_region, "DESIGN 8", regions.region_count),
    Property(regions.leases_stay_in_their_region, "DESIGN 8", regions.region_count),
    Property(handlers.leases_fit_their_handlers, "DESIGN 8", handlers.choosy_count),
    Property(tenants.leases_stay_in_their_tenant, "DESIGN 13", tenants.bound_count),
    Property(outages.outages_lose_no_worker, "D22", outages.outage_count),
    Property(hooks.ends_submit_their_hooks, "DESIGN 12", hooks.hook_count),
    Property(callbacks.callbacks_count_with_their_token, "DESIGN 12", callbacks.callback_count),
    Property(callbacks.awaited_runs_end_by_themselves, "DESIGN 12", callbacks.awaited_count),
    Property(notices.events_are_notified_once, "DESIGN 12", notices.notice_count),
    Property(notices.alarms_follow_events, "DESIGN 12", notices.alarm_count),
    Property(notices.missing_successes_are_noticed, "DESIGN 12", notices.expectation_count),
    Property(singles.begins_at_most_once, "I11", singles.once_count),
    Property(singles.one_unfinished_job_per_unique_key, "D21", singles.unique_count),
    Property(singles.unique_refusals_have_a_cause, "D21", singles.unique_count),
    Property(singles.acknowledged_control_is_kept, "I4", singles.control_count),
    Property(singles.refused_deletion_is_not_applied, "I6", singles.deletion_count),
    Property(liveness.background_work_ends, "L1", _events(BackgroundWorkChanged)),
    Property(liveness.deadlines_are_handled, "L1", _events(FinalState)),
    Property(liveness.ready_jobs_are_given, "L1", liveness.lease_count),
    Property(liveness.nobody_is_passed_over, "L1", liveness.lease_count),
)
"""Of schedules, of jobs that hang together, of limits, and of outages; histories without any have nothing to say to
these."""


def check_all(history: History) -> Report:
    """Check every property. Costs about a third of a millisecond an operation; unchanged: the history."""
    began = time.perf_counter()
    violations = {each.name: found for each in (*PROPERTIES, *FEATURES) if (found := each.check(history))}
    return Report(
        violations=violations,
        evidence={each.name: each.evidence(history) for each in (*PROPERTIES, *FEATURES)},
        operations=_operation_counts(history),
        faults=Counter(event.fault for event in history.of(Nemesis) if event.phase != "stop"),
        unknown_count=sum(operation.is_unknown for operation in history.operations),
        settled_count=len(history.settled),
        seconds=time.perf_counter() - began,
    )


def _operation_counts(history: History) -> Counter[str]:
    ends = (operation.reply.type if operation.reply is not None else "info" for operation in history.operations)
    return Counter(f"{operation.call.f} {end}" for operation, end in zip(history.operations, ends, strict=True))
