"""Join operations that arrive together into one log entry, and return each caller its own result.

An idle proposer sends at once, without a delay. While entries are in flight, later operations wait for the next one, so
the batch grows with the load. At most `limits.ENTRIES_IN_FLIGHT_MAX` entries are in flight, each with at most
`limits.ENTRY_OPERATIONS_MAX` operations and about `limits.ENTRY_BYTES_MAX` bytes. Tenants take turns in it
(`waiting_operations`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from raftsched import limits
from raftsched.consensus.waiting_operations import WaitingOperation, WaitingOperations
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import encode_batch
from raftsched.core.records.ids import TimeMs
from raftsched.core.records.origin import Origin
from raftsched.core.state.results import Result
from raftsched.errors import NotLeader, Unavailable, UpgradeInProgress
from raftsched.histogram import DISK_BUCKETS, Histogram

NoteSilence = Callable[[TimeMs, TimeMs], Operation | None]
"""Return the operation that must precede the second of two consecutive entries, given their stamps; or None."""


class Proposer:
    """Proposes operations on the leader.

    `propose_entry` adds an encoded entry to the log and returns a future of the results of its operations, in order.
    `now_ms` returns the leader's stamp; if it raises `Unavailable`, nothing is proposed. `version` is the version of
    entries that the leader may write (`entry_versions.py`): operations of a later version are rejected.
    """

    def __init__(
        self,
        *,
        propose_entry: Callable[[bytes], asyncio.Future[Any]],
        now_ms: Callable[[], TimeMs],
        version: Callable[[], int],
    ) -> None:
        self._propose_entry = propose_entry
        self._now_ms = now_ms
        self._version = version
        self._waiting = WaitingOperations()
        self._in_flight = 0
        self._scheduled = False
        self._preface: Operation | None = None
        self._note_silence: NoteSilence | None = None
        self._stamped_ms: TimeMs | None = None
        """Stamp of the latest entry since `begin_with`."""
        self._loop = asyncio.get_running_loop()
        self.commit_seconds = Histogram(DISK_BUCKETS)
        """Times from proposing an entry until it was committed and applied."""

    def begin_with(self, preface: Operation | None, note_silence: NoteSilence | None = None) -> None:
        """Put `preface` in front of each entry until one is committed, so that no operation precedes it.

        After that `note_silence` returns the preface of each entry, given the stamp of the previous one. Results of
        prefaces are dropped, and a preface may be applied more than once.

        Call it when this node begins to lead, and without a preface when it no longer does. Operations that still wait
        are refused with `NotLeader`. They were decided in an earlier term, and its leader may have known less: it could
        end leases by a cause that this term knows to be wrong (seed 198).
        """
        _fail(self._waiting.clear(), NotLeader())
        self._preface = preface
        self._note_silence = note_silence
        self._stamped_ms = None

    def propose(self, operation: Operation, origin: Origin | None = None) -> asyncio.Future[Result]:
        """Propose the operation, and return the future of its result, set once it is committed and applied.

        `origin` is that of its request.

        The future raises `NotLeader`, `UpgradeInProgress` or `Unavailable` if the operation is certainly not in the
        log, and `OutcomeUnknown` if that is unknown. Cancelling the future does not cancel the operation.
        """
        future: asyncio.Future[Result] = self._loop.create_future()
        if not self._waiting.add((operation, future, origin)):
            future.set_exception(Unavailable("too many writes are waiting; retry in a moment"))
            return future
        if not self._scheduled and self._in_flight < limits.ENTRIES_IN_FLIGHT_MAX:
            self._scheduled = True
            self._loop.call_soon(self._send)
        return future

    def _send(self) -> None:
        self._scheduled = False
        while self._waiting and self._in_flight < limits.ENTRIES_IN_FLIGHT_MAX:
            self._send_entry()

    def _send_entry(self) -> None:
        try:
            stamp_ms = self._now_ms()
        except Unavailable as error:
            _fail(self._waiting.take(limits.ENTRY_OPERATIONS_MAX, limits.ENTRY_BYTES_MAX), error)
            return
        preface = self._preface_of(stamp_ms)
        version = self._version()
        taken = self._waiting.take(limits.ENTRY_OPERATIONS_MAX - (preface is not None), limits.ENTRY_BYTES_MAX)
        taken = _without_later_ones(taken, version)
        if not taken:
            return
        operations = tuple(operation for operation, _, _ in taken)
        origins = tuple(origin for _, _, origin in taken)
        if preface is not None:
            operations, origins = (preface, *operations), (None, *origins)
        entry = encode_batch(stamp_ms, operations, version=version, origins=origins)
        began = self._loop.time()
        done = self._propose_entry(entry)
        self._stamped_ms = stamp_ms
        self._in_flight += 1
        done.add_done_callback(lambda finished: self._finish(taken, finished, preface, began))

    def _preface_of(self, stamp_ms: TimeMs) -> Operation | None:
        if self._preface is not None or self._stamped_ms is None or self._note_silence is None:
            return self._preface
        return self._note_silence(self._stamped_ms, stamp_ms)

    def _finish(
        self, taken: list[WaitingOperation], done: asyncio.Future[Any], preface: Operation | None, began: float
    ) -> None:
        self._in_flight -= 1
        error = done.exception() if not done.cancelled() else Unavailable("the node is stopping")
        if error is None:
            self.commit_seconds.observe(self._loop.time() - began)
            results = done.result()
            if preface is not None:
                results = results[1:]
                self._preface = None if self._preface is preface else self._preface
            for (_, future, _), result in zip(taken, results, strict=True):
                if not future.done():
                    future.set_result(result)
        else:
            _fail(taken, error)
        self._send()


def _without_later_ones(taken: list[WaitingOperation], version: int) -> list[WaitingOperation]:
    """Reject the operations that an entry of `version` cannot carry, and return the others."""
    if any(operation.since > version for operation, _, _ in taken):
        error = UpgradeInProgress("not all nodes of the cluster are upgraded yet; retry once they are")
        _fail([item for item in taken if item[0].since > version], error)
        taken = [item for item in taken if item[0].since <= version]
    return taken


def _fail(taken: Iterable[WaitingOperation], error: BaseException) -> None:
    for _, future, _ in taken:
        if not future.done():
            future.set_exception(error)
