"""`raftsched cancel | pause | resume | retry | replay | reschedule | reprioritise | amend | delete`: act on one job, or
on many.

With one id the command shows the changed job. Several, a filter or --all use one bulk request after the other; see
`bulk`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import click
from rich.text import Text

from raftsched.cli.commands.bulk import Verb, asked_of, run_bulk, target_options
from raftsched.cli.commands.jobs import job_path
from raftsched.cli.terminal.options import given, pause_options, payload_field, when_options
from raftsched.cli.terminal.output import json_option, print_json, say, status_text
from raftsched.cli.terminal.session import Session, with_session
from raftsched.cli.terminal.times import MOMENT, SPAN, when

_BULK: Final = "/jobs/bulk"
_TAKEN_AWAY: Final = {"timeout": "timeout_seconds", "expires-at": "expires_at", "deadline": "deadline", "tags": "tags"}
"""Properties of a job that can be removed, as options and as fields."""
One = Callable[[str], Mapping[str, Any]]
"""Act on the job with this id, and return the changed job."""


def _change(
    session: Session,
    verb: Verb,
    fields: Mapping[str, Any],
    options: Mapping[str, Any],
    *,
    one: One | None,
    key: str | None = None,
) -> None:
    """Act on the jobs that `options` name; see `bulk.asked_of`."""
    asked = asked_of(options)
    if one is not None and len(asked.target.ids) == 1 and not asked.dry_run:
        _print_changed(one(asked.target.ids[0]), as_json=asked.as_json)
    else:
        run_bulk(session, _BULK, {"action": verb.plain, **fields}, asked, verb=verb, key=key)


def _print_changed(job: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(job)
        return
    due = f"  due {when(job['next_run_at'])}" if job.get("next_run_at") else ""
    say(Text(f"{job['id']}  ") + status_text(job["status"]) + Text(due, style="dim"))


@click.command("cancel")
@target_options()
@click.option("--force", is_flag=True, help="End running attempts at once, without asking their workers first.")
@with_session
@json_option
def cancel_command(session: Session, *, force: bool, **options: Any) -> None:
    """Cancel jobs. A running one is notified at its worker's next heartbeat."""
    fields = given({"force": force})
    _change(
        session,
        Verb("cancel", "cancelled"),
        fields,
        options,
        one=lambda job_id: session.send("DELETE", job_path(job_id), query=fields),
    )


@click.command("pause")
@target_options(reason=False)
@pause_options
@with_session
@json_option
def pause_command(
    session: Session, *, until: str | None, for_seconds: float | None, reason: str | None, **options: Any
) -> None:
    """Pause jobs until they are resumed, or until a time."""
    fields = given({"until": until, "for_seconds": for_seconds, "reason": reason})
    _change(
        session,
        Verb("pause", "paused"),
        fields,
        options,
        one=lambda job_id: session.post(job_path(job_id, "pause"), fields),
    )


@click.command("resume")
@target_options()
@with_session
@json_option
def resume_command(session: Session, **options: Any) -> None:
    """Resume paused jobs."""
    verb = Verb("resume", "resumed")
    _change(session, verb, {}, options, one=lambda job_id: session.post(job_path(job_id, "resume")))


@click.command("retry")
@target_options()
@when_options
@with_session
@json_option
def retry_command(session: Session, *, run_at: str | None, delay_seconds: float | None, **options: Any) -> None:
    """Run failed or cancelled jobs again.

    Each begins a new run, with all of its attempts; one that waits for its next attempt makes it now.
    """
    fields = given({"run_at": run_at, "delay_seconds": delay_seconds})
    _change(
        session,
        Verb("retry", "requeued"),
        fields,
        options,
        one=lambda job_id: session.post(job_path(job_id, "retry"), fields),
    )


@click.command("replay")
@target_options()
@when_options
@click.option("--payload", help="JSON in place of the original's; of one job.")
@click.option("--to-queue", help="In place of the original's; of one job.")
@click.option("--priority", help="In place of the original's; of one job.")
@click.option("--idempotency-key", help="A repeated replay with the same key finds the first clone.")
@with_session
@json_option
def replay_command(
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
    """Submit clones of jobs, each with a link to its original."""
    fields = given({"run_at": run_at, "delay_seconds": delay_seconds})
    alone = {**given({"queue": to_queue, "priority": priority}), **payload_field(payload)}
    if alone and len(options["job_ids"]) != 1:
        raise click.UsageError("--payload, --to-queue and --priority are for one job at a time")
    key = idempotency_key or session.new_key()
    headers = session.key_header(key)
    _change(
        session,
        Verb("replay", "replayed"),
        fields,
        options,
        one=lambda job_id: session.post(job_path(job_id, "replay"), {**fields, **alone}, headers=headers),
        key=key,
    )


@click.command("reschedule")
@target_options()
@when_options
@with_session
@json_option
def reschedule_command(session: Session, *, run_at: str | None, delay_seconds: float | None, **options: Any) -> None:
    """Move waiting jobs to another time. `--delay 0` = now."""
    if (run_at is None) == (delay_seconds is None):
        raise click.UsageError("say when: --run-at or --delay")
    fields = given({"run_at": run_at, "delay_seconds": delay_seconds})
    _change(
        session,
        Verb("reschedule", "rescheduled"),
        fields,
        options,
        one=lambda job_id: session.send("PATCH", job_path(job_id), fields),
    )


@click.command("amend")
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
def amend_command(
    session: Session,
    job_id: str,
    *,
    payload: str | None,
    without: Sequence[str],
    if_revision: int | None,
    as_json: bool,
    **fields: Any,
) -> None:
    """Change a waiting job: its time, queue, payload or limits."""
    changes = {**given(fields), **payload_field(payload), **{_TAKEN_AWAY[name]: None for name in without}}
    if not changes:
        raise click.UsageError("say what to change, as --queue slow or --without timeout")
    headers = {} if if_revision is None else {"If-Match": f'"{if_revision}"'}
    job = session.send("PATCH", job_path(job_id), changes, headers=headers)
    _print_changed(job, as_json=as_json)


@click.command("reprioritise")
@target_options()
@click.option("--priority", required=True, help="0 to 9, or low, normal, high; higher first.")
@with_session
@json_option
def reprioritise_command(session: Session, *, priority: str, **options: Any) -> None:
    """Change the priority of waiting jobs."""
    fields = given({"priority": priority})
    _change(
        session,
        Verb("reprioritise", "reprioritised"),
        fields,
        options,
        one=lambda job_id: session.send("PATCH", job_path(job_id), fields),
    )


@click.command("delete")
@target_options()
@with_session
@json_option
def delete_command(session: Session, **options: Any) -> None:
    """Delete finished jobs."""
    _change(session, Verb("delete", "deleted"), {}, options, one=None)
