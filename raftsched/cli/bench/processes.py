"""Measure CPU time of processes, from /proc: the figure that is reliable on a noisy machine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Return user and system time of a process and of its children that ended, in seconds, to 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return sum(int(ticks) for ticks in fields[11:15]) / _TICKS


def cpu_by_role(pids: Mapping[str, Iterable[int]]) -> dict[str, float]:
    """Return the CPU seconds so far of each role's processes."""
    return {role: sum(map(cpu_seconds, processes)) for role, processes in pids.items()}


def resident_bytes(pid: int) -> int:
    """Return the memory of a process that is in RAM."""
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
