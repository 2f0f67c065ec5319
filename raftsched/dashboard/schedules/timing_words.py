"""Say a timing in words, such as "at 02:00, Monday to Friday". What has no short words keeps its expression."""

from __future__ import annotations

import re
from typing import Final

_MACROS: Final = {
    "@yearly": "at 00:00 on January 1",
    "@annually": "at 00:00 on January 1",
    "@monthly": "at 00:00 on day 1 of every month",
    "@weekly": "at 00:00 on Sunday",
    "@daily": "at 00:00 every day",
    "@midnight": "at 00:00 every day",
    "@hourly": "at minute 0 of every hour",
}
_DAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_ORDINALS: Final = ("", "first", "second", "third", "fourth", "fifth")
_STEP: Final = re.compile(r"\*/(\d+)")
_RANGE: Final = re.compile(r"(\w+)-(\w+)")
_CLOCK_TIMES_MAX: Final = 4


def timing_words(cron: str | None, every: str | None, at: str | None = None) -> str:
    """Return the words for a timing; of a schedule that has none, that it runs by hand."""
    if cron:
        return _of_cron(cron)
    if every:
        return f"every {every}"
    return f"once, at {at}" if at else "by hand only"


def _of_cron(expression: str) -> str:
    text = expression.strip()
    if text.startswith("@every"):
        return f"every {text.removeprefix('@every').strip()}"
    if text in _MACROS:
        return _MACROS[text]
    fields = text.split()
    if len(fields) not in (5, 6):
        return text
    second, minute, hour, day, month, weekday = fields if len(fields) == 6 else ("0", *fields)
    days = _days(day, month, weekday)
    clock = _clock(second, minute, hour)
    if clock.startswith("at ") and ":" in clock and not days:
        days = "every day"
    return ", ".join(part for part in (clock, days) if part)


def _clock(second: str, minute: str, hour: str) -> str:
    """Return when in a day."""
    if second != "0":
        return _seconds(second, minute, hour)
    minutes, hours = _numbers(minute), _numbers(hour)
    if minutes and hours and len(minutes) * len(hours) <= _CLOCK_TIMES_MAX:
        return f"at {_listed([f'{h:02}:{m:02}' for h in hours for m in minutes])}"
    step = _STEP.fullmatch(minute)
    if minute == "*" or step:
        often = f"every {step[1]} minutes" if step and step[1] != "1" else "every minute"
        return often if hour == "*" else f"{often}, {_hours(hour)}"
    at = f"at minute {_listed([str(each) for each in minutes])}" if minutes else f"at minutes {minute}"
    return f"{at} of every hour" if hour == "*" else f"{at}, {_hours(hour)}"


def _seconds(second: str, minute: str, hour: str) -> str:
    step = _STEP.fullmatch(second)
    often = "every second" if second == "*" else f"every {step[1]} seconds" if step else f"at second {second}"
    if minute == hour == "*":
        return often
    return f"{often}, {_clock('0', minute, hour)}"


def _hours(hour: str) -> str:
    if step := _STEP.fullmatch(hour):
        return f"every {step[1]} hours"
    if bounds := _RANGE.fullmatch(hour):
        return f"from hour {bounds[1]} to {bounds[2]}"
    return f"in hour {_listed(hour.split(','))}"


def _days(day: str, month: str, weekday: str) -> str:
    """Return on which days; "" = on all."""
    parts = []
    if not day.startswith(("*", "?")):
        parts.append("on the last day of the month" if day in ("L", "l") else f"on day {_listed(day.split(','))}")
    elif _STEP.fullmatch(day):
        parts.append(f"on days {day}")
    if not weekday.startswith(("*", "?")):
        named = _listed([_name(each, _DAYS, first=0) for each in weekday.split(",")])
        parts.append(named if not parts else f"or {named}")
    if month != "*":
        parts.append(f"in {_listed([_name(each, _MONTHS, first=1) for each in month.split(',')])}")
    return " ".join(parts)


def _name(text: str, names: tuple[str, ...], *, first: int) -> str:
    """Return a day or month in words: a number, a short name, a range, or the n-th of a month."""
    if bounds := _RANGE.fullmatch(text):
        return f"{_name(bounds[1], names, first=first)} to {_name(bounds[2], names, first=first)}"
    one, separator, number = text.partition("#")
    if separator and number.isdigit() and int(number) < len(_ORDINALS):
        return f"the {_ORDINALS[int(number)]} {_name(one, names, first=first)} of the month"
    if text.isdigit() and first <= int(text) < len(names) + first:
        return names[int(text) - first]
    return next((name for name in names if len(text) >= 3 and name.lower().startswith(text.lower())), text)


def _numbers(field: str) -> list[int]:
    """Return the numbers of a list; [] if the field is something else."""
    parts = field.split(",")
    return [int(part) for part in parts] if all(part.isdigit() for part in parts) else []


def _listed(texts: list[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"
