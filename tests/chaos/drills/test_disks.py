"""Logs that were compacted, or replaced by a snapshot, are read back as far as any disk has them."""

from __future__ import annotations

from chaos.checkers.history.events import AnyEvent, Applied, Durable, FinalState
from chaos.drills.history.disks import NodeDisk, ReadBack, read_back
from raftsched.consensus.journal.journal import BASE_COMMAND

T = 5
NO_OPERATION = BASE_COMMAND + b"\0"


def _disk(node: str, first: int, last: int, applied: int, *, is_from_snapshot: bool = False) -> NodeDisk:
    entries = [(NO_OPERATION, index, 1) for index in range(first, last + 1)]
    if is_from_snapshot:
        entries[0] = (BASE_COMMAND, first, 1)
    return NodeDisk(node, entries, FinalState(t=T, node=node, index=applied, state="", jobs={}, overdue={}))


def _indexes(found: ReadBack, kind: type[Applied | Durable], node: str) -> list[int]:
    events: list[AnyEvent] = found.events
    return [event.index for event in events if isinstance(event, kind) and event.node == node]


def test_a_log_that_was_cut_is_continued_backward_and_its_state_holds_what_it_has_no_more() -> None:
    whole, cut = _disk("n1", 1, 5, 5), _disk("n2", 4, 8, 7, is_from_snapshot=True)
    found = read_back([whole, cut], t=T, applied_at={})
    assert found.is_whole
    assert set(found.digests) == {5, 7}
    assert _indexes(found, Durable, "n1") == [2, 3, 4, 5]
    assert _indexes(found, Durable, "n2") == [2, 3, 4, 5, 6, 7, 8]
    assert _indexes(found, Applied, "n2") == [5, 6, 7]
    differing = {
        event.digest for event in found.events if isinstance(event, Durable) and event.index == cut.first_index
    }
    assert len(differing) == 1


def test_logs_with_a_gap_between_them_are_not_whole() -> None:
    assert not read_back([_disk("n1", 1, 3, 3), _disk("n2", 5, 8, 7)], t=T, applied_at={}).is_whole
    assert not read_back([], t=T, applied_at={}).is_whole
