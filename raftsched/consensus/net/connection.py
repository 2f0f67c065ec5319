"""Handle one TCP connection between two nodes: incoming frames, outgoing frames, and its health.

The connection decides nothing about the cluster. It decodes bytes to messages for its owner, and collects outgoing
frames until they are flushed in one write. It counts the bytes that the peer has not accepted yet, and the ticks
without a byte from it.

An aborted connection is over at once. The event loop cannot be relied on for that: uvloop never calls `connection_lost`
if the opening of a connection is cancelled after `connection_made`, and raises at every later use of such a transport.

Health is counted in ticks, not in seconds. If this process was paused (a slow disk, a stopped process), one tick
passes, the waiting bytes are read, and no peer is considered dead.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Final, Protocol, cast

from raftsched.consensus.net.framing import FrameDecoder, FrameError, encode_frame
from raftsched.consensus.net.link_secret import LinkSeal
from raftsched.consensus.raft.messages import Message

_PING: Final = encode_frame({"type": "ping"})


class ConnectionOwner(Protocol):
    """The owner of a connection; it is called from the event loop."""

    def on_open(self, connection: Connection) -> None:
        """Handle an opened connection (with TLS if it is used), before either hello."""

    def on_hello(self, connection: Connection, hello: Message) -> bool:
        """Handle the peer's hello, and `secure` the connection if there is a secret; return False to end it."""

    def on_identified(self, connection: Connection) -> bool:
        """Handle a peer that was accepted, and has proved that it holds the secret; return False to end the connection."""

    def on_messages(self, connection: Connection, messages: list[Message], byte_count: int) -> None:
        """Handle messages of an accepted peer, in order."""

    def on_bad_bytes(self, connection: Connection, error: FrameError) -> None:
        """Handle invalid bytes from the peer; the connection is unusable."""

    def on_lost(self, connection: Connection) -> None:
        """Handle the end of the connection; called once."""


class Connection(asyncio.Protocol):
    """A connection to `peer_id`; for "", an accepted one whose peer the owner does not know yet.

    With `is_sealed`, the owner must `secure` it when it accepts the peer's hello.
    """

    def __init__(self, owner: ConnectionOwner, *, peer_id: str = "", is_sealed: bool = False) -> None:
        loop = asyncio.get_running_loop()
        self.peer_id = peer_id
        self.dialed = bool(peer_id)
        self.is_identified = False
        """Whether the owner has accepted the peer's hello, and the peer has proved that it holds the secret."""
        self.own_hello: Message = {}
        """The hello that this side sends; the owner makes it in `on_open`."""
        self.identified: asyncio.Future[None] = loop.create_future()
        """Done once the handshake has succeeded or failed; still pending in `on_lost` if the other side has closed."""
        self.lost: asyncio.Future[None] = loop.create_future()
        self._owner = owner
        self._decoder = FrameDecoder(is_sealed=is_sealed)
        self._seal: LinkSeal | None = None
        self._has_hello = False
        self._transport: asyncio.Transport | None = None
        self._frames: list[tuple[bool, bytes]] = []
        self._frames_bytes = 0
        self._silent_ticks = 0
        self._wrote = False
        self._paused = False
        self._remote = "unknown"

    # -- asyncio calls these ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self.is_over:
            transport.abort()  # type: ignore[attr-defined]  # it was aborted while it was opened; this is a Transport
            return
        self._transport = cast("asyncio.Transport", transport)
        if name := transport.get_extra_info("peername"):
            self._remote = f"{name[0]}:{name[1]}"
        handle = transport.get_extra_info("socket")
        handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._owner.on_open(self)

    def data_received(self, data: bytes) -> None:
        if self.is_over:
            return
        self._silent_ticks = 0
        decoder = self._decoder
        byte_count = decoder.buffered_bytes + len(data)
        try:
            messages = decoder.feed(data)
            if messages and not self._has_hello:
                self._has_hello = True
                if not self._owner.on_hello(self, messages.pop(0)) or self.is_over:
                    return
                messages += decoder.feed(b"")
        except FrameError as error:
            self._owner.on_bad_bytes(self, error)
            return
        if not self.is_identified and not self._identify(has_sealed=bool(messages)):
            return
        if messages:
            self._owner.on_messages(self, messages, byte_count - decoder.buffered_bytes)

    def _identify(self, *, has_sealed: bool) -> bool:
        """Return whether the peer is identified now; with a secret, its first sealed frame proves that it holds it."""
        if not self._has_hello or (self._seal is not None and not has_sealed):
            return False
        if not self._owner.on_identified(self) or self.is_over:
            return False
        self.is_identified = True
        _settle(self.identified)
        return True

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # why it was lost changes nothing
        self._end()

    def _end(self) -> None:
        """End the connection, and notify the owner, once."""
        if self.is_over:
            return
        _settle(self.lost)
        self._frames.clear()
        self._frames_bytes = 0
        self._owner.on_lost(self)
        _settle(self.identified)

    # -- the owner calls these ----------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Return whether it was aborted or lost: nothing is read from it or written to it any more."""
        return self.lost.done()

    @property
    def remote(self) -> str:
        """Return the other end's address, for logs."""
        return self._remote

    @property
    def certificate(self) -> dict[str, object] | None:
        """Return the peer's certificate in the form of `ssl.SSLObject.getpeercert`; None without TLS."""
        return self._transport.get_extra_info("peercert") if self._transport is not None else None

    @property
    def unsent_bytes(self) -> int:
        """Return the bytes queued here or in the event loop that the system has not accepted yet."""
        waiting = self._transport.get_write_buffer_size() if self._transport is not None and not self.is_over else 0
        return self._frames_bytes + waiting

    def queue(self, frame: bytes, *, early: bool) -> None:
        """Keep a frame for the next flush; it is dropped if the connection is over."""
        if self.is_over:
            return
        self._frames.append((early, frame))
        self._frames_bytes += len(frame)

    def flush(self, *, early: bool) -> None:
        """Write the queued frames at once, in order; with `early`, only those queued as such."""
        if not self._frames or self._transport is None or self.is_over:
            return
        leaving = [frame for is_early, frame in self._frames if is_early or not early]
        if not leaving:
            return
        self._frames = [item for item in self._frames if early and not item[0]]
        self._frames_bytes = sum(len(frame) for _, frame in self._frames)
        self._write(leaving)

    def send_now(self, message: Message) -> None:
        """Write one message without queuing: for messages of the link itself."""
        self._write([encode_frame(message)])

    def secure(self, seal: LinkSeal) -> None:
        """Seal all frames from now on, require the same of the peer, and prove at once that this side holds the secret."""
        self._seal = self._decoder.seal = seal
        self._write([_PING])

    def _write(self, frames: list[bytes]) -> None:
        transport = self._transport
        if transport is None or self.is_over or transport.is_closing():
            return
        if self._seal is not None:
            frames = list(self._seal.sealed(frames))
        try:
            transport.writelines(frames)
        except RuntimeError:  # uvloop raises it for a handle that was closed without a callback
            self.abort()
        self._wrote = True

    def tick(self) -> int:
        """Ping the peer if nothing was written since the last tick; return the ticks without a byte from it."""
        if not self._wrote:
            self._write([_PING])
        self._wrote = False
        if not self._paused:
            self._silent_ticks += 1
        return self._silent_ticks

    def pause_reading(self) -> None:
        if self._transport is not None and not self._paused and not self.is_over:
            self._paused = True
            with suppress(RuntimeError):  # it is being closed
                self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None and self._paused and not self.is_over:
            self._paused = False
            with suppress(RuntimeError):
                self._transport.resume_reading()

    def abort(self) -> None:
        """Close at once; unsent frames are lost, and `on_lost` has been called when this returns."""
        _settle(self.identified)
        if self._transport is not None:
            with suppress(RuntimeError):
                self._transport.abort()
        self._end()


def _settle(future: asyncio.Future[None]) -> None:
    """Mark the future done, unless it is done or cancelled already."""
    if not future.done():
        future.set_result(None)
