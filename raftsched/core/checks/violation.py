"""Define the violations that checks of the state report."""

from __future__ import annotations

from typing import NamedTuple


class Violation(NamedTuple):
    """Describe a broken invariant: the rule, its subject, and what was found."""

    rule: str
    subject: str
    found: str


def named(noun: str, record_id: bytes) -> str:
    """Return the subject of a violation: a noun and an id."""
    return f"{noun} {record_id.hex()}"
