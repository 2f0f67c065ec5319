"""What a schedule must do, by brute force: walk the minutes, look at the wall clock, and ask whether it matches.

Written from the specification (`raftsched/core/cron/__init__.py`) and sharing no code with it: values are asked for
one by one and never expanded, days are `datetime.date`s, and clock changes are seen, not computed. `walk` is slow and
plain on purpose.

    python -m tests.core.cron.oracle --all     every zone, every change from 1990 to 2037, every expression

compares the package with it and stops at the first schedule that differs. `test_oracle` runs a part of the same.
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import cache, lru_cache
from importlib.resources import files
from itertools import product
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from raftsched.core.cron.parser import parse

GAPS = ("shift", "skip")
OVERLAPS = ("first", "both")
OPTIONS = tuple(product(GAPS, OVERLAPS))
EPOCH = date(1970, 1, 1)
_MONTHS = "JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC".split()  # noqa: SIM905
_WEEKDAYS = "SUN MON TUE WED THU FRI SAT".split()  # noqa: SIM905


# -- what an expression names -----------------------------------------------------------------------------------------


def named(item: str, value: int, low: int, high: int) -> bool:
    """Whether one item of a list, numbers only, names this value of a field that runs from `low` to `high`."""
    base, slash, written = item.partition("/")
    step = int(written) if slash else 1
    if base == "*":
        return (value - low) % step == 0
    first, dash, last = base.partition("-")
    if not dash and not slash:
        return value == int(first)
    start, stop = int(first), int(last) if dash else high
    if start <= stop:
        return start <= value <= stop and (value - start) % step == 0
    steps_on = (value - start) % (high - low + 1)  # over the end of the field
    return steps_on <= (stop - start) % (high - low + 1) and steps_on % step == 0


def listed(text: str, value: int, low: int, high: int) -> bool:
    return any(named(item, value, low, high) for item in text.split(","))


def numbers(text: str, names: list[str], first: int) -> str:
    for number, name in enumerate(names, start=first):
        text = text.replace(name, str(number))
    return text


def is_day(item: str, day: date) -> bool:
    """Whether an item of the day-of-month field names this day."""
    if item == "L":
        return (day + timedelta(days=1)).day == 1
    if item.endswith("W"):
        month = [date(day.year, day.month, 1) + timedelta(n) for n in range(31)]
        month = [other for other in month if other.month == day.month]
        wanted = month[-1].day if item == "LW" else int(item[:-1])
        working = [other for other in month if other.isoweekday() <= 5]
        return wanted <= len(month) and min(working, key=lambda other: abs(other.day - wanted)) == day
    return named(item, day.day, 1, 31)


def is_weekday(item: str, day: date) -> bool:
    """Whether an item of the day-of-week field names this day; both 0 and 7 are Sunday."""
    weekday, mark, nth = item.partition("#")
    if mark:
        return (
            int(weekday) % 7 == day.isoweekday() % 7
            and (day - timedelta(days=7 * int(nth))).month
            != day.month
            == (day - timedelta(days=7 * (int(nth) - 1))).month
        )
    if item.startswith("L"):
        return int(item[1:]) % 7 == day.isoweekday() % 7 and (day + timedelta(days=7)).month != day.month
    first, dash, last = item.partition("/")[0].partition("-")
    if dash and int(first) <= int(last):  # a rising range, which may end with 7
        return any(named(item, value, 0, 7) for value in {day.isoweekday(), day.isoweekday() % 7})
    if dash:
        item = item.replace(f"{first}-", f"{int(first) % 7}-", 1)
        return named(item, day.isoweekday() % 7, 0, 6)
    if item.startswith("7"):
        item = "0" + item[1:]
    return named(item, day.isoweekday() % 7, 0, 6)


@dataclass(slots=True)
class Reading:
    """One expression, as the specification reads it."""

    text: str
    second: str = "0"
    minute: str = ""
    hour: str = ""
    day: str = ""
    month: str = ""
    weekday: str = ""
    _days: dict[date, bool] = field(default_factory=dict)
    _times: dict[int, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        fields = self.text.upper().replace("?", "*").split()
        if len(fields) == 6:
            self.second = fields.pop(0)
        self.minute, self.hour, self.day, month, weekday = fields
        self.month = numbers(month, _MONTHS, 1)
        self.weekday = numbers(weekday, _WEEKDAYS, 0)

    @property
    def runs_by_elapsed_time(self) -> bool:
        return self.hour.startswith("*")

    def on(self, day: date) -> bool:
        """Whether the date matches."""
        if day not in self._days:
            by_day = any(is_day(item, day) for item in self.day.split(","))
            by_weekday = any(is_weekday(item, day) for item in self.weekday.split(","))
            either = not self.day.startswith("*") and not self.weekday.startswith("*")
            both_fields = (by_day or by_weekday) if either else (by_day and by_weekday)
            self._days[day] = both_fields and listed(self.month, day.month, 1, 12)
        return self._days[day]

    def at(self, second_of_day: int) -> bool:
        """Whether the time of day matches."""
        if second_of_day not in self._times:
            minute_of_day, second = divmod(second_of_day, 60)
            hour, minute = divmod(minute_of_day, 60)
            self._times[second_of_day] = (
                listed(self.second, second, 0, 59)
                and listed(self.minute, minute, 0, 59)
                and listed(self.hour, hour, 0, 23)
            )
        return self._times[second_of_day]

    def matches(self, wall: int) -> bool:
        """Whether the clock's showing `wall` (seconds since 1970) is one of the times that are named."""
        second_of_day = wall % 86_400
        known = self._times.get(second_of_day)
        return (self.at(second_of_day) if known is None else known) and self.on(EPOCH + timedelta(wall // 86_400))


@lru_cache(maxsize=256)
def reading(text: str) -> Reading:
    """Return the reading of a text, the same one while it is asked for again, since it remembers what it saw."""
    return Reading(text)


# -- what the clock shows ---------------------------------------------------------------------------------------------


class Tick(NamedTuple):
    """An instant and what the clock shows then, both in seconds since 1970."""

    at: int
    wall: int


def packaged(name: str) -> ZoneInfo:
    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as data:
        return ZoneInfo.from_file(data, key=name)


def ticks(info: ZoneInfo, start: int, end: int, step: int = 60) -> list[Tick]:
    """Return every instant from `start` to `end`, both included, on a grid of `step` seconds."""
    clock = []
    for at in range(start, end + 1, step):
        shown = datetime.fromtimestamp(at, info).replace(tzinfo=UTC)
        clock.append(Tick(at, int(shown.timestamp())))
    return clock


def walk(read: Reading, clock: list[Tick], gap: str = "shift", overlap: str = "first", step: int = 60) -> list[int]:
    """Return the instants of `clock` at which the schedule fires, in seconds.

    What the clock showed before its first tick must have been earlier than that tick's wall time.
    """
    if read.runs_by_elapsed_time:
        return [at for at, wall in clock if read.matches(wall)]
    fired = []
    reached = clock[0].wall - step
    for at, wall in clock:
        fires = read.matches(wall)
        if wall <= reached:  # shown before
            fires = fires and overlap == "both"
        else:
            if not fires and gap == "shift" and wall > reached + step:
                fires = any(read.matches(leapt) for leapt in range(reached + step, wall, step))
            reached = wall
        if fires:
            fired.append(at)
    return fired


# -- all changes of all zones -----------------------------------------------------------------------------------------


class Change(NamedTuple):
    zone: str
    at: int
    before: int
    after: int


def zone_names() -> list[str]:
    """Return one name for each distinct zone of the package: links are the same data under other names."""
    seen: dict[bytes, str] = {}
    for name in files("tzdata").joinpath("zones").read_text(encoding="ascii").split():
        seen.setdefault(files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes(), name)
    return sorted(set(seen.values()) - {"Factory"})


def changes_of(name: str, first_year: int, last_year: int) -> list[Change]:
    """Return the changes of a zone's offset in these years, by the reading of Python's own slow twin of `zoneinfo`.

    Those that the data lists come first, then those that follow from the rule at its end.
    """
    twin: Any = importlib.import_module("zoneinfo._zoneinfo")
    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as data:
        zone = twin.ZoneInfo.from_file(data, key=name)
    offsets = [(at, _seconds(info)) for at, info in zip(zone._trans_utc, zone._ttinfos, strict=True)]
    if isinstance(zone._tz_after, twin._TZStr):
        rule, listed = zone._tz_after, offsets[-1][0] if offsets else 0
        for year in range(datetime.fromtimestamp(listed, UTC).year, last_year + 1):
            starts, ends = rule.transitions(year)
            by_rule = [
                (starts - _seconds(rule.std), _seconds(rule.dst)),
                (ends - _seconds(rule.dst), _seconds(rule.std)),
            ]
            offsets += sorted(each for each in by_rule if each[0] > listed)
    before = _seconds(zone._tti_before or zone._tz_after)
    found = []
    for at, after in offsets:
        if after != before and first_year <= datetime.fromtimestamp(at, UTC).year <= last_year:
            found.append(Change(name, int(at), before, after))
        before = after
    return found


def _seconds(info: Any) -> int:
    return int(info.utcoff.total_seconds())


def sampled_changes(name: str, year: int) -> list[Change]:
    """Return what `changes_of` does for one year, to the minute, by nothing but looking at the clock twice a day."""
    info = packaged(name)

    def offset(at: int) -> int:
        return ticks(info, at, at)[0].wall - at

    first, last = (int(datetime(each, 1, 1, tzinfo=UTC).timestamp()) for each in (year, year + 1))
    found = []
    for half_day in range(first, last, 43_200):
        if offset(half_day) != offset(half_day + 43_200):
            at = next(at for at in range(half_day, half_day + 43_260, 60) if offset(at) != offset(half_day))
            found.append(Change(name, at, offset(half_day), offset(at)))
    return found


@cache
def changes(first_year: int = 1990, last_year: int = 2037) -> list[Change]:
    return [change for name in zone_names() for change in changes_of(name, first_year, last_year)]


def clock_round(change: Change, hours: int) -> list[Tick]:
    """Return the minutes from some hours before a change to some hours after it, more where it is a large one."""
    margin = hours * 3_600 + abs(change.after - change.before)
    assert change.at % 60 == change.before % 60 == change.after % 60 == 0, change
    return ticks(packaged(change.zone), change.at - margin, change.at + margin)


EXPRESSIONS = (
    "* * * * *", "*/7 * * * *", "*/30 * * * *", "0 * * * *", "59 * * * *", "0 */2 * * *", "*/15 */2 * * *",
    "45 */3 * * *", "0 *,5 * * *", "*/20 0-23 * * *", "0 0-23 * * *", "0 0 * * *", "30 0 * * *", "0 1 * * *",
    "30 1 * * *", "59 1 * * *", "0 2 * * *", "15 2 * * *", "30 2 * * *", "45 2 * * *", "0 3 * * *", "30 3 * * *",
    "0 12 * * *", "59 23 * * *", "1 0 * * *", "* 0-3 * * *", "*/5 2 * * *", "*/10 22-3 * * *", "0 22-3/2 * * *",
    "10-50/20 1,2,3,23 * * *", "0 0 * * 0", "30 2 * * 0,6", "0 0 1 * *", "0 0 13 * 5", "30 1 */2 * 1-5", "0 0 L * *",
    "30 0 * * 0#1,0#4,L0", "0 2 15W * *", "0 0 30 12 *", "30 2 29-31 3,9-11 0#5", "0 3 * * SUN", "0 0 31 * *",
)  # fmt: skip
"""Spread over what the clock can do to them: every kind of field, round the hours at which clocks change."""


def tailored(change: Change) -> Iterator[str]:
    """Return expressions that name the wall times at which this very change bites: its ends, its middle, its date."""
    low, high = sorted((change.at + change.before, change.at + change.after))
    for wall in (low - 60, low, (low + high) // 120 * 60, high - 60, high):
        shown = datetime.fromtimestamp(wall, UTC)
        yield f"{shown.minute} {shown.hour} * * *"
        yield f"{shown.minute} {shown.hour} {shown.day} {shown.month} *"


def alike(every: list[Change]) -> list[list[Change]]:
    """Return the changes in groups, within which the clocks show the same times before and after."""
    groups: dict[tuple[int, int], list[Change]] = {}
    for change in every:
        groups.setdefault((change.at + change.before, change.at + change.after), []).append(change)
    return list(groups.values())


def check(group: list[Change], texts: Iterable[str], options: Iterable[tuple[str, str]], hours: int = 3) -> int:
    """Compare schedules round changes that are alike, the walk done once for all; return the number of comparisons.

    Raises AssertionError naming the first schedule that differs.
    """
    clocks = [clock_round(change, hours) for change in group]
    assert all([tick.wall for tick in clock] == [tick.wall for tick in clocks[0]] for clock in clocks)
    count = 0
    for text, option in product(texts, options):
        fired = walk(reading(text), clocks[0], *option)
        for change, clock in zip(group, clocks, strict=True):
            later = clock[0].at - clocks[0][0].at
            _compare(text, change, clock, option, [(at + later) * 1_000 for at in fired])
            count += 1
    return count


def _compare(text: str, change: Change, clock: list[Tick], option: tuple[str, str], expected: list[int]) -> None:
    gap, overlap = option
    recurrence = parse(text, zone=change.zone, dst_gap=gap, dst_overlap=overlap)
    found = recurrence.between(clock[0].at * 1_000 - 1, clock[-1].at * 1_000, len(clock) + 1)
    if found != expected:
        missing, extra = (sorted({*these} - {*those}) for these, those in ((expected, found), (found, expected)))
        schedule = f"{text!r} in {change.zone} round {_shown(change.at * 1_000)}, {gap}, {overlap}"
        raise AssertionError(f"{schedule}: missing {[*map(_shown, missing)]}, extra {[*map(_shown, extra)]}")


def _shown(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat()


def sweep(every: list[Change]) -> int:
    """Compare all expressions round these changes, where clocks differ with all options, where they are alike with one.

    Returns the number of comparisons.
    """
    count = seen = 0
    for number, group in enumerate(alike(every)):
        texts = (*EXPRESSIONS, *tailored(group[0]))
        for turn, option in enumerate(OPTIONS):
            count += check(group if turn == number % len(OPTIONS) else group[:1], texts, [option])
        seen += len(group)
        if number % 100 == 0:
            print(f"{seen} of {len(every)} changes, {count} schedules", flush=True)  # noqa: T201
    return count


def main() -> None:
    arguments = argparse.ArgumentParser(description="Compare every zone and clock change with a walk over the minutes.")
    arguments.add_argument("--all", action="store_true", help="all changes; without it every hundredth")
    everything = arguments.parse_args().all
    started = time.monotonic()
    every = [*changes(), *changes(2040, 2040), *changes(2099, 2099)][:: 1 if everything else 100]
    count = sweep(every)
    seconds = time.monotonic() - started
    print(f"{count} schedules round {len(every)} changes of {len(zone_names())} zones agree, in {seconds:.0f} s")  # noqa: T201


if __name__ == "__main__":
    main()
