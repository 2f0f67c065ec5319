"""What a check of the state reports."""

from __future__ import annotations

from typing import NamedTuple


class Violation(NamedTuple):
    """One property that doesn't hold: which, of what, and what was found."""

    rule: str
    subject: str
    found: str


def named(noun: str, record_id: bytes) -> str:
    """The subject of a violation: a noun and an id."""
    return f"{noun} {record_id.hex()}"
