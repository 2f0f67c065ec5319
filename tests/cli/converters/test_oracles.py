"""Imported times against the programs that they come from: the same next times, clock changes included.

`answers/` holds what robfig/cron and systemd 252 answered. `answers/robfig.go` is the program that was asked.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from celery import Celery
from celery.schedules import crontab
from croniter import croniter
from cronsim import CronSim

from raftsched.cli.converters.calendar_spec import calendar_timing
from raftsched.cli.converters.celery_beat import read_beat
from raftsched.cli.converters.crontab import read_crontab
from raftsched.cli.converters.go_cron import go_timing
from raftsched.errors import Invalid
from tests.cli.converters.random_times import (
    ZONES,
    calendar_event,
    cron_fields,
    ours,
    random_start,
)
from tests.cli.converters.systemd_analyze import PROGRAM, next_times
from tests.for_each import for_each

ANSWERS = Path(__file__).with_name("answers")
HALF_HOUR_ZONE = "Australia/Lord_Howe"
"""Its clock changes by half an hour. cronsim and robfig/cron step by whole hours, and lose times there."""
MIDNIGHT_ZONE = "America/Santiago"
"""Its clock changes at midnight. systemd 252 loses times there all year, and gives up for some events."""


def answers(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((ANSWERS / name).read_text(encoding="utf-8"))
    assert len(rows) > 100
    return rows


def times(texts: list[str] | None) -> list[datetime] | None:
    return None if texts is None else [datetime.fromisoformat(text) for text in texts]


def imported(text: str, zone: str) -> dict[str, Any] | None:
    """Return the fields for an expression; None if it is left out because it has no time, or too long a step."""
    report = read_crontab(f"{text} job", file="crontab", timezone=zone, system=False)
    if report.entries:
        return report.entries[0].fields
    reason = str(report.findings[0])
    assert "would never run" in reason or "a step here is" in reason
    return None


@for_each("seed", range(400))
def test_crontab_fires_as_debians_cron(seed: int) -> None:
    random = Random(seed)
    text = " ".join(cron_fields(random))
    zone = random.choice([zone for zone in ZONES if zone != HALF_HOUR_ZONE])
    start = random_start(random)
    fields = imported(text, zone)
    if fields is None:
        return
    found = ours(fields, start, 6)
    expected: list[datetime] = []
    for at in CronSim(text, start.astimezone(ZoneInfo(zone))):
        if (instant := at.astimezone(UTC)) not in expected:  # several skipped times are one run of ours
            expected.append(instant)
        if len(expected) == len(found):
            break
    assert found == expected, (text, zone, start)


@for_each("seed", range(200))
def test_crontab_fires_as_croniter_says_in_utc(seed: int) -> None:
    random = Random(1_000 + seed)
    text = " ".join(cron_fields(random))
    if re.search(r"\b(\w+)-\1\b", text):  # croniter takes 5-5 for the whole field
        return
    start = random_start(random)
    fields = imported(text, "UTC")
    if fields is None:
        return
    found = ours(fields, start, 6)
    walk = croniter(text, start, implement_cron_bug=True, max_years_between_matches=60)
    assert found == [walk.get_next(datetime) for _ in found], (text, start)


@for_each("row", answers("robfig.json"))
def test_go_expression_fires_as_robfig_cron(row: dict[str, Any]) -> None:
    expected = times(row["next"])
    has_seconds = len(row["expression"].split()) == 6
    try:
        fields = go_timing(row["expression"], zone=lambda: row["zone"], seconds=has_seconds)
    except Invalid:
        assert not expected  # robfig/cron accepts dates that no year has
        return
    assert ours(fields, datetime.fromisoformat(row["after"]), 6) == expected


@for_each("row", answers("systemd.json"))
def test_calendar_event_fires_as_systemd_answered(row: dict[str, Any]) -> None:
    check_calendar_event(row["event"], datetime.fromisoformat(row["after"]), times(row["next"]))


@pytest.mark.skipif(PROGRAM is None, reason="needs systemd-analyze")
@for_each("seed", range(60))
def test_calendar_event_fires_as_this_machines_systemd(seed: int) -> None:
    random = Random(seed)
    zone = random.choice([zone for zone in ZONES if zone != MIDNIGHT_ZONE])
    event, start = f"{calendar_event(random)} {zone}", random_start(random)
    check_calendar_event(event, start, next_times(event, start, 5))


def check_calendar_event(event: str, start: datetime, expected: list[datetime] | None) -> None:
    try:
        fields = calendar_timing(event, local_zone=lambda: "UTC")
    except Invalid as error:
        reason = str(error)
    else:
        assert expected is not None, f"systemd rejects {event}, ours is {fields}"
        assert ours(fields, start, 5) == expected, (event, start, fields)
        return
    assert not expected or "months of different length" in reason or "have gaps" in reason, reason


@for_each("seed", range(60))
def test_beat_entry_fires_as_celerys_crontab(seed: int) -> None:
    """Outside clock changes: at those, Celery counts the hours since the last run."""
    random = Random(seed)
    minute, hour, day, month, weekday = cron_fields(random)
    zone = random.choice(("UTC", "Asia/Kolkata", "Asia/Tokyo"))
    app = Celery("oracle", broker="memory://", set_as_current=False)
    app.conf.timezone = zone
    start = random_start(random)
    try:
        schedule = crontab(minute, hour, weekday, day, month, app=app)
    except ValueError:
        return
    names = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
    timing = {"shown": "", "crontab": {name: sorted(getattr(schedule, name)) for name in names}}
    report = read_beat(document_of(timing, zone), timezone=None)
    assert report.entries, report.findings
    last = start
    expected = []
    for _ in range(4):
        begin, delta, _ = schedule.remaining_delta(last)
        last = (begin + delta).astimezone(UTC)
        expected.append(last)
    assert ours(report.entries[0].fields, start, 4) == expected, (schedule, zone, start)


def document_of(timing: dict[str, Any], zone: str) -> dict[str, Any]:
    entry = {"name": "entry", "line": 1, "task": "task", "is_known": True, "acks_late": False, "options": {}}
    return {
        "file": "app.py",
        "timezone": zone,
        "scheduler": "celery.beat:PersistentScheduler",
        "starting_deadline_seconds": None,
        "entries": [entry | {"schedule": timing, "payload": {"args": [], "kwargs": {}}}],
    }


def test_oracles_are_asked_about_clock_changes() -> None:
    """Some answers must be a gap of other than the usual length, or the tables would not show what they are for."""
    lengths = Counter(
        later - earlier for row in answers("robfig.json") for earlier, later in pairwise(times(row["next"]) or [])
    )
    assert lengths[timedelta(hours=23)] + lengths[timedelta(hours=25)] >= 2
