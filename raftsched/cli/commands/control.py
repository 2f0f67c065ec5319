"""Act on one job, or on many: a command for each verb on jobs.

With one id the command shows the changed job. Several, a filter or --all use one bulk request after the other; see
`bulk`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import click
from rich.text import Text

from raftsched.cli.commands.bulk import ActionWords, bulk_options, run_bulk, target_options
from raftsched.cli.commands.jobs import job_path
from raftsched.cli.terminal.options import given, option_names, payload_field, verb_options, when_options
from raftsched.cli.terminal.output import json_option, print_json, say, status_text
from raftsched.cli.terminal.session import Session, with_session
from raftsched.cli.terminal.times import MOMENT, SPAN, when
from raftsched.wire.verbs import JOB, Verb

_TAKEN_AWAY: Final = {"timeout": "timeout_seconds", "expires-at": "expires_at", "deadline": "deadline", "tags": "tags"}
"""Properties of a job that can be removed, as options and as fields."""


def _change(
    session: Session,
    verb: Verb,
    fields: Mapping[str, Any],
    options: Mapping[str, Any],
    *,
    alone: Mapping[str, Any] | None = None,
    key: str | None = None,
) -> None:
    """Act on the jobs that `options` name; see `bulk.bulk_options`. `alone` are further fields, for one job only."""
    chosen_options = bulk_options(options)
    if len(chosen_options.target.ids) == 1 and not chosen_options.dry_run and not verb.is_bulk_only:
        path = job_path(chosen_options.target.ids[0])
        _print_changed(session.do(verb, path, {**fields, **(alone or {})}, key=key), as_json=chosen_options.as_json)
    else:
        document = {"action": verb.name, **fields}
        run_bulk(session, "/jobs/bulk", document, chosen_options, words=ActionWords(verb.name, verb.past), key=key)


def _print_changed(job: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(job)
        return
    due = f"  due {when(job['next_run_at'])}" if job.get("next_run_at") else ""
    say(Text(f"{job['id']}  ") + status_text(job["status"]) + Text(due, style="dim"))


def _command(verb: Verb) -> click.Command:
    @click.command(verb.name, help=verb.help)
    @target_options(reason="reason" not in verb.options)
    @verb_options(verb)
    @with_session
    @json_option
    def command(session: Session, **options: Any) -> None:
        fields = given({field: options.pop(field) for field in verb.options})
        if verb.needs_field and len(fields) != 1:
            raise click.UsageError(f"give {' or '.join(option_names(verb))}")
        _change(session, verb, fields, options)

    return command


@click.command("replay", help=JOB["replay"].help)
@target_options()
@when_options
@click.option("--payload", help="JSON in place of the original's; of one job.")
@click.option("--to-queue", help="In place of the original's; of one job.")
@click.option("--priority", help="In place of the original's; of one job.")
@click.option("--idempotency-key", help="A repeated replay with the same key finds the first clone.")
@with_session
@json_option
def _replay_command(
    session: Session,
    *,
    run_at: str | None,
    delay_seconds: float | None,
    payload: str | None,
    to_queue: str | None,
    priority: str | None,
    idempotency_key: str | None,
    **options: Any,
) -> None:
    fields = given({"run_at": run_at, "delay_seconds": delay_seconds})
    alone = {**given({"queue": to_queue, "priority": priority}), **payload_field(payload)}
    if alone and len(options["job_ids"]) != 1:
        raise click.UsageError("--payload, --to-queue and --priority are for one job at a time")
    key = idempotency_key or session.new_key()
    _change(session, JOB["replay"], fields, options, alone=alone, key=key)


@click.command("amend", help=JOB["amend"].help)
@click.argument("job_id", metavar="ID")
@when_options
@click.option("--priority", help="0 to 9, or low, normal, high; higher first.")
@click.option("--queue", help="Move it to this queue.")
@click.option("--payload", help="JSON; - for JSON from standard input.")
@click.option("--max-attempts", type=int, help="Failures until the dead-letter queue.")
@click.option("--max-lost-workers", type=int, help="Lost workers until the dead-letter queue.")
@click.option("--timeout", "timeout_seconds", type=SPAN, help="Longest run time of an attempt.")
@click.option("--expires-at", type=MOMENT, help="Give up if it has not started by then.")
@click.option("--deadline", type=MOMENT, help="Give up if it has not ended by then.")
@click.option("--tag", "tags", multiple=True, help="Replaces all of its tags. Repeatable.")
@click.option("--without", multiple=True, type=click.Choice(_TAKEN_AWAY), help="Remove this property. Repeatable.")
@click.option("--if-revision", type=int, help="Only if nothing has changed since that revision.")
@with_session
@json_option
def _amend_command(
    session: Session,
    job_id: str,
    *,
    payload: str | None,
    without: Sequence[str],
    if_revision: int | None,
    as_json: bool,
    **fields: Any,
) -> None:
    changes = {**given(fields), **payload_field(payload), **{_TAKEN_AWAY[name]: None for name in without}}
    if not changes:
        raise click.UsageError("say what to change, as --queue slow or --without timeout")
    job = session.do(JOB["amend"], job_path(job_id), changes, if_revision=if_revision)
    _print_changed(job, as_json=as_json)


_WITH_OPTIONS_OF_ITS_OWN: Final = {"replay": _replay_command, "amend": _amend_command}
COMMANDS: Final = {name: _WITH_OPTIONS_OF_ITS_OWN.get(name) or _command(verb) for name, verb in JOB.items()}
"""Verb -> its command."""
