"""All planted bugs: the source of each, and the worlds in which it is looked for."""

from __future__ import annotations

from collections.abc import Sequence

from chaos.sim.planted.altered import (
    breaking_connections,
    changing_members,
    failing_disks,
    forgetful_members,
    many_callbacks,
    many_elections,
    many_schedules,
    many_snapshots,
    many_workflows,
    much_control,
    power_losses,
    reads_under_partitions,
    rotting_disks,
    several_names,
    several_tenants,
    slow_commits,
    small_appends,
    two_regions,
    watched_schedules,
    whole_snapshots,
    with_twins,
)
from chaos.sim.planted.bug import Bug
from chaos.sim.planted.patches import (
    callbacks,
    consensus,
    core,
    durability,
    engine,
    features,
    hooks,
    http,
    leader,
    notices,
    regions,
    tenants,
)
from chaos.sim.planted.scripts import bounds, schedules, snapshots, states, votes

_LEASE = "P6 local reads; read without quorum contact"

_DURABILITY: Sequence[Bug] = (
    Bug(durability.answers_before_the_sync, "P1; PYSYNCOBJ defect 3, sendsync"),
    Bug(engine.commits_before_the_sync, "PYSYNCOBJ defect 3, selfsync", node_count=1),
    Bug(durability.no_fsync, "P1; no fsync"),
    Bug(durability.starts_without_its_journal, "a disk of which only part is gone", alter=forgetful_members),
    Bug(durability.goes_on_after_a_failed_sync, "RELIABILITY 0, consequence 6", alter=failing_disks),
    Bug(durability.commits_alone, "ack before commit"),
    Bug(
        durability.forgets_votes_at_a_restart,
        "P2",
        alter=power_losses,
        schedule=schedules.A_VOTER_RESTARTS_AFTER_ITS_VOTE,
    ),
    Bug(durability.compacts_in_place, "P3", alter=many_snapshots),
    Bug(durability.cuts_the_log_before_the_checkpoint, "P3"),
    Bug(durability.goes_on_with_a_full_disk, "P7", alter=failing_disks),
    Bug(durability.ignores_checksums, "P8", alter=rotting_disks),
    Bug(durability.leaves_a_table_out_of_copies, "P11", alter=many_snapshots),
    Bug(durability.restores_a_commit_index, "PYSYNCOBJ commitclamp"),
    Bug(durability.writes_no_marker, "snapshot installation", alter=many_snapshots),
    Bug(
        durability.removes_the_marker_too_early,
        "snapshot installation",
        schedule=snapshots.THE_POWER_FAILS_BETWEEN_STATE_AND_LOG,
    ),
    Bug(
        durability.cuts_the_log_one_entry_too_far,
        "off by one at the log's start",
        schedule=snapshots.THE_FIRST_ENTRY_THAT_IS_NOT_COMMITTED_IS_REPLACED,
    ),
    Bug(durability.applies_again_after_a_restart, "non-idempotent replay"),
)

_CONSENSUS: Sequence[Bug] = (
    Bug(engine.votes_twice, "P2, one vote a term"),
    Bug(
        engine.pieces_of_snapshots_commit,
        "P4; PYSYNCOBJ defect 1, snapcommit",
        alter=many_snapshots,
        schedule=schedules.A_SNAPSHOT_COMES_TO_OTHER_ENTRIES,
    ),
    Bug(engine.applies_before_matching, "P4; PYSYNCOBJ defect 1"),
    Bug(consensus.never_walks_back, "P5; PYSYNCOBJ defect 7, rejhint"),
    Bug(engine.cuts_what_matches, "P6; PYSYNCOBJ defect 2, notrunc"),
    Bug(
        consensus.believes_old_answers,
        "P6; PYSYNCOBJ defect 4, ackterm",
        schedule=schedules.AN_ACKNOWLEDGEMENT_COMES_TWO_TERMS_LATE,
    ),
    Bug(consensus.counts_votes_twice, "P6; PYSYNCOBJ defect 12, votededup", node_count=5, alter=many_elections),
    Bug(
        consensus.stands_without_asking,
        "P6; PYSYNCOBJ prevote",
        schedule=bounds.A_FOLLOWER_THAT_WAS_CUT_OFF_DISTURBS_NOBODY,
    ),
    Bug(consensus.moves_back_with_each_answer, "PYSYNCOBJ nextidx", schedule=bounds.EACH_ENTRY_LEAVES_ONCE),
    Bug(consensus.takes_pickled_commands, "P9; PYSYNCOBJ defect 5", schedule=bounds.A_STRANGER_SENDS_A_COMMAND),
    Bug(engine.calls_unknown_outcomes_failures, "P10"),
    Bug(consensus.answers_by_index_alone, "P10"),
    Bug(consensus.acknowledges_what_it_did_not_install, "PYSYNCOBJ defect 6", alter=many_snapshots),
    Bug(consensus.loses_a_piece_of_a_snapshot, "PYSYNCOBJ defect 6; lost snapshot chunk", alter=many_snapshots),
    Bug(consensus.spins_while_a_copy_is_made, "PYSYNCOBJ defect 8", schedule=bounds.A_COPY_TAKES_ITS_TIME),
    Bug(consensus.stops_at_large_entries, "PYSYNCOBJ defect 9", alter=small_appends),
    Bug(consensus.applies_again_where_an_answer_fails, "PYSYNCOBJ defect 10"),
    Bug(consensus.installs_what_is_covered, "PYSYNCOBJ snapstale", alter=whole_snapshots),
    Bug(
        engine.acknowledges_the_log_behind_a_snapshot,
        "PYSYNCOBJ seed 100530",
        schedule=schedules.A_SNAPSHOT_SAYS_WHAT_THE_LOG_HOLDS,
    ),
    Bug(
        consensus.commits_entries_of_earlier_terms,
        "Raft paper 5.4.2, figure 8",
        schedule=votes.AN_EARLIER_TERMS_ENTRY_REACHES_A_MAJORITY,
    ),
    Bug(
        consensus.keeps_its_promise_in_pre_votes_only,
        "leader lease; a late vote request",
        schedule=votes.A_LATE_REQUEST_MEETS_A_LIVE_LEADER,
    ),
    Bug(
        consensus.votes_for_shorter_logs,
        "Raft paper 5.4.1, length of the log; a late vote request",
        schedule=votes.A_LATE_REQUEST_OF_A_SHORTER_LOG,
    ),
    Bug(
        consensus.votes_for_older_logs,
        "Raft paper 5.4.1, last term; a late vote request",
        schedule=votes.A_LATE_REQUEST_OF_AN_OLDER_LOG,
    ),
    Bug(
        consensus.stands_by_force_ever_after,
        "leader lease; a forced election",
        schedule=votes.A_LATE_REQUEST_OF_A_NODE_THAT_WAS_ONCE_HANDED_THE_LEAD,
    ),
    Bug(
        consensus.installs_what_the_log_has_passed,
        "snapshot installation; a log that passed it",
        schedule=snapshots.A_LOG_PASSES_A_SNAPSHOT_THAT_IS_VERIFIED,
    ),
    Bug(
        consensus.skips_an_entry_behind_the_logs_start,
        "off by one at the log's start",
        schedule=snapshots.ENTRIES_COME_TO_A_LOG_THAT_BEGINS_BEHIND_THEM,
    ),
    Bug(
        consensus.sends_no_snapshot_for_the_logs_first_entry,
        "off by one at the log's start",
        schedule=snapshots.A_FOLLOWER_LACKS_THE_FIRST_ENTRY_OF_A_LOG,
    ),
)

_MEMBERS: Sequence[Bug] = (
    Bug(
        engine.changes_members_while_a_change_is_open,
        "PYSYNCOBJ defect 11",
        schedule=schedules.TWO_MEMBERS_LEAVE_AT_ONCE,
    ),
    Bug(engine.goes_by_the_config_file_at_a_restart, "R08, an old list of members", alter=changing_members),
    Bug(engine.counts_nodes_that_join, "a learner counted", alter=changing_members),
    Bug(engine.takes_part_with_an_empty_disk, "an empty disk", alter=changing_members),
    Bug(engine.takes_any_disk_for_a_members, "another disk", alter=changing_members),
)

_LEADER: Sequence[Bug] = (
    Bug(engine.forgets_its_promise_at_a_restart, "leader lease", schedule=schedules.A_VOTER_RESTARTS),
    Bug(engine.votes_against_its_promise, "leader lease", schedule=schedules.A_VOTER_IS_ASKED),
    Bug(engine.serves_during_a_transfer, "leader lease", schedule=schedules.A_LEADER_TRANSFERS_IN_SILENCE),
    Bug(engine.counts_contact_from_the_answer, _LEASE, alter=reads_under_partitions),
    Bug(engine.reads_without_contact, _LEASE, alter=reads_under_partitions),
    Bug(leader.reads_without_a_round, "read of a majority", schedule=schedules.A_LEADERS_MACHINE_IS_SUSPENDED),
    Bug(
        leader.joins_the_round_under_way,
        "read of a majority; an earlier round",
        schedule=schedules.ANSWERS_TO_AN_EARLIER_ROUND_COME_LATE,
    ),
    Bug(leader.leads_without_contact, "lease on a stale leader", alter=reads_under_partitions),
    Bug(leader.expires_early_after_an_election, "early expiry after election"),
    Bug(leader.gives_a_term_with_each_election, "L1", schedule=bounds.THE_LEAD_CHANGES_WITHIN_EACH_TERM),
    Bug(
        leader.counts_outages_as_lost_workers,
        "an outage longer than a lease",
        schedule=bounds.THE_CLUSTER_IS_OUT_FOR_LONGER_THAN_A_LEASE,
    ),
    Bug(
        leader.notes_no_outage,
        "an outage longer than a lease",
        schedule=bounds.THE_CLUSTER_IS_OUT_FOR_LONGER_THAN_A_LEASE,
    ),
    Bug(leader.gives_jobs_whatever_the_handlers, "a job for a worker without its handler", alter=several_names),
    Bug(leader.never_expires, "L1"),
    Bug(
        leader.keeps_its_timers_when_time_goes_back,
        "L1; seed 102 on 5 nodes whose members change",
        schedule=bounds.TIME_GOES_BACK_BEFORE_ANYBODY_ASKS,
    ),
    Bug(leader.renews_what_it_expires, "I9", alter=slow_commits),
)

_CORE: Sequence[Bug] = (
    Bug(core.gives_tokens_again, "token reuse"),
    Bug(core.forgets_the_fence, "P11; token reuse"),
    Bug(core.ignores_cancels, "cancel ignored"),
    Bug(core.takes_outcomes_of_old_tokens, "outcome accepted with an old token"),
    Bug(core.accepts_reports_twice, "I10"),
    Bug(core.ignores_what_jobs_say_of_lost_workers, "max_lost_workers"),
    Bug(core.drops_idempotency, "idempotency dropped"),
    Bug(core.grants_before_due, "grant before due"),
    Bug(core.lets_time_run_backward, "cluster time running backward"),
    Bug(core.lets_counters_drift, "counter drift"),
    Bug(core.writes_counters_in_the_order_of_a_set, "seed 430049, the order of a set", alter=with_twins),
)

_FEATURES: Sequence[Bug] = (
    Bug(features.decides_fire_times_twice, "an instant decided twice by a new leader", alter=many_schedules),
    Bug(features.loses_firings_over_an_election, "a firing lost over an election", alter=many_schedules),
    Bug(features.fires_early, "an early firing", alter=many_schedules),
    Bug(features.joins_whatever_the_policy, "overlap", alter=many_schedules),
    Bug(features.keeps_ended_runs_active, "overlap", alter=many_schedules),
    Bug(features.releases_with_the_first_parent, "a dependant released before its parent", alter=many_workflows),
    Bug(features.counts_ends_twice, "a dependant released twice", alter=many_workflows),
    Bug(features.forgets_dependants, "a dependant that waits for ever", alter=many_workflows),
    Bug(features.opens_workflows_with_their_first_part, "half a workflow", alter=many_workflows),
    Bug(features.acknowledges_cancels_of_workflows_only, "a workflow's cancel forgotten", alter=many_workflows),
    Bug(features.checks_limits_in_the_leader_only, "limits checked by the leader only", alter=much_control),
    Bug(features.forgets_blocked_jobs, "a held job forgotten", alter=much_control),
    Bug(features.acknowledges_pauses_of_queues_only, "a queue's pause forgotten", alter=much_control),
    Bug(features.requeues_within_the_same_run, "a requeue with an old token", alter=much_control),
    Bug(features.requeues_what_waits, "a requeue from an illegal status", alter=much_control),
    Bug(features.keeps_unique_claims_for_ever, "a unique claim kept for ever", alter=much_control),
    Bug(features.leases_again_what_began, "at most once leased again", alter=much_control),
    Bug(features.starts_only_in_memory, "at most once leased again", alter=much_control),
    Bug(hooks.submits_hooks_in_a_second_entry, "a hook in a second entry", alter=much_control),
    Bug(hooks.forgets_hooks_of_what_nobody_reported, "an end without its hook", alter=much_control),
    Bug(hooks.submits_hooks_for_every_attempt, "a hook without an end", alter=much_control),
    Bug(callbacks.takes_the_token_of_any_attempt, "a callback with another token", alter=many_callbacks),
    Bug(callbacks.accepts_callbacks_after_the_timeout, "a callback after the timeout", alter=many_callbacks),
    Bug(callbacks.awaits_callbacks_only_in_memory, "an awaited run that is lost", alter=many_callbacks),
    Bug(callbacks.counts_awaited_runs_as_lost, "an awaited run that is lost", alter=many_callbacks),
    Bug(callbacks.awaits_callbacks_for_ever, "an awaited run that never ends", alter=many_callbacks),
    Bug(notices.notifies_of_every_problem, "a notice that comes again", alter=many_schedules),
    Bug(notices.notifies_again_after_an_election, "a notice that comes again", alter=many_schedules),
    Bug(notices.never_closes_alarms, "an alarm that never ends", alter=many_schedules),
    Bug(notices.never_notices_missing_successes, "a missing success that nobody notices", alter=many_schedules),
    Bug(
        notices.counts_missing_successes_from_an_election,
        "a missing success that nobody notices",
        alter=watched_schedules,
    ),
    Bug(notices.recovers_from_failed_attempts, "a notice without its event", alter=many_schedules),
    Bug(notices.counts_pauses_as_missing_successes, "a notice without its event", alter=many_schedules),
    Bug(notices.calls_late_runs_punctual, "a notice that comes again", alter=watched_schedules),
    Bug(features.never_handles_deadlines, "due alarms", alter=much_control),
    Bug(features.leaves_background_work_to_others, "chores", alter=many_schedules),
)

_REGIONS: Sequence[Bug] = (
    Bug(regions.forgets_the_region_of_a_retry, "a region forgotten", alter=two_regions),
    Bug(regions.gives_jobs_to_any_region, "a job for a worker of another region", alter=two_regions),
    Bug(regions.serves_jobs_without_region_first, "a region starved by others", alter=two_regions),
    Bug(regions.overlooks_the_backlog_of_a_region, "a backlog that nobody reads", alter=two_regions),
    Bug(regions.offers_blocked_jobs_of_one_region, "a held job that waits for another region", alter=two_regions),
)

_TENANTS: Sequence[Bug] = (
    Bug(tenants.gives_jobs_to_workers_of_any_tenant, "a job for a worker of another tenant", alter=several_tenants),
    Bug(tenants.looks_at_the_first_tenant_only, "a worker that waits for its tenant's turn", alter=several_tenants),
)

_STATES: Sequence[Bug] = (
    Bug(states.compares_no_states, "a node applies something differently", schedule=states.THE_LEADER_DIFFERS),
    Bug(states.forgets_that_it_differs, "a node applies something differently", schedule=states.A_FOLLOWER_DIFFERS),
)

_HTTP: Sequence[Bug] = (
    Bug(http.sends_again_in_secret, "a second sending that nobody sees", alter=breaking_connections),
    Bug(http.forwards_to_the_next_leader_what_it_sent, "I6; forwarded twice", alter=breaking_connections),
    Bug(http.says_unavailable_where_nobody_knows, "I6; unknown called refused", alter=breaking_connections),
    Bug(http.forgets_what_it_gave_up, "I6; the silent node acted after all", alter=breaking_connections),
    Bug(http.believes_the_refusal_of_a_repetition, "I6; not found the second time", alter=breaking_connections),
)

BUGS: Sequence[Bug] = (
    *_DURABILITY,
    *_CONSENSUS,
    *_MEMBERS,
    *_LEADER,
    *_CORE,
    *_FEATURES,
    *_REGIONS,
    *_TENANTS,
    *_STATES,
    *_HTTP,
)
