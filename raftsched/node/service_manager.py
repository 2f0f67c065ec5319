"""Tell the service manager that started this node how it is doing: systemd's protocol of `Type=notify`.

A unit that waits for `READY=1` is started only when the node answers on its ports, so `systemctl start` fails with the node.
Left out: the watchdog. A node whose event loop hangs gives its lead away by itself, and a restart of it helps nobody.
"""

from __future__ import annotations

import os
import socket
from typing import Final

import structlog

log = structlog.get_logger()

READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"
_VARIABLE: Final = "NOTIFY_SOCKET"


def notify(message: str) -> None:
    """Send the message to the socket that NOTIFY_SOCKET names; without one this does nothing.

    A manager that can't be reached is logged: the node runs without it.
    """
    name = os.environ.get(_VARIABLE, "")
    if not name:
        return
    address = "\0" + name[1:] if name.startswith("@") else name  # "@" is an abstract name of Linux
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as manager:
            manager.setblocking(False)
            manager.sendto(message.encode(), address)
    except OSError as error:
        log.warning("service_manager_not_told", message=message, error=str(error))
