"""List the workers: what each takes, runs and says of itself; drain one, and let it work again."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Final

from raftsched.client.records import WorkerInfo
from raftsched.dashboard.page import Answer, Page, Redirect, Rendered
from raftsched.dashboard.rendering import url
from raftsched.dashboard.view import View
from raftsched.errors import NotFound

_SHOWN_MAX: Final = 500
_SILENT: Final = timedelta(seconds=60)
"""A worker is called silent from this time without a request on."""


async def show(view: View) -> Answer:
    """Return the workers that match the filter in the URL, those that need a look first."""
    found = [worker for worker in await _all(view) if _matches(worker, view)]
    found.sort(key=lambda worker: (not is_silent(worker, view.now), worker.state == "active", worker.name))
    return Rendered(
        "workers/list.html",
        {
            "workers": [(worker, is_silent(worker, view.now)) for worker in found[:_SHOWN_MAX]],
            "more_count": max(0, len(found) - _SHOWN_MAX),
            "states": Counter("silent" if is_silent(worker, view.now) else worker.state for worker in found),
            "running": sum(worker.running or 0 for worker in found),
            "slots": sum(worker.slots or 0 for worker in found),
            "queue": view.query.get("queue", ""),
            "text": view.query.get("text", ""),
        },
    )


async def _all(view: View) -> list[WorkerInfo]:
    workers, _ = await view.client.page(WorkerInfo, "/workers", "workers")
    return list(workers)


def _matches(worker: WorkerInfo, view: View) -> bool:
    queue, text = view.query.get("queue"), view.query.get("text", "").lower()
    takes = queue is None or any(
        each == queue or (each.endswith("*") and queue.startswith(each[:-1])) for each in worker.queues
    )
    return takes and text in " ".join((worker.name, worker.region or "", worker.version or "")).lower()


def is_silent(worker: WorkerInfo, now: datetime) -> bool:
    """Return whether nothing was heard of a worker for a while."""
    return worker.seen_at is not None and now - worker.seen_at > _SILENT


async def confirm_drain(view: View) -> Answer:
    """Say what a drain does, and ask for its reason."""
    return Rendered("workers/drain.html", {"worker": await _named(view), "values": view.form})


async def drain(view: View) -> Answer:
    """Drain a worker."""
    worker = await view.client.worker(view.match["name"]).drain(reason=view.form.get("reason"))
    rest = f" It still runs {worker.running:,}." if worker.running else ""
    return Redirect(url("/workers"), f"{worker.name} gets no further jobs.{rest}")


async def undrain(view: View) -> Answer:
    """Let a worker work again."""
    worker = await view.client.worker(view.match["name"]).undrain()
    return Redirect(url("/workers"), f"{worker.name} gets jobs again.")


async def _named(view: View) -> WorkerInfo:
    found = next((worker for worker in await _all(view) if worker.name == view.match["name"]), None)
    if found is None:
        raise NotFound("no worker of this name made a request lately")
    return found


PAGES: Final = (
    Page(path="/workers", nav="Workers", show=show),
    Page(path="/workers/{name}/drain", access="operate", show=confirm_drain, act=drain),
    Page(path="/workers/{name}/undrain", access="operate", act=undrain),
)
