"""IANA zones as stretches of one offset, from the pinned `tzdata` package and never from the operating system.

`zoneinfo` gives the offset at an instant but not the instants at which it changes; those are found by sampling. One
sample in three days is enough: since 1970 no two changes of any zone are less than six days apart, which a test holds
against the packaged data. Stretches are worked out half a year at a time and kept.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.resources import files
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from raftsched import limits
from raftsched.core.cron.expression import DAY_SECONDS
from raftsched.errors import Invalid

RULES_VERSION: Final = str(import_module("tzdata").IANA_VERSION)
"""Of the packaged rules, such as 2026b: later ones sort behind."""
OFFSET_SECONDS_MAX: Final = DAY_SECONDS
"""No offset reaches it in either direction: `datetime` allows none of 24 hours or more."""

_SAMPLE_SECONDS: Final = 3 * DAY_SECONDS
_CHUNK_SECONDS: Final = 1 << 24
_LOOKBACK_SECONDS: Final = 2 * DAY_SECONDS
"""A stretch depends on the one before only if the clock went back by less than this."""
_OFFSET: Final = re.compile(r"^(UTC|GMT|Z)?[+-]\d", re.IGNORECASE)
_NOT_ZONES: Final = frozenset({"Factory", "localtime", "posixrules"})


class Stretch(NamedTuple):
    """Instants from `start` up to, not including, `end`, all with one offset: wall = instant + offset, in seconds."""

    start: int
    end: int
    offset: int
    high: int
    """The wall times before this one were reached before `start`: shown, or leapt over by an earlier change."""


@dataclass(frozen=True, slots=True)
class Zone:
    """One zone, and what has been worked out of it so far."""

    name: str
    info: ZoneInfo
    _chunks: dict[int, tuple[Stretch, ...]] = field(default_factory=dict, repr=False, compare=False)

    def stretch(self, at: int) -> Stretch:
        """Return the stretch that holds the instant `at`, in seconds since 1970, up to `expression.YEAR_MAX`.

        A stretch also ends where no offset changes; the next one then begins with the same offset.
        """
        number = at // _CHUNK_SECONDS
        chunk = self._chunks.get(number)
        if chunk is None:
            if len(self._chunks) >= limits.ZONE_CHUNKS_MAX:
                self._chunks.clear()
            chunk = self._chunks[number] = tuple(self._stretches(number * _CHUNK_SECONDS))
        return next(stretch for stretch in chunk if at < stretch.end)

    def wall(self, at: int) -> int:
        """Return what the clock shows at this instant."""
        return at + self.offset(at)

    def offset(self, at: int) -> int:
        difference = datetime.fromtimestamp(at, self.info).utcoffset()
        assert difference is not None
        return difference.days * DAY_SECONDS + difference.seconds

    def _stretches(self, start: int) -> list[Stretch]:
        """Return the stretches of the chunk that begins at `start`, cut at its ends."""
        end = start + _CHUNK_SECONDS
        at = start - _LOOKBACK_SECONDS
        offset = self.offset(at)
        high = at + offset
        found: list[Stretch] = []
        while at < end:
            change = self._next_change(at, offset, end)
            if change > start:
                begins = max(at, start)
                found.append(Stretch(begins, change, offset, max(high, begins + offset) if begins > at else high))
            high = max(high, change + offset)
            at, offset = change, self.offset(change)
        return found

    def _next_change(self, at: int, offset: int, end: int) -> int:
        """Return the first instant after `at` with another offset, or `end` if there is none before it."""
        low = at
        while low < end:
            probe = min(low + _SAMPLE_SECONDS, end)
            if self.offset(probe) != offset:
                break
            low = probe
        else:
            return end
        while probe - low > 1:
            middle = (low + probe) // 2
            if self.offset(middle) == offset:
                low = middle
            else:
                probe = middle
        return probe


def zone(name: str, *, field: str = "timezone") -> Zone:
    """Return the zone of this name, the same object every time; raise `Invalid` naming `field` if there is none."""
    if name not in _names():
        raise Invalid(f"{field}: {_advice(name)}", field=field)
    return _load(name)


@cache
def _load(name: str) -> Zone:
    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as packaged:
        return Zone(name, ZoneInfo.from_file(packaged, key=name))


@cache
def _names() -> frozenset[str]:
    return frozenset(files("tzdata").joinpath("zones").read_text(encoding="ascii").split()) - _NOT_ZONES


def _advice(name: str) -> str:
    """Say what is wrong with a name that is no zone's, and what to write instead."""
    if len(name) > limits.ZONE_NAME_CHARS_MAX:
        return f"a zone's name has at most {limits.ZONE_NAME_CHARS_MAX} characters; write one like Europe/Berlin or UTC"
    if not name:
        return "is empty; write an IANA name like Europe/Berlin, or UTC"
    if _OFFSET.search(name):
        return (
            f"{name!a} is not a time zone; write Etc/GMT-2 for 2 hours ahead of UTC, its sign is reversed, or a place"
        )
    known = {candidate.lower(): candidate for candidate in _names()}
    close = get_close_matches(name.lower(), known, n=1)
    hint = f"did you mean {known[close[0]]}?" if close else "write an IANA name like Europe/Berlin, or UTC"
    return f"{name!a} is not a time zone; {hint}"
