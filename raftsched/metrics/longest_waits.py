"""Find the longest wait of many queues that are not paused, a bounded number of them at a time.

Queues that share a label may be ten thousand, and each costs a look into the ready index. So each call reads the next
`limits.METRIC_QUEUES_READ_MAX` of them, and remembers for each the due time of its longest-due job. The answer is the
earliest of these that is still true, and at most as many are tried. It is never too long a wait, and the longest one
after a full round.
"""

from __future__ import annotations

from collections.abc import Container
from heapq import nsmallest
from itertools import chain, islice
from operator import itemgetter

from raftsched import limits
from raftsched.leader.dispatch.depths import oldest_wait_ms
from raftsched.storage.reader import StateReader


class LongestWaits:
    """The longest-due jobs of the queues that share a label."""

    def __init__(self) -> None:
        self._due_ms: dict[str, int] = {}
        """Due time of the longest-due job of each queue in which one waited, as of its latest look."""
        self._after = ""
        """The queue that was looked at last."""

    def longest_ms(self, state: StateReader, named: Container[str], now_ms: int) -> int:
        """Return the longest wait in the queues that are not `named`, as far as it is known; 0 = none waits."""
        rest = chain(state.used_queues(after=self._after), state.used_queues())
        for queue in islice(rest, limits.METRIC_QUEUES_READ_MAX):
            self._after = queue
            if queue not in named:
                self._look(state, queue, now_ms)
        longest_ms = 0
        for queue, due_ms in nsmallest(limits.METRIC_QUEUES_READ_MAX, self._due_ms.items(), key=itemgetter(1)):
            found_ms = self._look(state, queue, now_ms)
            longest_ms = max(longest_ms, 0 if found_ms is None else now_ms - found_ms)
            if found_ms == due_ms:
                break  # the others are due later
        return longest_ms

    def _look(self, state: StateReader, queue: str, now_ms: int) -> int | None:
        """Return the due time of the queue's longest-due job now; None if none waits."""
        settings = state.queue(queue)
        is_paused = settings is not None and settings.paused
        wait_ms = 0 if is_paused else oldest_wait_ms(state, queue, now_ms)
        if not wait_ms:
            self._due_ms.pop(queue, None)
            return None
        self._due_ms[queue] = now_ms - wait_ms
        return now_ms - wait_ms
