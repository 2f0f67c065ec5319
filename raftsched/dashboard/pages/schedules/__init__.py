"""Pages of schedules: the list, one schedule with its month and ledger, its form, its runs by hand, its end."""

from __future__ import annotations

from typing import Final

from raftsched.dashboard.page import Page
from raftsched.dashboard.pages.schedules import control, form, listing, runs, schedule

PAGES: Final = (
    Page(path="/schedules", nav="Schedules", show=listing.show),
    Page(path="/schedules/new", access="submit", show=form.show_new, act=form.create),
    Page(path="/schedules/{id}", show=schedule.show),
    Page(path="/schedules/{id}/edit", access="submit", show=form.show_edit, act=form.amend),
    Page(path="/schedules/{id}/pause", access="submit", act=control.pause),
    Page(path="/schedules/{id}/resume", access="submit", act=control.resume),
    Page(path="/schedules/{id}/delete", access="submit", show=control.confirm_delete, act=control.delete),
    Page(path="/schedules/{id}/trigger", access="submit", show=runs.show_trigger, act=runs.trigger),
    Page(path="/schedules/{id}/backfill", access="operate", show=runs.show_backfill, act=runs.backfill),
)
