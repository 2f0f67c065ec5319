"""List jobs by a filter that is kept in the URL, and change those that match, after a preview."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast, get_args

from raftsched.client.records import BulkResult, JobInfo
from raftsched.dashboard import fields
from raftsched.dashboard.page import Answer, Page, Redirect, Rendered
from raftsched.dashboard.rendering import url
from raftsched.dashboard.view import View
from raftsched.errors import Invalid
from raftsched.wire.common import STATUS_NAMES, DeadLetterReasonName
from raftsched.wire.verbs import JOB, Action, Verb

_PAGE_JOBS: Final = 50
_FILTERS: Final = ("queue", "name", "tag", "tenant", "schedule", "workflow", "reason")
_TIMES: Final = ("created_after", "created_before")
_BULK: Final = tuple(verb.name for verb in JOB.values() if verb.meant_for)
_FOR_GOOD: Final = frozenset({"cancel", "delete"})
"""Actions that can't be undone."""
_CHANGED_MAX: Final = 50_000
"""Jobs that one form changes; the next one continues."""
REASONS: Final = get_args(DeadLetterReasonName)


async def show(view: View) -> Answer:
    """Return a page of the jobs that match the filter."""
    wanted = filter_of(view)
    order = "asc" if view.query.get("order") == "asc" else "desc"
    query = {**wanted, "order": order, "limit": _PAGE_JOBS, "cursor": view.query.get("cursor")}
    jobs, cursor = await view.client.page(JobInfo, "/jobs", "jobs", query)
    return Rendered(
        "jobs/list.html",
        {
            "jobs": jobs,
            "next_url": url("/jobs", kept(view), order=view.query.get("order"), cursor=cursor) if cursor else None,
            "is_first": "cursor" not in view.query,
            "kept": kept(view),
            "statuses": STATUS_NAMES,
            "reasons": REASONS,
            "chosen": view.lists.get("status", []),
            "order": order,
            "has_more_filters": order == "asc" or bool(kept(view).keys() - {"status", "queue", "name", "tag"}),
            "actions": _BULK,
        },
    )


def filter_of(view: View) -> dict[str, Any]:
    """Return the filter in the URL or the form; raises `Invalid` naming a field."""
    given: Mapping[str, str] = view.form or view.query
    wanted: dict[str, Any] = {name: given[name] for name in _FILTERS if name in given}
    wanted |= {name: time for name in _TIMES if (time := fields.moment(given, name)) is not None}
    if statuses := [status for status in view.lists.get("status", []) if status]:
        wanted["status"] = statuses
    return wanted


def kept(view: View) -> dict[str, Any]:
    """Return the filter as fields of a URL."""
    given: Mapping[str, str] = view.form or view.query
    kept: dict[str, Any] = {name: given[name] for name in (*_FILTERS, *_TIMES) if name in given}
    if statuses := [status for status in view.lists.get("status", []) if status]:
        kept["status"] = statuses
    return kept


async def preview(view: View) -> Answer:
    """Return what a bulk action would change, as far as one request counts: up to 5,000 jobs."""
    verb = _verb(view)
    selection = _selection(view)
    found = await view.client.bulk(cast("Action", verb.name), **selection, **_least(verb), dry_run=True, jobs_max=0)
    return Rendered(
        "jobs/bulk.html",
        {
            "verb": verb,
            "found": found,
            "is_for_good": verb.name in _FOR_GOOD,
            "kept": kept(view),
            "ids": selection.get("ids", []),
            "values": view.form,
        },
    )


async def change(view: View) -> Answer:
    """Change the selected jobs, and tell how many were changed."""
    verb = _verb(view)
    done = await view.client.bulk(
        cast("Action", verb.name),
        **_selection(view),
        **action_fields(view, verb),
        jobs_max=_CHANGED_MAX,
        cursor=view.form.get("cursor"),
    )
    if done.next_cursor or done.failed_count:
        return Rendered(
            "jobs/changed.html",
            {"verb": verb, "done": done, "kept": kept(view), "values": view.form, "ids": view.lists.get("ids", [])},
        )
    return Redirect(url("/jobs", kept(view)), said(verb, done))


def said(verb: Verb, done: BulkResult) -> str:
    """Return the result of a bulk action in words."""
    return f"{done.done:,} {'job' if done.done == 1 else 'jobs'} {verb.past}."


def _verb(view: View) -> Verb:
    name = view.form.get("action") or view.query.get("action", "")
    if name not in _BULK:
        raise Invalid(f"action: choose one of {', '.join(_BULK)}", field="action")
    return JOB[name]


def _selection(view: View) -> dict[str, Any]:
    """Return the jobs that a form selects: by ids, by a filter, or explicitly all."""
    if ids := [text for text in view.lists.get("ids", []) if text]:
        return {"ids": ids}
    if wanted := filter_of(view):
        return {"filter": wanted}
    if (view.form or view.query).get("all") == "yes":
        return {"all": True}
    raise Invalid("ids: tick some jobs, set a filter, or choose all jobs", field="ids")


def action_fields(view: View, verb: Verb) -> dict[str, Any]:
    """Return the parameters of an action in a form, for those that it takes."""
    read: dict[str, Any] = {
        "run_at": fields.moment(view.form, "run_at"),
        "until": fields.moment(view.form, "until"),
        "delay_seconds": fields.number(view.form, "delay_seconds"),
        "for_seconds": fields.number(view.form, "for_seconds"),
        "priority": fields.whole(view.form, "priority"),
        "reason": view.form.get("why"),  # `reason` is a filter
        "force": True if fields.is_ticked(view.form, "force") else None,
    }
    return {name: value for name, value in read.items() if value is not None and name in verb.options}


def _least(verb: Verb) -> dict[str, Any]:
    """Return parameters with which a dry run is accepted; they change nothing."""
    if not verb.needs_field:
        return {}
    return {"priority": 5} if verb.options == ("priority",) else {"delay_seconds": 0.0}


PAGES: Final = (
    Page(path="/jobs", nav="Jobs", show=show),
    Page(path="/jobs/bulk", access="operate", show=preview, act=change),
)
