"""Lists: every job exactly once, in a stable order, whatever is added and removed on the way (case A10)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import pytest

from raftsched import limits
from raftsched.core.records.ids import JobId
from raftsched.core.records.job import Job, Status
from raftsched.core.records.schedule import ScheduleId
from raftsched.core.records.spec import Options
from raftsched.core.state.writes import RemoveJob
from raftsched.errors import Invalid
from raftsched.storage.state import State
from raftsched.storage.store.port import Store
from raftsched.storage.tables.facets import Facets
from raftsched.storage.tables.pages import page_by_status
from tests.storage.jobs import NOW_MS, blocked, finished, job_id, make_job, paused, running, scheduled, submit


def walk(
    state: State, status: Status, *, limit: int, descending: bool = False, meanwhile: Callable[[], None] = lambda: None
) -> Iterator[Job]:
    """All pages of a status."""
    cursor = b""
    while True:
        page = state.list_jobs_by_status(status, now_ms=NOW_MS, after=cursor, limit=limit, descending=descending)
        assert len(page.items) <= limit
        yield from (job for _, job in page.items)
        cursor = page.next_cursor
        if not cursor:
            return
        meanwhile()


def fill(state: State) -> dict[Status, list[Job]]:
    """A few jobs of every status over several queues and priorities; returns them by what users see, in list order."""
    jobs = [make_job(n, queue=f"q{n % 3}", tenant=f"t{n % 2}", priority=n % 4, due_at_ms=NOW_MS - n) for n in range(40)]
    future = [scheduled(n, NOW_MS + 1 + n % 7, queue=f"q{n % 3}", priority=n % 4) for n in range(40, 60)]
    retried = [make_job(n, status=Status.RETRYING, timed=True, due_at_ms=NOW_MS + 1 + n % 5) for n in range(60, 70)]
    overdue = [scheduled(n, NOW_MS - n + 70, queue="q1") for n in range(70, 75)]
    leased = [running(make_job(n)) for n in range(75, 85)]
    cancelling = [make_job(n, status=Status.CANCELLING) for n in range(85, 90)]
    completed = [finished(make_job(n), at_ms=NOW_MS - n % 4) for n in range(90, 110)]
    dead = [finished(make_job(n), Status.DEAD_LETTER, NOW_MS - n % 4) for n in range(110, 115)]
    parked = [paused(make_job(n)) for n in range(115, 125)]
    for_parents = [make_job(n, status=Status.WAITING_DEPENDENCIES, due_at_ms=n) for n in range(125, 130)]
    skipped = [finished(make_job(n), Status.SKIPPED, NOW_MS + n % 2) for n in range(130, 134)]
    kept_back = [blocked(make_job(n, queue=f"q{n % 2}", priority=n % 3), f"k{n % 2}") for n in range(134, 150)]
    submit(state, *jobs, *future, *retried, *overdue, *leased, *cancelling, *completed, *dead)
    submit(state, *parked, *for_parents, *skipped, *kept_back)
    return {
        Status.QUEUED: [*sorted(jobs + overdue, key=_place), *sorted(kept_back, key=_blocked_place)],
        Status.SCHEDULED: sorted(future, key=lambda job: (job.due_at_ms, job.id)),
        Status.RETRYING: sorted(retried, key=lambda job: (job.due_at_ms, job.id)),
        Status.RUNNING: leased,
        Status.CANCELLING: cancelling,
        Status.COMPLETED: sorted(completed, key=lambda job: (job.finished_at_ms, job.id)),
        Status.DEAD_LETTER: sorted(dead, key=lambda job: (job.finished_at_ms, job.id)),
        Status.CANCELLED: [],
        Status.PAUSED: parked,
        Status.WAITING_DEPENDENCIES: for_parents,
        Status.SKIPPED: sorted(skipped, key=lambda job: (job.finished_at_ms, job.id)),
    }


def _place(job: Job) -> tuple[str, str, int, int, JobId]:
    return job.spec.queue, job.tenant, -job.spec.priority, job.due_at_ms, job.id


def _blocked_place(job: Job) -> tuple[str, str, int, int, JobId]:
    assert job.spec.options is not None
    return job.spec.queue, job.spec.options.concurrency_key, -job.spec.priority, job.due_at_ms, job.id


@pytest.mark.parametrize("limit", [1, 7, 1_000])
@pytest.mark.parametrize("descending", [False, True])
def test_list_by_status_shows_what_users_see_in_index_order(state: State, limit: int, *, descending: bool) -> None:
    for status, expected in fill(state).items():
        found = list(walk(state, status, limit=limit, descending=descending))
        assert found == (expected[::-1] if descending else expected), status.label


@pytest.mark.parametrize("limit", [1, 7, 1_000])
@pytest.mark.parametrize("descending", [False, True])
def test_list_by_status_continues_after_any_item(state: State, limit: int, *, descending: bool) -> None:
    """The cursor beside an item serves a caller that filters and stops in the middle of a page."""
    for status in fill(state):
        everything = list(walk(state, status, limit=1_000, descending=descending))
        page = state.list_jobs_by_status(status, now_ms=NOW_MS, limit=limit, descending=descending)
        for number, (cursor, _) in enumerate(page.items, 1):
            following = state.list_jobs_by_status(
                status, now_ms=NOW_MS, after=cursor, limit=1_000, descending=descending
            )
            assert [job for _, job in following.items] == everything[number:]


@pytest.mark.parametrize("descending", [False, True])
def test_list_by_id_walks_all_jobs_by_age(state: State, *, descending: bool) -> None:
    expected = sorted((job for jobs in fill(state).values() for job in jobs), key=lambda job: job.id)
    found: list[Job] = []
    while page := state.list_jobs(after=found[-1].id if found else None, limit=9, descending=descending):
        found += page
    assert found == (expected[::-1] if descending else expected)


class Churn:
    """Jobs that come and go before, at and behind the cursor; `stable` ones stay as they are."""

    def __init__(self, state: State, seed: int) -> None:
        self._state = state
        self._random = Random(seed)
        self._passing = [make_job(number) for number in range(1, 20_000, 2)]
        self._random.shuffle(self._passing)
        self.stable = {job_id(number) for number in range(0, 20_000, 2)}
        submit(state, *(make_job(number) for number in range(0, 20_000, 2)))
        self._present: list[Job] = []
        for _ in range(20):
            self.step()

    def step(self) -> None:
        """100 come and 50 go."""
        arriving, self._passing = self._passing[:100], self._passing[100:]
        submit(self._state, *arriving)
        self._present += arriving
        self._random.shuffle(self._present)
        leaving, self._present = self._present[:50], self._present[50:]
        self._state.execute([RemoveJob(job) for job in leaving])


@pytest.mark.parametrize("descending", [False, True])
def test_paging_sees_each_stable_job_once_while_others_come_and_go(state: State, *, descending: bool) -> None:
    churn = Churn(state, seed=1)
    seen: list[JobId] = []
    while page := state.list_jobs(after=seen[-1] if seen else None, limit=250, descending=descending):
        seen += [job.id for job in page]
        churn.step()
    assert len(seen) == len(set(seen))
    assert churn.stable <= set(seen)
    by_status = [job.id for job in walk(state, Status.QUEUED, limit=250, descending=descending, meanwhile=churn.step)]
    assert len(by_status) == len(set(by_status))
    assert churn.stable <= set(by_status)


def test_paging_continues_where_the_job_at_the_cursor_is_gone(state: State) -> None:
    submit(state, *(make_job(number) for number in range(6)))
    page = state.list_jobs_by_status(Status.QUEUED, now_ms=NOW_MS, limit=3)
    state.execute([RemoveJob(page.items[-1][1])])
    following = state.list_jobs_by_status(Status.QUEUED, now_ms=NOW_MS, after=page.next_cursor, limit=9)
    assert [job.id for _, job in following.items] == [job_id(number) for number in (3, 4, 5)]


def test_a_page_examines_a_bounded_number_of_rows_and_still_leads_on(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SCAN_ROWS_MAX", 10)
    submit(state, *(scheduled(number, NOW_MS + 1) for number in range(100)))
    submit(state, make_job(100, status=Status.RETRYING, timed=True, due_at_ms=NOW_MS + 1))
    submit(state, *(scheduled(number, NOW_MS + 9, queue=f"later-{number}") for number in range(200, 225)))
    submit(state, make_job(300, queue="ready"))
    first = state.list_jobs_by_status(Status.QUEUED, now_ms=NOW_MS, limit=5)
    assert first.items == []
    assert first.next_cursor
    for descending in (False, True):
        assert [job.id for job in walk(state, Status.QUEUED, limit=5, descending=descending)] == [job_id(300)]


@pytest.mark.parametrize("descending", [False, True])
def test_a_list_by_status_examines_no_row_outside_it(
    state: State, monkeypatch: pytest.MonkeyPatch, *, descending: bool
) -> None:
    """However many jobs of other statuses and other queues there are: the first page has them, and is the last."""
    monkeypatch.setattr(limits, "SCAN_ROWS_MAX", 10)
    submit(state, *(scheduled(number, NOW_MS + number, queue=f"later-{number}") for number in range(1, 100)))
    submit(state, make_job(100, status=Status.RETRYING, timed=True, due_at_ms=NOW_MS + 50))
    submit(state, make_job(101, status=Status.RETRYING, queue="later-50x"))
    submit(state, scheduled(102, NOW_MS, queue="later-60x"), make_job(103, queue="later-70x"))
    expected = {Status.QUEUED: [101, 102, 103], Status.RETRYING: [100]}
    for status, numbers in expected.items():
        due = state.due_queues(NOW_MS)
        page = state.list_jobs_by_status(status, now_ms=NOW_MS, due_queues=due, limit=5, descending=descending)
        assert [job.id for _, job in page.items] == [job_id(number) for number in numbers][:: -1 if descending else 1]
        assert page.next_cursor == b""


def test_a_list_by_status_reads_no_record_of_a_job_outside_it(state: State, store: Store) -> None:
    loaded: list[JobId] = []

    def load(identity: JobId) -> Job:
        loaded.append(identity)
        return state._indexed_job(identity)

    jobs = fill(state)
    for status in (Status.QUEUED, Status.SCHEDULED, Status.RETRYING, Status.COMPLETED, Status.PAUSED):
        loaded.clear()
        page_by_status(store, load, status, now_ms=NOW_MS, after=b"", limit=1_000, descending=False)
        assert loaded == [job.id for job in jobs[status]], status.label


@pytest.mark.parametrize("descending", [False, True])
def test_the_later_jobs_of_one_queue_are_found_among_any_number_of_others(
    state: State, monkeypatch: pytest.MonkeyPatch, *, descending: bool
) -> None:
    """Neither rows of other queues nor those of its own jobs that are due are examined."""
    monkeypatch.setattr(limits, "SCAN_ROWS_MAX", 10)
    submit(state, *(scheduled(number, NOW_MS + 1, queue=f"q{number % 2}") for number in range(100)))
    submit(state, *(scheduled(number, NOW_MS - 9, queue="q", priority=number % 3) for number in range(100, 160)))
    mine = [scheduled(200 + n, NOW_MS + 9 - n, queue="q", priority=n % 3) for n in range(9)]
    submit(state, *mine)
    expected = sorted(mine, key=_place, reverse=descending)
    found: list[Job] = []
    cursor = b""
    while True:
        page = state.list_jobs_by_status(
            Status.SCHEDULED, now_ms=NOW_MS, queue="q", after=cursor, limit=4, descending=descending
        )
        found += [job for _, job in page.items]
        cursor = page.next_cursor
        if not cursor:
            break
        assert page.items, "only the last page may be empty"
    assert found == expected
    with pytest.raises(Invalid):
        state.list_jobs_by_status(Status.PAUSED, now_ms=NOW_MS, queue="q", limit=4)


@pytest.mark.parametrize("descending", [False, True])
def test_the_queued_jobs_of_one_queue_are_found_among_any_number_of_others(
    state: State, monkeypatch: pytest.MonkeyPatch, *, descending: bool
) -> None:
    """No row of another queue is examined, held or not."""
    monkeypatch.setattr(limits, "SCAN_ROWS_MAX", 10)
    submit(state, *(make_job(number, queue=f"q{number % 2}") for number in range(100)))
    submit(state, *(blocked(make_job(number, queue="q3"), f"k{number}") for number in range(100, 150)))
    mine = [make_job(200, queue="q"), blocked(make_job(201, queue="q"), "k"), make_job(202, queue="q", priority=9)]
    submit(state, *mine)
    page = state.list_jobs_by_status(Status.QUEUED, now_ms=NOW_MS, queue="q", limit=9, descending=descending)
    assert not page.next_cursor
    expected = [mine[2], mine[0], mine[1]]
    assert [job for _, job in page.items] == (expected[::-1] if descending else expected)
    first = state.list_jobs_by_status(Status.QUEUED, now_ms=NOW_MS, queue="q", limit=2, descending=descending)
    rest = state.list_jobs_by_status(
        Status.QUEUED, now_ms=NOW_MS, queue="q", after=first.next_cursor, limit=9, descending=descending
    )
    assert first.items + rest.items == page.items


def test_the_jobs_of_a_schedule_are_found_among_any_number_of_others(state: State) -> None:
    mine, other = ScheduleId(b"s" * 16), ScheduleId(b"t" * 16)
    submit(state, *(make_job(number) for number in range(30)))
    runs = [finished(make_job(number, options=Options(schedule_id=mine))) for number in range(30, 37)]
    submit(state, *runs, make_job(37, options=Options(schedule_id=other)))
    of_mine = Facets(schedule_id=mine)
    first = state.list_jobs_of(of_mine, limit=4)
    state.execute([RemoveJob(runs[3])])
    rest = state.list_jobs_of(of_mine, after=first.next_cursor, limit=4)
    assert [job for _, job in first.items + rest.items] == runs
    assert [job.id for _, job in state.list_jobs_of(of_mine, limit=2, descending=True).items] == [
        job_id(36),
        job_id(35),
    ]
    assert state.list_jobs_of(Facets(schedule_id=b"r" * 16), limit=9).items == []


@pytest.mark.parametrize("cursor", [b"\xff", b"\0", b"\xff" * 511, b"\0" * 511, b"ready\0", b"\xffq1", b"\xff\xff"])
def test_a_cursor_from_elsewhere_is_harmless(state: State, cursor: bytes) -> None:
    fill(state)
    for status in Status:
        for descending in (False, True):
            page = state.list_jobs_by_status(status, now_ms=NOW_MS, after=cursor, limit=5, descending=descending)
            assert all(job.status_at(NOW_MS) == status for _, job in page.items)
    assert len(state.list_jobs(after=cursor, limit=5)) <= 5


def test_an_impossible_cursor_is_refused_by_name(state: State) -> None:
    with pytest.raises(Invalid) as refused:
        state.list_jobs(after=b"x" * 512, limit=1)
    assert refused.value.field == "cursor"
    with pytest.raises(Invalid):
        state.list_jobs_by_status(Status.QUEUED, now_ms=NOW_MS, after=b"x" * 512, limit=1)
    assert state.list_jobs(limit=1) == []
