"""Find what a text names: a job, schedule or workflow by its id; jobs by name, tag or queue; a schedule by its name."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, Final

from raftsched.client.records import JobInfo
from raftsched.dashboard.page import Answer, Page, Redirect, Rendered
from raftsched.dashboard.rendering import url
from raftsched.dashboard.view import View
from raftsched.errors import Invalid, Rejected
from raftsched.wire.common import is_name

_ID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


@dataclass(frozen=True, slots=True)
class Found:
    """Something that the text names."""

    label: str
    link: str


async def show(view: View) -> Answer:
    """Go to the only thing that is found, or list what the text may mean."""
    wanted = view.query.get("q", "")
    found = await (_by_id(view, wanted.lower()) if _ID.fullmatch(wanted) else _by_name(view, wanted)) if wanted else []
    if len(found) == 1:
        return Redirect(found[0].link)
    return Rendered("search/found.html", {"found": found, "wanted": wanted})


async def _by_id(view: View, wanted: str) -> list[Found]:
    client = view.client
    kinds: tuple[tuple[str, str, Awaitable[Any]], ...] = (
        ("Job", url(f"/jobs/{wanted}"), client.get(wanted)),
        ("Schedule", url(f"/schedules/{wanted}"), client.schedules.get(wanted)),
        ("Workflow", url(f"/workflows/{wanted}"), client.workflows.run(wanted).get()),
    )
    are_there = await asyncio.gather(*(_is_there(read) for _, _, read in kinds))
    return [Found(label, link) for (label, link, _), is_there in zip(kinds, are_there, strict=True) if is_there]


async def _by_name(view: View, wanted: str) -> list[Found]:
    queries = {"name": "Jobs with this name", "tag": "Jobs with this tag", "queue": "Jobs in this queue"}
    possible = queries if is_name(wanted) else {"tag": queries["tag"]}
    reads = [view.client.page(JobInfo, "/jobs", "jobs", {name: wanted, "limit": 1}) for name in possible]
    pages = await asyncio.gather(*reads)
    found = [
        Found(label, url("/jobs", {name: wanted}))
        for (name, label), (jobs, _) in zip(possible.items(), pages, strict=True)
        if jobs
    ]
    if is_name(wanted) and await _is_there(view.client.schedules.get(wanted)):
        found.append(Found("The schedule with this name", url(f"/schedules/{wanted}")))
    return found


async def _is_there(read: Awaitable[Any]) -> bool:
    try:
        await read
    except (Invalid, Rejected):
        return False
    return True


PAGES: Final = (Page(path="/search", show=show),)
