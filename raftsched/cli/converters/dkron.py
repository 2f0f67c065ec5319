"""Convert jobs of Dkron, as `GET /v1/jobs` answers them: one job or a list, JSON or YAML.

The executors `shell` and `http` have a counterpart. Dkron starts a job on every node that its tags select, a cluster of ours
runs it once.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import shlex
from typing import Any, Final

from raftsched.cli.converters.fields import Fields
from raftsched.cli.converters.go_cron import go_seconds, go_timing, split_zone
from raftsched.cli.converters.report import Entry, Report, given
from raftsched.cli.converters.schedule_fields import labels, literal, paused
from raftsched.cli.terminal.files import parse_documents
from raftsched.errors import Invalid

_RECORDS: Final = ("id", "success_count", "error_count", "last_success", "last_error", "status", "next")
"""Fields that Dkron writes."""
_OVERLAPS: Final = {"": "allow", "allow": "allow", "forbid": "skip"}
_AT: Final = "@at "
_HASH: Final = "~"
_HASH_RANGES: Final = ((0, 60), (0, 60), (0, 24), (1, 28), (1, 12), (0, 7))
"""For each of the six fields, the least value that `~` can be, and the number of values."""
_ANY_STATUS: Final = ["1xx", "2xx", "3xx", "4xx", "5xx"]
_HTTP_TIMEOUT_SECONDS: Final = 30
_HTTP_REDIRECTS: Final = 10
"""Redirects that Go's HTTP client follows."""
_SPECIAL: Final = re.compile(r"[\\`;&|<>()]")
_TRUE: Final = ("1", "t", "T", "TRUE", "true", "True")
"""Texts that Go reads as true."""


def read_dkron_jobs(text: str, *, file: str, timezone: str | None) -> Report:
    """Return the schedules of jobs of Dkron."""
    report = Report(file, timezone)
    for document in parse_documents(file, text):
        is_list = isinstance(document.value, list)
        for number, value in enumerate(document.value if is_list else [document.value]):
            path = f"[{number}]" if is_list else ""
            with report.entry("a job", document.line_of(path)) as entry:
                _fill(entry, Fields(document, path, value), report)
    return report


def _fill(entry: Entry, job: Fields, report: Report) -> None:
    job.ignore(*_RECORDS)
    entry.name = job.text("name")
    entry.line = job.line("name") or entry.line
    schedule = job.text("schedule")
    entry.original = f"{entry.name}: {schedule}" if schedule else entry.name
    if parent := job.text("parent_job"):
        raise Invalid(f"it runs behind {parent}, not by its schedule; submit a workflow in its place")
    concurrency = job.text("concurrency")
    if concurrency not in _OVERLAPS:
        raise Invalid(f"concurrency {concurrency!a} is not known; there are allow and forbid")
    entry.fields = _timing(schedule, entry.name, job.text("timezone"), report) | given(
        {
            "start_at": job.text("starts_at"),
            "end_at": job.text("expires_at"),
            "overlap": _OVERLAPS[concurrency],
            "misfire": "skip",
            "description": job.text("displayname"),
            "owner": _owner(job.text("owner"), job.text("owner_email")),
        }
    )
    entry.fields |= labels(entry, job.table("metadata"), job.line("metadata"))
    if job.flag("disabled"):
        entry.fields |= paused(entry, "disabled")
    retries = job.integer("retries") or 0
    entry.job = _call(job, entry, report) | {"max_attempts": retries + 1}
    entry.job |= (
        {"retry_policy": {"backoff": "fixed", "base_seconds": 0, "jitter": 0}} if retries else {"start": "at_most_once"}
    )
    _report_nodes(job, entry, report)
    job.report_rest(entry)


def _owner(name: str, email: str) -> str:
    return f"{name} <{email}>" if name and email else name or email


def _report_nodes(job: Fields, entry: Entry, report: Report) -> None:
    tags = job.table("tags")
    if tags:
        shown = ", ".join(f"{name}={value}" for name, value in tags.items())
        entry.not_kept(f"tags {shown}: it runs once, on any worker of its queue", job.line("tags"))
    else:
        report.note("Dkron runs jobs without tags on each of its nodes; here they run once")


# -- the time ---------------------------------------------------------------------------------------------------------


def _timing(schedule: str, name: str, zone: str, report: Report) -> dict[str, Any]:
    if schedule == "@manually":
        raise Invalid("@manually: it runs by hand only; submit a job")
    if schedule.startswith(_AT):
        return {"at": schedule.removeprefix(_AT)}
    if schedule == "@minutely":
        return {"cron": "* * * * *"}
    prefix, expression = split_zone(_hashed(schedule, name))
    if expression.startswith("@"):
        zone = ""  # Dkron reads them in its own zone
    return go_timing(expression, zone=lambda: prefix or zone or report.local_zone(), seconds=True)


def _hashed(schedule: str, name: str) -> str:
    """Replace each `~` by the value that Dkron draws from the job's name."""
    drawn = sum(ord(character) for character in name)
    parts = schedule.split(" ")
    if any(part.startswith("@") for part in parts):
        return schedule
    field = 0
    for number, part in enumerate(parts):
        if part.startswith(("TZ=", "CRON_TZ=")):
            continue
        if _HASH in part:
            low, count = _HASH_RANGES[field] if field < len(_HASH_RANGES) else (0, 60)
            parts[number] = part.replace(_HASH, str(low + drawn % count))
        field += 1
    return " ".join(parts)


# -- what runs --------------------------------------------------------------------------------------------------------


def _call(job: Fields, entry: Entry, report: Report) -> dict[str, Any]:
    executor, config = job.text("executor"), job.inner("executor_config")
    if executor == "shell":
        called = _shell(config, entry, report)
    elif executor == "http":
        called = {"http": _http(config, entry, has_retries=bool(job.integer("retries")))}
    else:
        raise Invalid(f"executor {executor!a} has no counterpart; there are shell and http")
    config.report_rest(entry)
    return called


def _shell(config: Fields, entry: Entry, report: Report) -> dict[str, Any]:
    command = config.text("command")
    uses_shell = config.text("shell") in _TRUE
    shell = {
        "argv": ["/bin/sh", "-c", command] if uses_shell else _words(command),
        "env": {"ENV_JOB_NAME": entry.name, **_environment(config.text("env"))},
        "cwd": config.text("cwd"),
        "stdin": literal(_payload(config.text("payload"))),
    }
    found: dict[str, Any] = {"shell": given(shell)}
    if timeout := config.text("timeout"):
        found["timeout_seconds"] = go_seconds(timeout)
    if user := config.text("su").partition(":")[0]:
        found["queue"] = f"shell-{user}"
        entry.note(f"runs as {user}: start a shell worker for the queue shell-{user} as that user")
    report.note("Dkron gives commands its own environment; name in env what a command needs of it")
    return found


def _words(command: str) -> list[str]:
    """Return the words of a command that no shell reads."""
    if _SPECIAL.search(command):
        raise Invalid(r"the command has one of \ ` ; & | < > ( ), but no shell to read them; set shell to true")
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise Invalid(f"the command is not readable: {error}") from None
    if not words:
        raise Invalid("there is no command")
    return words


def _environment(text: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in text.split(",") if part]
    wrong = next((name for name, sign, _ in pairs if not sign), None)
    if wrong is not None:
        raise Invalid(f"env: {wrong!a} is not NAME=VALUE; a value can't have a comma")
    return {name: value for name, _, value in pairs}


def _payload(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise Invalid("payload: must be base64 of UTF-8 text") from None


def _http(config: Fields, entry: Entry, *, has_retries: bool) -> dict[str, Any]:
    config.ignore("debug")
    if config.text("expectBody"):
        entry.not_kept("expectBody: the status alone decides whether a run succeeds", config.line("expectBody"))
    if not config.text("method"):
        raise Invalid("method: is empty, so that Dkron sends nothing")
    codes = [code.strip() for code in config.text("expectCode").split(",") if code.strip()]
    timeout = config.text("timeout")
    if timeout and not timeout.isdecimal():
        raise Invalid(f"timeout {timeout!a} is not a number of seconds")
    return given(
        {
            "url": config.text("url"),
            "method": config.text("method"),
            "headers": _headers(config.text("headers"), entry),
            "body": literal(config.text("body")),
            "timeout_seconds": int(timeout or _HTTP_TIMEOUT_SECONDS),
            "success_statuses": codes or _ANY_STATUS,
            "retry_statuses": _ANY_STATUS if has_retries and codes else None,
            "max_redirects": _HTTP_REDIRECTS,
        }
    )


def _headers(text: str, entry: Entry) -> dict[str, str]:
    if not text:
        return {}
    try:
        lines = json.loads(text)
    except ValueError:
        raise Invalid("headers: must be a list of texts in JSON") from None
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise Invalid("headers: must be a list of texts in JSON")
    headers = {}
    for line in filter(None, lines):
        name, colon, value = line.partition(":")
        if not colon:
            raise Invalid(f"headers: {line!a} is not NAME: VALUE")
        if ":" in value:
            entry.note(f"header {name}: Dkron sends its value only up to the second colon; here it is sent whole")
        headers[name.strip()] = value.strip()
    return headers
