"""Lists by queue, name, tag and tenant: exactly what matches, in the order of ids, at the cost of the shortest list."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from raftsched import limits
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.job import FINISHED, LEASED, PARKED, WAITING, Job, Pause, Status
from raftsched.core.records.spec import Options
from raftsched.core.state.entries import FacetKind
from raftsched.core.state.writes import PutJob, RemoveJob
from raftsched.errors import Invalid
from raftsched.storage.state import State
from raftsched.storage.store.memory_store import MemoryStore
from raftsched.storage.store.port import Row, Store, Table
from raftsched.storage.tables import keys
from raftsched.storage.tables.facets import HIGHEST_ID, LOWEST_ID, Facets
from raftsched.storage.tables.indexes import facet_groups
from tests.storage.jobs import NOW_MS, finished, job_id, make_job, running, scheduled, submit

QUEUES = ("mail", "export", "mai", "mail\0", "é")
TENANTS = ("default", "acme", "ac")
TAGS = ("eu", "urgent", "e\0u", "e")
WORKFLOW, SCHEDULE = b"w" * 16, b"s" * 16


def any_job(number: int, chance: Random) -> Job:
    options = Options(
        workflow_id=WORKFLOW if chance.random() < 0.3 else b"", schedule_id=SCHEDULE if chance.random() < 0.3 else b""
    )
    queue = chance.choice(QUEUES)
    fields: dict[str, Any] = {
        "queue": queue,
        "name": queue if chance.random() < 0.5 else chance.choice(QUEUES),
        "tags": tuple(chance.sample(TAGS, chance.randrange(3))),
        "tenant": chance.choice(TENANTS),
        "options": options,
    }
    status = chance.choice(sorted(set(Status) - {Status.FAILED}))
    if status in FINISHED:
        return finished(make_job(number, **fields), status)
    if status in LEASED:
        return running(make_job(number, **fields | {"status": status}))
    pause = Pause(NOW_MS) if status is Status.PAUSED else None
    return make_job(number, **fields, status=status, pause=pause)


def expected(jobs: list[Job], facets: Facets) -> list[Job]:
    """What matches, by looking at every record; of those that wait for time, any status stands for all."""
    statuses = set(facets.statuses)
    by_id = LEASED | PARKED
    has_labels = facets.queue or facets.name or facets.tag or facets.tenant
    if not statuses <= by_id and not (statuses <= FINISHED and has_labels):
        statuses |= WAITING | by_id | (frozenset() if has_labels else FINISHED)
    elif not LEASED.isdisjoint(statuses):
        statuses |= LEASED
    return [
        job
        for job in sorted(jobs, key=lambda job: job.id)
        if facets.queue in ("", job.spec.queue)
        and facets.name in ("", job.spec.name)
        and (not facets.tag or facets.tag in job.spec.tags)
        and facets.tenant in ("", job.tenant)
        and (not facets.workflow_id or (job.spec.options and job.spec.options.workflow_id))
        and (not facets.schedule_id or (job.spec.options and job.spec.options.schedule_id))
        and (not statuses or job.status in statuses)
    ]


def any_facets(chance: Random) -> Facets:
    while True:
        facets = Facets(
            queue=chance.choice(("", *QUEUES)),
            name=chance.choice(("", *QUEUES)),
            tag=chance.choice(("", *TAGS)),
            tenant=chance.choice(("", *TENANTS[1:])),
            workflow_id=chance.choice((b"", b"", WORKFLOW)),
            schedule_id=chance.choice((b"", b"", SCHEDULE)),
            statuses=tuple(chance.sample(sorted(Status), chance.choice((0, 0, 1, 2)))),
        )
        if any(facets[:6]):
            return facets


def walk(state: State, facets: Facets, *, limit: int, descending: bool, **between: bytes) -> list[Job]:
    found: list[Job] = []
    after = b""
    while True:
        page = state.list_jobs_of(facets, after=after, limit=limit, descending=descending, **between)
        assert len(page.items) <= limit
        found += [job for _, job in page.items]
        after = page.next_cursor
        if not after:
            return found


@pytest.mark.parametrize("seed", range(20))
def test_any_filter_finds_what_matches_in_order(state: State, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    chance = Random(seed)
    jobs = [any_job(number, chance) for number in chance.sample(range(10_000), 150)]
    submit(state, *jobs)
    for _ in range(40):
        facets, descending = any_facets(chance), chance.random() < 0.5
        monkeypatch.setattr(limits, "SCAN_ROWS_MAX", chance.choice((1, 3, 1_000)))
        low, high = sorted(job_id(chance.randrange(10_000)) for _ in range(2))
        if chance.random() < 0.5:
            low, high = JobId(LOWEST_ID), JobId(HIGHEST_ID)
        matching = [job for job in expected(jobs, facets) if low <= job.id <= high]
        found = walk(state, facets, limit=chance.choice((1, 2, 7, 200)), descending=descending, low=low, high=high)
        assert found == (matching[::-1] if descending else matching), (facets, descending)


@pytest.fixture
def state() -> State:
    return State(MemoryStore())


class CountingStore(MemoryStore):
    """A store that counts the rows it gives out."""

    def __init__(self) -> None:
        super().__init__()
        self.row_count = 0

    def scan(self, table: Table, start: bytes, stop: bytes | None, *, limit: int, reverse: bool = False) -> list[Row]:
        rows = super().scan(table, start, stop, limit=limit, reverse=reverse)
        self.row_count += len(rows)
        return rows


@pytest.mark.parametrize("descending", [False, True])
def test_a_filter_costs_no_more_than_its_shortest_list(*, descending: bool) -> None:
    """Few rows are read for few matches, whichever of several lists is long, and whatever lies between."""
    store = CountingStore()
    state = State(store)
    submit(state, *(make_job(n, queue="a", name="n", tags=("t",)) for n in range(1_000)))
    submit(state, *(finished(make_job(n, queue="b", name="n", tags=("t",))) for n in range(1_000, 2_000)))
    submit(state, *(make_job(n, queue="b", name="m") for n in range(2_000, 3_000)))
    rare = [running(make_job(n, queue="b", name="n", tags=("t",))) for n in (1_300, 2_500, 3_100)]
    rare += [make_job(n, queue="b", name="n", tags=("t", "rare")) for n in (500, 2_700)]
    for job in rare:
        old = state.job(job.id)
        state.execute([*([RemoveJob(old)] if old else []), PutJob(None, job)])
    for facets, matching in (
        (Facets(queue="b", name="n", tag="t", statuses=(Status.RUNNING,)), rare[:3]),
        (Facets(queue="b", tag="rare"), rare[3:]),
        (Facets(name="n", queue="b", statuses=(Status.QUEUED,)), sorted(rare, key=lambda job: job.id)),
        (Facets(queue="b", tag="t", statuses=(Status.DEAD_LETTER,)), []),
        (Facets(queue="nobody's", tag="t"), []),
    ):
        store.row_count = 0
        page = state.list_jobs_of(facets, limit=10, descending=descending)
        assert [job for _, job in page.items] == (matching[::-1] if descending else matching), facets
        assert not page.next_cursor
        assert store.row_count <= 300, facets


def test_a_transition_touches_lists_only_where_a_job_ends_or_moves() -> None:
    submitted = make_job(1, name="mail", queue="mail", tags=("eu", "eu", "urgent"))
    assert facet_groups(submitted) == (
        keys.facet_group(FacetKind.QUEUE_AND_NAME, "mail", 0),
        keys.facet_group(FacetKind.TAG, "eu", 0),
        keys.facet_group(FacetKind.TAG, "urgent", 0),
    )
    assert facet_groups(running(submitted)) == facet_groups(submitted)
    assert facet_groups(scheduled(1, NOW_MS, name="mail", queue="mail", tags=submitted.spec.tags)) == facet_groups(
        submitted
    )
    assert set(facet_groups(finished(submitted))).isdisjoint(facet_groups(submitted))
    assert len(facet_groups(make_job(1, name="mail", queue="other"))) == 2
    assert facet_groups(None) == ()


def test_keys_of_lists_can_be_read_back_and_sort_like_what_they_stand_for() -> None:
    entries = sorted(
        (kind, value, ended, job_id(number))
        for kind in FacetKind
        for value in ("a", "a\0", "ab", "é", "")
        for ended in (0, Status.COMPLETED)
        for number in (1, 2)
    )
    found = [keys.facet_group(kind, value, ended) + identity for kind, value, ended, identity in entries]
    assert found == sorted(found)
    assert [tuple(keys.read_facet_key(key)) for key in found] == entries


@pytest.mark.parametrize("after", [b"x", b"x" * 15, b"x" * 17])
def test_an_impossible_cursor_of_a_list_is_refused_by_name(state: State, after: bytes) -> None:
    with pytest.raises(Invalid) as refused:
        state.list_jobs_of(Facets(queue="q"), after=after, limit=1)
    assert refused.value.field == "cursor"


def test_the_ends_of_all_ids_are_no_trap(store: Store) -> None:
    state = State(store)
    jobs = [make_job(1, id=identity, queue="q") for identity in (JobId(LOWEST_ID), JobId(HIGHEST_ID))]
    submit(state, *jobs)
    for descending in (False, True):
        order = jobs[::-1] if descending else jobs
        assert walk(state, Facets(queue="q"), limit=1, descending=descending) == order


def test_a_job_that_goes_leaves_no_entry(store: Store) -> None:
    state = State(store)
    job = make_job(1, tags=("eu",), name="a")
    submit(state, job)
    amended = make_job(1, tags=("us",), name="a", queue="b")
    ended = finished(amended, at_ms=TimeMs(NOW_MS + 1))
    state.execute([PutJob(job, amended), PutJob(amended, ended)])
    assert [tuple(entry) for entry in state.all_facets()] == [
        (FacetKind.QUEUE, "b", Status.COMPLETED, job.id),
        (FacetKind.NAME, "a", Status.COMPLETED, job.id),
        (FacetKind.TAG, "us", Status.COMPLETED, job.id),
    ]
    state.execute([RemoveJob(ended)])
    assert list(state.all_facets()) == []
