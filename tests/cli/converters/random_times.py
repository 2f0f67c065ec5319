"""Random times in the grammars of other schedulers, by seed, and what ours makes of a timing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import msgspec

from raftsched.api.schedules.timing import timing_of
from raftsched.leader.schedules.fire_times import fire_times_of
from raftsched.wire.schedules import ScheduleRequest

ZONES = (
    *("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"),
    *("America/Santiago", "Asia/Kolkata", "Pacific/Chatham"),
)
"""Their rules are the same in all versions of the zone data that oracles may have."""
RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
CHANGE_DAYS = ("2027-03-13", "2027-03-27", "2027-04-03", "2027-10-02", "2027-10-30", "2027-11-06", "2027-02-06")
"""Days before clocks change somewhere."""


def ours(fields: dict[str, Any], after: datetime, count: int) -> list[datetime]:
    """Return the next fire times of a schedule with these fields, without those that its calendar skips."""
    document = {"name": "imported", "job": {"name": "job"}} | fields
    timing = timing_of(msgspec.json.decode(msgspec.json.encode(document), type=ScheduleRequest))
    after_ms = int(after.timestamp() * 1_000)
    fire_times = fire_times_of(timing, from_ms=after_ms)
    found: list[datetime] = []
    at = fire_times.next_after(after_ms)
    while at is not None and len(found) < count:
        if not fire_times.skipped_by_calendar(at):
            found.append(datetime.fromtimestamp(at / 1_000, UTC))
        at = fire_times.next_after(at)
    return found


def random_start(random: Random) -> datetime:
    """Return a time that is often shortly before a clock change."""
    if random.random() < 0.6:
        day = datetime.fromisoformat(random.choice(CHANGE_DAYS)).replace(tzinfo=UTC)
        return day + timedelta(minutes=random.randrange(2_400))
    return datetime(2026, 12, 1, tzinfo=UTC) + timedelta(minutes=random.randrange(3 * 366 * 1_440))


def cron_fields(random: Random) -> list[str]:
    """Return five fields as Vixie's cron reads them."""
    shares = (0.2, 0.35, 0.6, 0.75, 0.6)
    return [
        "*" if random.random() < share else ",".join(_item(random, kind) for _ in range(random.choice((1, 1, 1, 2, 3))))
        for kind, share in enumerate(shares)
    ]


def _item(random: Random, kind: int) -> str:
    low, high = RANGES[kind]
    kinds = ["value", "value", "range", "steps", "star"] + (["name", "names"] if kind >= 3 else [])
    first, last = sorted((random.randint(low, high), random.randint(low, high)))
    step = random.randint(1, high - low)
    match random.choice(kinds):
        case "range":
            return f"{first}-{last}"
        case "steps" if first < last:  # the oracles disagree about 5-5/2
            return f"{first}-{last}/{step}"
        case "star":
            return f"*/{step}"
        case "name":
            return _name(kind, first)
        case "names":
            return f"{_name(kind, first)}-{_name(kind, last)}"
    return str(first)


def _name(kind: int, value: int) -> str:
    return WEEKDAYS[value] if kind == 4 else MONTHS[value - 1]


def go_expression(random: Random, *, seconds: bool = False) -> str:
    """Return an expression of Go's cron library, with its own forms: `?`, and steps behind single values."""
    fields = cron_fields(random)
    for number, field in enumerate(fields):
        if field == "*" and random.random() < 0.3:
            fields[number] = "?"
        elif field.isdigit() and random.random() < 0.3:
            fields[number] = f"{field}/{random.randint(1, 20)}"
    return " ".join([random.choice(("0", "30", "*/20")), *fields] if seconds else fields)


def calendar_event(random: Random) -> str:
    """Return a calendar event of systemd; some have forms that it rejects."""
    parts = []
    if random.random() < 0.4:
        days = [day.capitalize() for day in (*WEEKDAYS[1:], WEEKDAYS[0])]
        first, last = sorted(random.sample(range(7), 2))
        parts.append(random.choice((days[first], f"{days[first]}..{days[last]}", f"{days[first]},{days[last]}")))
    if random.random() < 0.6:
        year = random.choice(("*-", "*-", "", "2027-", "2027..2028-", "28-", "2028/1-"))
        day = _spec(random, 1, 31, 0.3)
        mark = "-"
        if random.random() < 0.2:
            mark, day = "~", random.choice(("1", "7/1", "2", "01", "3,1", "7/2"))
        parts.append(f"{year}{_spec(random, 1, 12, 0.6)}{mark}{day}")
    if not parts or random.random() < 0.8:
        time = f"{_spec(random, 0, 23, 0.3)}:{_spec(random, 0, 59, 0.2)}"
        parts.append(f"{time}:{_spec(random, 0, 59, 0.05)}" if random.random() < 0.3 else time)
    return " ".join(parts)


def _spec(random: Random, low: int, high: int, star_share: float) -> str:
    if random.random() < star_share:
        return "*"
    return ",".join(_spec_item(random, low, high) for _ in range(random.choice((1, 1, 2))))


def _spec_item(random: Random, low: int, high: int) -> str:
    first, last = sorted((random.randint(low, high), random.randint(low, high)))
    step = random.randint(1, (high - low) // 2)
    forms = [str(first), f"{first:02}", f"{first}/{step}"]
    return random.choice([*forms, f"{first}..{last}", f"{first}..{last}/{step}"] if first < last else forms)
