"""Define `raftsched tail | logs`: follow a job live, and print its log.

Status and progress are read before each part of the log. Reading the log waits for new lines at the node for a moment,
so changes show within about a second, and a job that waits for hours costs two small reads a second.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import click
import msgspec
from rich.text import Text

from raftsched.cli.commands.jobs import job_path
from raftsched.cli.terminal.exit_codes import EXIT_HELP, exit_for, is_finished
from raftsched.cli.terminal.output import (
    json_option,
    print_json,
    print_json_line,
    progress_console,
    say,
    status_text,
    tell,
    visible,
    write_text,
)
from raftsched.cli.terminal.session import Session, with_plain_session

_WAIT_SECONDS: Final = 1.0
_PAUSE_SECONDS_MIN: Final = 0.1
_PAUSE_SECONDS_MAX: Final = 2.0
EXPLAIN_SECONDS: Final = 3.0
"""Interval at which a waiting user sees the reasons, if they have changed."""
_BESIDE: Final = ("failure_reason", "worker", "attempt_number")


class Part(NamedTuple):
    """A part of an attempt's log."""

    run_number: int
    attempt_number: int
    text: str


class Log:
    """A job's log, read on from its last position."""

    def __init__(self, session: Session, job_id: str, *, run: int | None = None, attempt: int | None = None) -> None:
        self._session = session
        self._path = job_path(job_id, "logs")
        self._query: dict[str, Any] = {"run": run, "attempt": attempt}
        self.is_over = False
        """Whether no more lines can come."""

    def next_part(self, wait_seconds: float = 0.0) -> Part:
        """Return the new part of it; wait for lines up to `wait_seconds`."""
        reply = self._session.get(self._path, **self._query, wait_seconds=wait_seconds or None)
        cursor = reply["next_cursor"]
        self.is_over = cursor is None
        if cursor is not None:
            self._query = {**self._query, "cursor": cursor}
        return Part(reply["run_number"], reply["attempt_number"], reply["text"])


@click.command("tail", epilog=EXIT_HELP.capitalize())
@click.argument("job_id")
@with_plain_session
@json_option
def tail_command(session: Session, job_id: str, *, as_json: bool) -> None:
    """Follow a job until it ends: status, progress and log.

    With --json: JSON lines, each a `status`, a `progress` or a `log`.
    """
    show = print_json_line if as_json else _show
    status = ""
    for event in _events(session, job_id):
        show(event)
        status = event.get("status", status)
    exit_for(status)


@click.command("logs")
@click.argument("job_id")
@click.option("--run", type=click.IntRange(min=1), help="Number of the run; default: the latest. With --attempt.")
@click.option("--attempt", type=click.IntRange(min=1), help="Number of the attempt; default: the latest.")
@click.option("-f", "--follow", is_flag=True, help="Continue until no more lines can come.")
@with_plain_session
@json_option
def logs_command(
    session: Session, job_id: str, run: int | None, attempt: int | None, *, follow: bool, as_json: bool
) -> None:
    """Print the log of a job.

    On a terminal its control characters are shown as escapes; a pipe or a file gets the log as it was written.
    With --json: one document with the parts; with --follow, JSON lines.
    """
    if run is not None and attempt is None:
        raise click.UsageError("give --attempt beside --run")
    log = Log(session, job_id, run=run, attempt=attempt)
    parts = _followed(log) if follow else _stored(log)
    if as_json and not follow:
        print_json([part._asdict() for part in parts])
        return
    for part in parts:
        print_json_line(part._asdict()) if as_json else write_text(part.text)


def wait_for_end(session: Session, job_id: str) -> dict[str, Any]:
    """Return the job once it has ended, in any status.

    Print its id on standard error at once, and after a while, and whenever that changes, what it waits for.
    """
    tell(f"waiting for {job_id}")
    pause = _PAUSE_SECONDS_MIN
    explain_at = time.monotonic() + EXPLAIN_SECONDS
    told: tuple[str, ...] = ()
    with progress_console.status(f"waiting for {job_id}") as shown:
        while True:
            job = session.get(job_path(job_id))
            if is_finished(job["status"]):
                return job
            shown.update(f"{job_id} is {job['status']}")
            if time.monotonic() >= explain_at:
                told = _explained(session, job_id, told)
                explain_at = time.monotonic() + EXPLAIN_SECONDS
            time.sleep(pause)
            pause = min(pause * 1.5, _PAUSE_SECONDS_MAX)


def _explained(session: Session, job_id: str, shown: tuple[str, ...]) -> tuple[str, ...]:
    """Print why the job has not ended, unless its reasons equal `shown`; return their codes."""
    answer = session.get(job_path(job_id, "explain"))
    codes = tuple(reason["code"] for reason in answer["reasons"])
    if codes != shown:
        tell(f"it is {answer['status']}: " + "; ".join(reason["text"] for reason in answer["reasons"]))
    return codes


# -- following --------------------------------------------------------------------------------------------------------


def _events(session: Session, job_id: str) -> Iterator[dict[str, Any]]:
    """Yield the job's events, in order, until it has ended and all of its log was read."""
    log = Log(session, job_id)
    seen: dict[str, Any] = {}
    while True:
        job = session.get(job_path(job_id))
        finished = is_finished(job["status"])
        if not finished:
            yield from _news(job, seen)
        part = log.next_part(0.0 if finished else _WAIT_SECONDS)
        if part.text:
            yield {"event": "log", **part._asdict()}
        if finished and log.is_over:
            yield from _news(job, seen)
            return
        if not part.text and not finished:
            time.sleep(_PAUSE_SECONDS_MIN)


def _news(job: Mapping[str, Any], seen: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield differences from `seen`, and store them there; a job's last reports come before its end."""
    news = (*_new_status(job, seen), *_new_progress(job, seen))
    yield from reversed(news) if is_finished(job["status"]) else news


def _new_status(job: Mapping[str, Any], seen: dict[str, Any]) -> Iterator[dict[str, Any]]:
    state = (job["status"], job["attempt_number"])
    if seen.get("state") != state:
        seen["state"] = state
        beside = {name: job[name] for name in _BESIDE if job.get(name)}
        yield {"event": "status", "id": job["id"], "at": job["updated_at"], "status": job["status"], **beside}


def _new_progress(job: Mapping[str, Any], seen: dict[str, Any]) -> Iterator[dict[str, Any]]:
    progress = job.get("progress")
    if progress is not None and seen.get("progress") != progress:
        seen["progress"] = progress
        yield {"event": "progress", "id": job["id"], "progress": progress}


def _show(event: Mapping[str, Any]) -> None:
    """Print an event for people: the job's output, and the rest with a mark."""
    if event["event"] == "log":
        write_text(event["text"])
    elif event["event"] == "progress":
        say(Text(f"── progress {msgspec.json.encode(event['progress']).decode()}", style="dim"))
    else:
        beside = ", ".join(f"{name.removesuffix('_number')} {event[name]}" for name in _BESIDE if name in event)
        say(Text("── ", style="dim") + status_text(event["status"]) + Text(visible(f"  {beside}"), style="dim"))


def _stored(log: Log) -> Iterator[Part]:
    """Yield the stored parts."""
    while (part := log.next_part()).text:
        yield part
        if log.is_over:
            return


def _followed(log: Log) -> Iterator[Part]:
    """Yield parts until no more can come."""
    while not log.is_over:
        part = log.next_part(_WAIT_SECONDS)
        if part.text:
            yield part
        elif not log.is_over:
            time.sleep(_PAUSE_SECONDS_MIN)
