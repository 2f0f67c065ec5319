"""Format values for pages: times, durations, counts, JSON. Each is a filter of the templates."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from markupsafe import Markup, escape

from raftsched.wire.common import STATUS_NAMES

_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))
_BYTE_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_ID_CHARS: Final = 12
UNKNOWN: Final = "\N{EN DASH}"
"""The text of a value that is not known."""


def time(moment: datetime | str | None) -> Markup:
    """Return a time in UTC as an element that `times.js` shows as the reader prefers; "" if there is none."""
    if moment is None:
        return Markup("")
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment)
    moment = moment.astimezone(UTC)
    exact = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return Markup('<time datetime="{}" title="{}">{} UTC</time>').format(
        exact, exact, moment.strftime("%Y-%m-%d %H:%M:%S")
    )


def duration(ms: float | None) -> str:
    """Return milliseconds as a text of at most two units, such as `1 h 5 min`."""
    if ms is None:
        return ""
    if ms < 1_000:
        return f"{ms:.0f} ms"
    if ms < 10_000:
        return f"{ms / 1000:.1f} s"
    for position, (unit, size) in enumerate(_UNITS):
        if ms >= size:
            whole, rest = divmod(int(ms), size)
            if position + 1 == len(_UNITS) or not (smaller := rest // _UNITS[position + 1][1]):
                return f"{whole} {unit}"
            return f"{whole} {unit} {smaller} {_UNITS[position + 1][0]}"
    return f"{ms:.0f} ms"


def seconds(value: float | None) -> str:
    """Return seconds as `duration` does."""
    return "" if value is None else duration(value * 1000)


def number(count: float | None) -> str:
    """Return a count with separators; `UNKNOWN` for None."""
    return UNKNOWN if count is None else f"{count:,.0f}"


def rate(per_second: float) -> str:
    """Return a rate with as many digits as it needs."""
    return f"{per_second:,.0f}" if per_second >= 10 or not per_second else f"{per_second:.2f}"


def size(count: float | None) -> str:
    """Return bytes in a unit that leaves at most four digits."""
    if count is None:
        return UNKNOWN
    for unit in _BYTE_UNITS:
        if count < 1024 or unit == _BYTE_UNITS[-1]:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    raise AssertionError("the last unit takes all")


def words(name: str) -> str:
    """Return a name of the API, such as `dead_letter`, as words."""
    return name.replace("_", " ")


def prose(text: str) -> Markup:
    """Return a text of ours with the commands in it, between backquotes, as code."""
    parts = text.split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if position % 2 else escape(part) for position, part in enumerate(parts)
    )


def status(name: str) -> Markup:
    """Return a status as a badge: a colour, and its words."""
    kind = name if name in STATUS_NAMES else "other"
    return Markup('<span class="status status-{}">{}</span>').format(kind, words(name))


def short_id(text: str) -> str:
    """Return the end of an id, which is what differs between ids of the same time."""
    return text[-_ID_CHARS:]


def pretty(value: Any) -> str:
    """Return JSON for people; of an absent value ""."""
    if value is None or value is msgspec.UNSET:
        return ""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def percent(part: float, whole: float) -> str:
    """Return a share, such as `4.2 %`."""
    return f"{100 * part / whole:.1f} %" if whole else UNKNOWN


FILTERS: Final = {
    "time": time,
    "duration": duration,
    "seconds": seconds,
    "number": number,
    "rate": rate,
    "size": size,
    "words": words,
    "prose": prose,
    "status": status,
    "short_id": short_id,
    "pretty": pretty,
}
