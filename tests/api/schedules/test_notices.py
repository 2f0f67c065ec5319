"""Notices of schedules over HTTP: what can be given, what is refused by name, and what is shown."""

from __future__ import annotations

import json
from typing import Any

from raftsched import limits
from raftsched.core.operations.control import DeadlineKind, HandleDeadlines
from raftsched.core.records.ids import parse_job_id
from tests.api.node import START_MS, Api
from tests.api.schedules.scene import at, patch, saved

HOOK = "https://hooks.example/services/x"
FAILS = {"on": ["dead_letter"], "webhook": HOOK}
REFUSED: tuple[tuple[dict[str, Any], str, str], ...] = (
    ({"notify": [{"on": ["dead_letter"]}]}, "notify[0]", "exactly one of webhook, slack, email and job"),
    ({"notify": [FAILS, FAILS | {"slack": HOOK}]}, "notify[1].slack", "exactly one"),
    ({"notify": [{"webhook": HOOK}]}, "notify[0].on", "required"),
    ({"notify": [FAILS | {"on": []}]}, "notify[0].on", ""),
    ({"notify": [FAILS | {"on": ["fails"]}]}, "notify[0].on[0]", ""),
    ({"notify": [FAILS | {"on": ["failed", "failed"]}]}, "notify[0].on", "twice"),
    ({"notify": [FAILS | {"on": ["late"]}]}, "late_after_seconds", "required"),
    ({"notify": [FAILS, FAILS, {"on": ["success"], "slack": "ftp://x"}]}, "notify[2].slack", "http"),
    ({"notify": [FAILS | {"webhook": "http://u:p@x/"}]}, "notify[0].webhook", "password"),
    ({"notify": [FAILS | {"webhook": ""}]}, "notify[0].webhook", ""),
    ({"notify": [FAILS | {"on_failure": {}}]}, "notify[0].on_failure", ""),
    ({"notify": [{"on": ["failed"], "email": {"to": []}}]}, "notify[0].email.to", ""),
    (
        {"notify": [{"on": ["failed"], "email": {"to": ["a@b", "Ops <a@b>"]}}]},
        "notify[0].email.to[1]",
        "without a name",
    ),
    (
        {"notify": [{"on": ["failed"], "email": {"to": ["a@b"], "subject": "a\nBcc: x"}}]},
        "notify[0].email.subject",
        "line",
    ),
    (
        {"notify": [{"on": ["failed"], "email": {"to": ["a@b"], "subject": "{{cause.x}}"}}]},
        "notify[0].email.subject",
        "known are",
    ),
    ({"notify": [{"on": ["failed"], "job": {}}]}, "notify[0].job.name", "required"),
    (
        {"notify": [{"on": ["failed"], "job": {"name": "x", "payload": "{{cause.x}}"}}]},
        "notify[0].job.payload",
        "known",
    ),
    ({"notify": [FAILS] * (limits.NOTICES_MAX + 1)}, "notify", ""),
    (
        {"notify": [{"on": ["failed"], "job": {"name": "x", "payload": "x" * 9_000}}] * 2},
        "notify",
        str(limits.NOTICES_BYTES_MAX),
    ),
    ({"expect_success_within_seconds": 0.5}, "expect_success_within_seconds", ""),
    ({"late_after_seconds": 0}, "late_after_seconds", ""),
)


async def test_wrong_notices_are_refused_by_the_name_of_the_field(api: Api) -> None:
    body = {"name": "report", "cron": "@daily", "job": {"name": "x"}}
    faults = []
    for fields, field, told in REFUSED:
        answer = await api.post("schedules", body | fields)
        if (
            answer.status not in (400, 413, 422)
            or answer.json.get("field") != field
            or told not in answer.json["detail"]
        ):
            faults.append((fields, answer.body))
    assert not faults
    assert (await api.get("schedules")).json["schedules"] == []


async def test_schedule_shows_its_alarms_and_the_job_of_a_notice_names_its_schedule(api: Api) -> None:
    email = {"on": ["missed"], "email": {"to": ["ops@example.com"]}}
    schedule = await saved(api, expect_success_within_seconds=1, notify=[FAILS, email])
    assert schedule["notify"][1]["email"] == {"to": ["ops@example.com"], "subject": "{{cause.summary}}"}
    api.node.clock.now_ms += 1_000
    api.node.apply(HandleDeadlines(((DeadlineKind.SCHEDULE, parse_job_id(schedule["id"])),)))
    shown = (await api.get("schedules/report")).json
    assert (shown["alarms"], shown["last_success_at"]) == ([{"event": "missed", "since": at(START_MS)}], None)
    assert (shown["revision"], shown["changed_revision"]) == (schedule["revision"], schedule["changed_revision"])
    [job] = (await api.get("jobs", name="email")).json["jobs"]
    assert (job["notice_of"], job["hook_of"], job["schedule_id"], job["queue"]) == (schedule["id"], None, None, "email")
    payload = (await api.get(f"jobs/{job['id']}")).json["payload"]
    told = f"Schedule report: no run has succeeded since {at(START_MS)}"
    assert (payload["to"], payload["subject"], payload["event"], payload["reason"]) == (
        ["ops@example.com"],
        told,
        "missed",
        "no_success",
    )


async def test_amendment_replaces_or_removes_the_notices_and_the_audit_trail_leaves_addresses_out(api: Api) -> None:
    await saved(api, notify=[FAILS], expect_success_within_seconds=60)
    slack = {"on": ["missed", "recovered"], "slack": HOOK}
    assert (await patch(api, "report", {"notify": [slack]})).json["notify"] == [slack]
    bare = (await patch(api, "report", {"notify": None, "expect_success_within_seconds": None})).json
    assert (bare["notify"], bare["expect_success_within_seconds"]) == ([], None)
    entries = (await api.get("audit")).json
    details = [entry["detail"] for entry in entries["entries"] if entry["action"] == "schedule.change"]
    assert "notify: webhook on dead_letter -> slack on missed and recovered" in details
    assert "expect_success_within_seconds: 60 -> none; notify: slack on missed and recovered -> none" in details
    assert HOOK not in json.dumps(entries)
