"""Select many jobs, and walk over them until all are done.

Commands that change jobs take ids, or filters, or `--all`, and never guess: without any they are refused. With `--all`
they count first and ask, on a terminal; elsewhere they need `--yes`. The cluster does up to 10,000 jobs in one request
and returns a cursor for the next, so any number is done, with progress on a terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeVar

import click
from rich.progress import Progress, SpinnerColumn, TextColumn

from raftsched.cli.terminal.options import dry_run_option, filter_fields, filter_options, options
from raftsched.cli.terminal.output import print_json, print_table, progress_console, say
from raftsched.cli.terminal.session import Session
from raftsched.errors import RaftschedError

IDS_MAX: Final = 10_000
"""In one request."""
_SHOWN_MAX: Final = 10
_KEPT_MAX: Final = 100
Command = TypeVar("Command", bound=Callable[..., Any])


class ActionWords(NamedTuple):
    """The words for an action."""

    plain: str
    past: str
    noun: str = "job"

    def counted(self, count: int) -> str:
        return f"{count:,} {self.noun}" if count == 1 else f"{count:,} {self.noun}s"


class Target(NamedTuple):
    """Selection of jobs: exactly one of the three."""

    ids: Sequence[str] = ()
    filter: Mapping[str, Any] = {}
    everything: bool = False

    @property
    def fields(self) -> dict[str, Any]:
        if self.ids:
            return {"ids": list(self.ids)}
        return {"all": True} if self.everything else {"filter": dict(self.filter)}


def target_options(*, reason: bool = True) -> Callable[[Command], Command]:
    """Add the argument and the options that select a command's jobs."""
    return options(
        click.argument("job_ids", nargs=-1, metavar="[ID]..."),
        filter_options(reason=reason),
        all_options("Every job to which it can apply."),
        dry_run_option,
    )


def all_options(help_text: str) -> Callable[[Command], Command]:
    """Add `--all`, and the `--yes` that it needs without a terminal."""
    return options(
        click.option("--all", "everything", is_flag=True, help=help_text),
        click.option("--yes", is_flag=True, help="With --all: don't ask. Needed without a terminal."),
    )


class BulkOptions(NamedTuple):
    """The options of a command that changes jobs."""

    target: Target
    dry_run: bool
    as_json: bool
    is_sure: bool = True
    """It may be done without asking."""


def bulk_options(options: Mapping[str, Any]) -> BulkOptions:
    """Return the selection given by `options`; raises `click.UsageError` unless it is given by ids, filters or --all
    alone.

    Also for --all without --yes if there is no terminal at which to ask.
    """
    filters = dict(options)
    job_ids: Sequence[str] = filters.pop("job_ids")
    everything, dry_run, as_json = filters.pop("everything"), filters.pop("dry_run"), filters.pop("as_json")
    is_sure = filters.pop("yes") or not everything or dry_run
    chosen = filter_fields(filters)
    if bool(job_ids) + bool(chosen) + everything != 1:
        raise click.UsageError("say which jobs: their ids, or filters such as --queue and --name, or --all")
    if not is_sure and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.UsageError("--all needs --yes without a terminal; --dry-run shows what it would do")
    return BulkOptions(Target(tuple(job_ids), chosen, everything), dry_run, as_json, is_sure)


def run_bulk(
    session: Session,
    path: str,
    document: Mapping[str, Any],
    chosen_options: BulkOptions,
    *,
    words: ActionWords,
    key: str | None = None,
) -> None:
    """Act on all selected jobs, and print the results; exit code 1 if some failed.

    `key` makes a repetition count once; only actions that create jobs take one.
    """
    if not chosen_options.is_sure:
        _ask(_done(session, path, document, chosen_options._replace(dry_run=True), words=words, key=key), words)
    total = _done(session, path, document, chosen_options, words=words, key=key)
    if chosen_options.as_json:
        print_json({"dry_run": chosen_options.dry_run, **total})
    else:
        _print_total(total, words, dry_run=chosen_options.dry_run)
    if total["failed_count"]:
        raise SystemExit(1)


def _ask(total: Mapping[str, Any], words: ActionWords) -> None:
    """Print what would be done, and end the command unless the user at the terminal confirms."""
    counted = words.counted(total["matched"])
    try:
        wanted = not total["matched"] or click.confirm(f"{words.plain.capitalize()} {counted}?", err=True)
    except click.Abort:
        click.echo(err=True)
        wanted = False
    if not wanted:
        click.echo("raftsched: nothing was done", err=True)
        raise SystemExit(1)


def _done(
    session: Session,
    path: str,
    document: Mapping[str, Any],
    chosen_options: BulkOptions,
    *,
    words: ActionWords,
    key: str | None,
) -> dict[str, Any]:
    """Act on the jobs, or count them in a dry run, and return the totals."""
    total: dict[str, Any] = {"matched": 0, "done": 0, "failed_count": 0, "failed": [], "sample": []}
    document = {**document, "dry_run": chosen_options.dry_run}
    headers = {} if key is None else session.key_header(key)
    with _counting(words, dry_run=chosen_options.dry_run) as count:
        try:
            for part in _parts(chosen_options.target):
                for reply in _replies(session, path, {**document, **part}, headers):
                    _add(total, reply)
                    count(total)
        except RaftschedError:
            if total["done"]:
                click.echo(f"raftsched: {words.counted(total['done'])} {words.past} before this:", err=True)
            raise
    return total


def _parts(target: Target) -> Iterator[dict[str, Any]]:
    if not target.ids:
        yield target.fields
    for first in range(0, len(target.ids), IDS_MAX):
        yield {"ids": list(target.ids[first : first + IDS_MAX])}


def _replies(
    session: Session, path: str, document: Mapping[str, Any], headers: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    """Send the request until no job is left."""
    cursor = None
    while True:
        reply = session.post(path, {**document, **({"cursor": cursor} if cursor else {})}, headers=headers)
        yield reply
        cursor = reply["next_cursor"]
        if not cursor:
            return


def _add(total: dict[str, Any], reply: Mapping[str, Any]) -> None:
    for name in ("matched", "done", "failed_count"):
        total[name] += reply[name]
    for name in ("failed", "sample"):
        total[name] = [*total[name], *reply[name]][:_KEPT_MAX]


@contextmanager
def _counting(words: ActionWords, *, dry_run: bool) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Show the number of finished jobs on a terminal."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"))
    quiet = not progress_console.is_terminal
    with Progress(*columns, console=progress_console, transient=True, disable=quiet) as progress:
        task = progress.add_task("counting" if dry_run else words.plain, total=None)

        def count(total: dict[str, Any]) -> None:
            done = f"{total['matched']:,} found" if dry_run else f"{words.counted(total['done'])} {words.past}"
            progress.update(task, description=done)

        yield count


def _print_total(total: Mapping[str, Any], words: ActionWords, *, dry_run: bool) -> None:
    matched, failed_count = total["matched"], total["failed_count"]
    if dry_run:
        say(f"would {words.plain} {words.counted(matched)}" + (", for instance:" if total["sample"] else ""))
        for job_id in total["sample"][:_SHOWN_MAX]:
            say(f"  {job_id}")
        return
    say(f"{total['done']:,} of {words.counted(matched)} {words.past}")
    if failed_count:
        rows = [(failure["id"], failure["code"], failure["detail"]) for failure in total["failed"]]
        print_table(("id", "code", "reason"), rows, title=f"{failed_count:,} stayed as they were")
