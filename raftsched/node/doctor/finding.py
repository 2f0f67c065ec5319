"""Define the result of one check."""

from __future__ import annotations

from typing import Literal

import msgspec

Level = Literal["ok", "warn", "fail", "skip"]
"""`fail`: a node can't run, or not safely. `warn`: it can, but look at it. `skip`: this can't be checked here."""


class Finding(msgspec.Struct, frozen=True):
    """The result of one check, in words."""

    check: str
    """Name of the check."""
    level: Level
    text: str
    """The finding in words."""
    cure: str = ""
    """The next step; "" if there is nothing to do."""


def ok(check: str, text: str) -> Finding:
    """Return a finding that needs nothing."""
    return Finding(check, "ok", text)


def warn(check: str, text: str, cure: str) -> Finding:
    """Return a finding that an operator should look at."""
    return Finding(check, "warn", text, cure)


def fail(check: str, text: str, cure: str) -> Finding:
    """Return a finding with which a node can't run, or not safely."""
    return Finding(check, "fail", text, cure)


def skip(check: str, text: str) -> Finding:
    """Return that something can't be checked here, and why."""
    return Finding(check, "skip", text)
