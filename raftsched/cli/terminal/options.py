"""Define options that several commands share, and convert them to fields of requests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import msgspec

from raftsched.cli.terminal.times import MOMENT, SPAN
from raftsched.errors import Invalid
from raftsched.wire.verbs import JOB, Verb

Command = TypeVar("Command", bound=Callable[..., Any])
FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path, allow_dash=True)

limit_option = click.option(
    "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="Most lines to show."
)
tenant_option = click.option("--tenant", help="Tenant; default: the default tenant.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Change nothing; show what would be done.")
order_option = click.option("--oldest-first", "order", flag_value="asc", help="Oldest first instead of latest first.")


def options(*parts: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Return one decorator for several options, in their order in the help text."""

    def decorate(command: Command) -> Command:
        for part in reversed(parts):
            command = part(command)
        return command

    return decorate


hook_options = options(
    click.option(
        "--on-failure",
        metavar="URL|JSON",
        help="Submit a job if it ends in the dead-letter queue: a request to URL, or JSON as of POST /jobs.",
    ),
    click.option("--on-success", metavar="URL|JSON", help="The same if it completes."),
)

job_options = options(
    click.option("--queue", help="Default: the job's name."),
    click.option("--priority", help="0 to 9, or low, normal, high; higher first."),
    click.option("--max-attempts", type=int, help="Failures until the dead-letter queue."),
    click.option("--max-retries", type=int, help="The same, counted without the first attempt."),
    click.option(
        "--max-lost-workers",
        type=int,
        help="Lost workers until the dead-letter queue; default: as its queue says, else 3.",
    ),
    click.option("--timeout", "timeout_seconds", type=SPAN, help="Longest run time of an attempt, as in 90s or 5m."),
    click.option(
        "--heartbeat-timeout", "heartbeat_timeout_seconds", type=SPAN, help="Longest silence of the handler itself."
    ),
    click.option(
        "--retry-policy",
        help='JSON, as in \'{"backoff": "fixed", "base_seconds": 30}\'. See POST /jobs for its fields.',
    ),
    click.option(
        "--retry-on", multiple=True, metavar="TYPE", help="Error type to try again; default: all. Repeatable."
    ),
    click.option("--no-retry", multiple=True, metavar="TYPE", help="Error type that is not tried again. Repeatable."),
    click.option("--at-most-once", is_flag=True, help="Never start the job twice, even if its worker is lost."),
    click.option("--concurrency-key", help="Jobs of a queue with the same key run one at a time."),
    click.option(
        "--expires-in",
        "expires_in_seconds",
        type=SPAN,
        help="Give up if it has not started within this time after it is due.",
    ),
    click.option(
        "--deadline-in",
        "deadline_in_seconds",
        type=SPAN,
        help="Give up if it has not ended within this time after it is due.",
    ),
    click.option("--retention", "retention_seconds", type=SPAN, help="How long the finished job is kept."),
    click.option("--tag", "tags", multiple=True, help="Repeatable."),
    click.option("--region", help="Only workers of this region run it; by default all do."),
    click.option("--traceparent", help="Span that submits it (W3C Trace Context)."),
    hook_options,
)


def _names(decorate: Callable[[Any], Any]) -> frozenset[str]:
    """Return the names of the parameters that options add to a command."""
    return frozenset(str(parameter.name) for parameter in decorate(lambda: None).__click_params__)


JOB_OPTIONS: Final = _names(job_options)
HOOKS: Final = _names(hook_options)

_VERB_OPTIONS: Final[Mapping[str, partial[Callable[[Any], Any]]]] = {
    "force": partial(
        click.option, "--force", is_flag=True, help="End running attempts at once, without asking their workers first."
    ),
    "run_at": partial(click.option, "--run-at", type=MOMENT, help="As 2027-03-14T07:00:00Z, 2027-03-14, or +2h."),
    "delay_seconds": partial(
        click.option, "--delay", "delay_seconds", type=SPAN, help="From now, as in 90, 30s or 2h."
    ),
    "priority": partial(click.option, "--priority", help="0 to 9, or low, normal, high; higher first."),
    "until": partial(
        click.option, "--until", type=MOMENT, help="Resume at this time; default: stay paused until resumed."
    ),
    "for_seconds": partial(click.option, "--for", "for_seconds", type=SPAN, help="As --until, from now: 30m, 2h."),
    "reason": partial(click.option, "--reason", help="Shown to users who ask why jobs are not running."),
}
"""Field of a request -> the option that gives it."""


def verb_options(verb: Verb) -> Callable[[Command], Command]:
    """Return the options of a verb, one for each field that it takes."""
    required = verb.needs_field and len(verb.options) == 1
    return options(*(_VERB_OPTIONS[field](required=required) for field in verb.options))


def option_names(verb: Verb) -> list[str]:
    """Return the names of the options of a verb, as "--delay"."""
    return [_VERB_OPTIONS[field].args[0] for field in verb.options]


when_options = verb_options(JOB["reschedule"])


def filter_options(*, reason: bool = True) -> Callable[[Command], Command]:
    """The filters of `GET /jobs`, and of the bulk commands; `reason` is left out if it has another meaning."""
    statuses = click.option(
        "--status",
        "statuses",
        multiple=True,
        metavar="STATUS",
        help="As queued, running, dead_letter; commas between several.",
    )
    reasons = click.option("--reason", help="Why they failed, as attempts_exhausted, timeout, worker_lost.")
    return options(
        statuses,
        click.option("--queue", help="Jobs of this queue."),
        click.option("--name", help="Jobs of this name."),
        click.option("--tag", help="Jobs with this tag."),
        tenant_option,
        click.option("--schedule", metavar="ID", help="Runs of this schedule."),
        click.option("--workflow", metavar="ID", help="Jobs of this workflow."),
        *((reasons,) if reason else ()),
        click.option("--since", "created_after", type=MOMENT, help="Submitted then or later, as -2h or 2027-03-14."),
        click.option("--before", "created_before", type=MOMENT, help="Submitted before then."),
    )


def given(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that were given on the command line, in the form of requests."""
    return {name: _value(name, value) for name, value in fields.items() if not _is_absent(value)}


def job_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a job from the options of `job_options`; raises `Invalid` for wrong JSON."""
    wanted = given(fields)
    if wanted.pop("at_most_once", False):
        wanted["start"] = "at_most_once"
    if "retry_policy" in wanted:
        wanted["retry_policy"] = parse_json(wanted["retry_policy"], "--retry-policy")
    for hook in HOOKS & wanted.keys():
        wanted[hook] = hook_document(wanted[hook], f"--{hook.replace('_', '-')}")
    return wanted


def hook_document(text: str, option: str) -> dict[str, Any]:
    """Return the job of a hook: a URL alone means a request to it. Raises `Invalid` naming the option."""
    if text.startswith(("http://", "https://")):
        return {"http": {"url": text}}
    document = parse_json(text, option)
    if not isinstance(document, dict):
        raise Invalid(f"{option}: must be a URL, or a JSON object with the fields of a job", field=option)
    return document


def filter_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the filter given by the options of `filter_options`."""
    wanted = given(fields)
    statuses = [status for text in wanted.pop("statuses", ()) for status in text.split(",") if status]
    return wanted | ({"status": statuses} if statuses else {})


def payload_field(text: str | None) -> dict[str, Any]:
    """Return the field `payload`: JSON, or `-` for JSON from standard input; nothing if there is none.

    It is passed on byte for byte: large numbers keep their digits, and the cluster refuses duplicate keys.
    """
    if text is None:
        return {}
    document = sys.stdin.read() if text == "-" else text
    parse_json(document, "PAYLOAD")
    return {"payload": msgspec.Raw(document.encode())}


def pairs(texts: Sequence[str], separator: str, option: str, form: str) -> dict[str, str]:
    """Return names and values; raises `click.UsageError` naming the option if one has another form, or a name repeats."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, found, value = text.partition(separator)
        if not found or not name:
            raise click.UsageError(f"{option}: write it like {form}, not {text!r}")
        if name in pairs:
            raise click.UsageError(f"{option}: {name} is given twice")
        pairs[name] = value.strip() if separator == ":" else value
    return pairs


def parse_json(text: str, name: str) -> Any:
    """Return the document in `text`; raises `Invalid` naming its option or argument."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        told = "write text in double quotes, inside single ones for the shell"
        raise Invalid(f"{name}: not JSON: {error}; {told}", field=name) from error


def _is_absent(value: Any) -> bool:
    return value is None or value is False or value in ("", ())


def _value(name: str, value: Any) -> Any:
    if name == "priority":
        return int(value) if value.isdecimal() else value
    return list(value) if isinstance(value, tuple) else value
