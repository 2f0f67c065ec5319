"""Whether the disk has room: new work is refused before it is full, so that running work can still finish."""

from __future__ import annotations

import shutil
from pathlib import Path

from raftsched.errors import StorageFull
from raftsched.ports import Clock

FREE_BYTES_MIN = 256 << 20
"""Room for the outcomes of what is running, for a checkpoint, and for a person to notice."""
_LOOK_AGAIN_SECONDS = 1.0


class FreeSpace:
    """The free space of the file system that `directory` is on, looked at once a second at most."""

    def __init__(self, directory: Path, clock: Clock, *, free_bytes_min: int = FREE_BYTES_MIN) -> None:
        self._directory = directory
        self._clock = clock
        self._free_bytes_min = free_bytes_min
        self._looked_at = -_LOOK_AGAIN_SECONDS
        self._free_bytes = 0

    def check(self) -> None:
        """Raise `StorageFull` when there is less than `free_bytes_min`."""
        now = self._clock.monotonic()
        if now - self._looked_at >= _LOOK_AGAIN_SECONDS:
            self._looked_at = now
            self._free_bytes = shutil.disk_usage(self._directory).free
        if self._free_bytes < self._free_bytes_min:
            raise StorageFull(
                f"the disk has {self._free_bytes >> 20} MiB left, under the reserve of {self._free_bytes_min >> 20} "
                "MiB: new jobs are refused until there is room; running ones may finish"
            )
