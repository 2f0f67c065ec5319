"""The statuses that users see are those of the records, in the same groups."""

from __future__ import annotations

from collections.abc import Iterable

from raftsched.cli.terminal.statuses import STATUSES
from raftsched.core.records import job
from raftsched.core.records.job import Status
from raftsched.wire.common import FINISHED, LEASED, STATUS_NAMES, UNLEASED
from raftsched.wire.queues import QueueReply


def _labels(statuses: Iterable[Status]) -> set[str]:
    return {status.label for status in statuses}


def test_statuses_are_named_and_grouped_as_in_the_records() -> None:
    assert set(STATUS_NAMES) == _labels(Status)
    assert set(UNLEASED) == _labels(job.WAITING | job.PARKED)
    assert set(LEASED) == _labels(job.LEASED)
    assert _labels(job.FINISHED) == FINISHED


def test_statuses_have_a_count_in_queues_and_a_row_in_the_terminal() -> None:
    assert _labels(Status) <= set(QueueReply.__struct_fields__)
    assert STATUSES.keys() == _labels(Status) - {"failed"}
