from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from raftsched.cli.converters.celery_beat import read_beat
from raftsched.cli.converters.report import Report
from tests.cli.converters.reports import found, only, schedules

APP = """
from datetime import datetime, timedelta
from celery import Celery
from celery.schedules import BaseSchedule, crontab

print("what a module prints is not a part of the answer")
app = Celery("shop", broker="memory://")
app.conf.timezone = "Europe/Berlin"
app.conf.beat_cron_starting_deadline = 600

@app.task(name="report", acks_late=True)
def report(kind): ...

class Moon(BaseSchedule): ...

app.conf.beat_schedule = {
    "friday the 13th": {
        "task": "report", "schedule": crontab(0, 9, "fri", "13"), "args": ("x",),
        "options": {"queue": "reports", "expires": 60, "priority": 3, "countdown": None},
    },
    "often": {"task": "ping", "schedule": 30.0, "kwargs": {"a": [1]}},
    "hourly": {"task": "ping", "schedule": timedelta(hours=1), "relative": True},
    "moon": {"task": "ping", "schedule": Moon()},
    "own clock": {"task": "ping", "schedule": crontab(nowfun=datetime.now)},
    "odd": {"task": "ping", "schedule": 5, "args": (datetime(2027, 1, 1),)},
    "short": {"task": "ping", "schedule": 0.5},
}

@app.on_after_configure.connect
def add(sender, **_):
    sender.add_periodic_task(crontab(minute="*/15", day_of_week="1-5"), report.s("hi"), name="added")
"""


def answer(directory: Path, spec: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "raftsched.cli.converters.celery_app", spec]
    root = Path(__file__).parents[3]
    return subprocess.run(
        command, cwd=directory, env={"PYTHONPATH": str(root)}, capture_output=True, text=True, check=False, timeout=60
    )


def read(directory: Path, spec: str = "tasks.py") -> Report:
    ran = answer(directory, spec)
    assert ran.returncode == 0, ran.stderr
    return read_beat(json.loads(ran.stdout), timezone=None)


def test_schedule_of_an_application_is_read_as_beat_reads_it(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(APP, encoding="utf-8")
    report = read(tmp_path)
    friday, often, added = schedules(report).values()
    weekdays = friday["calendar"]["blackouts"][0].pop("weekdays")
    assert sorted(weekdays) == ["mon", "sat", "sun", "thu", "tue", "wed"]
    assert friday == {
        "name": "friday-the-13th",
        "cron": "0 9 13 * *",
        "timezone": "Europe/Berlin",
        "calendar": {"blackouts": [{"start": "00:00", "end": "24:00"}]},
        "overlap": "allow",
        "misfire": "run_once",
        "catchup_window_seconds": 600,
        "job": {
            "name": "report",
            "payload": {"args": ["x"], "kwargs": {}},
            "max_attempts": 1,
            "queue": "reports",
            "expires_in_seconds": 60,
        },
    }
    assert (often["every"], often["catchup_window_seconds"]) == ("30s", 316_224_000)
    assert often["job"]["payload"] == {"args": [], "kwargs": {"a": [1]}}
    assert often["job"]["start"] == "at_most_once"
    assert (added["cron"], added["job"]["payload"]["args"]) == ("*/15 * * * 1-5", ["hi"])
    assert all(str(finding).startswith(f"{tmp_path / 'tasks.py'}:") for finding in report.findings)
    reasons = found(report, "left out")
    assert [reason.partition(": ")[0] for reason in reasons] == ["22", "23", "24", "25", "26"]
    for reason, expected in zip(
        reasons, ("relative=True", "type Moon", "nowfun", "not JSON", "out of range"), strict=True
    ):
        assert expected in reason
    assert found(report, "not kept") == ["17: option priority=3"]
    assert found(report, "note") == ["21: the application has no task ping"]


def test_application_is_found_by_module_and_name(tmp_path: Path) -> None:
    package = tmp_path / "shop"
    package.mkdir()
    (package / "__init__.py").write_text("", encoding="utf-8")
    (package / "beat.py").write_text(APP.replace("app = ", "main = app = "), encoding="utf-8")
    assert len(read(tmp_path, "shop.beat:main").entries) == 3
    assert len(read(tmp_path, "shop.beat").entries) == 3
    for spec, reason in {
        "shop.beat:other": "no Celery application in other",
        "shop/beat.py": "it is a part of a package; name it as package.module:app",
        "missing.py": "there is no such file",
        "nowhere": "No module named 'nowhere'",
    }.items():
        ran = answer(tmp_path, spec)
        assert ran.returncode == 1, spec
        assert reason in ran.stderr


def document(**changes: Any) -> dict[str, Any]:
    timing = {"shown": "hourly", "crontab": {"minute": [0], "hour": list(range(24)), "day_of_week": list(range(7))}}
    timing["crontab"] |= {"day_of_month": list(range(1, 32)), "month_of_year": list(range(1, 13))}  # type: ignore[operator]
    entry: dict[str, Any] = {
        "name": "x",
        "line": None,
        "task": "t",
        "is_known": True,
        "acks_late": False,
        "options": {},
    }
    entry |= {"schedule": timing, "payload": {"args": [], "kwargs": {}}}
    base = {"file": "app.py", "timezone": "UTC", "scheduler": "celery.beat:PersistentScheduler"}
    return base | {"starting_deadline_seconds": None, "entries": [entry]} | changes


def test_zone_of_the_machine_is_a_note() -> None:
    assert only(read_beat(document(), timezone=None))["cron"] == "0 * * * *"
    assert "read in UTC" in found(read_beat(document(timezone=None), timezone=None), "note")[0]
    assert only(read_beat(document(timezone=None), timezone="Asia/Tokyo"))["timezone"] == "Asia/Tokyo"


def test_entries_that_another_scheduler_keeps_are_reported() -> None:
    report = read_beat(document(scheduler="django_celery_beat.schedulers:DatabaseScheduler"), timezone=None)
    assert "entries that django_celery_beat" in found(report, "not kept")[0]
