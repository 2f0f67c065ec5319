"""The port on which peers arrive, and the crowd in front of it.

Sockets are accepted one by one, each handled by a task from its first byte: the TLS handshake and the hello count as one
introduction. At most `limits.PENDING_HANDSHAKES_MAX` are under way; the next one closes the oldest, since a peer needs
milliseconds and one that has waited longest most likely never says hello. So a thousand idle connections cost little
memory and keep no peer out.

asyncio's own server is not used because it can't bound connections that are still in their TLS handshake.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog

from raftsched.consensus.net.address import Address, Resolve
from raftsched.consensus.net.throttled_log import ThrottledLog

_BACKLOG: Final = 128
_PAUSE_SECONDS: Final = 0.1
_REBIND_SECONDS: Final = 0.5
_NOT_HERE: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
_log = structlog.get_logger()

OnAccepted = Callable[[socket.socket], Awaitable[None]]
"""Introduces one stranger and owns its socket; returns when it is a peer, or gone."""


class Listener:
    """Listens on `address` and hands every accepted socket to `welcome`.

    `sockets` are bound to it already; without any, it binds them itself.
    """

    def __init__(
        self,
        address: Address,
        on_accepted: OnAccepted,
        *,
        resolve: Resolve,
        pending_handshakes_max: int,
        throttled_log: ThrottledLog,
        sockets: Sequence[socket.socket] = (),
    ) -> None:
        self._address = address
        self._sockets = sockets
        self._on_accepted = on_accepted
        self._resolve = resolve
        self._pending_handshakes_max = pending_handshakes_max
        self._throttled_log = throttled_log
        self._pending_handshakes: dict[asyncio.Task[None], None] = {}
        self.bound: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.port = 0
        """The bound port; 0 while it is not."""

    async def run(self) -> None:
        """Bind and accept until cancelled.

        Waits for a name that doesn't resolve yet and for an address this machine doesn't have yet; raises OSError for
        everything else, such as a port in use.
        """
        listeners = await self._bind()
        try:
            self.port = listeners[0].getsockname()[1]
            self.bound.set_result(None)
            async with asyncio.TaskGroup() as group:
                for listener in listeners:
                    group.create_task(self._accept(listener, group))
        finally:
            for listener in listeners:
                listener.close()

    async def _bind(self) -> list[socket.socket]:
        for bound in self._sockets:
            bound.listen(_BACKLOG)
        if self._sockets:
            return list(self._sockets)
        while True:
            try:
                return _listen(await self._resolve(self._address))
            except socket.gaierror as error:
                self._throttled_log.warn(
                    "not_listening", reason="unresolved", address=str(self._address), error=str(error)
                )
            except OSError as error:
                if error.errno not in _NOT_HERE:
                    raise
                self._throttled_log.warn(
                    "not_listening", reason="not_ours", address=str(self._address), error=str(error)
                )
            await asyncio.sleep(_REBIND_SECONDS)

    async def _accept(self, listener: socket.socket, group: asyncio.TaskGroup) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                incoming, _ = await loop.sock_accept(listener)
            except OSError as error:
                self._throttled_log.warn("accept_failed", reason=errno.errorcode.get(error.errno or 0, "unknown"))
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            self._admit(incoming, group)
            await asyncio.sleep(0)  # a flood of connections must not keep the loop from its other work

    def _admit(self, incoming: socket.socket, group: asyncio.TaskGroup) -> None:
        if len(self._pending_handshakes) >= self._pending_handshakes_max:
            oldest = next(iter(self._pending_handshakes))
            del self._pending_handshakes[oldest]
            oldest.cancel()
            self._throttled_log.warn("handshake_evicted", reason="too_many")
        task = group.create_task(self._shake_hands(incoming))
        self._pending_handshakes[task] = None
        task.add_done_callback(lambda done: self._pending_handshakes.pop(done, None))

    async def _shake_hands(self, incoming: socket.socket) -> None:
        try:
            await self._on_accepted(incoming)
        except Exception:  # noqa: BLE001  # our fault, but no stranger may stop the node by finding it
            _log.exception("handshake_failed")


def _listen(addresses: list[Address]) -> list[socket.socket]:
    """Listen on each address that this machine has; raises the last OSError where that is none."""
    listeners: list[socket.socket] = []
    failure: OSError | None = None
    for address in addresses:
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        try:
            listener = socket.create_server(address, family=family, backlog=_BACKLOG)
        except OSError as error:
            failure = error
            if error.errno in _NOT_HERE:
                continue
            break
        listener.setblocking(False)
        listeners.append(listener)
    if failure is not None and (not listeners or failure.errno not in _NOT_HERE):
        for listener in listeners:
            listener.close()
        raise failure
    return listeners
