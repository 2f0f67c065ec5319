"""Watch the free space of this node's disk against a reserve: new work is refused before the disk is full.

The reserve is room for the outcomes of running jobs, for a checkpoint, and for a person to notice. Whether the cluster
refuses new work is decided by its leader, from the reports of all nodes (`consensus.disk_space`).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from raftsched.consensus.disk_space import Space
from raftsched.ports import Clock

_LOOK_AGAIN_SECONDS: Final = 1.0
_log = structlog.get_logger()


def free_bytes(data_directory: Path) -> int:
    """Return how much an unprivileged process may still write: the least of the file systems that hold the data."""
    return fullest_disk(data_directory)[0]


def fullest_disk(data_directory: Path) -> tuple[int, int]:
    """Return the free bytes and the size of the file system with the least free space that holds data."""
    parts = [data_directory, data_directory / "journal", data_directory / "state"]
    usages = (shutil.disk_usage(part) for part in parts if part.exists())
    return min((usage.free, usage.total) for usage in usages)


class FreeSpace:
    """Read the free space, once a second at most; each change between low and not low is logged.

    It is low below `reserve_bytes`, and not low again once an eighth more than that is free. A disk that can't be read
    counts as low.
    """

    def __init__(self, free_bytes: Callable[[], int], clock: Clock, *, reserve_bytes: int) -> None:
        self._free_bytes = free_bytes
        self._clock = clock
        self._reserve_bytes = reserve_bytes
        self._looked_at = -_LOOK_AGAIN_SECONDS
        self._space = Space(0, reserve_bytes, is_low=False)

    def set_reserve(self, reserve_bytes: int) -> None:
        """Compare with another reserve from now on."""
        self._reserve_bytes = reserve_bytes
        self._looked_at = self._clock.monotonic() - _LOOK_AGAIN_SECONDS

    def look(self) -> Space:
        """Return the free bytes now, or as read within the last second."""
        now = self._clock.monotonic()
        if now - self._looked_at >= _LOOK_AGAIN_SECONDS:
            self._looked_at = now
            self._space = self._measured()
        return self._space

    def _measured(self) -> Space:
        was_low, error = self._space.is_low, ""
        try:
            free = self._free_bytes()
        except OSError as failure:
            free, error = 0, str(failure)
        enough = self._reserve_bytes + (self._reserve_bytes // 8 if was_low else 0)
        space = Space(free, self._reserve_bytes, is_low=free < enough)
        if space.is_low and not was_low:
            _log.warning("disk_low", **_fields(space), **({"error": error} if error else {}))
        elif was_low and not space.is_low:
            _log.info("disk_ok", **_fields(space))
        return space


def _fields(space: Space) -> dict[str, int]:
    return {"free_mib": space.free_bytes >> 20, "reserve_mib": space.reserve_bytes >> 20}
