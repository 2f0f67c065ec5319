"""Zero is a number and 1970 is a time: neither ever means that a field was not given.

The fields are found by reflection: every optional time and number of every request struct is either refused at zero by
its own name, or stands in one of the proofs below, which shows over HTTP that zero is taken at its word.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
import pytest
from msgspec import inspect

import raftsched.wire
from raftsched.api.json.decode import StructDecoder
from raftsched.errors import Malformed
from raftsched.wire.common import Request
from tests.api.node import START_MS, Answer, Api, run_of
from tests.api.schedules.scene import patch, saved
from tests.api.workers.test_callbacks import awaiting, complete

EPOCH: Final = "1970-01-01T00:00:00Z"
EPOCH_SHOWN: Final = "1970-01-01T00:00:00.000Z"
NOW_SHOWN: Final = "2030-03-17T17:46:40.000Z"
Proof = Callable[[Api], Awaitable[None]]
PROOFS: dict[Proof, tuple[str, ...]] = {}


def proves(*fields: str) -> Callable[[Proof], Proof]:
    def listed(proof: Proof) -> Proof:
        PROOFS[proof] = fields
        return proof

    return listed


def refused(answer: Answer, field: str, status: int = 422) -> None:
    assert (answer.status, answer.json.get("field")) == (status, field), answer.body


async def is_given_up(api: Api, job_id: str) -> bool:
    """Whether the job has expired, or is about to: the leader rings its alarm when it comes to it."""
    assert await api.lease("send_email") == []
    explained = (await api.get(f"jobs/{job_id}/explain")).json
    job = (await api.get(f"jobs/{job_id}")).json
    return "expiring" in str(explained) or job["failure_reason"] == "expired"


@proves("TokenRequest.expires_at", "RotateTokenRequest.overlap_seconds")
async def a_token_that_expired_in_1970_is_not_made_and_one_without_an_overlap_ends_at_once(api: Api) -> None:
    refused(await api.post("tokens", {"role": "viewer", "expires_at": EPOCH}), "expires_at")
    token = (await api.post("tokens", {"role": "viewer"})).json
    rotated = (await api.post(f"tokens/{token['id']}/rotate", {"overlap_seconds": 0})).json
    assert (rotated["expires_at"], rotated["former_until"]) == (None, None)


# -- when a job runs and ends -----------------------------------------------------------------------------------------

_BODIES = ("JobRequest", "TaskRequest", "TimedJobBody", "LegacyJobRequest", "JobBody")


def of_bodies(*names: str) -> tuple[str, ...]:
    return tuple(f"{body}.{name}" for body in _BODIES for name in names)


@proves(*of_bodies("run_at", "delay_seconds"), "ReplayRequest.run_at", "ReplayRequest.delay_seconds")
async def a_past_time_means_now(api: Api) -> None:
    for when in ({"run_at": EPOCH}, {"delay_seconds": 0}):
        job = await api.submit(**when)
        assert (job["status"], job["run_at"]) == ("queued", NOW_SHOWN)
        replayed = await api.post(f"jobs/{job['id']}/replay", when)
        assert (replayed.status, replayed.json["status"]) == (201, "queued"), replayed.body
        seed = await api.post("/submit", {"task": "t"} | when)
        assert seed.status in (200, 201), seed.body


@proves("AmendRequest.run_at", "AmendRequest.delay_seconds", "RetryRequest.run_at", "RetryRequest.delay_seconds")
async def an_amendment_to_a_past_time_means_now(api: Api) -> None:
    """Absent, it would leave the job where it is."""
    for when in ({"run_at": EPOCH}, {"delay_seconds": 0}):
        later = await api.submit(delay_seconds=60)
        amended = await api.ask("PATCH", f"jobs/{later['id']}", json=when)
        assert (amended.status, amended.json["status"]) == (200, "queued"), amended.body
        assert (await api.ask("DELETE", f"jobs/{later['id']}")).status == 200
        retried = await api.post(f"jobs/{later['id']}/retry", when)
        assert (retried.status, retried.json["status"]) == (200, "queued"), retried.body


@proves("BulkRequest.run_at", "BulkRequest.delay_seconds")
async def a_bulk_reschedule_to_a_past_time_means_now(api: Api) -> None:
    """Absent, it would be refused."""
    for when in ({"run_at": EPOCH}, {"delay_seconds": 0}):
        later = await api.submit(delay_seconds=60)
        answer = await api.post("jobs/bulk", {"action": "reschedule", "ids": [later["id"]]} | when)
        assert (answer.status, answer.json["done"]) == (200, 1), answer.body
        assert (await api.get(f"jobs/{later['id']}")).json["status"] == "queued"


@proves(*of_bodies("expires_at", "deadline"))
async def a_job_that_had_to_start_or_end_in_1970_is_given_up(api: Api) -> None:
    for name in ("expires_at", "deadline"):
        job = await api.submit(**{name: EPOCH})
        assert job[name] == EPOCH_SHOWN
        assert await is_given_up(api, job["id"])
        tasks = {"jobs": {"a": {"name": "t", name: EPOCH}}, "name": "flow"}
        workflow = await api.post("workflows", tasks)
        [task] = (await api.get("jobs", workflow=workflow.json["id"])).json["jobs"]
        assert task[name] == EPOCH_SHOWN
        with_delay = await api.post("jobs", {"name": "t", name: EPOCH, "run_at": EPOCH})
        refused(with_delay, name)


@proves("AmendRequest.expires_at", "AmendRequest.deadline")
async def an_amendment_can_let_a_job_end_in_1970(api: Api) -> None:
    for name in ("expires_at", "deadline"):
        job = await api.submit(delay_seconds=60)
        amended = await api.ask("PATCH", f"jobs/{job['id']}", json={name: EPOCH})
        assert amended.json[name] == EPOCH_SHOWN
        other = await api.submit(delay_seconds=60, **{name: "2100-01-01T00:00:00Z"})
        taken_away = await api.ask("PATCH", f"jobs/{other['id']}", json={name: None})
        assert taken_away.json[name] is None


@proves("PauseRequest.until", "BulkRequest.until")
async def a_pause_can_not_end_in_1970(api: Api) -> None:
    job = await api.submit(delay_seconds=60)
    schedule = await saved(api)
    for path in (f"jobs/{job['id']}/pause", "queues/q/pause", f"schedules/{schedule['id']}/pause"):
        refused(await api.post(path, {"until": EPOCH}), "until")
        refused(await api.post(path, {"until": NOW_SHOWN}), "until")
    refused(await api.post("jobs/bulk", {"action": "pause", "all": True, "until": EPOCH}), "until")
    assert (await api.get(f"jobs/{job['id']}")).json["status"] == "scheduled"


# -- numbers of jobs --------------------------------------------------------------------------------------------------


@proves(
    *of_bodies("priority", "max_retries"),
    "HookBody.priority",
    "HookBody.max_retries",
    "AmendRequest.priority",
    "AmendRequest.max_retries",
)
async def the_lowest_priority_and_no_retry_are_kept(api: Api) -> None:
    job = await api.submit(priority=0, max_retries=0)
    assert (job["priority"], job["max_attempts"]) == (0, 1)
    other = await api.submit(delay_seconds=60)
    amended = (await api.ask("PATCH", f"jobs/{other['id']}", json={"priority": 0, "max_retries": 0})).json
    assert (amended["priority"], amended["max_attempts"]) == (0, 1)
    seed = (await api.post("/submit", {"task": "t", "priority": 0, "max_retries": 0})).json
    found = (await api.get(f"jobs/{seed.get('id') or seed['job_id']}")).json
    assert (found["priority"], found["max_attempts"]) == (0, 1)


@proves("HttpCall.max_redirects", "ShellCommand.nice")
async def no_redirects_and_no_niceness_are_the_defaults(api: Api) -> None:
    job = await api.submit(http={"url": "http://x/", "max_redirects": 0})
    assert job["http"] == {"url": "http://x/"}


@proves("ReplayRequest.priority", "BulkRequest.priority")
async def the_lowest_priority_can_be_given_later(api: Api) -> None:
    job = await api.submit(delay_seconds=60)
    assert (await api.post(f"jobs/{job['id']}/replay", {"priority": 0})).json["priority"] == 0
    answer = await api.post("jobs/bulk", {"action": "reprioritise", "ids": [job["id"]], "priority": 0})
    assert answer.json["done"] == 1
    assert (await api.get(f"jobs/{job['id']}")).json["priority"] == 0


@proves("RetryPolicyRequest.base_seconds", "RetryPolicyRequest.jitter")
async def a_retry_can_follow_at_once_and_exactly(api: Api) -> None:
    job = await api.submit(retry_policy={"base_seconds": 0, "jitter": 0})
    shown = job["retry_policy"]
    assert (shown["base_seconds"], shown["jitter"]) == (0, 0)


@proves(
    "OutcomeReport.retry_after_seconds",
    "Outcome.retry_after_seconds",
    "OutcomeReport.snooze_seconds",
    "Outcome.snooze_seconds",
)
async def a_handler_can_ask_for_no_delay(api: Api) -> None:
    """Absent, the first would wait for the backoff, and the second would be refused."""
    for status, name in (("failed", "retry_after_seconds"), ("snoozed", "snooze_seconds")):
        job = await api.submit(retry_policy={"base_seconds": 600})
        [lease] = await api.lease()
        outcome = run_of(lease, status=status) | {name: 0}
        assert (await api.report(outcome)).json["outcomes"][0]["accepted"]
        assert (await api.get(f"jobs/{job['id']}")).json["status"] == "queued"
        assert (await api.ask("DELETE", f"jobs/{job['id']}")).status == 200


@proves("CallbackReport.retry_after_seconds")
async def a_target_can_ask_for_no_delay(api: Api) -> None:
    """Absent, it would wait for the backoff."""
    lease = await awaiting(api, retry_policy={"base_seconds": 600})
    assert (await complete(api, lease, {"status": "failed", "retry_after_seconds": 0})).status == 200
    assert (await api.get(f"jobs/{lease['job_id']}")).json["status"] == "queued"


@proves("LeaseRequest.wait_seconds", "LogQuery.wait_seconds")
async def no_wait_is_no_wait(api: Api) -> None:
    assert (await api.post("leases", {"worker": "w", "queues": ["q"], "wait_seconds": 0})).json == {"leases": []}
    job = await api.submit()
    assert (await api.get(f"jobs/{job['id']}/logs", wait_seconds="0")).status == 200


# -- which jobs -------------------------------------------------------------------------------------------------------


@proves(
    "ListQuery.created_before",
    "JobFilter.created_before",
    "DeadLetterFilter.created_before",
    "ListQuery.created_after",
    "JobFilter.created_after",
    "DeadLetterFilter.created_after",
)
async def nothing_was_submitted_before_1970_and_everything_after(api: Api) -> None:
    job = await api.submit()
    assert (await api.get("jobs", created_before=EPOCH)).json == {"jobs": [], "next_cursor": None}
    assert len((await api.get("jobs", created_after=EPOCH)).json["jobs"]) == 1
    filters: list[dict[str, str]] = [{}, {"queue": "send_email"}, {"status": "queued"}, {"tag": "t"}]
    for more in filters:
        wanted = {"action": "cancel", "filter": {"created_before": EPOCH} | more}
        answer = await api.post("jobs/bulk", wanted)
        assert (answer.status, answer.json["matched"]) == (200, 0), answer.body
    assert (await api.get(f"jobs/{job['id']}")).json["status"] == "queued"
    cancelled = await api.post("jobs/bulk", {"action": "cancel", "filter": {"created_after": EPOCH}})
    assert cancelled.json["matched"] == 1
    dead = await api.submit(max_attempts=1)
    [lease] = await api.lease()
    await api.report(run_of(lease, status="failed"))
    for field, count in (("created_before", 0), ("created_after", 1)):
        purge = {"filter": {field: EPOCH}, "dry_run": field == "created_after"}
        assert (await api.post("dead-letters/purge", purge)).json["matched"] == count
    assert (await api.get(f"jobs/{dead['id']}")).status == 200


# -- schedules --------------------------------------------------------------------------------------------------------

_TIMINGS = ("ScheduleRequest", "PreviewRequest", "TimingBody")


def of_timings(*names: str) -> tuple[str, ...]:
    return tuple(f"{body}.{name}" for body in _TIMINGS for name in names)


@proves(*of_timings("at", "end_at"), "SchedulePatch.at", "SchedulePatch.end_at")
async def what_ended_in_1970_never_fires(api: Api) -> None:
    document = {"name": "s", "job": {"name": "t"}}
    refused(await api.post("schedules", document | {"at": EPOCH}), "at")
    refused(await api.post("schedules", document | {"cron": "* * * * *", "end_at": EPOCH}), "end_at")
    refused(await api.post("schedules", document | {"every": "1m", "end_at": EPOCH}), "end_at")
    for timing in ({"at": EPOCH}, {"cron": "* * * * *", "end_at": EPOCH}):
        assert (await api.post("schedules/preview", timing)).json["firings"] == [], timing
    schedule = await saved(api)
    refused(await patch(api, schedule["id"], {"at": EPOCH}), "at")
    refused(await patch(api, schedule["id"], {"end_at": EPOCH}), "end_at")


@proves(*of_timings("start_at"), "SchedulePatch.start_at", "PreviewRequest.after")
async def a_grid_can_begin_in_1970(api: Api) -> None:
    """Absent, it would begin when it is saved, at 46 min 40 s, and a preview now."""
    schedule = await saved(api, every="1h", start_at=EPOCH)
    assert schedule["start_at"] == EPOCH_SHOWN
    assert schedule["next_at"] == "2030-03-17T18:00:00.000Z"
    assert (await patch(api, schedule["id"], {"start_at": EPOCH})).json["next_at"] == schedule["next_at"]
    preview = await api.post("schedules/preview", {"every": "1h", "start_at": EPOCH, "after": EPOCH, "count": 1})
    assert preview.json["firings"] == ["1970-01-01T01:00:00.000Z"]


@proves(
    "ScheduleRequest.jitter_seconds",
    "ScheduleRequest.catchup_window_seconds",
    "ScheduleRequest.pause_until",
    "SchedulePatch.jitter_seconds",
    "SchedulePatch.catchup_window_seconds",
    "SchedulePatch.pause_until",
    "SchedulePatch.priority",
    "JobPatch.priority",
    "JobPatch.max_retries",
)
async def a_schedule_can_have_none_of_what_has_a_default(api: Api) -> None:
    """A pause that ended in 1970 pauses nothing, and no catch-up window is not that of a day."""
    nothing = {"jitter_seconds": 0, "catchup_window_seconds": 0, "pause_until": EPOCH}
    schedule = await saved(api, **nothing)
    assert schedule["catchup_window_seconds"] == 0.001
    assert schedule["status"] == "active"
    job = {"priority": 0, "max_retries": 0}
    other = await saved(api, name="other")
    amended = (await patch(api, other["id"], nothing | {"job": job})).json
    assert (amended["catchup_window_seconds"], amended["status"]) == (0.001, "active")
    assert (amended["job"]["priority"], amended["job"]["max_attempts"]) == (0, 1)


@proves("TriggerRequest.instant")
async def a_run_can_be_for_an_instant_of_1970(api: Api) -> None:
    schedule = await saved(api)
    answer = await api.post(f"schedules/{schedule['id']}/trigger", {"instant": EPOCH})
    assert answer.status == 201, answer.body
    [job] = (await api.get("jobs", schedule=schedule["id"])).json["jobs"]
    assert job["instant"] == EPOCH_SHOWN


@proves("BlackoutRequest.from", "BlackoutRequest.to")
async def a_blackout_can_begin_in_1970_and_not_end_there(api: Api) -> None:
    blackout = {"from": EPOCH, "to": "2031-01-01T00:00:00Z"}
    schedule = await saved(api, calendar={"blackouts": [blackout]})
    assert schedule["calendar"]["blackouts"][0]["from"] == EPOCH_SHOWN
    document = {"name": "s", "cron": "* * * * *", "job": {"name": "t"}, "calendar": {"blackouts": [blackout]}}
    blackout["to"] = EPOCH
    refused(await api.post("schedules", document), "calendar.blackouts[0].to")


# -- all of them ------------------------------------------------------------------------------------------------------


def request_structs() -> dict[str, type[Request]]:
    modules = [
        importlib.import_module(f"{raftsched.wire.__name__}.{each.name}")
        for each in pkgutil.iter_modules(raftsched.wire.__path__)
    ]
    found = [kind for module in modules for kind in vars(module).values() if isinstance(kind, type)]
    return {kind.__name__: kind for kind in found if issubclass(kind, Request) and kind is not Request}


def parts(kind: inspect.Type) -> list[inspect.Type]:
    if isinstance(kind, inspect.Metadata):
        return parts(kind.type)
    return [part for each in kind.types for part in parts(each)] if isinstance(kind, inspect.UnionType) else [kind]


def zeros_of(kind: inspect.Type) -> list[Any]:
    """The zeros that a field of this type may be sent with, as JSON."""
    zeros: list[Any] = []
    for part in parts(kind):
        if isinstance(part, inspect.DateTimeType):
            zeros.append(EPOCH)
        elif isinstance(part, inspect.IntType | inspect.FloatType):
            zeros.append(0)
    return zeros


def is_refused_by_name(struct: type[Request], name: str, zero: Any) -> bool:
    try:
        StructDecoder(struct).decode(msgspec.json.encode({name: zero}))
    except Malformed as error:
        return error.field == name
    return False


def test_every_optional_time_and_number_is_refused_at_zero_or_proven() -> None:
    wanted = set()
    for struct_name, struct in request_structs().items():
        for field in msgspec.structs.fields(struct):
            zeros = [] if field.required else zeros_of(inspect.type_info(field.type))
            if any(not is_refused_by_name(struct, field.encode_name, zero) for zero in zeros):
                wanted.add(f"{struct_name}.{field.encode_name}")
    proven = {name for names in PROOFS.values() for name in names}
    assert len(wanted) > 60, "reflection finds the fields"
    assert wanted - proven == set(), "say what zero means in these"


@pytest.mark.parametrize("proof", PROOFS, ids=lambda proof: proof.__name__)
async def test_zero_is_taken_at_its_word(api: Api, proof: Proof) -> None:
    assert api.node.now_ms() == START_MS
    await proof(api)
