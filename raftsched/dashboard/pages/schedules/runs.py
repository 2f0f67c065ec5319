"""Run a schedule by hand: once now, or for past fire times after a dry run.

Each form carries an idempotency key, so a form that is sent twice makes its runs once.
"""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from raftsched.client.records import Backfill, ScheduleInfo
from raftsched.dashboard import fields
from raftsched.dashboard.form_values import form_values
from raftsched.dashboard.page import Answer, Redirect, Rendered
from raftsched.dashboard.pages.schedules.schedule import utc_text
from raftsched.dashboard.rendering import url
from raftsched.dashboard.view import View
from raftsched.errors import Invalid

_SHOWN_INSTANTS: Final = 200
_KEY_BYTES: Final = 16
_NUMBERS: Final = ("integer", "number")


async def show_trigger(view: View) -> Answer:
    """Return the form for one run."""
    schedule = await view.client.schedules.get(view.match["id"])
    return Rendered(
        "schedules/trigger.html",
        {"schedule": schedule, "values": form_values(view.form), "key": view.form.get("key") or _new_key()},
    )


async def trigger(view: View) -> Answer:
    """Make one run, and lead to its job."""
    schedule = await view.client.schedules.get(view.match["id"])
    payload = fields.json(view.form, "payload") if "payload" in view.form else msgspec.UNSET
    firing = await view.client.schedules.trigger(
        schedule.id,
        payload=payload,
        parameters=_parameters(view, schedule) or None,
        overlap=view.form.get("overlap"),  # type: ignore[arg-type]  # the API checks it
        instant=fields.moment(view.form, "instant"),
        idempotency_key=view.form.get("key") or _new_key(),
    )
    if firing.job_id is None:
        return Redirect(url(f"/schedules/{schedule.id}"), f"{schedule.name} did not run: {firing.reason}.")
    return Redirect(url(f"/jobs/{firing.job_id}"), f"{schedule.name} runs as this job.")


def _parameters(view: View, schedule: ScheduleInfo) -> dict[str, Any]:
    """Return the values of the schedule's parameters in the form; those left empty have their defaults."""
    given: dict[str, Any] = {}
    for parameter in schedule.parameters or ():
        field = f"parameter.{parameter['name']}"
        if field not in view.form:
            continue
        kind = parameter.get("type", "text")
        if kind in _NUMBERS:
            given[parameter["name"]] = (
                fields.whole(view.form, field) if kind == "integer" else fields.number(view.form, field)
            )
        elif kind == "boolean":
            given[parameter["name"]] = view.form[field] == "true"
        else:
            given[parameter["name"]] = view.form[field]
    return given


async def show_backfill(view: View) -> Answer:
    """Return the form for past fire times."""
    return await _backfill_page(view, None)


async def backfill(view: View) -> Answer:
    """Show what a backfill would do; make its runs only if that was seen."""
    start, end = _moment(view, "from"), _moment(view, "to")
    is_dry = view.form.get("confirmed") != "yes"
    done = await view.client.schedules.backfill(
        view.match["id"],
        start,
        end,
        overlap=view.form.get("overlap"),  # type: ignore[arg-type]  # the API checks it
        order=view.form.get("order"),  # type: ignore[arg-type]  # as above
        per_minute=fields.whole(view.form, "per_minute"),
        dry_run=is_dry,
        idempotency_key=view.form.get("key") or _new_key(),
        patience_seconds=0.0,
    )
    if is_dry:
        return await _backfill_page(view, done)
    rest = (
        f" {done.remaining_count:,} remain: send the form again once some have ended." if done.remaining_count else ""
    )
    return Redirect(url(f"/schedules/{view.match['id']}"), f"{done.run_count:,} runs were made.{rest}")


async def _backfill_page(view: View, found: Backfill | None) -> Answer:
    schedule = await view.client.schedules.get(view.match["id"])
    hour = view.now.replace(minute=0, second=0, microsecond=0)
    values = form_values({"from": utc_text(hour - timedelta(days=1)), "to": utc_text(hour)}, view.form)
    return Rendered(
        "schedules/backfill.html",
        {
            "schedule": schedule,
            "values": values,
            "found": found,
            "shown": found.instants[:_SHOWN_INSTANTS] if found is not None else [],
            "key": view.form.get("key") or _new_key(),
        },
    )


def _moment(view: View, name: str) -> datetime:
    moment = fields.moment(view.form, name)
    if moment is None:
        raise Invalid(f"{name}: give a time in UTC", field=name)
    return moment


def _new_key() -> str:
    return secrets.token_hex(_KEY_BYTES)
