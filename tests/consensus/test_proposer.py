"""Operations that arrive together share an entry; each caller hears its own result."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raftsched import limits
from raftsched.consensus.proposer import Proposer
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import (
    CODEC_VERSION,
    Batch,
    CancelJob,
    PurgeJobs,
    RecordOutage,
    SubmitJob,
    decode_batch,
)
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.retry import RetryPolicy
from raftsched.core.records.spec import JobSpec
from raftsched.errors import NotLeader, OutcomeUnknown, Unavailable, UpgradeInProgress

_PREFACE = RecordOutage(TimeMs(1), 2)


class _Log:
    """Entries proposed so far, each to be finished by hand."""

    def __init__(self) -> None:
        self.entries: list[Batch] = []
        self.futures: list[asyncio.Future[Any]] = []
        self.version = CODEC_VERSION
        self.now_ms = TimeMs(77)
        self.proposer = Proposer(propose_entry=self._propose, now_ms=lambda: self.now_ms, version=lambda: self.version)

    def _propose(self, entry: bytes) -> asyncio.Future[Any]:
        self.entries.append(decode_batch(entry, reads=CODEC_VERSION + 1))
        self.futures.append(asyncio.get_running_loop().create_future())
        return self.futures[-1]

    def commit(self, number: int) -> None:
        self.futures[number].set_result([operation.job_id for operation in _cancels(self.entries[number])])


def _cancels(batch: Batch) -> list[CancelJob]:
    return [operation for operation in batch.operations if isinstance(operation, CancelJob)]


def _cancel(number: int) -> Operation:
    return CancelJob(JobId(number.to_bytes(16, "big")), "t")


async def _settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_operations_of_one_moment_share_an_entry_and_get_their_own_results() -> None:
    log = _Log()
    futures = [log.proposer.propose(_cancel(number)) for number in range(10)]
    await _settle()
    assert [len(entry.operations) for entry in log.entries] == [10]
    assert log.entries[0].stamp_ms == 77
    log.commit(0)
    answers: list[object] = list(await asyncio.gather(*futures))
    assert answers == [number.to_bytes(16, "big") for number in range(10)]


async def test_operations_wait_for_the_next_entry_while_enough_are_in_flight() -> None:
    log = _Log()
    for number in range(limits.ENTRIES_IN_FLIGHT_MAX):
        log.proposer.propose(_cancel(number))
        await _settle()
    late = [log.proposer.propose(_cancel(100 + number)) for number in range(5)]
    await _settle()
    assert len(log.entries) == limits.ENTRIES_IN_FLIGHT_MAX
    log.commit(0)
    await _settle()
    assert len(log.entries[-1].operations) == 5
    log.commit(len(log.entries) - 1)
    assert len(await asyncio.gather(*late)) == 5


async def test_entries_are_bounded_in_operations_and_bytes() -> None:
    log = _Log()
    for number in range(limits.ENTRY_OPERATIONS_MAX + 1):
        log.proposer.propose(_cancel(number))
    await _settle()
    assert [len(entry.operations) for entry in log.entries] == [limits.ENTRY_OPERATIONS_MAX, 1]
    log.commit(0)
    log.commit(1)
    await _settle()
    payload = b'"' + b"x" * (limits.PAYLOAD_BYTES_MAX - 2) + b'"'
    for number in range(6):
        job_id = JobId(number.to_bytes(16, "big"))
        log.proposer.propose(SubmitJob(job_id, "t", JobSpec("n", "q", 5, 1, 0, RetryPolicy()), TimeMs(0), payload))
    await _settle()
    assert [len(entry.operations) for entry in log.entries[2:]] == [4, 2]


@pytest.mark.parametrize("error", [NotLeader("n2"), Unavailable("no"), OutcomeUnknown("who knows")])
async def test_a_failed_entry_fails_each_of_its_operations_alike(error: Exception) -> None:
    log = _Log()
    futures = [log.proposer.propose(_cancel(number)) for number in range(3)]
    await _settle()
    log.futures[0].set_exception(error)
    for future in futures:
        with pytest.raises(type(error)):
            await future


async def test_operations_that_cannot_be_stamped_are_refused_and_the_next_are_not() -> None:
    log = _Log()
    stamps: list[TimeMs] = []

    def stamp() -> TimeMs:
        if not stamps:
            raise Unavailable("no clock")
        return stamps.pop()

    proposer = Proposer(propose_entry=log._propose, now_ms=stamp, version=lambda: CODEC_VERSION)
    refused = [proposer.propose(_cancel(number)) for number in range(3)]
    await _settle()
    for future in refused:
        with pytest.raises(Unavailable, match="no clock"):
            await future
    stamps.append(TimeMs(78))
    accepted = proposer.propose(_cancel(4))
    await _settle()
    log.commit(0)
    await accepted
    assert [(entry.stamp_ms, len(entry.operations)) for entry in log.entries] == [(78, 1)]


async def test_an_entry_is_written_in_the_version_that_the_leader_may_write() -> None:
    log = _Log()
    log.proposer.propose(_cancel(1))
    await _settle()
    log.version += 1
    log.proposer.propose(_cancel(2))
    await _settle()
    assert [entry.version for entry in log.entries] == [CODEC_VERSION, CODEC_VERSION + 1]


async def test_an_operation_of_a_later_version_is_refused_until_all_nodes_are_upgraded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(PurgeJobs, "since", CODEC_VERSION + 1)
    log = _Log()
    purge = PurgeJobs((), TimeMs(1))
    alone = log.proposer.propose(purge)
    await _settle()
    with pytest.raises(UpgradeInProgress):
        await alone
    assert not log.entries

    old, new = log.proposer.propose(_cancel(1)), log.proposer.propose(purge)
    await _settle()
    with pytest.raises(UpgradeInProgress):
        await new
    log.commit(0)
    await old
    assert [entry.operations for entry in log.entries] == [(_cancel(1),)]

    log.version += 1
    log.proposer.propose(purge)
    await _settle()
    assert log.entries[-1].operations == (purge,)


async def test_a_caller_that_went_away_disturbs_nobody() -> None:
    log = _Log()
    gone, here = log.proposer.propose(_cancel(1)), log.proposer.propose(_cancel(2))
    await _settle()
    gone.cancel()
    log.commit(0)
    answer: object = await here
    assert answer == JobId((2).to_bytes(16, "big"))


async def test_too_many_waiting_operations_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PROPOSALS_WAITING_MAX", 3)
    log = _Log()
    futures = [log.proposer.propose(_cancel(number)) for number in range(4)]
    with pytest.raises(Unavailable, match="too many"):
        await futures[3]
    assert not any(future.done() for future in futures[:3])


async def test_preface_stands_in_front_of_every_entry_until_one_is_committed() -> None:
    log = _Log()
    log.proposer.begin_with(_PREFACE)
    for number in range(2):
        future = log.proposer.propose(_cancel(number))
        await _settle()
        if number == 0:
            log.futures[0].set_exception(Unavailable("no room"))
            with pytest.raises(Unavailable):
                await future
    log.futures[1].set_result([None, "mine"])
    answer: object = await future
    assert answer == "mine"
    log.proposer.propose(_cancel(2))
    await _settle()
    assert [entry.operations.index(_cancel(number)) for number, entry in enumerate(log.entries)] == [1, 1, 0]
    assert [entry.operations[0] for entry in log.entries[:2]] == [_PREFACE, _PREFACE]
    log.proposer.begin_with(_PREFACE)
    many = [log.proposer.propose(_cancel(number)) for number in range(limits.ENTRY_OPERATIONS_MAX)]
    await _settle()
    assert [len(entry.operations) for entry in log.entries[3:]] == [limits.ENTRY_OPERATIONS_MAX, 2]
    for waiting in many:
        waiting.cancel()


async def test_operations_that_still_wait_when_a_term_begins_or_ends_are_refused() -> None:
    """An expiry that was decided before an outage was known must not follow the note of it (seed 198)."""
    log = _Log()
    for preface in (_PREFACE, None):
        in_flight = []
        for number in range(limits.ENTRIES_IN_FLIGHT_MAX):
            in_flight.append(log.proposer.propose(_cancel(number)))
            await _settle()
        late = log.proposer.propose(_cancel(100))
        log.proposer.begin_with(preface)
        with pytest.raises(NotLeader):
            await late
        assert not any(future.done() for future in in_flight), "what is in the log may be committed yet"
        for entry in log.futures:
            if not entry.done():
                entry.set_exception(OutcomeUnknown("the lead is lost"))
        await asyncio.gather(*in_flight, return_exceptions=True)
    await _settle()
    assert not any(_cancel(100) in entry.operations for entry in log.entries)


async def test_an_entry_long_after_the_one_before_begins_with_the_note_of_it() -> None:
    """However far time steps between two stamps, nothing is between them without the note."""
    log = _Log()
    asked: list[tuple[int, int]] = []

    def note(since_ms: TimeMs, now_ms: TimeMs) -> Operation | None:
        asked.append((since_ms, now_ms))
        return RecordOutage(since_ms, 10) if now_ms - since_ms > 10 else None

    log.proposer.begin_with(None, note)
    for number, now_ms in enumerate((100, 110, 5_000, 5_001)):
        log.now_ms = TimeMs(now_ms)
        future = log.proposer.propose(_cancel(number))
        await _settle()
        log.futures[number].set_result([None, number] if now_ms == 5_000 else [number])
        answer: object = await future
        assert answer == number
    assert asked == [(100, 110), (110, 5_000), (5_000, 5_001)]
    assert [entry.operations[0] == RecordOutage(TimeMs(110), 10) for entry in log.entries] == [
        False,
        False,
        True,
        False,
    ]
