"""Describe one node for people: its release, its age, its disk and its certificates."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from raftsched.api.http.json_reply import time_text
from raftsched.wire.cluster import CertificateStatus, NodeFacts

_RELEASE = version("raftsched")
_DAY_MS = 86_400_000
_BLOCK_BYTES = 512
"""Unit of `st_blocks`."""


class Expiry(NamedTuple):
    """The end of the certificate of a setting, in seconds since 1970; 0 if it is not known."""

    setting: str
    expires_at: float


def facts_of(
    node_id: str,
    *,
    directory: Path,
    started_ms: int,
    uptime_seconds: int,
    warnings: Mapping[str, str],
    encryption_key: str | None,
    expiries: Sequence[Expiry],
    now_ms: int,
) -> NodeFacts:
    """Return what a node says of itself. It reads the sizes of files, and nothing else."""
    try:
        disk = shutil.disk_usage(directory)
    except OSError:
        free, total = 0, 0
    else:
        free, total = disk.free, disk.total
    return NodeFacts(
        id=node_id,
        release=_RELEASE,
        started_at=time_text(started_ms),
        uptime_seconds=uptime_seconds,
        is_ready="not_ready" not in warnings,
        warnings=dict(warnings),
        disk_free_bytes=free,
        disk_total_bytes=total,
        state_bytes=bytes_in(directory / "state"),
        journal_bytes=bytes_in(directory / "journal"),
        encryption_key=encryption_key,
        certificates=tuple(_certificate(each, now_ms) for each in expiries if each.expires_at),
    )


def bytes_in(directory: Path) -> int:
    """Return the disk space of the files in a directory; 0 if it can't be read."""
    total = 0
    try:
        with os.scandir(directory) as files:
            for file in files:
                total += file.stat(follow_symlinks=False).st_blocks * _BLOCK_BYTES
    except OSError:  # a file of the journal may go while it is counted
        return total
    return total


def _certificate(expiry: Expiry, now_ms: int) -> CertificateStatus:
    expires_ms = int(expiry.expires_at * 1000)
    return CertificateStatus(
        setting=expiry.setting, expires_at=time_text(expires_ms), days_left=(expires_ms - now_ms) // _DAY_MS
    )
