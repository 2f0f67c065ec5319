from __future__ import annotations

import json
from typing import Any

from raftsched.cli.converters.dkron import read_dkron_jobs
from raftsched.cli.converters.report import Report
from tests.cli.converters.reports import found, only, schedules
from tests.for_each import for_each

SHELL = {"name": "x", "schedule": "@hourly", "executor": "shell", "executor_config": {"command": "job"}}
HTTP = SHELL | {"executor": "http", "executor_config": {"method": "GET", "url": "https://example.org/"}}


def read(*jobs: dict[str, Any], timezone: str | None = "UTC") -> Report:
    return read_dkron_jobs(json.dumps(list(jobs), indent=1), file="jobs.json", timezone=timezone)


def shell(**config: str) -> dict[str, Any]:
    return SHELL | {"executor_config": config}


def http(**config: str) -> dict[str, Any]:
    return HTTP | {"executor_config": HTTP["executor_config"] | config}  # type: ignore[operator]


def test_shell_job_is_kept() -> None:
    job = SHELL | {
        "name": "backup",
        "schedule": "0 30 2 * * *",
        "timezone": "Europe/Berlin",
        "retries": 2,
        "concurrency": "forbid",
        "disabled": True,
        "starts_at": "2027-01-01T00:00:00Z",
        "expires_at": "2028-01-01T00:00:00Z",
        "tags": {"role": "db:1"},
        "displayname": "Nightly backup",
        "owner": "ada",
        "owner_email": "ada@example.org",
        "metadata": {"team": "shop"},
        "executor_config": {
            "command": "pg_dump -Fc 'my shop'",
            "env": "A=1,B=x=y",
            "cwd": "/srv",
            "timeout": "1h30m",
            "payload": "aGk=",
            "su": "postgres:postgres",
            "mem_limit": "1GB",
        },
        "success_count": 5,
        "next": "2027-01-01T00:00:00Z",
    }
    report = read(job)
    assert only(report) == {
        "name": "backup",
        "cron": "0 30 2 * * *",
        "timezone": "Europe/Berlin",
        "dst_gap": "skip",
        "dst_overlap": "both",
        "start_at": "2027-01-01T00:00:00Z",
        "end_at": "2028-01-01T00:00:00Z",
        "overlap": "skip",
        "misfire": "skip",
        "description": "Nightly backup",
        "owner": "ada <ada@example.org>",
        "labels": {"team": "shop"},
        "pause_until": "9999-01-01T00:00:00Z",
        "job": {
            "shell": {
                "argv": ["pg_dump", "-Fc", "my shop"],
                "env": {"ENV_JOB_NAME": "backup", "A": "1", "B": "x=y"},
                "cwd": "/srv",
                "stdin": "hi",
            },
            "timeout_seconds": 5_400,
            "queue": "shell-postgres",
            "max_attempts": 3,
            "retry_policy": {"backoff": "fixed", "base_seconds": 0, "jitter": 0},
        },
    }
    lost = [text.partition(": ")[2] for text in found(report, "not kept")]
    assert lost == ["[0].executor_config.mem_limit", "tags role=db:1: it runs once, on any worker of its queue"]


def test_http_job_is_kept() -> None:
    headers = json.dumps(["X-Key: a b", "", "Accept:application/json"])
    config = {"headers": headers, "body": "{{name}}", "timeout": "5", "expectCode": "200,204", "method": "PUT"}
    assert only(read(http(**config) | {"retries": 1}))["job"]["http"] == {
        "url": "https://example.org/",
        "method": "PUT",
        "headers": {"X-Key": "a b", "Accept": "application/json"},
        "body": "{{{{name}}",
        "timeout_seconds": 5,
        "success_statuses": ["200", "204"],
        "retry_statuses": ["1xx", "2xx", "3xx", "4xx", "5xx"],
        "max_redirects": 10,
    }
    assert only(read(HTTP))["job"]["http"]["success_statuses"] == ["1xx", "2xx", "3xx", "4xx", "5xx"]


def test_shell_reads_the_command_only_if_dkron_uses_one() -> None:
    report = read(shell(command="a | b", shell="true"), shell(command="a b"))
    assert [each["job"]["shell"]["argv"] for each in schedules(report).values()] == [
        ["/bin/sh", "-c", "a | b"],
        ["a", "b"],
    ]


@for_each(
    ("schedule", "name", "expected"),
    [
        ("@every 1h30m10s", "x", {"every": "1h30m10s"}),
        ("@every 500ms", "x", {"every": "1s"}),
        ("@at 2027-01-01T00:00:00+02:00", "x", {"at": "2027-01-01T00:00:00+02:00"}),
        ("@minutely", "x", {"cron": "* * * * *"}),
        ("@weekly", "x", {"cron": "0 0 * * 0", "timezone": "Asia/Tokyo"}),
        ("*/10 * * * * *", "x", {"cron": "*/10 * * * * *", "timezone": "Europe/Berlin"}),
        ("CRON_TZ=UTC 0 0 8 * * ?", "x", {"cron": "0 0 8 * * ?", "timezone": "UTC"}),
        ("0 ~ ~ ~ ~ ~", "call", {"cron": "0 52 4 21 5 6"}),
        ("0 ~/15 * * * *", "a", {"cron": "0 37/15 * * * *"}),
    ],
)
def test_schedule_is_read_as_dkron_reads_it(schedule: str, name: str, expected: dict[str, str]) -> None:
    report = read(SHELL | {"name": name, "schedule": schedule, "timezone": "Europe/Berlin"}, timezone="Asia/Tokyo")
    assert expected.items() <= only(report).items()


@for_each(
    ("job", "reason"),
    [
        (SHELL | {"schedule": "@manually"}, "runs by hand only"),
        (SHELL | {"schedule": "0 0 * * *"}, "has 5 fields in place of 6"),
        (SHELL | {"schedule": "@at tomorrow"}, "at: expected an RFC 3339 time"),
        (SHELL | {"parent_job": "y"}, "runs behind y"),
        (SHELL | {"executor": "kafka"}, "executor 'kafka' has no counterpart"),
        (SHELL | {"concurrency": "maybe"}, "concurrency 'maybe' is not known"),
        (SHELL | {"retries": "2"}, "retries: must be a whole number"),
        (SHELL | {"timezone": "Mars", "schedule": "0 0 0 * * *"}, "'Mars' is not a time zone"),
        (shell(command="a | b"), "no shell to read them"),
        (shell(command="a 'b"), "not readable"),
        (shell(command=""), "there is no command"),
        (shell(command="a", env="A"), "'A' is not NAME=VALUE"),
        (shell(command="a", payload="?"), "must be base64"),
        (shell(command="a", timeout="soon"), "not a duration of Go"),
        (http(method=""), "Dkron sends nothing"),
        (http(url="ftp://x"), "must begin with http"),
        (http(method="TRACE"), "job.http.method"),
        (http(headers="X: y"), "a list of texts in JSON"),
        (http(headers='["X"]'), "'X' is not NAME: VALUE"),
        (http(timeout="5s"), "not a number of seconds"),
    ],
)
def test_job_without_a_counterpart_is_left_out(job: dict[str, Any], reason: str) -> None:
    report = read(job)
    assert not report.entries
    assert reason in " ".join(found(report, "left out"))


def test_lost_settings_and_unsaid_facts_are_reported() -> None:
    report = read(http(expectBody="ok", tlsNoVerifyPeer="true") | {"processors": {"log": {}}}, SHELL, timezone=None)
    lost = [text.partition(": ")[2] for text in found(report, "not kept")]
    assert lost == [
        "expectBody: the status alone decides whether a run succeeds",
        "[0].executor_config.tlsNoVerifyPeer",
        "[0].processors",
    ]
    notes = found(report, "note")
    assert len(notes) == 3
    assert any("on each of its nodes" in note for note in notes)


def test_one_job_alone_and_yaml_are_read_too() -> None:
    text = "name: x\nschedule: '@hourly'\nexecutor: shell\nexecutor_config: {command: date}\n"
    assert only(read_dkron_jobs(text, file="job.yaml", timezone="UTC"))["job"]["shell"]["argv"] == ["date"]
