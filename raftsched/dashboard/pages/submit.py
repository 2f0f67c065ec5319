"""Submit one job by a form: for the handler of a worker, or as a request that an executor sends."""

from __future__ import annotations

import secrets
from typing import Any, Final

from raftsched.dashboard import fields
from raftsched.dashboard.page import Answer, Page, Redirect, Rendered
from raftsched.dashboard.rendering import url
from raftsched.dashboard.view import View

_METHODS: Final = ("POST", "GET", "PUT", "PATCH", "DELETE")


async def show(view: View) -> Answer:
    """Return the form. It carries a key of its own, so that sending it twice submits one job."""
    once = view.form.get("once") or f"dashboard-{secrets.token_hex(8)}"
    return Rendered("jobs/submit.html", {"values": view.form or view.query, "methods": _METHODS, "once": once})


async def submit(view: View) -> Answer:
    """Submit the job and go to its page."""
    form = view.form
    options: dict[str, Any] = {
        "queue": form.get("queue"),
        "priority": fields.whole(form, "priority"),
        "run_at": fields.moment(form, "run_at"),
        "delay_seconds": fields.number(form, "delay_seconds"),
        "max_attempts": fields.whole(form, "max_attempts"),
        "timeout_seconds": fields.number(form, "timeout_seconds"),
        "tags": fields.words(form, "tags") or None,
        "idempotency_key": form.get("idempotency_key") or form.get("once"),
        "tenant": form.get("tenant"),
        "paused": fields.is_ticked(form, "paused") or None,
    }
    payload = fields.json(form, "payload")
    if address := form.get("url"):
        method: Any = form.get("method", _METHODS[0])
        job = await view.client.http(address, name=form.get("name", ""), method=method, body=payload, **options)
    else:
        job = await view.client.submit(form.get("name", ""), payload, **options)
    notice = "An earlier job with this idempotency key was found." if job.duplicate else "Submitted."
    return Redirect(url(f"/jobs/{job.id}"), notice)


PAGES: Final = (Page(path="/submit", access="submit", show=show, act=submit),)
