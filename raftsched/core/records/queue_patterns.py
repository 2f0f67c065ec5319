"""Match queues with the names and patterns of a lease request.

A pattern is a prefix of queue names followed by a star; the star alone matches all queues.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from raftsched.core.records.ids import NameTag, name_tag

STAR: Final = "*"

Tags = frozenset[NameTag]
"""The tags of job names for which a worker has handlers."""


def is_pattern(queue: str) -> bool:
    """Return whether the text is a pattern and not the name of a queue."""
    return queue.endswith(STAR)


def matches(pattern: str, queue: str) -> bool:
    """Return whether `pattern` matches the name `queue`."""
    return queue.startswith(pattern[: -len(STAR)])


def accepts(queues: Iterable[str], queue: str) -> bool:
    """Return whether a request for `queues`, names or patterns, includes `queue`."""
    return queue in queues or any(matches(each, queue) for each in queues if is_pattern(each))


def tags_of(names: Iterable[str]) -> Tags:
    return frozenset(map(name_tag, names))
