"""Define `raftsched queue …`, and `raftsched queues`: depths and settings of queues."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import click
from rich.text import Text

from raftsched.cli.terminal.handlerless import shown_work
from raftsched.cli.terminal.options import hook_document
from raftsched.cli.terminal.output import (
    json_option,
    print_fields,
    print_json,
    print_table,
    say,
    status_text,
)
from raftsched.cli.terminal.session import Session, part, with_plain_session, with_session
from raftsched.cli.terminal.statuses import STATUSES
from raftsched.cli.terminal.times import rounded, span_seconds
from raftsched.cli.terminal.verb_command import verb_command
from raftsched.limits import PAGE_QUEUES_MAX
from raftsched.wire.verbs import QUEUE

_COLUMNS: Final = {status: shown.heading or status for status, shown in STATUSES.items() if status != "cancelling"}
_OPTIONAL: Final = (
    "skipped",
    "cancelled",
    "dependent",
    "paused",
    "completed",
    "retrying",
    "workers waiting",
    "scheduled",
)
_NONE: Final = "none"
_NONE_HELP: Final = "none takes it away."
_WEIGHT: Final = re.compile(r"([^=]+)=(\d+)", re.ASCII)


@click.group("queue")
def queue_command() -> None:
    """Show, limit and pause queues.

    A queue need not hold jobs to be limited.
    """


@click.command("list")
@with_plain_session
@json_option
def list_queues(session: Session, *, as_json: bool) -> None:
    """Show how many jobs each queue holds, by status."""
    queues = [queue for page in session.pages("/queues", limit=PAGE_QUEUES_MAX) for queue in page["queues"]]
    if as_json:
        print_json(queues)
        return
    columns = ("queue", "", *_COLUMNS.values(), "oldest waits", "workers waiting")
    if_none = "no queue has jobs or settings; `raftsched submit NAME` makes a job, in the queue NAME"
    print_table(columns, map(_row, queues), optional=_OPTIONAL, if_none=if_none)


queue_command.add_command(list_queues)
queues_command = list_queues
"""`raftsched queues` is the same."""


@queue_command.command("get")
@click.argument("name")
@with_plain_session
@json_option
def get(session: Session, name: str, *, as_json: bool) -> None:
    """Show a queue: its jobs by status, and its settings."""
    _print_queue(session.get(_path(name)), as_json=as_json)


@queue_command.command("set", help=QUEUE["configure"].help)
@click.argument("name")
@click.option(
    "--rate",
    metavar="COUNT/TIME[:BURST]",
    help=f"Starts per time, as 10/s or 100/5m, evenly spread; with a burst, as 10/s:5, so many may start"
    f" at once after a rest; {_NONE_HELP}",
)
@click.option("--concurrency", metavar="COUNT", help=f"Most jobs that run at the same time; {_NONE_HELP}")
@click.option("--key-concurrency", metavar="COUNT", help="The same for each concurrency key; none = 1.")
@click.option(
    "--ageing", metavar="TIME", help="A waiting job gains a priority for each of these; none = the cluster's."
)
@click.option("--retention", metavar="TIME", help="How long finished jobs are kept; none = the cluster's.")
@click.option("--max-lost-workers", metavar="COUNT", help="Lost workers until the dead-letter queue; none = 3.")
@click.option(
    "--weight", "weights", multiple=True, metavar="TENANT=SHARE", help=f"Replaces all shares. Repeatable; {_NONE_HELP}"
)
@click.option(
    "--on-failure",
    metavar="URL|JSON",
    help=f"Submit a job if one ends in the dead-letter queue that has none itself: a request to URL, or JSON as of"
    f" POST /jobs; {_NONE_HELP}",
)
@click.option("--on-success", metavar="URL|JSON", help=f"The same if one completes; {_NONE_HELP}")
@with_session
@json_option
def set_queue(session: Session, name: str, *, as_json: bool, **options: Any) -> None:
    readers: dict[str, tuple[str, Callable[[str], Any]]] = {
        "rate": ("rate", _rate),
        "concurrency": ("concurrency", _count),
        "key_concurrency": ("key_concurrency", _count),
        "ageing": ("ageing_seconds", _seconds),
        "retention": ("retention_seconds", _seconds),
        "max_lost_workers": ("max_lost_workers", _count),
        "on_failure": ("on_failure", partial(hook_document, option="--on-failure")),
        "on_success": ("on_success", partial(hook_document, option="--on-success")),
    }
    changes = {
        field: _read(option, options[option], read)
        for option, (field, read) in readers.items()
        if options[option] is not None
    }
    if options["weights"]:
        changes["weights"] = _weights(options["weights"])
    if not changes:
        raise click.UsageError("say what to change, as --rate 10/s or --concurrency 5")
    _print_settings(session.do(QUEUE["configure"], _path(name), changes), as_json=as_json)


@queue_command.command("scale")
@click.argument("name")
@with_plain_session
@json_option
def scale(session: Session, name: str, *, as_json: bool) -> None:
    """Show how many workers a queue should have, and why. Autoscalers read it with --json."""
    numbers = session.get(_path(name, "scale"))
    print_json(numbers) if as_json else print_fields(numbers)


def _path(name: str, *rest: str) -> str:
    return "/".join(("/queues", part(name), *rest))


def _row(queue: Mapping[str, Any]) -> tuple[Any, ...]:
    oldest_ms = queue["oldest_wait_ms"]
    return (
        queue["name"],
        status_text("paused") if queue["settings"]["pause"] else Text(),
        *(queue[status] for status in _COLUMNS),
        rounded(oldest_ms / 1000) if oldest_ms else "",
        queue["waiting_workers"],
    )


def _print_queue(queue: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(queue)
        return
    settings = queue["settings"]
    counts = {status: queue[status] for status in STATUSES}
    if not any(counts.values()) and settings["revision"] is None and not queue["waiting_workers"]:
        say(f"Nothing is known about {queue['name']}: no jobs, no settings, no worker that waits.")
        say("Any name is a queue; `raftsched queue list` shows those that are in use.")
        return
    print_table(("status", "jobs"), list(counts.items()), title=_title(queue))
    oldest_ms = queue["oldest_wait_ms"]
    beside = {
        "counts": ""
        if queue["exact"]
        else "roughly: of many jobs that became due lately, some still count as scheduled or retrying",
        "oldest waits": rounded(oldest_ms / 1000) if oldest_ms else "",
        "workers waiting": queue["waiting_workers"],
    }
    print_fields({**beside, **shown_work(settings)})


def _title(queue: Mapping[str, Any]) -> str:
    return f"{queue['name']}, of the tenant {queue['tenant']}" if queue["tenant"] else queue["name"]


def _print_settings(settings: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(settings)
        return
    pause = settings["pause"]
    if pause:
        until = f" until {pause['until']}" if pause["until"] else ""
        say(status_text("paused") + Text(f"{until}  {pause['reason'] or ''}".rstrip()))
    shown = {
        name: value for name, value in shown_work(settings).items() if name not in ("pause", "revision", "updated_at")
    }
    if any(shown.values()):
        print_fields(shown)
    elif not pause:
        say("no limits of its own")


queue_command.add_command(verb_command(QUEUE["pause"], _path, _print_settings))
queue_command.add_command(verb_command(QUEUE["resume"], _path, _print_settings))


# -- settings as they are written --------------------------------------------------------------------------------------


def _read(option: str, text: str, read: Callable[[str], Any]) -> Any:
    if text == _NONE:
        return None
    value = read(text)
    if value is None:
        raise click.UsageError(f"--{option.replace('_', '-')}: {text!r} is not valid; see --help")
    return value


def _count(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def _seconds(text: str) -> float | None:
    return span_seconds(text)


def _rate(text: str) -> dict[str, Any] | None:
    text, colon, burst = text.partition(":")
    count, _, period = text.partition("/")
    seconds = span_seconds(f"1{period}" if period.isalpha() else period)
    if not count.isdecimal() or seconds is None or (colon and not burst.isdecimal()):
        return None
    return {"count": int(count), "per_seconds": seconds, "burst": int(burst) if colon else None}


def _weights(texts: tuple[str, ...]) -> dict[str, int] | None:
    if texts == (_NONE,):
        return None
    found = [_WEIGHT.fullmatch(text) for text in texts]
    if not all(found):
        raise click.UsageError("--weight: write it like tenant=3")
    return {match[1]: int(match[2]) for match in found if match}
