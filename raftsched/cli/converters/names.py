"""Make names of schedules: valid, short, and each once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import Final

from raftsched import limits
from raftsched.cli.converters.report import Entry

_ASSIGNMENT: Final = re.compile(r"\w+=\S*", re.ASCII)
_NO_NAME: Final = re.compile(r"[^A-Za-z0-9_.:@-]+", re.ASCII)
_SUFFIX_CHARS: Final = 6


def program_name(command: str) -> str:
    """Return the name of the program that a command begins with; arguments may be secret, so they are no part of it."""
    words = [word for word in command.split() if not _ASSIGNMENT.fullmatch(word)]
    return PurePath(words[0].strip("\"'(){}")).name if words else ""


def unique_names(entries: Iterable[Entry]) -> Iterator[tuple[str, Entry]]:
    """Yield each entry with a valid name; the second one of a name gets `-2`, and so on."""
    seen: set[str] = set()
    for entry in entries:
        plain = valid_name(entry.name)
        name, number = plain, 1
        while name in seen:
            number += 1
            name = f"{plain}-{number}"
        seen.add(name)
        yield name, entry


def valid_name(text: str) -> str:
    """Return the text with `-` for all characters that names can't have."""
    name = _NO_NAME.sub("-", text).strip("_.:@-")
    return name[: limits.NAME_CHARS_MAX - _SUFFIX_CHARS] or "schedule"
