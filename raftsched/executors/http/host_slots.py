"""Share the slots of an executor between hosts, so that one that hangs holds nobody else up.

At most `per_host` runs send to one origin at a time. A run beyond that waits a moment for its turn; this is short if the
host answers. If no turn comes in that time, the host is *stuck* until it has answered a request. Meanwhile runs that find
no free turn are given back at once, and run again later without using an attempt. So their slots serve other hosts.

Runs that start at most once can't be given back: they wait as long as it takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from raftsched.executors.http.hops import Origin
from raftsched.worker import Snooze

_WAIT_SECONDS: Final = 1.0
_SNOOZE_SECONDS: Final = 10.0
"""Each run that is given back costs the cluster two writes."""


class _Host:
    """The turns of one origin."""

    __slots__ = ("is_stuck", "turns", "user_count")

    def __init__(self, per_host: int) -> None:
        self.turns = asyncio.Semaphore(per_host)
        self.user_count = 0
        self.is_stuck = False


class HostSlots:
    """Give turns to runs, by the origin of their requests."""

    def __init__(self, per_host: int) -> None:
        self._per_host = per_host
        self._hosts: dict[Origin, _Host] = {}

    @asynccontextmanager
    async def turn(self, origin: Origin, *, can_snooze: bool) -> AsyncIterator[None]:
        """Hold a turn within the block; raises `Snooze` if none is free."""
        host = self._hosts.setdefault(origin, _Host(self._per_host))
        host.user_count += 1
        try:
            await _acquire(host, can_snooze=can_snooze)
            try:
                yield
                host.is_stuck = False
            finally:
                host.turns.release()
        finally:
            host.user_count -= 1
            if host.user_count == 0:
                del self._hosts[origin]


async def _acquire(host: _Host, *, can_snooze: bool) -> None:
    if not can_snooze:
        await host.turns.acquire()
        return
    if host.is_stuck and host.turns.locked():
        raise Snooze(_SNOOZE_SECONDS)
    try:
        async with asyncio.timeout(_WAIT_SECONDS):
            await host.turns.acquire()
    except TimeoutError:
        host.is_stuck = True
        raise Snooze(_SNOOZE_SECONDS) from None
