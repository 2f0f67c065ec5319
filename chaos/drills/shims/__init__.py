"""Shims that are preloaded into nodes: what they change is read from files, so that it can change while a node runs."""

from __future__ import annotations

import asyncio
import shutil
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from chaos.drills.backends import Unfit

_SOURCES: Final = ("sync.c", "clock.c")
_POLL_SECONDS: Final = 0.005


def compiler() -> str | None:
    """Return the C compiler of this system, None if there is none."""
    return shutil.which("cc") or shutil.which("gcc")


class Shims:
    """The libraries, compiled once for a drill into `directory`; raises `Unfit` without a compiler."""

    def __init__(self, directory: Path) -> None:
        command = compiler()
        if command is None:
            raise Unfit("no C compiler: install gcc")
        self._libraries = []
        for name in _SOURCES:
            library = directory / f"{name.removesuffix('.c')}.so"
            source = str(Path(__file__).with_name(name))
            built = [command, "-shared", "-fPIC", "-O1", "-o", str(library), source, "-ldl"]
            subprocess.run(built, check=True)  # our own sources
            self._libraries.append(str(library))

    def of_node(self, directory: Path, node: str) -> NodeShims:
        return NodeShims(tuple(self._libraries), directory / f"{node}.syncs", directory / f"{node}.clock")


class NodeShims:
    """The changes for one node."""

    def __init__(self, libraries: tuple[str, ...], syncs: Path, clock: Path) -> None:
        self._libraries = libraries
        self._syncs = syncs
        self._held = syncs.with_name(f"{syncs.name}.held")
        self._clock = clock
        self.set_syncs("")
        self.set_clock(0.0)

    @property
    def settings(self) -> Mapping[str, str]:
        """Return the environment of the node."""
        return {
            "LD_PRELOAD": " ".join(self._libraries),
            "DRILL_SYNCS": str(self._syncs),
            "DRILL_CLOCK": str(self._clock),
        }

    def set_syncs(self, mode: str) -> None:
        """Change all syncs from now on: one of the modes in `sync.c`, "" for none."""
        new = self._syncs.with_name(f"{self._syncs.name}.new")
        new.write_text(mode)
        new.replace(self._syncs)

    async def hold_sync(self, part: str, *, seconds: float) -> None:
        """Let syncs of files with `part` in their path (with a $ behind it) hang; return once one does.

        Raises `TimeoutError`, and lets none hang any more, if there is none within `seconds`.
        """
        self._held.unlink(missing_ok=True)
        self.set_syncs(f"hang {part}")
        try:
            async with asyncio.timeout(seconds):
                while not self._held.exists():
                    await asyncio.sleep(_POLL_SECONDS)
        except BaseException:
            self.set_syncs("")
            raise

    def set_clock(self, ahead_seconds: float) -> None:
        """Put the wall clock ahead, or back if negative; the monotonic clock stays as it is."""
        with self._clock.open("r+b" if self._clock.exists() else "wb") as file:  # in place: nodes have mapped it
            file.write(struct.pack("q", round(ahead_seconds * 1e9)))
