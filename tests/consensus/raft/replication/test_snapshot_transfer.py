"""The pace of a snapshot: it uses what a link carries, delays heartbeats by little, and repeats little."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from random import Random

from chaos.drills.backends.quality import Link, Quality
from raftsched import limits
from raftsched.consensus.raft.replication.snapshot_transfer import STALL_SECONDS_MAX, Transfer

SIZE = 16 * 1024 * 1024
PATIENCE_SECONDS = 0.25
STEP_SECONDS = 0.05


@dataclass(slots=True)
class Carried:
    seconds: float
    sent_bytes: int
    delay_seconds: float
    """The longest time for which a heartbeat would have waited."""


def carry(quality: Quality, *, size: int = SIZE) -> Carried:
    """Send a copy over a link, with acknowledgements that come back as slowly as its delay is."""
    transfer = Transfer(
        chunk_bytes=limits.SNAPSHOT_CHUNK_BYTES,
        window_chunks_max=limits.SNAPSHOT_WINDOW_CHUNKS,
        patience_seconds=PATIENCE_SECONDS,
    )
    link, now, held, carried = Link(quality, Random(1)), 0.0, 0, Carried(0.0, 0, 0.0)
    answers: list[tuple[float, int, int]] = []
    while transfer.acknowledged < size:
        for offset, length in transfer.due(size, now):
            (arrival,) = link.arrivals(length, now)
            heapq.heappush(answers, (arrival + quality.delay_ms / 1000, offset, length))
            carried.sent_bytes += length
        carried.delay_seconds = max(carried.delay_seconds, link.backlog_seconds(now))
        now = min([now + STEP_SECONDS, *(at for at, _, _ in answers[:1])])
        while answers and answers[0][0] <= now:
            _, offset, length = heapq.heappop(answers)
            held = offset + length if offset == held else held
            transfer.acknowledge(held, now)
    carried.seconds = now
    return carried


def test_a_narrow_link_is_used_without_repetitions_and_without_delaying_heartbeats_for_long() -> None:
    for bytes_per_second in (100_000, 500_000, 5_000_000):
        carried = carry(Quality(delay_ms=20, bytes_per_second=bytes_per_second))
        assert carried.seconds < 1.25 * SIZE / bytes_per_second + 1, (bytes_per_second, carried)
        assert carried.sent_bytes == SIZE, (bytes_per_second, carried)
        chunk_seconds = limits.SNAPSHOT_CHUNK_BYTES / bytes_per_second
        assert carried.delay_seconds <= 2 * max(PATIENCE_SECONDS, chunk_seconds), (bytes_per_second, carried)


def test_a_link_slower_than_a_chunk_a_second_makes_headway() -> None:
    carried = carry(Quality(bytes_per_second=20_000), size=1024 * 1024)
    assert carried.seconds < 4 * 1024 * 1024 / 20_000, carried


def test_a_long_fast_link_is_filled() -> None:
    carried = carry(Quality(delay_ms=100), size=8 * SIZE)
    assert carried.seconds < 10, carried  # 128 MiB, 4 MiB per round trip once it is warm


def test_silence_repeats_one_chunk_ever_more_seldom_until_an_answer() -> None:
    transfer = Transfer(chunk_bytes=10, window_chunks_max=8, patience_seconds=PATIENCE_SECONDS)
    assert list(transfer.due(100, 0.0)) == [(0, 10)]
    moments = [now / 10 for now in range(1, 200) if list(transfer.due(100, now / 10))]
    assert moments == [1.0, 3.0, 7.0, 11.0, 15.0, 19.0]
    assert moments[-1] - moments[-2] == STALL_SECONDS_MAX
    transfer.acknowledge(10, 19.5)
    assert list(transfer.due(100, 19.5)) == [(10, 10)]
    assert list(transfer.due(100, 23.4)) == []
    assert list(transfer.due(100, 23.5)) == [(10, 10)]
