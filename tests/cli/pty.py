"""Commands at a terminal: `raftsched` as a process of its own, on a pseudo-terminal."""

from __future__ import annotations

import asyncio
import os
import pty
import subprocess
import sys
from collections.abc import Sequence


async def at_terminal(
    url: str, arguments: Sequence[str], *, typed: str = "", into_pipe: bool = False
) -> tuple[int, str]:
    """Return the exit code and all that the terminal, or the pipe on standard output, was given."""
    return await asyncio.to_thread(_run, url, arguments, typed, into_pipe=into_pipe)


def _run(url: str, arguments: Sequence[str], typed: str, *, into_pipe: bool) -> tuple[int, str]:
    master, slave = pty.openpty()
    environment = os.environ | {"RAFTSCHED_URL": url, "TERM": "dumb", "COLUMNS": "200"}
    process = subprocess.Popen(
        [sys.executable, "-m", "raftsched", *arguments],
        stdin=slave,
        stdout=subprocess.PIPE if into_pipe else slave,
        stderr=slave,
        env=environment,
        start_new_session=True,
    )
    os.close(slave)
    os.write(master, typed.encode())
    shown = _read(master)
    piped = process.stdout.read() if process.stdout is not None else b""
    os.close(master)
    code = process.wait(60)
    return code, (piped if into_pipe else shown).decode()


def _read(master: int) -> bytes:
    shown = b""
    while True:
        try:
            piece = os.read(master, 4096)
        except OSError:  # Linux: the other side is closed
            return shown
        if not piece:
            return shown
        shown += piece
