"""The state's records beside jobs, and what ties jobs together: stored, found, and gone again."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from raftsched.core.operations.control import BackgroundKind, DeadlineKind
from raftsched.core.records.ids import TimeMs, name_tag
from raftsched.core.records.job import Condition, Dependency, Verdict
from raftsched.core.records.queue import Queue
from raftsched.core.records.schedule import Firing, FiringKind, ScheduleId
from raftsched.core.records.spec import Options
from raftsched.core.records.tenant import Tenant
from raftsched.core.records.workflow import Workflow, WorkflowId
from raftsched.core.state.entries import AuditEntry, BlockedEntry, DeadlineEntry, Dependant, LogSize
from raftsched.core.state.writes import (
    PutAudit,
    PutBackgroundWork,
    PutDependant,
    PutDependencies,
    PutFiring,
    PutJob,
    PutLog,
    PutQueue,
    PutSchedule,
    PutTenant,
    PutWorkflow,
    RemoveAudit,
    RemoveBackgroundWork,
    RemoveFirings,
    RemoveJob,
    RemoveSchedule,
    RemoveTenantRecord,
    RemoveWorkflow,
)
from raftsched.errors import Invalid, InvariantBroken
from raftsched.storage.state import State
from raftsched.storage.store.port import Store, Table
from tests.storage.conftest import Home
from tests.storage.jobs import NOW_MS, blocked, finished, job_id, make_job, make_schedule, paused, running

TAG = name_tag("send_email")


def is_empty(store: Store) -> bool:
    return not any(store.scan(table, b"", None, limit=1) for table in Table)


def close_entry(state: State) -> None:
    state.advance(index=state.applied_index + 1, term=1, now_ms=NOW_MS)


# -- claims, limits ---------------------------------------------------------------------------------------------------


def test_a_job_that_loses_its_idempotency_key_leaves_it_to_another(state: State) -> None:
    old, new = make_job(1, idempotency_key="k"), make_job(2, idempotency_key="k")
    state.execute([PutJob(None, old), PutJob(old, replace(old, idempotency_key="")), PutJob(None, new)])
    assert state.job_id_for_key("default", "k") == new.id
    state.execute([RemoveJob(replace(old, idempotency_key=""))])
    assert state.job_id_for_key("default", "k") == new.id


def test_a_unique_key_is_found_until_the_job_ends_or_loses_it(state: State) -> None:
    job = make_job(1, options=Options(unique_key=b"\xff"))
    state.execute([PutJob(None, job)])
    assert state.job_id_for_unique("default", b"\xff") == job.id
    assert state.job_id_for_unique("other", b"\xff") is None
    state.execute([PutJob(job, finished(job))])
    assert state.job_id_for_unique("default", b"\xff") is None
    timed = make_job(2, options=Options(unique_key=b"\xff", unique_until_ms=TimeMs(9)))
    state.execute([PutJob(None, timed), PutJob(timed, finished(timed))])
    assert state.job_id_for_unique("default", b"\xff") == timed.id


def test_two_jobs_with_one_claim_are_a_broken_invariant(state: State) -> None:
    options = Options(unique_key=b"u")
    state.execute([PutJob(None, make_job(1, options=options)), PutJob(None, make_job(2, tenant="t", options=options))])
    with pytest.raises(InvariantBroken, match="unique key"):
        state.execute([PutJob(None, make_job(3, options=options))])


def test_running_jobs_are_counted_by_queue_and_key_and_again_at_opening(home: Home) -> None:
    state = State(home.open())
    keyed = [make_job(number, options=Options(concurrency_key="k")) for number in range(3)]
    plain = make_job(9)
    state.execute([PutJob(None, running(job)) for job in (*keyed, plain)])
    state.execute([PutJob(running(keyed[0]), finished(keyed[0])), PutJob(running(keyed[1]), keyed[1])])
    assert (state.running_count("mail"), state.key_running_count("mail", "k")) == (2, 1)
    assert (state.running_count("export"), state.key_running_count("mail", "")) == (0, 0)
    assert state.running_counts() == {("mail", ""): 2, ("mail", "k"): 1}
    close_entry(state)
    state.checkpoint()
    state.execute([PutJob(running(plain), finished(plain))])
    state = State(home.crash())
    assert state.running_counts() == {("mail", ""): 2, ("mail", "k"): 1}
    state.execute([RemoveJob(running(keyed[2])), RemoveJob(running(plain))])
    assert state.running_counts() == {}


def test_unfinished_jobs_and_schedules_are_counted_by_tenant_and_again_at_opening(home: Home) -> None:
    state = State(home.open())
    jobs = [make_job(number, tenant=tenant, queue=f"q{number}") for number, tenant in enumerate("aab")]
    settings = Tenant("a", unfinished_jobs_max=5, revision=1)
    state.execute([*(PutJob(None, job) for job in jobs), PutTenant(settings), PutSchedule(None, make_schedule(1))])
    state.execute([PutJob(jobs[0], running(jobs[0])), PutJob(running(jobs[0]), finished(jobs[0]))])
    fork = state.fork()
    fork.execute([RemoveJob(jobs[1]), RemoveTenantRecord("a")])
    assert (fork.unfinished_count("a"), fork.unfinished_count("b"), fork.tenant("a")) == (0, 1, None)
    assert (state.unfinished_count("a"), state.tenant("a")) == (1, settings)
    close_entry(state)
    state.checkpoint()
    state.execute([RemoveJob(jobs[2]), RemoveSchedule(make_schedule(1)), PutTenant(replace(settings, weight=9))])
    assert (state.unfinished_counts(), state.schedule_count(), state.schedule_count("default")) == ({"a": 1}, 0, 0)
    state = State(home.crash())
    assert state.unfinished_counts() == {"a": 1, "b": 1}
    assert (state.tenant("a"), state.schedule_count(), state.schedule_count("default")) == (settings, 1, 1)


def test_blocked_jobs_come_by_key_falling_priority_due_and_id(state: State) -> None:
    jobs = [
        blocked(make_job(1), "b"),
        blocked(make_job(2, priority=4), "a"),
        blocked(make_job(3), "a"),
        blocked(make_job(4, due_at_ms=NOW_MS - 1), "a"),
        blocked(make_job(5, queue="mail\0"), "a"),
    ]
    state.execute([PutJob(None, job) for job in jobs])
    order = [job_id(number) for number in (4, 3, 2, 1)]
    assert state.blocked_jobs("mail", limit=9) == order
    assert state.blocked_jobs("mail", limit=2) == order[:2]
    assert state.blocked_jobs("mail", after=BlockedEntry("mail", "a", 5, NOW_MS, job_id(3)), limit=9) == order[2:]
    assert state.blocked_jobs("mail", after=BlockedEntry("mail", "a", 5, TimeMs(0), job_id(3)), limit=9) == order
    assert state.first_blocked("mail", "a") == job_id(4)
    assert state.first_blocked("mail", "a", after=job_id(4)) == job_id(3)
    assert state.first_blocked("mail", "a", after=job_id(2)) is None
    assert state.first_blocked("mail", "c") is None
    assert state.waiting("mail", "default", 5, TAG, due_until_ms=NOW_MS, limit=9) == []
    state.execute([PutJob(jobs[3], replace(jobs[3], blocked=False))])
    assert state.first_blocked("mail", "a") == job_id(3)
    assert [entry.job_id for entry in state.waiting("mail", "default", 5, TAG, due_until_ms=NOW_MS, limit=9)] == [
        job_id(4)
    ]


def test_blocked_jobs_of_a_key_are_read_by_region(state: State) -> None:
    jobs = [
        blocked(make_job(1, region="us"), "a"),
        blocked(make_job(2, region="eu", priority=4), "a"),
        blocked(make_job(3, region="eu"), "a"),
        blocked(make_job(4), "a"),
        blocked(make_job(5, region="eu\0"), "b"),
    ]
    state.execute([PutJob(None, job) for job in jobs])
    assert state.blocked_regions("mail", "a", limit=9) == ["", "eu", "us"]
    assert state.blocked_regions("mail", "a", limit=2) == ["", "eu"]
    assert state.blocked_regions("mail", "b", limit=9) == ["eu\0"]
    assert state.blocked_regions("mail", "c", limit=9) == []
    assert state.blocked_jobs("mail", limit=9) == [job_id(number) for number in (4, 3, 2, 1, 5)]
    assert state.first_blocked("mail", "a") == job_id(4)
    assert state.first_blocked("mail", "a", after=job_id(4)) is None
    assert state.first_blocked("mail", "a", "eu") == job_id(3)
    assert state.first_blocked("mail", "a", "eu", after=job_id(3)) == job_id(2)
    assert state.first_blocked("mail", "a", "eu", after=job_id(2)) is None
    assert state.first_blocked("mail", "b", "eu") is None


def test_tenants_of_a_region_are_those_with_a_job_of_it_in_the_queue(state: State) -> None:
    places = [("b", "eu"), ("a\0", "eu"), ("a", "eu"), ("a", "eu"), ("c", ""), ("d", "eu\0"), ("e", "e")]
    jobs = [make_job(number, tenant=tenant, region=region) for number, (tenant, region) in enumerate(places)]
    state.execute([PutJob(None, job) for job in jobs])
    assert state.tenants_of_region("mail", "eu") == ["a", "a\0", "b"]
    assert state.tenants_of_region("mail", "eu\0") == ["d"]
    assert state.tenants_of_region("mail", "us") == []
    assert state.tenants_of_region("export", "eu") == []


def test_lanes_are_read_each_by_itself_and_their_tenants_are_known(state: State) -> None:
    jobs = [make_job(number, tenant=tenant) for number, tenant in enumerate(["b", "a", "a\0", "a"])]
    state.execute([PutJob(None, job) for job in jobs])
    assert state.waiting_tenants("mail") == ["a", "a\0", "b"]
    assert state.waiting_tenants("export") == []
    assert [entry.job_id for entry in state.waiting("mail", "a", 5, TAG, due_until_ms=NOW_MS, limit=9)] == [
        job_id(1),
        job_id(3),
    ]
    assert [first.job_id for first in state.first_of_lane("mail", "a", "")] == [job_id(1)]
    assert state.first_of_lane("mail", "a", "eu") == []
    state.execute([PutJob(jobs[0], running(jobs[0])), RemoveJob(jobs[2])])
    assert state.waiting_tenants("mail") == ["a"]


# -- dependencies -----------------------------------------------------------------------------------------------------


def test_edges_are_found_from_both_ends_and_go_with_the_child(state: State) -> None:
    parents = (Dependency(job_id(8)), Dependency(job_id(7), Condition.FAILURE))
    child, other = make_job(20, dependency_count=2), make_job(21, dependency_count=1)
    state.execute([PutJob(None, child), PutDependencies(child.id, parents)])
    state.execute([PutJob(None, other), PutDependencies(other.id, parents[:1])])
    state.execute([PutDependant(job_id(8), Dependant(child.id, Condition.SUCCESS, Verdict.MET))])
    assert state.dependencies(child.id) == parents
    assert state.dependencies(job_id(8)) == ()
    told, untold = Dependant(child.id, Condition.SUCCESS, Verdict.MET), Dependant(other.id, Condition.SUCCESS)
    assert state.dependants(job_id(8), after=None, limit=9) == [told, untold]
    assert state.dependants(job_id(8), after=None, limit=1) == [told]
    assert state.dependants(job_id(8), after=child.id, limit=9) == [untold]
    assert state.dependants(job_id(7), after=None, limit=9) == [Dependant(child.id, Condition.FAILURE)]
    state.execute([RemoveJob(child)])
    assert state.dependencies(child.id) == ()
    assert list(state.all_dependants()) == [(job_id(8), untold)]


def test_a_parent_that_is_removed_leaves_the_edges_of_its_child(state: State, store: Store) -> None:
    parent, child = finished(make_job(1)), finished(make_job(2, dependency_count=1))
    state.execute([PutJob(None, parent), PutJob(None, child), PutDependencies(child.id, (Dependency(parent.id),))])
    state.execute([RemoveJob(parent)])
    assert state.dependants(parent.id, after=None, limit=9) == [Dependant(child.id, Condition.SUCCESS)]
    state.execute([RemoveJob(child)])
    assert is_empty(store)


def test_edges_that_can_not_be_are_a_broken_invariant(state: State) -> None:
    edge = Dependency(job_id(1))
    state.execute([PutDependencies(job_id(2), (edge,)), PutDependencies(job_id(3), ())])
    for write in (
        PutDependencies(job_id(2), (edge,)),
        PutDependencies(job_id(4), (edge, Dependency(job_id(1), Condition.FAILURE))),
        PutDependant(job_id(1), Dependant(job_id(3), Condition.SUCCESS)),
    ):
        with pytest.raises(InvariantBroken):
            state.execute([write])
    assert state.dependencies(job_id(3)) == state.dependencies(job_id(4)) == ()


# -- logs -------------------------------------------------------------------------------------------------------------


def test_a_log_is_read_on_from_any_offset(state: State) -> None:
    pieces = [b"one\n", b"two\nthree\n", b"four\n"]
    for sequence, lines in enumerate(pieces, 1):
        state.execute([PutLog(job_id(1), 1, 2, lines, sequence)])
    state.execute([PutLog(job_id(1), 1, 3, b"other\n"), PutLog(job_id(2), 1, 2, b"other\n")])
    whole = b"".join(pieces)
    assert state.log_size(job_id(1), 1, 2) == LogSize(len(whole), 3, 3)
    assert state.log_size(job_id(1), 1, 3) == LogSize(6, 0, 1)
    assert state.log_size(job_id(1), 1, 1) == LogSize(0, 0, 0)
    for offset in range(len(whole) + 2):
        part = state.log(job_id(1), 1, 2, offset=offset, bytes_max=100)
        assert (part.offset, part.lines, part.next_offset) == (offset, whole[offset:], max(offset, len(whole)))
    assert state.log(job_id(1), 1, 2, bytes_max=1).lines == pieces[0]
    assert state.log(job_id(1), 1, 2, offset=5, bytes_max=1).lines == pieces[1][1:]
    assert state.log(job_id(1), 1, 1, bytes_max=9) == (0, b"", 0)
    assert state.logs(job_id(1)) == [(1, 2, LogSize(len(whole), 3, 3)), (1, 3, LogSize(6, 0, 1))]


def test_a_log_of_many_pieces_is_read_in_bounded_parts_and_removed_whole(state: State, store: Store) -> None:
    job = finished(make_job(1))
    state.execute([PutJob(None, job), *(PutLog(job.id, 1, 1, b"%d\n" % number, number) for number in range(1, 2_501))])
    lines, offset = b"", 0
    while part := state.log(job.id, 1, 1, offset=offset, bytes_max=1 << 20).lines:
        lines, offset = lines + part, offset + len(part)
    assert lines.split() == [b"%d" % number for number in range(1, 2_501)]
    state.execute([RemoveJob(job)])
    assert is_empty(store)


# -- workflows, schedules, queues -------------------------------------------------------------------------------------


def test_workflows_are_found_by_id_key_and_job(state: State, store: Store) -> None:
    workflow = Workflow(WorkflowId(b"w" * 16), "t", "etl", 3, 1, idempotency_key="k", updated_at_ms=NOW_MS)
    whole = replace(workflow, stored_count=3, idempotency_key="")
    other = replace(whole, id=WorkflowId(b"v" * 16))
    jobs = [finished(make_job(number, options=Options(workflow_id=workflow.id))) for number in (3, 1, 2)]
    state.execute([PutWorkflow(None, workflow), PutWorkflow(None, other), *(PutJob(None, job) for job in jobs)])
    assert state.workflow(workflow.id) == workflow
    assert state.workflow_id_for_key("t", "k") == workflow.id
    assert state.workflow_jobs(workflow.id, after=None, limit=2) == [job_id(1), job_id(2)]
    assert state.workflow_jobs(workflow.id, after=job_id(2), limit=9) == [job_id(3)]
    assert state.workflow_jobs(other.id, after=None, limit=9) == []
    assert state.next_deadline(DeadlineKind.WORKFLOW) == workflow.next_deadline_ms
    state.execute([PutWorkflow(workflow, whole)])
    assert state.workflow_id_for_key("t", "k") is None
    assert state.next_deadline(DeadlineKind.WORKFLOW) is None
    assert [one for _, one in state.list_workflows(limit=9).items] == [other, whole]
    assert [one for _, one in state.list_workflows(limit=1, descending=True).items] == [whole]
    state.execute([*map(RemoveJob, jobs), RemoveWorkflow(whole), RemoveWorkflow(other)])
    assert is_empty(store)


def test_schedules_are_found_by_id_and_name_with_their_payload(state: State, store: Store) -> None:
    schedule = make_schedule(1, next_at_ms=NOW_MS)
    renamed = replace(schedule, name="other", next_at_ms=TimeMs(0))
    state.execute([PutSchedule(None, schedule, b"[1]")])
    assert state.schedule(schedule.id) == schedule
    assert state.payload(schedule.id) == b"[1]"
    assert state.schedule_id_for_name("default", "report-1") == schedule.id
    assert state.deadlines_due(DeadlineKind.SCHEDULE, NOW_MS, limit=9) == [
        DeadlineEntry(DeadlineKind.SCHEDULE, NOW_MS, schedule.id)
    ]
    state.execute([PutSchedule(schedule, renamed)])
    assert state.payload(schedule.id) == b"[1]"
    assert state.schedule_id_for_name("default", "report-1") is None
    assert state.schedule_id_for_name("default", "other") == schedule.id
    assert list(state.all_deadlines()) == []
    state.execute([RemoveSchedule(renamed)])
    assert is_empty(store)


def test_lists_go_on_behind_their_cursors_in_both_directions(state: State) -> None:
    schedules = [make_schedule(number, tenant=tenant) for number, tenant in enumerate(["a", "a\0", "a", "b", "a"])]
    state.execute([PutSchedule(None, one) for one in schedules])
    for descending in (False, True):
        found, cursor = [], b""
        while page := state.list_schedules(after=cursor, limit=2, descending=descending):
            found += [one for _, one in page.items]
            if not (cursor := page.next_cursor):
                break
        assert found == (schedules[::-1] if descending else schedules)
    names = state.list_schedule_names("a", limit=2)
    assert [one for _, one in names.items] == [schedules[0].id, schedules[2].id]
    assert [one for _, one in state.list_schedule_names("a", after=names.next_cursor, limit=9).items] == [
        schedules[4].id
    ]
    assert [one for _, one in state.list_schedule_names("a", limit=1, descending=True).items] == [schedules[4].id]
    with pytest.raises(Invalid):
        state.list_schedules(after=b"x" * 512, limit=1)


def test_the_ledger_is_read_by_fire_time_and_kind_both_ways_and_trimmed(state: State, store: Store) -> None:
    owner, other = ScheduleId(b"s" * 16), ScheduleId(b"t" * 16)
    lines = [
        Firing(TimeMs(1), FiringKind.PLANNED, job_id(1)),
        Firing(TimeMs(1), FiringKind.BACKFILL, job_id(2)),
        Firing(TimeMs(2), FiringKind.MANUAL, job_id(3)),
        Firing(TimeMs(3), reason="overlap", count=4, last_fire_time_ms=TimeMs(9)),
    ]
    state.execute([*(PutFiring(owner, line) for line in lines[::-1]), PutFiring(other, lines[0])])
    assert state.firings(owner, after=None, until_ms=None, limit=9) == lines
    assert state.firings(owner, after=lines[0], until_ms=3, limit=9) == lines[1:3]
    assert state.firings(owner, after=None, until_ms=-1, limit=9) == []
    assert state.firing(owner, TimeMs(1), FiringKind.BACKFILL) == lines[1]
    assert state.firing(owner, TimeMs(1), FiringKind.MANUAL) is None
    assert state.newest_firings(owner, limit=3) == lines[:0:-1]
    page = state.list_firings(owner, limit=3, descending=True)
    assert [line for _, line in page.items] == lines[:0:-1]
    following = state.list_firings(owner, after=page.next_cursor, limit=3, descending=True)
    assert [line for _, line in following.items] == lines[:1]
    assert [line for _, line in state.list_firings(owner, after=page.items[1][0], limit=9).items] == lines[3:]
    state.execute([RemoveFirings(owner, tuple(lines)), RemoveFirings(other, (lines[0],))])
    assert is_empty(store)
    with pytest.raises(InvariantBroken):
        state.execute([RemoveFirings(owner, (lines[0],))])


def test_queues_are_kept_and_read_again_at_opening(home: Home) -> None:
    state = State(home.open())
    old, new = Queue("mail"), Queue("mail", paused=True, pause_until_ms=TimeMs(5))
    state.execute([PutQueue(None, old), PutQueue(old, new), PutQueue(None, Queue("a"))])
    close_entry(state)
    state.checkpoint()
    state.execute([PutQueue(new, old)])
    assert state.queue("mail") == old
    assert state.next_deadline(DeadlineKind.QUEUE) is None
    state = State(home.crash())
    assert state.queue("mail") == new
    assert state.queue("export") is None
    assert state.queues() == [Queue("a"), new]
    assert [queue for _, queue in state.list_queues(limit=1, descending=True).items] == [new]
    assert state.deadlines_due(DeadlineKind.QUEUE, 5, limit=9) == [
        DeadlineEntry(DeadlineKind.QUEUE, TimeMs(5), b"mail")
    ]


# -- alarms, chores, audit --------------------------------------------------------------------------------------------


def test_deadlines_of_each_kind_are_due_in_order_up_to_their_time(state: State) -> None:
    jobs = [paused(make_job(number), until_ms=at_ms) for number, at_ms in ((1, 7), (2, 5), (3, 5), (4, 0))]
    state.execute([PutJob(None, job) for job in jobs])
    state.execute([PutSchedule(None, make_schedule(9, next_at_ms=TimeMs(1)))])
    due = [DeadlineEntry(DeadlineKind.JOB, TimeMs(at_ms), job_id(number)) for number, at_ms in ((2, 5), (3, 5), (1, 7))]
    assert state.deadlines_due(DeadlineKind.JOB, 7, limit=9) == due
    assert state.deadlines_due(DeadlineKind.JOB, 6, limit=9) == due[:2]
    assert state.deadlines_due(DeadlineKind.JOB, 7, limit=1) == due[:1]
    assert state.deadlines_due(DeadlineKind.JOB, 4, limit=9) == []
    assert state.deadlines_due(DeadlineKind.JOB, 7, limit=9, after_ms=4) == due
    assert state.deadlines_due(DeadlineKind.JOB, 7, limit=9, after_ms=5) == due[2:]
    assert state.next_deadline(DeadlineKind.JOB) == 5
    state.execute([PutJob(jobs[1], make_job(2)), RemoveJob(jobs[2])])
    assert state.next_deadline(DeadlineKind.JOB) == 7


def test_background_work_stays_where_it_was_put_until_it_is_removed(state: State, store: Store) -> None:
    first, second = (BackgroundKind.RESOLVE_DEPENDANTS, b"s"), (BackgroundKind.RELEASE_BLOCKED, b"mail")
    state.execute([PutBackgroundWork(*second), PutBackgroundWork(*first), PutBackgroundWork(*first, b"at")])
    assert (state.background_cursor(*first), state.background_cursor(*second)) == (b"at", b"")
    assert state.background_cursor(BackgroundKind.DROP_LEDGER, b"s") is None
    assert state.background_work(limit=9) == [first, second]
    assert state.background_work(limit=1, after=first) == [second]
    assert list(state.all_background_work()) == [(*first, b"at"), (*second, b"")]
    state.execute([RemoveBackgroundWork(*first), RemoveBackgroundWork(*second)])
    assert is_empty(store)
    with pytest.raises(InvariantBroken):
        state.execute([RemoveBackgroundWork(*first)])


def test_the_audit_trail_is_in_the_order_of_the_log_and_trimmed_from_the_front(state: State) -> None:
    lines = [AuditEntry(NOW_MS, "me", "job.cancel", f"job:{number}") for number in range(5)]
    state.execute([PutAudit(lines[0])])
    state.execute([PutAudit(lines[1])])
    close_entry(state)
    close_entry(state)
    state.execute([PutAudit(line) for line in lines[2:]])
    close_entry(state)
    assert state.oldest_audit(limit=3) == lines[:3]
    page = state.list_audit(limit=3)
    assert [line for _, line in page.items] == lines[:3]
    assert [line for _, line in state.list_audit(after=page.next_cursor, limit=3).items] == lines[3:]
    assert [line for _, line in state.list_audit(limit=2, descending=True).items] == lines[:2:-1]
    state.execute([RemoveAudit(3, 1)])
    assert [line for _, line in state.list_audit(limit=9).items] == lines[1:]
    state.execute([RemoveAudit(3, 9)])
    assert [line for _, line in state.list_audit(limit=9).items] == lines[2:]
