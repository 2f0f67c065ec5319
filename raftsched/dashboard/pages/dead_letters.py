"""Show the dead letters by reason and by error, and requeue or purge one, a group, or all that match, after a preview.

Groups come from one page of the latest dead letters, so the page costs the same however many there are. A group is
changed by the ids of its jobs: what is given up meanwhile, or is older than the page, is not touched unseen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

from raftsched.client.records import BulkResult, JobInfo
from raftsched.dashboard.error_groups import ErrorGroup, groups_of
from raftsched.dashboard.form_values import form_values
from raftsched.dashboard.page import Answer, Page, Redirect, Rendered
from raftsched.dashboard.rendering import url
from raftsched.dashboard.view import View
from raftsched.errors import Invalid
from raftsched.wire.common import DeadLetterReasonName

_PAGE_JOBS: Final = 500
_FILTERS: Final = ("reason", "queue", "name", "tag", "tenant")
_CHANGED_MAX: Final = 50_000
"""Jobs that one form changes; the next one continues."""
REASONS: Final = get_args(DeadLetterReasonName)
ADVICE: Final = {
    "attempts_exhausted": "Every attempt failed. Read the error, fix its cause, and requeue.",
    "timeout": "An attempt ran longer than its timeout. Look whether it hung, or raise the timeout.",
    "worker_lost": "Workers died or fell silent while they ran it. Look at their memory and their logs.",
    "rejected": "The handler gave up, or its error is not to be retried.",
    "expired": "It did not start, or did not finish, in time. Look whether workers are missing.",
    "dependency_failed": "A job that it depends on did not end as it needs. Requeue that one first.",
    "target_refused": "The address of its request is not allowed. Correct it, or allow it in the settings.",
}


async def show(view: View) -> Answer:
    """Return the counts by reason, and the groups of a page of the latest dead letters."""
    kept = _kept(view)
    (jobs, cursor), counts = await asyncio.gather(_page(view, kept), view.client.dead_letters.reasons())
    groups = groups_of(jobs)
    return Rendered(
        "dead_letters/list.html",
        {
            "groups": groups,
            "jobs": jobs,
            "counts": [(reason, counts.get(reason, 0), ADVICE[reason]) for reason in REASONS],
            "total": sum(counts.values()),
            "kept": form_values(kept),
            "is_first": "cursor" not in view.query,
            "cursor": view.query.get("cursor"),
            "next_url": url("/dead-letters", kept, cursor=cursor) if cursor else None,
        },
    )


async def show_group(view: View) -> Answer:
    """Return the jobs of one group."""
    kept = _kept(view)
    group = await _group(view, kept)
    return Rendered(
        "dead_letters/group.html",
        {"group": group, "kept": kept, "cursor": view.query.get("cursor"), "advice": ADVICE.get(group.reason, "")},
    )


async def _page(view: View, kept: Mapping[str, str]) -> tuple[Any, str | None]:
    given = view.form or view.query
    return await view.client.page(
        JobInfo, "/dead-letters", "jobs", {**kept, "limit": _PAGE_JOBS, "cursor": given.get("cursor")}
    )


async def _group(view: View, kept: Mapping[str, str]) -> ErrorGroup:
    """Return the group that the URL names; raises `Invalid` if none of its jobs is left on the page."""
    jobs, _ = await _page(view, kept)
    wanted = view.match.get("group") or view.query.get("group")
    found = next((group for group in groups_of(jobs) if group.key == wanted), None)
    if found is None:
        raise Invalid("group: none of its jobs is among the latest dead letters any more", field="group")
    return found


def _kept(view: View) -> dict[str, str]:
    given = view.form or view.query
    return {name: given[name] for name in _FILTERS if name in given}


# -- changes ----------------------------------------------------------------------------------------------------------


async def preview_requeue(view: View) -> Answer:
    """Return what a requeue would change."""
    return await _preview(view, "requeue")


async def preview_purge(view: View) -> Answer:
    """Return what a purge would remove."""
    return await _preview(view, "purge")


async def requeue(view: View) -> Answer:
    """Requeue the selected jobs."""
    return await _changed(view, "requeue")


async def purge(view: View) -> Answer:
    """Remove the selected jobs."""
    return await _changed(view, "purge")


async def _preview(view: View, action: Literal["requeue", "purge"]) -> Answer:
    kept = _kept(view)
    ids = [text for text in view.lists.get("ids", []) if text]
    group: ErrorGroup | None = None
    if "group" in view.query:
        group = await _group(view, kept)
        ids = [job.id for job in group.jobs]
    selection = _selection(view, kept, ids)
    found = await _send(view, action, selection, dry_run=True)
    return Rendered(
        "dead_letters/change.html",
        {"action": action, "found": found, "ids": ids, "group": group, "kept": kept},
    )


async def _changed(view: View, action: Literal["requeue", "purge"]) -> Answer:
    kept = _kept(view)
    ids = [text for text in view.lists.get("ids", []) if text]
    done = await _send(view, action, _selection(view, kept, ids), dry_run=False)
    said = "requeued" if action == "requeue" else "removed for good"
    notice = f"{done.done:,} of {done.matched:,} dead letters {said}."
    if done.failed:
        notice += f" The first that was not: {done.failed[0].id}, {done.failed[0].detail}."
    if done.next_cursor:
        notice += " There are more: do it again."
    return Redirect(url("/dead-letters", kept if not ids else {}), notice)


def _selection(view: View, kept: Mapping[str, str], ids: list[str]) -> dict[str, Any]:
    """Return what is selected: by ids, by the filter, or explicitly all."""
    if ids:
        return {"ids": ids}
    if kept:
        return {"filter": kept}
    if (view.form or view.query).get("all") == "yes":
        return {"all": True}
    raise Invalid("all: set a filter, choose a group, or choose all dead letters", field="all")


async def _send(
    view: View, action: Literal["requeue", "purge"], selection: Mapping[str, Any], *, dry_run: bool
) -> BulkResult:
    """Send one request in a dry run, which searches up to 5,000 jobs, else requests for up to `_CHANGED_MAX`."""
    letters = view.client.dead_letters
    change = letters.requeue if action == "requeue" else letters.purge
    return await change(**selection, dry_run=dry_run, jobs_max=0 if dry_run else _CHANGED_MAX)


PAGES: Final = (
    Page(path="/dead-letters", nav="Dead letters", show=show),
    Page(path="/dead-letters/requeue", access="operate", show=preview_requeue, act=requeue),
    Page(path="/dead-letters/purge", access="operate", show=preview_purge, act=purge),
    Page(path="/dead-letters/groups/{group}", show=show_group),
)
