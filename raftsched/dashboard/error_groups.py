"""Group jobs whose errors are the same but for numbers and ids, so that a cause is seen once and not a thousand times."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from raftsched.client.records import JobInfo

_TEXT_CHARS_MAX: Final = 300
_KEY_BYTES: Final = 8
_UUID: Final = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_HEX: Final = r"\b(?:0x[0-9a-fA-F]+|(?=[0-9a-fA-F]*[0-9])(?=[0-9a-fA-F]*[a-fA-F])[0-9a-fA-F]{7,})\b"
_NUMBER: Final = r"\d+(?:[.,:]\d+)*"
_VARYING: Final = re.compile(f"({_UUID}|{_HEX})|({_NUMBER})")


@dataclass(slots=True)
class ErrorGroup:
    """Jobs that were given up for the same error."""

    key: str
    """A short text by which a URL names the group."""
    type: str
    text: str
    """The first line of the message, with `…` for numbers and ids; "" if there was no error."""
    reason: str
    jobs: list[JobInfo] = field(default_factory=list)
    """The latest first."""

    @property
    def first_at(self) -> datetime | None:
        return min((job.completed_at for job in self.jobs if job.completed_at is not None), default=None)

    @property
    def last_at(self) -> datetime | None:
        return max((job.completed_at for job in self.jobs if job.completed_at is not None), default=None)

    @property
    def names(self) -> Sequence[tuple[str, int]]:
        """Return the names of its jobs, the most frequent first."""
        return Counter(job.name for job in self.jobs).most_common()


def groups_of(jobs: Iterable[JobInfo]) -> list[ErrorGroup]:
    """Return the groups, the largest first."""
    groups: dict[str, ErrorGroup] = {}
    for job in jobs:
        kind = job.error.type if job.error is not None else ""
        text = pattern_of(job.error.message) if job.error is not None else ""
        reason = job.failure_reason or "unknown"
        key = hashlib.blake2b(f"{kind}\0{text}\0{reason}".encode(), digest_size=_KEY_BYTES).hexdigest()
        groups.setdefault(key, ErrorGroup(key, kind, text, reason)).jobs.append(job)
    return sorted(groups.values(), key=lambda group: -len(group.jobs))


def pattern_of(message: str) -> str:
    """Return the first line of a message, with `…` for each number and id."""
    line = message.strip().partition("\n")[0][:_TEXT_CHARS_MAX]
    return _VARYING.sub("…", line)
