"""Text to recurrence. croniter reads the items of a field that it reads rightly; the others never reach it.

What is accepted, beyond lists, ranges, steps and names of Vixie cron:

    5-5         one value. croniter 7 takes it for the whole field
    22-3, 22-3/2  over the end of the field, steps counted on: 22, 0, 2. croniter 7 restarts its steps at the border
    5/15        from 5 to the end of the field
    ?           alone in a day field: `*`
    L           as a day of month: the last day
    15W, LW     the weekday nearest to the 15th, within the month; the last weekday. No 31W in a month of 30 days
    5#2, L5     the second and the last Friday; they go in lists with other weekdays
    @daily …    yearly, annually, monthly, weekly, daily, midnight, hourly; and `@every 90s`

Refused with what to write instead: years, random tokens (every node and every look would draw other values), steps
larger than their field, zones inside the text, dates that no calendar has, and text too long to be meant.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NoReturn, cast, get_args

from croniter import CroniterError, croniter

from raftsched import limits
from raftsched.core.cron.expression import DayRule, Expression
from raftsched.core.cron.fields import DAY, FIELDS, WEEKDAY, Field
from raftsched.core.cron.interval import parse_every
from raftsched.core.cron.recurrence import Recurrence
from raftsched.core.cron.search import Cron, Gap, Overlap
from raftsched.core.cron.zones import zone as zone_named
from raftsched.errors import Invalid

_ALIASES: Final = {
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
    "@MONTHLY": "0 0 1 * *",
    "@WEEKLY": "0 0 * * 0",
    "@DAILY": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@HOURLY": "0 * * * *",
}
_EVERY: Final = "@every"
_SHOWN_CHARS: Final = 60
_ITEM: Final = re.compile(r"(\*|[A-Z]+|\d+)(?:-([A-Z]+|\d+))?(?:/(\d+))?", re.ASCII)
_NEAREST: Final = re.compile(r"(\d{1,2}|L)W", re.ASCII)
_NTH: Final = re.compile(r"([A-Z]{3}|\d)#(\d+)", re.ASCII)
_LAST: Final = re.compile(r"L([A-Z]{3}|\d)", re.ASCII)
_RANDOM: Final = re.compile(r"[HR](?:\(|/|$)|~")
_DIGITS_MAX: Final = 2


@dataclass(slots=True)
class _Reading:
    """One field as far as it has been read."""

    kind: Field
    star: bool
    """It begins with `*` (or is `?`), which in a day field restricts nothing and in the hour field means real time."""
    items: list[str] = field(default_factory=list)
    """The items for croniter."""
    last_day: bool = False
    nearest: set[int] = field(default_factory=set)
    nth: set[tuple[int, int]] = field(default_factory=set)
    last: set[int] = field(default_factory=set)


def parse(text: str, *, zone: str, dst_gap: str = "shift", dst_overlap: str = "first", start_ms: int = 0) -> Recurrence:
    """Return what `text` means in the IANA zone `zone`; `@every` counts from `start_ms` and knows no zone.

    Raises `Invalid`, its text beginning with the field at fault: cron, timezone, dst_gap or dst_overlap. Cost: some
    0.3 ms, or a look into a table for a text that was parsed before; longer texts than `limits.CRON_CHARS_MAX` are
    refused unread.
    """
    if dst_gap not in get_args(Gap):
        _refuse(f"{dst_gap[:_SHOWN_CHARS]!a} is none; write shift or skip", "dst_gap")
    if dst_overlap not in get_args(Overlap):
        _refuse(f"{dst_overlap[:_SHOWN_CHARS]!a} is none; write first or both", "dst_overlap")
    found = zone_named(zone)
    plain = _plain(text)
    if plain[: len(_EVERY)].lower() == _EVERY:
        return parse_every(plain[len(_EVERY) :], start_ms=start_ms, field="cron")
    written = _ALIASES.get(plain.upper(), plain).upper()
    expression = parse_expression(written)
    return Cron(written, expression, found, cast("Gap", dst_gap), cast("Overlap", dst_overlap))


@lru_cache(maxsize=limits.EXPRESSIONS_KEPT_MAX)
def parse_expression(text: str) -> Expression:
    """Return the meaning of five or six fields, blanks normalised and in capitals; raise `Invalid` for others."""
    texts = _fields(text)
    readings = [_read(field, written) for field, written in zip(FIELDS, texts, strict=True)]
    values = _expanded(readings)
    _, _, hours, day, _, weekday = readings
    days = DayRule(
        days=frozenset(values[3]),
        weekdays=frozenset(values[5]),
        last_day=day.last_day,
        nearest=frozenset(day.nearest),
        nth=frozenset(weekday.nth),
        last=frozenset(weekday.last),
        either=not day.star and not weekday.star,
    )
    expression = Expression(
        seconds=values[0], minutes=values[1], hours=values[2], months=values[4], days=days, real_time=hours.star
    )
    if not expression.can_match():
        _refuse(f"no year has a day {texts[3]} in month {texts[4]} on weekday {texts[5]}, so {text!a} would never run")
    return expression


def _refuse(problem: str, field: str = "cron") -> NoReturn:
    raise Invalid(f"{field}: {problem}", field=field)


def _plain(text: str) -> str:
    """Return the text with single blanks between its words; refuse what is long, strange or empty."""
    if len(text) > limits.CRON_CHARS_MAX:
        _refuse(f"is {len(text)} characters long; write at most {limits.CRON_CHARS_MAX}")
    shown = f"{text[:_SHOWN_CHARS]!a}"
    if not all(" " <= character <= "~" or character == "\t" for character in text):
        _refuse(f"{shown} holds characters that no expression has; write ASCII letters, digits and blanks")
    if "TZ=" in text.upper():
        _refuse(f"{shown} names a zone; write it in the field timezone")
    return " ".join(text.split())


def _fields(text: str) -> list[str]:
    texts = text.split(" ") if text else []
    if text.startswith("@"):
        _refuse(f"{text[:_SHOWN_CHARS]!a} is not known; write one of {', '.join(_ALIASES).lower()} or @every 90s")
    if len(texts) == len(FIELDS) - 1:
        return ["0", *texts]
    if len(texts) == len(FIELDS):
        return texts
    if len(texts) == len(FIELDS) + 1:
        _refuse(f"{text[:_SHOWN_CHARS]!a} has 7 fields; there is none for years, a schedule has a start and an end")
    _refuse(
        f"{text[:_SHOWN_CHARS]!a} has {len(texts)} fields; write 5 (minute, hour, day of month, month, day of week), "
        "or 6 with the second first"
    )


# -- one field --------------------------------------------------------------------------------------------------------


def _read(field: Field, text: str) -> _Reading:
    if text == "?" and field in (DAY, WEEKDAY):
        text = "*"
    reading = _Reading(field, star=text.startswith("*"))
    for item in dict.fromkeys(text.split(",")):
        if not (_read_day(reading, item) if field is DAY else field is WEEKDAY and _read_weekday(reading, item)):
            reading.items.append(_for_croniter(field, item))
    return reading


def _read_day(reading: _Reading, item: str) -> bool:
    """Read what only a day of month can be; return whether it was that."""
    if item == "L":
        reading.last_day = True
    elif match := _NEAREST.fullmatch(item):
        reading.nearest.add(0 if match[1] == "L" else _number(DAY, match[1], item))
    else:
        return False
    return True


def _read_weekday(reading: _Reading, item: str) -> bool:
    """Read what only a day of week can be; return whether it was that."""
    if match := _NTH.fullmatch(item):
        if match[2] not in ("1", "2", "3", "4", "5"):
            _refuse(f"day of week {item!a}: a month has the weekday 4 or 5 times; write #1 to #5")
        reading.nth.add((_number(WEEKDAY, match[1], item) % 7, int(match[2])))
    elif match := _LAST.fullmatch(item):
        reading.last.add(_number(WEEKDAY, match[1], item) % 7)
    elif "L" in item:  # no weekday's name has an L
        _refuse(f"day of week {item!a} is not known; the last Friday of a month is written L5 or LFRI")
    else:
        return False
    return True


def _for_croniter(field: Field, item: str) -> str:
    """Return a list item as croniter reads it rightly, numbers for names; refuse what can't be meant."""
    match = _ITEM.fullmatch(item)
    if match is None or (match[1] == "*" and match[2] is not None):
        _refuse_item(field, item)
    low, high, step = match.groups()
    width = 1 if step is None else _step(field, step, item)
    if low == "*":
        return item
    first = _number(field, low, item)
    if high is None:
        return f"{first}" if step is None else f"{first}/{width}"
    return _range(field, first, _number(field, high, item), width, item)


def _range(field: Field, first: int, last: int, step: int, item: str) -> str:
    """Return a range for croniter, those that it misreads as lists: equal ends, over the end, and 7 for Sunday."""
    if field.low <= first < last <= field.high:
        return f"{first}-{last}/{step}"
    if last < first:
        if field is DAY and step > 1:
            _refuse(f"day of month {item!a}: months differ in length, so no step runs over their end; write a list")
        last += field.size
    return ",".join(f"{(value - field.low) % field.size + field.low}" for value in range(first, last + 1, step))


def _number(field: Field, written: str, item: str) -> int:
    """Return a value or a name of the field as its number; 7 stays 7."""
    if written in field.names:
        return field.names[written]
    high = 7 if field is WEEKDAY else field.high
    if not written.isdigit() or len(written) > _DIGITS_MAX or not field.low <= int(written) <= high:
        _refuse_item(field, item)
    return int(written)


def _step(field: Field, written: str, item: str) -> int:
    if len(written) > _DIGITS_MAX or not 1 <= int(written) <= field.size:
        _refuse(
            f"{field.name} {item[:_SHOWN_CHARS]!a}: a step here is 1 to {field.size}; "
            "for longer periods write @every, like @every 90m"
        )
    return int(written)


def _refuse_item(field: Field, item: str) -> NoReturn:
    shown = f"{field.name} {item[:_SHOWN_CHARS]!a}"
    if _RANDOM.search(item):
        _refuse(f"{shown} is random, so that it would differ at each look; write a value")
    _refuse(f"{shown} is not known; write {field.example}, a list, a range or a step")


# -- all fields -------------------------------------------------------------------------------------------------------


def _expanded(readings: list[_Reading]) -> list[tuple[int, ...]]:
    """Return the values of each field in rising order, as croniter reads them; none if there are only marks."""
    texts = [",".join(reading.items) or "*" for reading in readings]
    try:
        expanded, _ = croniter.expand(" ".join(texts), second_at_beginning=True)
    except CroniterError as error:
        raise Invalid(f"cron: {' '.join(texts)!a} is not read: {error}", field="cron") from error
    seconds = expanded.pop()
    return [
        _values(reading, cast("list[int | str]", values))
        for reading, values in zip(readings, [seconds, *expanded], strict=True)
    ]


def _values(reading: _Reading, expanded: list[int | str]) -> tuple[int, ...]:
    if not reading.items:
        return ()
    if "*" in expanded:
        return tuple(range(reading.kind.low, reading.kind.high + 1))
    return tuple(sorted(int(value) for value in expanded))
