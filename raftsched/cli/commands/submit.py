"""Define `raftsched submit`: submit one job, or a file of any size."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from raftsched.cli.commands.jobs import print_job
from raftsched.cli.commands.tail import wait_for_end
from raftsched.cli.terminal.exit_codes import EXIT_HELP, exit_for
from raftsched.cli.terminal.handlerless import HandlerlessCommand, handlerless_options, work_fields
from raftsched.cli.terminal.options import (
    given,
    job_fields,
    job_options,
    options,
    tenant_option,
    when_options,
)
from raftsched.cli.terminal.output import console, json_option, print_json, progress_console, tell
from raftsched.cli.terminal.session import Session, with_session
from raftsched.cli.terminal.times import MOMENT, SPAN
from raftsched.client import Client
from raftsched.errors import Malformed, RaftschedError

_FAILURES_LISTED_MAX = 100

unique_options = options(
    click.option("--unique", is_flag=True, help="At most one job with this name and payload, or --unique-key."),
    click.option("--unique-by", help="Parts that must be equal: name, key, payload; commas between several."),
    click.option("--unique-key", help="Unique by name and this key, for every payload."),
    click.option("--unique-for", type=SPAN, help="Duration of uniqueness; default: until the job has ended."),
    click.option(
        "--on-conflict",
        type=click.Choice(["return", "reject"]),
        help="What to do if there is one: show it (default), or fail.",
    ),
)
dependency_options = options(
    click.option(
        "--depends-on",
        multiple=True,
        metavar="ID[:CONDITION]",
        help="A job that must end first; the condition is success (default), failure or completion. Repeatable.",
    ),
    click.option(
        "--on-dependency-failure",
        type=click.Choice(["skip", "fail"]),
        help="What to do if a parent ends otherwise: skip the job (default), or fail it.",
    ),
)


@click.command("submit", cls=HandlerlessCommand, epilog=f"With --wait: {EXIT_HELP}")
@click.argument("name", required=False)
@click.argument("payload", required=False)
@click.option(
    "--file",
    "path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="JSON lines, one job a line with the fields of POST /jobs; of any size.",
)
@handlerless_options
@when_options
@job_options
@click.option("--expires-at", type=MOMENT, help="Give up if it has not started by then.")
@click.option("--deadline", type=MOMENT, help="Give up if it has not ended by then.")
@click.option("--paused", is_flag=True, help="Store it paused, to be resumed by hand.")
@dependency_options
@unique_options
@tenant_option
@click.option("--idempotency-key", help="A repeated submit with the same key finds the first job.")
@click.option("--idempotency-ttl", "idempotency_ttl_seconds", type=SPAN, help="How long the key is valid.")
@click.option("--wait", is_flag=True, help="Wait until the job has ended, and print its result; with --json, the job.")
@with_session
@json_option
def submit_command(
    session: Session,
    name: str | None,
    payload: str | None,
    path: Path | None,
    *,
    wait: bool,
    as_json: bool,
    **fields: Any,
) -> None:
    """Submit a job, a request or a command, or a file of them.

    The handler of NAME gets PAYLOAD: JSON, or - for JSON from standard input. With --http or --shell, NAME is optional.
    The job's history begins with who submitted it.
    """
    if path is not None:
        if name is not None or given(fields) or wait:
            raise click.UsageError("with --file, each line has the fields of its job; give no others")
        asyncio.run(_submit_file(path, session, as_json=as_json))
        return
    work = work_fields(name, payload, fields)
    if not work:
        raise click.UsageError("give either NAME [PAYLOAD], --http URL, --shell or --file")
    document = {**work, **_fields(fields)}
    key = document.pop("idempotency_key", None)
    job = session.post("/jobs", document, headers=session.key_header(key))
    if not wait:
        print_job(job, as_json=as_json)
        return
    job = wait_for_end(session, job["id"])
    _print_end(job, as_json=as_json)
    exit_for(job["status"])


def _print_end(job: Mapping[str, Any], *, as_json: bool) -> None:
    """Print the result alone, so that a pipe gets nothing else; of a job that has none, its status."""
    if as_json or job["status"] == "completed":
        print_json(job if as_json else job["result"])
        return
    error = job.get("error")
    why = ", ".join(filter(None, (job["failure_reason"], error and f"{error['type']}: {error['message']}")))
    tell(f"{job['id']} ended: {job['status']}" + (f" ({why})" if why else ""))


def _fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the request given by the options."""
    wanted = job_fields(fields)
    conditions = wanted.pop("depends_on", ())
    if conditions:
        wanted["depends_on"] = [_dependency(text) for text in conditions]
    unique = {
        "by": [each for each in wanted.pop("unique_by", "").split(",") if each],
        "key": wanted.pop("unique_key", None),
        "for_seconds": wanted.pop("unique_for", None),
        "on_conflict": wanted.pop("on_conflict", None),
    }
    unique = {name: value for name, value in unique.items() if value}
    if wanted.pop("unique", False) or unique:
        wanted["unique"] = unique
    return wanted


def _dependency(text: str) -> dict[str, str]:
    job_id, _, condition = text.partition(":")
    return {"job": job_id, "condition": condition or "success"}


async def _submit_file(path: Path, session: Session, *, as_json: bool) -> None:
    """Stream the file; report refused lines and their reasons at the end, and by exit code."""
    lines = _Lines(path)
    refused = 0
    failures: list[dict[str, Any]] = []
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=progress_console) as progress:
        task = progress.add_task("submitting", total=lines.size)
        async with Client(*session.urls, actor=session.actor) as client:
            number = 0
            async for result in client.submit_each(lines):
                number += 1
                if isinstance(result, RaftschedError):
                    refused += 1
                    if refused <= _FAILURES_LISTED_MAX:
                        failures.append({"job": number, "code": result.code, "detail": str(result)})
                    progress_console.print(f"job {number}: {result}", markup=False)
                progress.update(task, completed=lines.read)
    if as_json:
        print_json({"submitted": number - refused, "refused": refused, "failures": failures})
    else:
        console.print(f"{number - refused:,} submitted, {refused:,} refused")
    if refused:
        raise SystemExit(1)


class _Lines:
    """The jobs of a file of JSON lines, read one by one; blank lines are skipped."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.size = path.stat().st_size
        self.read = 0
        """Bytes read so far."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        with self._path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                self.read += len(line)
                if line.strip():
                    yield self._parse(number, line)

    def _parse(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            fields = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
            return {name: raw if name == "payload" else msgspec.json.decode(raw) for name, raw in fields.items()}
        except msgspec.DecodeError as error:
            raise Malformed(f"{self._path}, line {number}: {error}; the lines before it were submitted") from error
