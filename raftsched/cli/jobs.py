"""`raftsched submit | get | list | cancel`: jobs, one at a time or a file of any size."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from raftsched.cli.output import (
    console,
    json_option,
    print_fields,
    print_json,
    print_table,
    progress_console,
    reports_errors,
    url_option,
)
from raftsched.client import BlockingClient, BlockingJob, Client, JobInfo, JobNotCompleted
from raftsched.errors import Invalid, Malformed, RaftschedError

_PAGE_SIZE_MAX = 1_000
_COLUMNS = ("id", "name", "queue", "status", "priority", "attempt_number", "run_at")


@click.command("submit")
@click.argument("name", required=False)
@click.argument("payload", required=False)
@click.option(
    "--file",
    "path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="JSON lines, one job a line with the fields of POST /jobs; of any size.",
)
@click.option("--queue", help="Default: the job's name.")
@click.option("--priority", help="0 to 9, or low, normal, high.")
@click.option("--run-at", help="RFC 3339 time.")
@click.option("--delay", "delay_seconds", type=float, help="Seconds from now.")
@click.option("--max-attempts", type=int)
@click.option("--timeout", "timeout_seconds", type=float, help="Longest run time in seconds.")
@click.option("--idempotency-key", help="The same key and job a second time finds the first.")
@click.option("--wait", is_flag=True, help="Wait until the job has ended, and print its result.")
@url_option
@json_option
@reports_errors
def submit_command(
    name: str | None,
    payload: str | None,
    path: Path | None,
    urls: Sequence[str],
    *,
    wait: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Submit the job NAME with PAYLOAD (JSON), or all jobs of a file with --file."""
    if (path is None) == (name is None):
        raise click.UsageError("give either NAME [PAYLOAD] or --file")
    if path is not None:
        asyncio.run(_submit_file(path, urls))
        return
    assert name is not None
    chosen = {key: value for key, value in options.items() if value is not None}
    if "priority" in chosen and chosen["priority"].isdecimal():
        chosen["priority"] = int(chosen["priority"])
    with BlockingClient(*urls) as client:
        job = client.submit(name, _parse_payload(payload), **chosen)
        if wait:
            _wait(job)
        _print_job(job.get(), as_json=as_json)


def _wait(job: BlockingJob) -> None:
    """Wait for any end; the job that is printed then says which."""
    with suppress(JobNotCompleted):
        job.wait()


def _print_job(job: JobInfo, *, as_json: bool) -> None:
    fields = msgspec.to_builtins(job)
    print_json(fields) if as_json else print_fields(fields)


def _parse_payload(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise Invalid(f"payload: not JSON: {error}", field="payload") from error


async def _submit_file(path: Path, urls: Sequence[str]) -> None:
    """Stream the file; say at the end, and by exit code, how many lines were refused and why."""
    lines = _Lines(path)
    refused = 0
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=progress_console) as progress:
        task = progress.add_task("submitting", total=lines.size)
        async with Client(*urls) as client:
            number = 0
            async for result in client.submit_each(lines):
                number += 1
                if isinstance(result, RaftschedError):
                    refused += 1
                    progress_console.print(f"job {number}: {result}", markup=False)
                progress.update(task, completed=lines.read)
    console.print(f"{number - refused:,} submitted, {refused:,} refused")
    if refused:
        raise SystemExit(1)


class _Lines:
    """The jobs of a file of JSON lines, read one by one; blank lines are passed over."""

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
            return msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise Malformed(f"{self._path}, line {number}: {error}; the lines before it were submitted") from error


@click.command("get")
@click.argument("job_id")
@url_option
@json_option
@reports_errors
def get_command(job_id: str, urls: Sequence[str], *, as_json: bool) -> None:
    """Show the job JOB_ID."""
    with BlockingClient(*urls) as client:
        _print_job(client.get(job_id), as_json=as_json)


@click.command("list")
@click.option("--status", help="As scheduled, queued, running, retrying, completed, dead_letter, cancelled.")
@click.option("--queue")
@click.option("--name")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True)
@url_option
@json_option
@reports_errors
def list_command(
    status: str | None, queue: str | None, name: str | None, limit: int, urls: Sequence[str], *, as_json: bool
) -> None:
    """List jobs, newest first."""
    with BlockingClient(*urls) as client:
        found = client.list(status=status, queue=queue, name=name, page_size=min(limit, _PAGE_SIZE_MAX), order="desc")
        jobs = [msgspec.to_builtins(job) for job in islice(found, limit)]
    if as_json:
        print_json(jobs)
    else:
        headings = [column.removesuffix("_number") for column in _COLUMNS]
        print_table(headings, [[job[column] for column in _COLUMNS] for job in jobs])


@click.command("cancel")
@click.argument("job_ids", nargs=-1, required=True)
@url_option
@reports_errors
def cancel_command(job_ids: Sequence[str], urls: Sequence[str]) -> None:
    """Cancel jobs; one that runs is told at its worker's next heartbeat."""
    with BlockingClient(*urls) as client:
        for job_id in job_ids:
            console.print(f"{job_id}  {client.cancel(job_id).status}")
