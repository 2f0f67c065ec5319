"""Letting go of memory that is only the map of a file.

LMDB reads through a map, and every page it has touched counts as memory of the process until the kernel takes it back.
So a hot copy, or a backlog of millions, lets a node look as large as its file, to people, to autoscalers and to limits.
Telling the kernel that the map isn't needed takes it out of the process at once. Nothing is read from disk again for
it: the pages stay in the file cache, and a page that is touched next comes back with a minor fault, about a microsecond
for sixteen. It is safe at any moment, also under readers, since the map is shared and written by nobody.

LMDB's `readahead=False` is MADV_RANDOM, and no cure: the kernel reads nothing ahead then, but a fault still maps what lies
around in the file cache (measured: 90 KiB a random read). So the store looks every few reads, and not at commits alone.

Linux only; elsewhere nothing is measured and nothing is let go.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_MADV_DONTNEED = 4
_STATM = "/proc/self/statm"
_STATM_BYTES = 256
"""More than seven numbers take."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_MAPS = Path("/proc/self/maps")
_SHARED_FIELD = 2


def mapped_bytes() -> int:
    """Bytes of mapped files, libraries included, that count as memory of this process; 0 where nobody says."""
    try:
        descriptor = os.open(_STATM, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:  # asked every few reads, and a file object costs several times as much
        return int(os.read(descriptor, _STATM_BYTES).split()[_SHARED_FIELD]) * _PAGE_BYTES
    finally:
        os.close(descriptor)


def let_go(file: Path) -> None:
    """Take the pages of `file`'s maps out of this process. Only a hint: the kernel may refuse it, and nothing is lost."""
    libc = ctypes.CDLL(None)
    suffix = f" {file.resolve()}"
    for line in _MAPS.read_text().splitlines():
        if line.endswith(suffix):
            start, end = (int(address, 16) for address in line.split(maxsplit=1)[0].split("-"))
            libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_DONTNEED)
