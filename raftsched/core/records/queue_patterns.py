"""What a worker takes: jobs of the queues that it names or gives a pattern for, of its region, with a handler's name.

A pattern is a prefix of queue names and a star behind it; the star alone is all queues.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from raftsched.core.records.ids import NameTag, name_tag

STAR: Final = "*"

Tags = frozenset[NameTag]
"""Tags of the names that a worker has handlers for."""


def is_pattern(queue: str) -> bool:
    """Return whether what a worker calls a queue stands for many."""
    return queue.endswith(STAR)


def matches(pattern: str, queue: str) -> bool:
    """Return whether `queue` is one of those that `pattern` stands for."""
    return queue.startswith(pattern[: -len(STAR)])


def accepts(queues: Iterable[str], queue: str) -> bool:
    """Return whether a worker that asks for `queues` takes jobs of `queue`."""
    return queue in queues or any(matches(each, queue) for each in queues if is_pattern(each))


def tags_of(names: Iterable[str]) -> Tags:
    return frozenset(map(name_tag, names))
