"""Pause, resume and delete schedules."""

from __future__ import annotations

from raftsched.dashboard import fields
from raftsched.dashboard.page import Answer, Redirect, Rendered
from raftsched.dashboard.pages.schedules.listing import words_of
from raftsched.dashboard.rendering import url
from raftsched.dashboard.view import View


async def pause(view: View) -> Answer:
    """Pause a schedule for a while, or until somebody resumes it."""
    schedule = await view.client.schedules.pause(
        view.match["id"],
        for_seconds=fields.number(view.form, "for_seconds"),
        until=fields.moment(view.form, "until"),
        reason=view.form.get("reason"),
    )
    return Redirect(url(f"/schedules/{schedule.id}"), f"{schedule.name} is paused.")


async def resume(view: View) -> Answer:
    """Resume a schedule."""
    schedule = await view.client.schedules.resume(view.match["id"])
    return Redirect(url(f"/schedules/{schedule.id}"), f"{schedule.name} is resumed.")


async def confirm_delete(view: View) -> Answer:
    """Ask before a schedule is deleted, and say what that means."""
    schedule = await view.client.schedules.get(view.match["id"])
    return Rendered("schedules/delete.html", {"schedule": schedule, "words": words_of(schedule)})


async def delete(view: View) -> Answer:
    """Delete a schedule."""
    schedule = await view.client.schedules.get(view.match["id"])
    await view.client.schedules.delete(schedule.id)
    return Redirect(url("/schedules"), f"{schedule.name} is deleted. Its jobs continue.")
