"""Processes that are nobody's children any more, seen from outside."""

from __future__ import annotations

import psutil


def has_ended(pid: int) -> bool:
    """Whether it is gone, or at least runs no more and is only not yet asked for its exit code."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
