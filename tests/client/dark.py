"""An address that cannot be reached: connections to it are neither made nor refused, as where a firewall drops them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

_FULL = 2
"""With a backlog of 0 Linux queues one connection, and drops the others."""


@contextmanager
def dark_address() -> Iterator[str]:
    """The base URL of a listener whose queue is full."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(_FULL):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
