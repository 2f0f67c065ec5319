"""Read the expressions of Go's cron library (robfig/cron v3), which Kubernetes and Dkron use.

It differs from cron: a day field counts as unrestricted only if it has a plain `*` or `?`, so `*/2` restricts; `5/15`
means 5-59/15; Sunday is 0 only. At a clock change it follows the clock.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from raftsched.cli.converters.wall_times import WallTimes, all_of, timing_fields
from raftsched.core.cron.fields import DAY, HOUR, MINUTE, MONTH, SECOND, WEEKDAY, Field
from raftsched.core.cron.interval import period_text
from raftsched.errors import Invalid

_ALIASES: Final = {
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * 0",
    "@daily": "0 0 0 * * *",
    "@midnight": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
}
_EVERY: Final = "@every "
_FIELDS: Final = (SECOND, MINUTE, HOUR, DAY, MONTH, WEEKDAY)
_ITEM: Final = re.compile(r"(?:[*?]|(?P<low>\w+)(?:-(?P<high>\w+))?)(?:/(?P<step>\d+))?", re.ASCII)
_ZONE: Final = re.compile(r"(?:CRON_)?TZ=(?P<zone>\S*) +(?P<rest>.*)", re.DOTALL)
_UNITS: Final = {
    "h": 3_600,
    "m": 60,
    "s": 1,
    "ms": 1e-3,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ns": 1e-9,
}  # Go takes both
_DURATION: Final = re.compile(r"(?:\d+(?:\.\d*)?|\.\d+)(?:h|ms|m|us|µs|μs|ns|s)", re.ASCII)
_DURATION_PARTS: Final = re.compile(rf"(?:{_DURATION.pattern})+", re.ASCII)


def split_zone(text: str) -> tuple[str, str]:
    """Return the zone in front of an expression, "" if there is none, and the expression."""
    match = _ZONE.fullmatch(text)
    return (match["zone"], match["rest"].strip()) if match else ("", text)


def go_timing(text: str, *, zone: Callable[[], str], seconds: bool) -> dict[str, Any]:
    """Return the fields of a schedule for an expression that names no zone; `seconds`: it has six fields, not five.

    `zone` is called if the times depend on it.

    Raises `Invalid` if the library rejects the expression, or if ours can't say the same.
    """
    if text.startswith(_EVERY):
        return {"every": period_text(1_000 * max(1, int(go_seconds(text.removeprefix(_EVERY)))))}
    if text in _ALIASES:
        return timing_fields(_times(_ALIASES[text].split()), zone=zone(), clock="follow")
    if text.startswith("@"):
        raise Invalid(f"{text!a} is not known; write one of {', '.join(_ALIASES)} or @every 90s")
    parts = text.split()
    if len(parts) != (6 if seconds else 5):
        raise Invalid(f"{text!a} has {len(parts)} fields in place of {6 if seconds else 5}")
    times = _times(parts if seconds else ["0", *parts])
    return timing_fields(times, zone=zone(), clock="follow", text=" ".join(parts))


def go_seconds(text: str) -> int | float:
    """Return the seconds of a Go duration such as 1h30m; raises `Invalid` for other texts."""
    if text == "0":
        return 0
    if not _DURATION_PARTS.fullmatch(text):
        raise Invalid(f"{text!a} is not a duration of Go; write one like 90s or 1h30m")
    total = Decimal(0)
    for part in _DURATION.findall(text):
        number = part.rstrip("hmsuµμn")
        total += Decimal(number) * Decimal(str(_UNITS[part[len(number) :]]))
    return int(total) if total == int(total) else float(total)


def _times(parts: list[str]) -> WallTimes:
    read = [_read(field, part) for field, part in zip(_FIELDS, parts, strict=True)]
    seconds, minutes, hours, days, months, weekdays = (values for values, _ in read)
    return WallTimes(
        seconds=seconds,
        minutes=minutes,
        hours=hours,
        days=days,
        months=months,
        weekdays=weekdays,
        either=not read[3][1] and not read[5][1],
    )


def _read(field: Field, text: str) -> tuple[frozenset[int], bool]:
    """Return the values of a field, and whether it has a plain `*`."""
    values: set[int] = set()
    is_star = False
    for item in filter(None, text.split(",")):
        match = _ITEM.fullmatch(item)
        if match is None:
            raise Invalid(f"{field.name} {item!a} is not known to Go's cron library")
        step = int(match["step"] or 1)
        low, high = _range(field, match, item)
        if step == 0 or low > high:
            raise Invalid(f"{field.name} {item!a}: the range or the step is empty")
        values.update(range(low, high + 1, step))
        is_star = is_star or (match["low"] is None and step == 1)
    if not values:
        raise Invalid(f"{field.name} {text!a} has no value")
    return all_of(field) if is_star else frozenset(values), is_star


def _range(field: Field, match: re.Match[str], item: str) -> tuple[int, int]:
    if match["low"] is None:
        return field.low, field.high
    low = _number(field, match["low"], item)
    if match["high"] is not None:
        return low, _number(field, match["high"], item)
    return low, low if match["step"] is None else field.high


def _number(field: Field, text: str, item: str) -> int:
    value = field.names.get(text.upper(), int(text) if text.isdecimal() else -1)
    if not field.low <= value <= field.high:
        raise Invalid(f"{field.name} {item!a} is out of range")
    return value
