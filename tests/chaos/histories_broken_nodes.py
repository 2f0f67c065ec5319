"""Mutators that break what nodes promise each other, and what the harness promises the checkers."""

from __future__ import annotations

from msgspec.structs import replace

from chaos.checkers import History
from chaos.checkers.history.events import (
    Applied,
    Change,
    Configured,
    Durable,
    FinalState,
    Healed,
    Installed,
    Invoke,
    Leader,
    Nemesis,
    Reply,
    Started,
    StateDigest,
    Truncated,
)
from tests.chaos.histories import NODES
from tests.chaos.histories_broken import (
    FINISHED,
    Events,
    NoPlace,
    answer_of,
    appended,
    breaks,
    change_of,
    edit,
    first,
    inserted,
    set_up,
    without,
)

# -- the harness ------------------------------------------------------------------------------------------------------


@breaks("well_formed")
def reply_to_another_process(history: History) -> Events:
    return edit(history, (history.of(Reply)[5], {"process": "stranger"}))


@breaks("well_formed")
def reply_twice(history: History) -> Events:
    return appended(history, history.of(Reply)[5])


@breaks("well_formed")
def process_works_on_after_unknown_outcome(history: History) -> Events:
    unsure = first(history.of(Reply), lambda reply: reply.type == "info")
    return appended(history, Invoke(process=unsure.process, op=10**9, f="get", job="j"))


@breaks("well_formed")
def time_runs_back(history: History) -> Events:
    return [*history.events, replace(history.events[-1], t=history.end - 1)]


@breaks("well_formed")
def setup_is_missing(history: History) -> Events:
    return without(history, [history.setup])


# -- consensus --------------------------------------------------------------------------------------------------------


@breaks("one_leader_per_term")
def second_leader_in_a_term(history: History) -> Events:
    leader = history.of(Leader)[-1]
    other = next(node for node in NODES if node != leader.node)
    return appended(history, replace(leader, node=other))


@breaks("committed_never_changes")
def follower_applies_another_command(history: History) -> Events:
    event = history.of(Applied)[-1]
    return edit(history, (event, {"digest": "other"}))


@breaks("committed_never_changes")
def follower_applies_another_term(history: History) -> Events:
    event = history.of(Applied)[-1]
    return edit(history, (event, {"term": event.term + 1}))


@breaks("applied_in_order")
def entries_applied_in_another_order(history: History) -> Events:
    one, two = [event for event in history.of(Applied) if event.node == "n1"][3:5]
    return edit(history, (one, {"index": two.index}), (two, {"index": one.index}))


@breaks("applied_in_order")
def entry_applied_twice(history: History) -> Events:
    event = [event for event in history.of(Applied) if event.node == "n1"][5]
    return inserted(history, event, event)


@breaks("applied_in_order")
def snapshot_goes_back(history: History) -> Events:
    event = [event for event in history.of(Applied) if event.node == "n1"][5]
    return appended(history, Installed(node="n1", index=event.index, term=event.term, state="s"))


@breaks("terms_never_fall")
def term_falls_along_the_log(history: History) -> Events:
    late = [event for event in history.of(Applied) if event.index == max(each.index for each in history.of(Applied))]
    if late[0].term < 2:
        raise NoPlace
    return edit(history, *((event, {"term": 1}) for event in late))


# -- disks ------------------------------------------------------------------------------------------------------------


@breaks("log_matching")
def log_differs_below_an_equal_entry(history: History) -> Events:
    entries = [event for event in history.of(Durable) if event.node == "n2"]
    return edit(history, (entries[3], {"term": 99, "digest": "stray"}))


@breaks("log_matching")
def entry_of_equal_term_has_another_content(history: History) -> Events:
    return edit(history, (history.of(Durable)[-1], {"digest": "stray"}))


@breaks("on_most_disks_when_applied")
def entry_committed_on_a_minority_of_disks(history: History) -> Events:
    """As if it were acknowledged from the page cache: everyone but the leader syncs it afterwards."""
    applied = [event for event in history.of(Applied) if event.node == history.of(Leader)[0].node][4]
    before = history.events[: history.events.index(applied)]
    early = [
        event
        for event in before
        if isinstance(event, Durable) and event.index == applied.index and event.node != applied.node
    ]
    return without(history, early)


@breaks("on_most_disks_when_applied")
def nothing_is_ever_synced_but_by_the_leader(history: History) -> Events:
    leader = history.of(Leader)[0].node
    return without(history, [event for event in history.of(Durable) if event.node != leader])


@breaks("on_most_disks_when_applied")
def commit_counted_over_the_old_configuration(history: History) -> Events:
    """The log says that the cluster has grown to five, and goes on with two disks of three."""
    leader = history.of(Leader)[0].node
    grown = [event for event in history.of(Durable) if event.node == leader][4]
    here = Configured(node=leader, index=grown.index, term=grown.term, voters=(*NODES, "n4", "n5"))
    return inserted(history, grown, here)


@breaks("on_most_disks_when_applied")
def disk_counted_that_a_member_does_not_have(history: History) -> Events:
    """A member comes back without its disk, and what its old disk would hold goes on to count."""
    leader = history.of(Leader)[0].node
    other = next(node for node in NODES if node != leader)
    lost = [event for event in history.of(Durable) if event.node == leader][4]
    wiped = Truncated(node=other, index=1, wiped=True)
    later = [event for event in history.of(Durable) if event.node != leader and event.index >= lost.index]
    return without(History(inserted(history, lost, wiped)), later)


@breaks("committed_stays_on_disk")
def power_loss_takes_a_committed_entry(history: History) -> Events:
    last = [event for event in history.of(Durable) if event.node == "n1"][-1]
    return appended(history, Truncated(node="n1", index=last.index))


@breaks("committed_stays_on_disk")
def leader_overwrites_a_committed_entry(history: History) -> Events:
    last = [event for event in history.of(Durable) if event.node == "n1"][-1]
    return appended(history, replace(last, term=last.term + 1, digest="newer"))


# -- states -----------------------------------------------------------------------------------------------------------


@breaks("equal_state_digests", "snapshot_and_tail_equal_replay")
def follower_diverges(history: History) -> Events:
    return edit(history, (history.of(FinalState)[-1], {"state": "other"}))


@breaks("snapshot_and_tail_equal_replay")
def snapshot_lacks_a_chunk(history: History) -> Events:
    """Nobody else took the digest of that state, so only a replay can tell."""
    installed = first(history.of(Installed), bool)
    if any(event.index == installed.index for event in history.of(StateDigest)):
        raise NoPlace
    return edit(history, (installed, {"state": "short"}))


@breaks("snapshot_and_tail_equal_replay")
def all_nodes_err_alike(history: History) -> Events:
    return edit(history, *((final, {"state": "wrong"}) for final in history.of(FinalState)))


@breaks("finals_follow_the_log")
def node_loses_a_job(history: History) -> Events:
    final = history.of(FinalState)[0]
    return edit(history, (final, {"jobs": dict(list(final.jobs.items())[1:])}))


@breaks("finals_follow_the_log", "nothing_from_nowhere")
def node_ends_with_a_ghost(history: History) -> Events:
    final = history.of(FinalState)[0]
    ghost = replace(next(iter(final.jobs.values())), op=10**9, key="")
    return edit(history, (final, {"jobs": final.jobs | {"ghost": ghost}}))


@breaks("finals_follow_the_log")
def node_ends_with_an_older_job(history: History) -> Events:
    final = history.of(FinalState)[0]
    name, job = first(final.jobs.items(), lambda pair: pair[1].status in FINISHED)
    return edit(history, (final, {"jobs": final.jobs | {name: replace(job, status="queued")}}))


# -- liveness ---------------------------------------------------------------------------------------------------------


@breaks("every_node_serves")
def node_never_serves_again(history: History) -> Events:
    healed = history.of(Healed)[0].t
    mute = {operation.call.op for operation in history.operations if operation.call.node == "n2"}
    late = [event for event in history.of(Reply) if event.t >= healed and event.op in mute]
    return without(history, late)


@breaks("nodes_converge")
def node_lags_for_ever(history: History) -> Events:
    final = history.of(FinalState)[-1]
    return edit(history, (final, {"index": final.index - 1}))


@breaks("nodes_converge")
def node_never_comes_back(history: History) -> Events:
    return without(history, history.of(FinalState)[-1:])


@breaks("no_lease_outlives_its_term")
def lease_is_never_expired(history: History) -> Events:
    granted = [changes[-2] for changes in history.changes_of.values() if len(changes) > 1 and changes[-2].f == "lease"]
    if not granted:
        raise NoPlace
    ended = history.end_of[granted[-1].token]
    events = without(history, [ended])
    return [*events, Nemesis(t=history.end + 60_000_000, fault="none")]


@breaks("no_lease_outlives_its_term")
def cancelled_job_is_never_stopped(history: History) -> Events:
    stopping = change_of(history, lambda change: change.status == "cancelling")
    later = [change for change in history.changes_of[stopping.job] if change.index > stopping.index]
    return [*without(history, later), Nemesis(t=history.end + 60_000_000, fault="none")]


# -- time -------------------------------------------------------------------------------------------------------------


@breaks("cluster_time_never_falls")
def new_leader_turns_time_back(history: History) -> Events:
    last = history.changes[-1]
    return edit(history, (last, {"now_ms": last.now_ms - 60_000}))


@breaks("never_before_true_time")
def cluster_time_runs_ahead(history: History) -> Events:
    timed = {answer.reply.job for answer in history.answers("submit") if answer.call.due_ms > 0}
    if not any(grant.job in timed for _, grant in history.grants):
        raise NoPlace
    return set_up(history, epoch_ms=history.setup.epoch_ms - 5_000)


@breaks("never_before_due", "never_before_true_time")
def leased_before_due(history: History) -> Events:
    answer = answer_of(
        history,
        "submit",
        lambda answer: (
            answer.call.due_ms > 0
            and not answer.reply.duplicate
            and any(grant.job == answer.reply.job for _, grant in history.grants)
        ),
    )
    made = history.changes_of[answer.reply.job][0]
    late = {"due_ms": answer.call.due_ms + 5_000}
    return edit(history, (answer.call, late), (made, late))


@breaks("kept_for_its_term")
def lease_expires_although_its_worker_beats(history: History) -> Events:
    """As a new leader would do that does not give the living one full term."""
    expired = change_of(history, lambda change: change.outcome == "worker_lost")
    worker = history.grant_of[expired.token].worker
    call = Invoke(process="x", op=10**9, f="heartbeat", job=expired.job, run=1, token=expired.token, worker=worker)
    reply = Reply(process="x", op=10**9, type="ok", valid=True)
    return inserted(history, expired, call, reply)


@breaks("kept_for_its_term", "believed_leases_disjoint")
def leases_are_shorter_than_promised(history: History) -> Events:
    """The next worker gets its lease while the last one, that stalled, may still trust its own."""
    known = {grant.token for _, grant in history.grants}
    reported = {each.call.token: each.start for each in reversed(history.operations) if each.call.f == "outcome"}

    def overlaps(lost: Change) -> bool:
        if lost.outcome != "worker_lost" or lost.token not in known or history.timeouts[lost.job]:
            return False
        again = [change for change in history.changes_of[lost.job] if change.f == "lease" and change.token > lost.token]
        end = reported.get(lost.token, history.end)
        return bool(again) and again[0].token in known and again[0].t + 10_000 < end

    change_of(history, overlaps)
    grants = [(change, {"ttl_ms": 10_000}) for change in history.changes if change.f == "lease"]
    return edit(history, (history.setup, {"lease_ttl_ms": 10_000}), *grants)


@breaks("shown_is_applied")
def client_sees_what_nobody_has_applied(history: History) -> Events:
    answer = first(history.answers("get"), lambda answer: answer.reply.t < history.changes[-1].t)
    return edit(history, (answer.reply, {"applied": history.changes[-1].index}))


@breaks("applied_in_order")
def restart_forgets_where_it_was(history: History) -> Events:
    def goes_on(started: Started) -> bool:
        later = history.events[history.events.index(started) + 1 :]
        own = (event for event in later if isinstance(event, Applied | Installed) and event.node == started.node)
        return started.index > 0 and isinstance(next(own, None), Applied)

    started = first(history.of(Started), goes_on)
    return edit(history, (started, {"index": started.index - 1}))
