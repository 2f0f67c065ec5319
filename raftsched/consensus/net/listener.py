"""Accept connections of peers, with a limit of handshakes in progress.

Sockets are accepted one by one, and a task handles each from its first byte: the TLS handshake and the hello are one
handshake. At most `limits.PENDING_HANDSHAKES_MAX` are in progress; the next one closes the oldest, since a peer needs
milliseconds, and the oldest most likely never sends a hello. So a thousand idle connections cost little memory and
exclude no peer.

asyncio's own server is not used because it cannot limit connections that are in their TLS handshake.
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
"""Complete the handshake of an accepted socket, and own it; returns when it is a peer, or closed."""


class Listener:
    """Listens on `address` and passes every accepted socket to `welcome`.

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
        """The bound port; 0 while none is bound."""

    async def run(self) -> None:
        """Bind and accept until cancelled.

        Waits while the name does not resolve, or while this machine does not have the address; raises OSError for any
        other fault, such as a port in use.
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
            await asyncio.sleep(0)  # a flood of connections must not block the loop

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
        except Exception:  # noqa: BLE001  # a bug of ours, but no other machine may stop the node by it
            _log.exception("handshake_failed")


def _listen(addresses: list[Address]) -> list[socket.socket]:
    """Listen on each address that this machine has; raises the last OSError if it has none."""
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
