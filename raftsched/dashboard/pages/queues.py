"""List queues page by page, and show one: its counts, its last minutes, its pause, its limits."""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast

import msgspec

from raftsched.client.queues import QueueChanges
from raftsched.client.records import QueueInfo, QueueSettings
from raftsched.dashboard import fields
from raftsched.dashboard.form_values import FormValues, form_values
from raftsched.dashboard.page import Answer, Page, Redirect, Rendered
from raftsched.dashboard.rendering import url
from raftsched.dashboard.sparkline import HEIGHT, WIDTH, sparkline
from raftsched.dashboard.view import View
from raftsched.errors import Invalid
from raftsched.wire.common import STATUS_NAMES, UNLEASED

_PAGE_QUEUES: Final = 50
_COUNTS: Final = ("concurrency", "key_concurrency", "max_lost_workers")
_SPANS: Final = ("ageing_seconds", "retention_seconds")
_DOCUMENTS: Final = ("weights", "on_failure", "on_success")


async def show(view: View) -> Answer:
    """Return a page of queues by name; the first one begins with those that need a look."""
    if name := view.query.get("name"):
        return Redirect(url(f"/queues/{name}"))
    is_first = "cursor" not in view.query
    (queues, cursor), overview = await asyncio.gather(
        view.client.page(QueueInfo, "/queues", "queues", {"limit": _PAGE_QUEUES, "cursor": view.query.get("cursor")}),
        view.client.overview(),
    )
    return Rendered(
        "queues/list.html",
        {
            "queues": queues,
            "waits": overview.longest_waits[:5] if is_first else [],
            "paused": overview.paused[:5] if is_first else [],
            "overview": overview,
            "next_url": url("/queues", cursor=cursor) if cursor else None,
            "is_first": is_first,
        },
    )


async def show_queue(view: View) -> Answer:
    """Return the page of a queue."""
    name = view.match["name"]
    queue, scale = await asyncio.gather(view.client.queue(name).get(), _scale(view, name))
    settings = queue.settings
    return Rendered(
        "queues/queue.html",
        {
            "queue": queue,
            "counts": {status: getattr(queue, status) for status in STATUS_NAMES},
            "waiting": sum(getattr(queue, status) for status in UNLEASED),
            "unleased": UNLEASED,
            "scale": scale,
            "line": sparkline(queue.activity) if queue.activity is not None else None,
            "size": (WIDTH, HEIGHT),
            "values": form_values(_values_of(settings), view.form),
            "settings": settings,
            "may_change": view.may("operate") and _is_own(view, name),
        },
    )


def _is_own(view: View, name: str) -> bool:
    """Return whether the reader's tenant alone has the queue, or the reader is of all tenants."""
    return view.caller.tenant == "*" or name.startswith(f"{view.caller.tenant}:")


async def _scale(view: View, name: str) -> Any:
    """Return the numbers of workers; None without a leader, which alone knows them."""
    return await view.client.queue(name).scale() if view.cluster.leader and view.stale_since is None else None


def _values_of(settings: QueueSettings) -> FormValues:
    """Return the fields of the form of the settings."""
    values = FormValues()
    if settings.rate is not None:
        values |= {"rate_count": str(settings.rate.count), "rate_per_seconds": f"{settings.rate.per_seconds:g}"}
        values |= {"rate_burst": str(settings.rate.burst or "")}
    for name in (*_COUNTS, *_SPANS):
        if (value := getattr(settings, name)) is not None:
            values[name] = f"{value:.0f}" if float(value).is_integer() else f"{value:g}"
    for name in _DOCUMENTS:
        if value := getattr(settings, name):
            values[name] = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return values


async def configure(view: View) -> Answer:
    """Change the settings of a queue: an empty field removes one."""
    name = view.match["name"]
    changes: dict[str, Any] = {field: fields.whole(view.form, field) for field in _COUNTS}
    changes |= {field: fields.number(view.form, field) for field in _SPANS}
    changes |= {field: fields.json(view.form, field) for field in _DOCUMENTS}
    changes["rate"] = _rate(view)
    await view.client.queue(name).configure(**cast("QueueChanges", changes))
    return Redirect(url(f"/queues/{name}"), f"The settings of {name} are saved. They hold from the next start on.")


def _rate(view: View) -> dict[str, Any] | None:
    count = fields.whole(view.form, "rate_count")
    if count is None:
        if "rate_per_seconds" in view.form and "rate_burst" in view.form:
            raise Invalid("rate_count: give the number of starts, or leave the whole rate empty", field="rate_count")
        return None
    rate: dict[str, Any] = {"count": count, "per_seconds": fields.number(view.form, "rate_per_seconds") or 1.0}
    if (burst := fields.whole(view.form, "rate_burst")) is not None:
        rate["burst"] = burst
    return rate


async def pause(view: View) -> Answer:
    """Pause a queue for a while, or until somebody resumes it."""
    name = view.match["name"]
    await view.client.queue(name).pause(
        until=fields.moment(view.form, "until"),
        for_seconds=fields.number(view.form, "for_seconds"),
        reason=view.form.get("reason"),
    )
    return Redirect(url(f"/queues/{name}"), f"{name} is paused. Running jobs continue.")


async def resume(view: View) -> Answer:
    """Resume a queue."""
    name = view.match["name"]
    await view.client.queue(name).resume()
    return Redirect(url(f"/queues/{name}"), f"{name} is resumed.")


PAGES: Final = (
    Page(path="/queues", nav="Queues", show=show),
    Page(path="/queues/{name}", show=show_queue),
    Page(path="/queues/{name}/settings", access="operate", act=configure),
    Page(path="/queues/{name}/pause", access="operate", act=pause),
    Page(path="/queues/{name}/resume", access="operate", act=resume),
)
