"""List the pages of the dashboard and the lists of the API behind them, each with the rows that it may read."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args

import msgspec

from raftsched.client.records import JobInfo
from raftsched.dashboard.error_groups import groups_of
from raftsched.wire.common import STATUS_NAMES, DeadLetterReasonName

Ask = Callable[[str], Awaitable[Any]]
ROWS_MAX: Final = 3_000
"""Rows of a page without a bound of its own, as in `tests.dashboard.test_cost`."""
SEARCHED_ROWS_MAX: Final = 15_000
"""A filter without an index: a page searches up to 5,000 jobs, and so does a preview; a row of an index and a record
for each, and rows of lists that are read together."""
OVERVIEW_ROWS_MAX: Final = 5_000
"""Three rows for each of 1,000 schedules, and some for each of the 500 queues with the most due jobs."""
LIST_ROWS_MAX: Final = 5_000
"""A list of the API with 1,000 jobs: a row of an index, a record, a payload and a result for each."""
_PREVIEWS: Final = ("/jobs/bulk", "/dead-letters/requeue", "/dead-letters/purge")
_SEARCHES: Final = re.compile("created_before|(name|tag)=.*status=retrying|workflow=.*status|tenant=default.*status")
_SEARCHED: Final = ("a_completed", "schedule", "workflow", "job-07", "often", "later-00007", "hourly", "none")
_FOUND: Final = (200, 303)
"""A search leads to the only thing that it finds, or lists what it finds."""
_REASONS: Final = get_args(DeadLetterReasonName)
_LISTS: Final = (
    ("jobs", "/jobs?order=desc", 50, 1_000),
    ("queued", "/jobs?order=desc&status=queued", 50, 1_000),
    ("queues", "/queues?", 50, 500),
    ("dead", "/dead-letters?order=desc", 500, 1_000),
    ("workflows", "/workflows?", 50, 100),
    ("graph", "/workflows/{workflow}?", 200, 1_000),
    ("schedules", "/schedules?", 50, 500),
    ("ledger", "/schedules/{schedule}/firings?", 30, 100),
    ("audit", "/audit?", 100, 1_000),
)
"""Lists with more than one page: the jobs of a page of the dashboard, and those of a step to the last page."""


@dataclass(frozen=True, slots=True)
class Visited:
    """A page to open, and what it may read."""

    path: str
    rows_max: int
    statuses: Sequence[int] = (200,)


async def found_pages(ask: Ask) -> list[Visited]:
    """Return all pages; `ask` reads a document of the API, for the ids and cursors that paths need."""
    names = await _names(ask)
    visited = [_page(path) for path in _named((*_JOBS, *_OTHERS, *_previews()), names)]
    visited += [Visited(f"/ui/search?q={names.get(text, text)}", ROWS_MAX, _FOUND) for text in _SEARCHED]
    visited += [Visited(f"/api/v1{path}", LIST_ROWS_MAX) for path in _named(_API, names)]
    return [*visited, Visited("/metrics", LIST_ROWS_MAX)]


def _named(templates: Iterable[str], names: Mapping[str, str]) -> Iterator[str]:
    """Yield the paths, without those of things that are not there, such as the second page of a short list."""
    for template in templates:
        if all(names.get(name) for name in re.findall(r"{(\w+)}", template)):
            yield template.format_map(names)


def _page(path: str) -> Visited:
    if path.startswith(_PREVIEWS) or _SEARCHES.search(path):
        return Visited(f"/ui{path}", SEARCHED_ROWS_MAX)
    return Visited(f"/ui{path}", OVERVIEW_ROWS_MAX if path == "/" else ROWS_MAX)


async def _names(ask: Ask) -> Mapping[str, str]:
    """Return ids of things, and cursors of second and last pages."""
    names: dict[str, str] = {}
    for status in STATUS_NAMES:
        for job in (await ask(f"/jobs?status={status}&limit=1"))["jobs"]:
            names[f"a_{status}"] = job["id"]
    dead = await ask("/dead-letters?limit=500")
    names["group"] = groups_of(msgspec.convert(dead["jobs"], list[JobInfo]))[0].key
    names["workflow"] = (await ask("/workflows?name=large&limit=1"))["workflows"][0]["id"]
    names["schedule"] = (await ask("/schedules/hourly"))["id"]
    names["worker"] = (await ask("/workers"))["workers"][0]["name"]
    names["moment"] = (await ask(f"/jobs/{names['a_scheduled']}"))["created_at"][:16]
    for name, template, page_count, step_count in _LISTS:
        path = template.format_map(names)
        names[f"{name}_2"] = (await ask(f"{path}&limit={page_count}"))["next_cursor"]
        names[f"{name}_last"] = await _last(ask, f"{path}&limit={step_count}")
    return names


async def _last(ask: Ask, path: str) -> str:
    """Return the cursor of the last page of a list."""
    cursor = following = ""
    while True:
        cursor, following = following, (await ask(f"{path}&cursor={following}" if following else path))["next_cursor"]
        if not following:
            return cursor


def _previews() -> Iterator[str]:
    """Yield what each action and each filter would change."""
    for action in ("cancel", "pause", "retry", "delete", "replay", "reprioritise"):
        yield f"/jobs/bulk?action={action}&all=yes"
    for wanted in ("status=scheduled", "status=queued", "status=retrying", "status=dead_letter", "queue=later-00007"):
        yield f"/jobs/bulk?action=cancel&{wanted}"
    for wanted in ("tag=often", "tag=seldom", "tag=none", "tenant=acme", "tenant=nobody", "name=job-07"):
        yield f"/jobs/bulk?action=cancel&{wanted}"
    for wanted in ("all=yes", *(f"reason={reason}" for reason in _REASONS), "queue=run-00000", "tag=none"):
        yield f"/dead-letters/requeue?{wanted}"
    yield "/dead-letters/purge?all=yes"
    yield "/dead-letters/requeue?group={group}"


_JOBS: Final = (
    "/jobs",
    "/jobs?cursor={jobs_2}",
    "/jobs?cursor={jobs_last}",
    "/jobs?order=asc",
    *(f"/jobs?status={status}{order}" for status in STATUS_NAMES for order in ("", "&order=asc")),
    "/jobs?status=queued&cursor={queued_2}",
    "/jobs?status=queued&cursor={queued_last}",
    *(f"/jobs?queue={queue}" for queue in ("later-00007", "held-00007", "run-00000", "none")),
    *(f"/jobs?queue=held-00007&status={status}" for status in ("queued", "scheduled", "retrying", "completed")),
    *(f"/jobs?queue=later-00007&status={status}" for status in ("queued", "scheduled", "retrying", "paused")),
    *(f"/jobs?queue=run-00000&status={status}" for status in ("queued", "retrying", "dead_letter", "completed")),
    *(f"/jobs?name={name}" for name in ("job-07", "charge", "none")),
    *(f"/jobs?name=job-07&status={status}" for status in ("queued", "scheduled", "retrying", "dead_letter")),
    *(f"/jobs?tag={tag}" for tag in ("often", "seldom", "none")),
    *(f"/jobs?tag=often&status={status}" for status in ("queued", "scheduled", "retrying", "dead_letter")),
    "/jobs?tag=seldom&status=queued",
    "/jobs?tag=often&name=job-07&queue=later-00007",
    *(f"/jobs?tenant={tenant}" for tenant in ("acme", "default", "nobody")),
    "/jobs?tenant=nobody&status=scheduled",
    "/jobs?tenant=nobody&status=queued",
    "/jobs?tenant=nobody&tag=often",
    *(f"/jobs?reason={reason}" for reason in _REASONS),
    "/jobs?schedule={schedule}",
    "/jobs?workflow={workflow}",
    "/jobs?workflow={workflow}&status=completed",
    "/jobs?created_before={moment}",
    "/jobs?created_after={moment}",
    "/jobs?created_before={moment}&status=queued",
    "/jobs?created_before={moment}&status=scheduled",
    *(f"/jobs/{{a_{status}}}" for status in ("scheduled", "queued", "retrying", "waiting_dependencies")),
    *(f"/jobs/{{a_{status}}}" for status in ("completed", "dead_letter", "cancelled", "paused")),
    *(f"/jobs/{{a_scheduled}}/{verb}" for verb in ("cancel", "pause", "amend")),
    *(f"/jobs/{{a_dead_letter}}/{verb}" for verb in ("replay", "delete")),
)
_OTHERS: Final = (
    "/",
    "/dead-letters",
    "/dead-letters?cursor={dead_2}",
    "/dead-letters?cursor={dead_last}",
    *(f"/dead-letters?reason={reason}" for reason in _REASONS),
    *(f"/dead-letters?{wanted}" for wanted in ("queue=run-00000", "name=charge", "tag=often", "tag=none")),
    "/dead-letters?tenant=acme",
    "/dead-letters?tenant=nobody",
    "/dead-letters/groups/{group}",
    "/workflows",
    "/workflows?cursor={workflows_2}",
    "/workflows?cursor={workflows_last}",
    *(f"/workflows?status={status}" for status in ("running", "failed", "completed", "cancelled")),
    "/workflows?name=large",
    "/workflows?name=none",
    "/workflows/{workflow}",
    "/workflows/{workflow}?cursor={graph_2}",
    "/workflows/{workflow}?cursor={graph_last}",
    "/workflows/{workflow}/cancel",
    "/queues",
    "/queues?cursor={queues_2}",
    "/queues?cursor={queues_last}",
    *(f"/queues/{queue}" for queue in ("later-00007", "held-00007", "run-00000", "none")),
    "/workers",
    "/workers?queue=run-00000",
    "/workers/{worker}/drain",
    "/schedules",
    "/schedules?cursor={schedules_2}",
    "/schedules?cursor={schedules_last}",
    *(f"/schedules?{wanted}" for wanted in ("owner=team7@example.org", "owner=nobody", "label=team=t7", "paused=true")),
    "/schedules/{schedule}",
    "/schedules/{schedule}?month=2035-03",
    "/schedules/{schedule}?cursor={ledger_2}",
    "/schedules/{schedule}?cursor={ledger_last}",
    "/schedules/{schedule}?fired=false",
    *(f"/schedules/{{schedule}}/{verb}" for verb in ("edit", "trigger", "backfill", "delete")),
    "/schedules/new",
    "/cluster",
    "/audit",
    "/audit?cursor={audit_2}",
    "/audit?cursor={audit_last}",
    "/audit?actor=nobody",
    "/audit?subject=queue",
    "/tokens",
    "/tenants",
    "/tenants/acme",
    "/submit",
)
_API: Final = (
    "/jobs?limit=1000",
    "/jobs?limit=1000&order=desc",
    "/jobs?limit=1000&order=desc&cursor={jobs_last}",
    *(f"/jobs?limit=1000&status={status}" for status in ("scheduled", "queued", "retrying", "completed")),
    "/jobs?limit=1000&tag=often",
    "/jobs?limit=1000&name=job-07",
    "/jobs?limit=1000&tenant=acme",
    "/jobs?limit=1000&tenant=nobody",
    "/dead-letters?limit=1000",
    "/dead-letters?limit=1000&reason=rejected",
    "/dead-letters/reasons",
    "/overview",
    "/queues?limit=500",
    "/queues/held-00007/scale",
    "/schedules?limit=1000",
    "/schedules/{schedule}/firings?limit=1000",
    "/workflows?limit=1000",
    "/workflows/{workflow}?limit=1000",
    "/workers",
    "/audit?limit=1000",
    "/tenants",
    "/tokens",
    "/cluster",
    *(f"/jobs/{{a_dead_letter}}/{part}" for part in ("runs", "history", "explain", "logs")),
)
