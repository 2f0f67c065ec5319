"""Change one job: at once if that can be taken back, else after a page that says what would happen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from raftsched.client.records import JobInfo
from raftsched.dashboard import fields
from raftsched.dashboard.formats import pretty
from raftsched.dashboard.page import Answer, Page, Redirect, Rendered
from raftsched.dashboard.rendering import url
from raftsched.dashboard.view import View
from raftsched.errors import Invalid, Rejected
from raftsched.wire.common import FINISHED, LEASED, UNLEASED
from raftsched.wire.verbs import JOB

Act = Callable[[View], Awaitable[Answer]]
_AT_REST: Final = frozenset(FINISHED)
_CLEARED: Final = ("timeout_seconds", "expires_at", "deadline")
"""Limits that an empty field of the form removes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """Something that a reader can do to a job."""

    name: str
    label: str
    statuses: frozenset[str]
    """Statuses in which its button is shown."""
    access: str = "submit"
    has_form: bool = True
    """Whether a page asks first; else its button acts at once."""
    is_for_good: bool = False


def legal_actions(view: View, job: JobInfo) -> list[Action]:
    """Return the actions whose buttons the reader sees; the API decides again."""
    return [action for action in ACTIONS if job.status in action.statuses and view.may(action.access)]


async def show(name: str, view: View) -> Answer:
    """Return the page that asks before an action, with what is known of the job now."""
    action = _BY_NAME[name]
    job = await view.client.get(view.match["id"])
    return Rendered(
        f"job/{name if name in ('replay', 'amend') else 'ask'}.html",
        {
            "job": job,
            "action": action,
            "help": JOB[name].help.split("\n", 1)[0],
            "options": JOB[name].options,
            "is_legal": job.status in action.statuses,
            "values": view.form or _values(job),
        },
    )


def _values(job: JobInfo) -> Mapping[str, Any]:
    """Return what the forms hold at first: the job as it is."""
    return {
        "payload": pretty(job.payload),
        "queue": job.queue,
        "priority": job.priority,
        "max_attempts": job.max_attempts,
        "timeout_seconds": "" if job.timeout_seconds is None else job.timeout_seconds,
        "expires_at": _field(job.expires_at),
        "deadline": _field(job.deadline),
        "tags": ", ".join(job.tags),
        "revision": job.revision,
    }


def _field(moment: Any) -> str:
    return "" if moment is None else moment.strftime("%Y-%m-%dT%H:%M:%S")


async def cancel(view: View) -> Answer:
    job = await view.client.cancel(view.match["id"], force=fields.is_ticked(view.form, "force"))
    said = "Cancelled." if job.status == "cancelled" else "Its worker is asked to stop at its next heartbeat."
    return _to_job(view, said)


async def pause(view: View) -> Answer:
    until = fields.moment(view.form, "until")
    await view.client.job(view.match["id"]).pause(until=until, reason=view.form.get("why"))
    return _to_job(view, "Paused.")


async def resume(view: View) -> Answer:
    await view.client.job(view.match["id"]).resume()
    return _to_job(view, "Resumed.")


async def retry(view: View) -> Answer:
    when = {"run_at": fields.moment(view.form, "run_at"), "delay_seconds": fields.number(view.form, "delay_seconds")}
    await view.client.job(view.match["id"]).retry(**when)  # type: ignore[arg-type]
    return _to_job(view, "It runs again.")


async def replay(view: View) -> Answer:
    """Submit a clone, with the payload as it was edited."""
    form = view.form
    changes: dict[str, Any] = {
        "queue": form.get("queue"),
        "priority": fields.whole(form, "priority"),
        "run_at": fields.moment(form, "run_at"),
        "delay_seconds": fields.number(form, "delay_seconds"),
    }
    given = {name: value for name, value in changes.items() if value is not None}
    original = await view.client.get(view.match["id"])
    payload = fields.json(form, "payload")
    if payload != original.payload:
        given["payload"] = payload
    clone = await view.client.job(original.id).replay(idempotency_key=form.get("once"), **given)
    return Redirect(url(f"/jobs/{clone.id}"), "This is the clone.")


async def amend(view: View) -> Answer:
    """Change what the reader has changed in the form, unless the job has changed meanwhile."""
    form = view.form
    job = await view.client.get(view.match["id"])
    wanted: dict[str, Any] = {
        "run_at": fields.moment(form, "run_at"),
        "delay_seconds": fields.number(form, "delay_seconds"),
        "queue": form.get("queue"),
        "priority": fields.whole(form, "priority"),
        "max_attempts": fields.whole(form, "max_attempts"),
        "timeout_seconds": fields.number(form, "timeout_seconds"),
        "expires_at": fields.moment(form, "expires_at"),
        "deadline": fields.moment(form, "deadline"),
        "tags": fields.words(form, "tags"),
        "payload": fields.json(form, "payload"),
    }
    changes = {name: value for name, value in wanted.items() if _differs(job, name, value)}
    if not changes:
        raise Invalid("no field differs from the job as it is")
    await view.client.job(job.id).update(if_revision=fields.whole(form, "revision"), **changes)
    return _to_job(view, f"Changed: {', '.join(changes).replace('_', ' ')}.")


def _differs(job: JobInfo, name: str, value: Any) -> bool:
    if name in ("run_at", "delay_seconds"):
        return value is not None
    if value is None and name not in (*_CLEARED, "payload"):
        return False
    current = getattr(job, name)
    if name in ("expires_at", "deadline") and current is not None:
        current = current.replace(microsecond=0)
    return bool((list(current) if name == "tags" else current) != value)


async def delete(view: View) -> Answer:
    done = await view.client.bulk("delete", ids=[view.match["id"]])
    if done.failed:
        raise Rejected(done.failed[0].code, done.failed[0].detail)
    return Redirect(url("/jobs"), "Deleted.")


def _to_job(view: View, said: str) -> Redirect:
    return Redirect(url(f"/jobs/{view.match['id']}"), said)


_ALIVE: Final = frozenset({*UNLEASED, *LEASED} - {"cancelling"})
ACTIONS: Final = (
    Action(name="resume", label="Resume", statuses=frozenset({"paused"}), has_form=False),
    Action(
        name="retry",
        label="Run again",
        statuses=frozenset({"dead_letter", "failed", "cancelled", "skipped", "retrying"}),
        has_form=False,
    ),
    Action(name="replay", label="Replay…", statuses=_AT_REST),
    Action(name="amend", label="Change…", statuses=frozenset(UNLEASED)),
    Action(name="pause", label="Pause…", statuses=_ALIVE - {"paused"}),
    Action(name="cancel", label="Cancel…", statuses=_ALIVE | {"cancelling"}, is_for_good=True),
    Action(name="delete", label="Delete…", statuses=_AT_REST, access="operate", is_for_good=True),
)
_BY_NAME: Final = {action.name: action for action in ACTIONS}
_ACTS: Final[Mapping[str, Act]] = {
    "resume": resume,
    "retry": retry,
    "replay": replay,
    "amend": amend,
    "pause": pause,
    "cancel": cancel,
    "delete": delete,
}

PAGES: Final = tuple(
    Page(
        path=f"/jobs/{{id}}/{action.name}",
        access=action.access,
        show=partial(show, action.name) if action.has_form else None,
        act=_ACTS[action.name],
    )
    for action in ACTIONS
)
