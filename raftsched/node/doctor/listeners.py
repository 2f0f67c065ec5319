"""Find the process that listens on a port of this machine, by /proc."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

_LISTEN: Final = "0A"
_SOCKET: Final = re.compile(r"socket:\[(\d+)\]")
_PROCESSES: Final = Path("/proc")


class Listener(NamedTuple):
    """A process that listens on a port."""

    pid: int
    command: str


def listener_on(port: int, *, processes: Path = _PROCESSES) -> Listener | None:
    """Return a process that listens on a TCP port; None if there is none, or if it belongs to another user."""
    sockets = set(_listening_sockets(port, processes))
    if not sockets:
        return None
    for process in processes.iterdir():
        if process.name.isdecimal() and sockets & set(_sockets_of(process)):
            return Listener(int(process.name), _command_of(process))
    return None


def _listening_sockets(port: int, processes: Path) -> Iterator[str]:
    for name in ("tcp", "tcp6"):
        try:
            lines = (processes / "self" / "net" / name).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9]


def _sockets_of(process: Path) -> Iterator[str]:
    try:
        for descriptor in (process / "fd").iterdir():
            if found := _SOCKET.fullmatch(str(descriptor.readlink())):
                yield found[1]
    except OSError:
        return  # it has ended, or belongs to another user


def _command_of(process: Path) -> str:
    try:
        words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    return " ".join(words)[:80].strip()
