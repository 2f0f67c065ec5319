"""Release memory that is only the map of a file.

LMDB reads through a map, and every page that it has touched counts as memory of the process until the kernel takes it
back. So after a hot copy, or with a backlog of millions, a node looks as large as its file to people, autoscalers and
limits. Advising the kernel that the map is not needed takes it out of the process at once. Nothing is read from disk
again: the pages stay in the file cache, and the next access costs a minor fault, about a microsecond for sixteen pages.
It is safe at any moment, also under readers, since the map is shared and never written.

LMDB's `readahead=False` (MADV_RANDOM) is not enough: a fault still maps the neighbours that are in the file cache
(measured: 90 KiB per random read). So the store checks every few reads, and not only at commits.

Linux only; elsewhere nothing is measured or released.
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
    """Return the bytes of mapped files, libraries included, that count as memory of this process; 0 if unknown."""
    try:
        descriptor = os.open(_STATM, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:  # it is called every few reads, and a file object costs several times as much
        return int(os.read(descriptor, _STATM_BYTES).split()[_SHARED_FIELD]) * _PAGE_BYTES
    finally:
        os.close(descriptor)


def let_go(file: Path) -> None:
    """Release the pages of `file`'s maps from this process. The kernel may refuse; nothing is lost then."""
    libc = ctypes.CDLL(None)
    suffix = f" {file.resolve()}"
    for line in _MAPS.read_text().splitlines():
        if line.endswith(suffix):
            start, end = (int(address, 16) for address in line.split(maxsplit=1)[0].split("-"))
            libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_DONTNEED)
