"""Create and change schedules by one form. Its fire times can be previewed before it is saved.

The form of a schedule carries the revision that its reader saw, so that nobody overwrites the change of another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

from raftsched.client.records import Preview, ScheduleInfo
from raftsched.client.schedules import ScheduleChanges
from raftsched.dashboard import fields
from raftsched.dashboard.form_values import form_values
from raftsched.dashboard.page import Answer, Redirect, Rendered
from raftsched.dashboard.pages.schedules.schedule import utc_text
from raftsched.dashboard.rendering import url
from raftsched.dashboard.view import View
from raftsched.errors import Invalid

TIMINGS: Final = ("cron", "every", "at", "none")
OVERLAPS: Final = ("skip", "buffer_one", "buffer_all", "allow", "cancel_previous", "terminate_previous")
MISFIRES: Final = ("run_once", "skip", "run_all")
_TEXTS: Final = ("timezone", "dst_gap", "dst_overlap", "overlap", "misfire", "description", "owner")
_NUMBERS: Final = (
    "jitter_seconds",
    "catchup_window_seconds",
    "expect_success_within_seconds",
    "late_after_seconds",
)
_MOMENTS: Final = ("start_at", "end_at")
_DOCUMENTS: Final = ("calendar", "parameters", "notify")
_PREVIEW_COUNT: Final = 10
_EMPTY: Final = {"timing": "cron", "timezone": "UTC", "overlap": "skip", "misfire": "run_once"}
_KEPT_DEFAULTS: Final = ("timezone", "dst_gap", "dst_overlap", "overlap", "misfire")
"""Fields that always have a value, so leaving them out keeps the old one."""


async def show_new(view: View) -> Answer:
    """Return an empty form, or the one that was refused."""
    return _page(None, {**_EMPTY, "job": '{\n  "name": ""\n}', **view.form})


async def create(view: View) -> Answer:
    """Create a schedule, or preview its fire times."""
    wanted = _wanted(view)
    if view.form.get("action") == "preview":
        return _page(None, view.form, await _preview(view, wanted))
    name = view.form.get("name")
    if not name:
        raise Invalid("name: give the schedule a name", field="name")
    job = wanted.pop("job")
    given = {field: value for field, value in wanted.items() if value is not None}
    schedule = await view.client.schedules.save(
        name, job, create_only=True, **cast("Any", given), tenant=view.form.get("tenant")
    )
    return Redirect(url(f"/schedules/{schedule.id}"), f"{schedule.name} is saved.")


async def show_edit(view: View) -> Answer:
    """Return the form of a schedule as it is, or as it was refused."""
    schedule = await view.client.schedules.get(view.match["id"])
    return _page(schedule, view.form or values_of(schedule))


async def amend(view: View) -> Answer:
    """Change a schedule, or preview the fire times that it would have."""
    schedule = await view.client.schedules.get(view.match["id"])
    wanted = _wanted(view)
    if view.form.get("action") == "preview":
        return _page(schedule, view.form, await _preview(view, wanted))
    wanted["job"] = _job_patch(schedule.job or {}, wanted["job"])
    changes = {field: value for field, value in wanted.items() if value is not None or field not in _KEPT_DEFAULTS}
    changes["labels"] = {**dict.fromkeys(schedule.labels), **(changes.get("labels") or {})}
    saved = await view.client.schedules.update(
        schedule.id, if_revision=fields.whole(view.form, "revision"), **cast("ScheduleChanges", changes)
    )
    return Redirect(url(f"/schedules/{saved.id}"), f"{saved.name} is saved.")


def values_of(schedule: ScheduleInfo) -> dict[str, str]:
    """Return the fields of the form of a schedule."""
    timing = next((name for name in TIMINGS[:3] if getattr(schedule, name)), "none")
    when = utc_text(schedule.at) if timing == "at" else getattr(schedule, timing, None) or ""
    values = {"timing": timing, "when": when, "revision": str(schedule.changed_revision)}
    values |= {name: getattr(schedule, name) or "" for name in _TEXTS}
    values |= {name: _number_text(getattr(schedule, name)) for name in (*_NUMBERS, "max_firings")}
    values |= {name: utc_text(getattr(schedule, name)) for name in _MOMENTS}
    values |= {name: _json_text(getattr(schedule, name)) for name in (*_DOCUMENTS, "job")}
    values["labels"] = "\n".join(f"{name}={text}" for name, text in schedule.labels.items())
    return values


def _wanted(view: View) -> dict[str, Any]:
    """Return what the form asks for; None for what is empty. Raises `Invalid` naming a field."""
    form = view.form
    wanted: dict[str, Any] = {name: form.get(name) for name in _TEXTS}
    wanted |= {name: fields.number(form, name) for name in _NUMBERS}
    wanted |= {name: fields.moment(form, name) for name in _MOMENTS}
    wanted |= {name: fields.json(form, name) for name in _DOCUMENTS}
    wanted["max_firings"] = fields.whole(form, "max_firings")
    wanted["labels"] = _labels(form.get("labels", ""))
    job = fields.json(form, "job")
    if not isinstance(job, dict):
        raise Invalid('job: give the job as a JSON object, such as {"name": "report"}', field="job")
    return wanted | _timing(form) | {"job": job}


def _timing(form: Mapping[str, str]) -> dict[str, Any]:
    kind = form.get("timing", "")
    if kind not in TIMINGS:
        raise Invalid(f"timing: choose one of {', '.join(TIMINGS)}", field="timing")
    if kind == "none":
        return dict.fromkeys(TIMINGS[:3])
    if "when" not in form:
        raise Invalid(f"when: give the {kind}", field="when")
    return {kind: fields.moment(form, "when") if kind == "at" else form["when"]}


def _labels(text: str) -> dict[str, str]:
    labels: dict[str, str] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, separator, value = line.partition("=")
        if not separator:
            raise Invalid(f"labels: expected name=text on each line, not {line[:100]!r}", field="labels")
        labels[name.strip()] = value.strip()
    return labels


def _job_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changes that make `new` of `old`: what the form no longer has is removed."""
    removed = {name: None for name in old if name not in new}
    return {**removed, **new}


async def _preview(view: View, wanted: Mapping[str, Any]) -> Preview:
    names = (*TIMINGS[:3], "timezone", "dst_gap", "dst_overlap", *_MOMENTS, "calendar")
    timing = {name: wanted[name] for name in names if wanted.get(name) is not None}
    if not timing.keys() & set(TIMINGS):
        raise Invalid("timing: a schedule that runs by hand has no fire times", field="timing")
    return await view.client.schedules.preview(count=_PREVIEW_COUNT, **cast("Any", timing))


def _page(schedule: ScheduleInfo | None, values: Mapping[str, str], preview: Preview | None = None) -> Answer:
    return Rendered(
        "schedules/form.html",
        {
            "schedule": schedule,
            "values": form_values(values),
            "preview": preview,
            "timings": TIMINGS,
            "overlaps": OVERLAPS,
            "misfires": MISFIRES,
        },
    )


def _number_text(value: float | None) -> str:
    return "" if value is None else f"{value:g}" if value < 1_000_000 else f"{value:.0f}"


def _json_text(value: Any) -> str:
    if value in (None, [], {}):
        return ""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
