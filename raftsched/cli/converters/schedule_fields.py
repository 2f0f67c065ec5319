"""Make the fields of schedules that several converters have in common: labels, pauses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from raftsched import limits
from raftsched.cli.converters.report import Entry
from raftsched.wire.common import is_name

WINDOW_SECONDS_MAX: Final = limits.DELAY_MS_MAX // 1_000
"""The longest catch-up window, for programs that make up for a missed run however late it is."""
_NO_END: Final = "9999-01-01T00:00:00Z"


def paused(entry: Entry, word: str) -> dict[str, Any]:
    """Return the fields that keep a schedule paused, and note how to start it; `word` is the other program's."""
    entry.note(f"{word}: remove pause_until from the file to start it")
    return {"pause_until": _NO_END}


def literal(text: str) -> str:
    """Return a body or an input in which no part is a placeholder for a fact of the run."""
    return text.replace("{{", "{{{{")


def labels(entry: Entry, table: Mapping[str, str], line: int | None) -> dict[str, dict[str, str]]:
    """Return the field with labels, and report those whose names or texts ours can't have."""
    fitting = {name: text for name, text in table.items() if is_name(name) and len(text) <= limits.LABEL_CHARS_MAX}
    for name in table.keys() - fitting.keys():
        entry.not_kept(f"label {name}", line)
    return {"labels": fitting} if fitting else {}
