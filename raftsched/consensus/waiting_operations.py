"""Hold the operations that wait for a log entry, so that no tenant's submissions delay those of others.

Submissions wait in a lane for each tenant, all other operations in one lane of their own. Lanes take turns (surplus round
robin): a turn gives operations until `_TURN_BYTES` are used, and what exceeds that is taken from the lane's next turns.
The lane of all other operations has as many bytes as those of the tenants together: workers and operators wait for none
of them. Within a lane, operations are first in, first out.

Too many operations are refused where they come from: a lane with less than its share of `limits.PROPOSALS_WAITING_MAX`
still takes some, up to twice that number in all.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from typing import Final

from raftsched import limits
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import LeaseJobs, RecordOutcome, SubmitJob, SubmitWorkflow
from raftsched.core.records.origin import Origin
from raftsched.core.state.results import Result

WaitingOperation = tuple[Operation, "asyncio.Future[Result]", Origin | None]
_OPERATION_BYTES: Final = 256
"""Approximate size of an operation without its payload or result."""
_TURN_BYTES: Final = 16 * _OPERATION_BYTES
_OTHERS: Final = ""
"""The lane of operations that are no submissions; no tenant has this name."""


class _Lane:
    __slots__ = ("credit", "items")

    def __init__(self) -> None:
        self.items: deque[WaitingOperation] = deque()
        self.credit = 0
        """Bytes that are left of its turns; below zero if a large operation used more."""


class WaitingOperations:
    """Operations with the futures of their results and their origins, until they are taken for an entry."""

    def __init__(self) -> None:
        self._lanes: OrderedDict[str, _Lane] = OrderedDict()
        """In the order of their turns; none is empty."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, item: WaitingOperation) -> bool:
        """Add an operation; return False if too many wait, of its tenant or in all."""
        operation = item[0]
        name = operation.tenant if isinstance(operation, SubmitJob | SubmitWorkflow) else _OTHERS
        lane = self._lanes.get(name)
        if self._count >= limits.PROPOSALS_WAITING_MAX and self._is_refused(lane):
            return False
        if lane is None:
            lane = self._lanes[name] = _Lane()
        lane.items.append(item)
        self._count += 1
        return True

    def _is_refused(self, lane: _Lane | None) -> bool:
        count_max = limits.PROPOSALS_WAITING_MAX
        share = count_max // (len(self._lanes) + (lane is None))
        return self._count >= 2 * count_max or (lane is not None and len(lane.items) >= share)

    def take(self, count_max: int, bytes_max: int) -> list[WaitingOperation]:
        """Remove up to `count_max` operations, until they have about `bytes_max`; the last may exceed that."""
        taken: list[WaitingOperation] = []
        lanes = self._lanes
        while lanes and len(taken) < count_max and bytes_max > 0:
            name, lane = next(iter(lanes.items()))
            if len(lanes) == 1:
                lane.credit = bytes_max
            elif lane.credit <= 0:
                lane.credit += _TURN_BYTES * (len(lanes) - 1 if name == _OTHERS else 1)
            items = lane.items
            while items and lane.credit > 0 and len(taken) < count_max and bytes_max > 0:
                item = items.popleft()
                size = _size(item[0])
                lane.credit -= size
                bytes_max -= size
                taken.append(item)
            if not items:
                del lanes[name]
            elif lane.credit <= 0:
                lanes.move_to_end(name)
        self._count -= len(taken)
        return taken

    def clear(self) -> list[WaitingOperation]:
        """Remove all operations, and return them."""
        items = [item for lane in self._lanes.values() for item in lane.items]
        self._lanes.clear()
        self._count = 0
        return items


def _size(operation: Operation) -> int:
    if isinstance(operation, SubmitJob):
        return _OPERATION_BYTES + len(operation.payload)
    if isinstance(operation, RecordOutcome):
        return _OPERATION_BYTES + len(operation.result)
    if isinstance(operation, LeaseJobs):
        return _OPERATION_BYTES + 20 * len(operation.job_ids)
    if isinstance(operation, SubmitWorkflow):
        return sum(map(_size, operation.jobs))
    return _OPERATION_BYTES
