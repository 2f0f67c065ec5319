"""Anything that may be sent to the routes of schedules and queues: never a fault of the server, and nothing half done."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raftsched.wire.firings import BackfillRequest, FiringsQuery, PreviewRequest
from raftsched.wire.jobs import JobBody
from raftsched.wire.observing import AuditQuery
from raftsched.wire.queues import QueuePatch
from raftsched.wire.schedules import ScheduleRequest, SchedulesQuery
from raftsched.wire.timings import BlackoutRequest, BusinessDaysRequest, CalendarRequest
from tests.api.node import Answer, Api
from tests.api.schedules.scene import saved

_settings = settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
_TIMES = st.sampled_from(["2030-01-01T00:00:00Z", "2031-06-01T00:00:00.5+02:00", "0001-01-01T00:00:00+14:00", "soon"])
_VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | _TIMES
    | st.sampled_from(["x", "skip", "UTC", "Europe/Berlin", "* * * * *", "@every 1m", "90s", "08:30", "24:00"])
    | st.text(max_size=8)
)


def _objects(kind: Any, **inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with some fields of a struct, of wild values, and some of `inner`."""
    names = st.sampled_from([field.removesuffix("_") for field in kind.__struct_fields__] + ["x"])
    wild = st.dictionaries(names, _VALUES, max_size=4)
    if not inner:
        return wild
    sane = st.fixed_dictionaries({}, optional=inner)
    return st.builds(lambda first, second: first | second, wild, sane)


_CALENDARS = _objects(
    CalendarRequest,
    blackouts=st.lists(_objects(BlackoutRequest), max_size=2),
    business_days=_objects(BusinessDaysRequest),
    skip_dates=st.lists(st.sampled_from(["2030-02-03", "2030-02-30"]), max_size=2),
)
_JOBS = _objects(JobBody, name=st.just("x"))
_SCHEDULES = _objects(
    ScheduleRequest, name=st.sampled_from("ab"), job=_JOBS, calendar=_CALENDARS, cron=st.just("0 * * * *")
)


def _bytes(value: Any) -> bytes:
    return json.dumps(value).encode()


def _is_told(answer: Answer) -> bool:
    """Whether a request was taken, or refused as the sender's fault."""
    return answer.status < 500 and (answer.status < 400 or bool(answer.code))


async def _send(api: Api, method: str, path: str, body: Any) -> Answer:
    return await api.ask(method, path, data=_bytes(body), headers={"Content-Type": "application/json"})


@_settings
@given(_SCHEDULES, _SCHEDULES)
async def test_any_schedule_is_taken_or_refused(api: Api, first: dict[str, Any], second: dict[str, Any]) -> None:
    for method, path, body in (
        ("POST", "schedules", first),
        ("PATCH", "schedules/a", second),
        ("PUT", "schedules", {"schedules": [first, second], "dry_run": True}),
    ):
        assert _is_told(await _send(api, method, path, body)), (method, body)
    assert (await api.get("schedules")).status == 200


@_settings
@given(_objects(PreviewRequest, calendar=_CALENDARS, cron=st.just("0 0 * * *"), count=st.integers(1, 5)))
async def test_any_preview_is_shown_or_refused(api: Api, asked: dict[str, Any]) -> None:
    answer = await _send(api, "POST", "schedules/preview", asked)
    assert _is_told(answer), asked
    if answer.status == 200:
        firings = answer.json["firings"]
        assert firings == sorted(set(firings))


@_settings
@given(st.text(max_size=30) | st.text(alphabet="0123456789*/,-?LW#@ ", max_size=30))
async def test_any_expression_is_read_or_refused_by_its_field(api: Api, expression: str) -> None:
    answer = await _send(api, "POST", "schedules/preview", {"cron": expression})
    assert answer.status == 200 or answer.json["field"] in ("cron", ""), answer.body


@_settings
@given(_objects(BackfillRequest), _objects(QueuePatch, weights=st.dictionaries(st.text(max_size=3), _VALUES)))
async def test_any_backfill_and_setting_is_taken_or_refused(
    api: Api, backfill: dict[str, Any], settings_: dict[str, Any]
) -> None:
    await saved(api)
    assert _is_told(await _send(api, "POST", "schedules/report/backfill", backfill))
    assert _is_told(await _send(api, "PATCH", "queues/mail", settings_))


@_settings
@given(
    st.sampled_from([("schedules", SchedulesQuery), ("schedules/report/firings", FiringsQuery), ("audit", AuditQuery)]),
    st.data(),
    st.text(max_size=20),
)
async def test_any_list_is_read_or_refused(api: Api, asked: tuple[str, Any], data: st.DataObject, value: str) -> None:
    path, query = asked
    await saved(api)
    parameter = data.draw(st.sampled_from([*query.__struct_fields__, "x"]))
    assert (await api.get(path, **{parameter: value})).status in (200, 400)


@_settings
@given(st.text(alphabet=st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=40))
async def test_any_name_finds_nothing_but_its_schedule(api: Api, name: str) -> None:
    answer = await api.get(f"schedules/{quote(name, safe='')}/next")
    assert (answer.status, answer.code) == (404, "not_found")


# -- documents --------------------------------------------------------------------------------------------------------

_SPANS = st.none() | st.sampled_from([0.001, 1, 2.5, 3_600])
_GOOD_JOBS = st.fixed_dictionaries(
    {"name": st.just("x")},
    optional={
        "payload": st.recursive(st.none() | st.integers() | st.text(max_size=4), st.lists, max_leaves=4),
        "queue": st.just("q"),
        "priority": st.integers(0, 9) | st.sampled_from(["low", "normal", "high"]),
        "timeout_seconds": _SPANS,
        "heartbeat_timeout_seconds": _SPANS,
        "expires_in_seconds": _SPANS,
        "deadline_in_seconds": _SPANS,
        "retention_seconds": _SPANS,
        "tags": st.lists(st.sampled_from("abc"), max_size=3),
        "start": st.sampled_from(["at_least_once", "at_most_once"]),
        "retry_policy": st.none()
        | st.fixed_dictionaries({"backoff": st.just("fixed"), "base_seconds": st.sampled_from([0, 0.0004, 1.5])}),
        "retry_on": st.none() | st.lists(st.just("Timeout"), max_size=1),
    },
)
_GOOD_NOTICES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"on": st.sampled_from([["missed", "failed"], ["success"]]), "webhook": st.just("https://hooks.example.org/x")}
) | st.fixed_dictionaries(
    {
        "on": st.just(["dead_letter"]),
        "email": st.fixed_dictionaries({"to": st.just(["a@b"])}, optional={"subject": st.just("{{cause.since}} ü")}),
    }
)
_GOOD_SCHEDULES = st.fixed_dictionaries(
    {"name": st.just("report"), "job": _GOOD_JOBS},
    optional={
        "timezone": st.sampled_from(["UTC", "Asia/Tokyo"]),
        "start_at": st.none() | st.just("2031-01-01T00:00:00+09:00"),
        "end_at": st.none() | st.just("2099-01-01T00:00:00Z"),
        "jitter_seconds": st.none() | st.sampled_from([0, 0.25, 60]),
        "catchup_window_seconds": st.none() | st.sampled_from([0, 0.5, 7_200]),
        "max_firings": st.none() | st.integers(1, 9),
        "expect_success_within_seconds": st.none() | st.sampled_from([1, 93_600.25]),
        "notify": st.lists(_GOOD_NOTICES, max_size=3),
        "overlap": st.sampled_from(["skip", "buffer_one", "allow", "terminate_previous"]),
        "misfire": st.sampled_from(["run_once", "skip", "run_all"]),
        "dst_gap": st.sampled_from(["shift", "skip"]),
        "calendar": st.none()
        | st.fixed_dictionaries(
            {},
            optional={
                "skip_dates": st.lists(st.sampled_from(["2031-12-24", "2031-12-31"]), max_size=2),
                "business_days": st.booleans() | st.fixed_dictionaries({"country": st.sampled_from(["DE", "US"])}),
                "timezone": st.just("Europe/Berlin"),
                "blackouts": st.lists(
                    st.fixed_dictionaries({"start": st.just("22:00"), "end": st.sampled_from(["24:00", "06:00:01"])}),
                    max_size=2,
                ),
            },
        ),
    },
)
_WHEN = st.sampled_from([{"cron": "15 6 * * MON-FRI"}, {"every": "1h30m"}, {"at": "2032-02-29T00:00:00.123Z"}])


@_settings
@given(_GOOD_SCHEDULES, _WHEN)
async def test_what_is_read_means_what_was_sent(api: Api, schedule: dict[str, Any], when: dict[str, str]) -> None:
    stored = await _send(api, "POST", "schedules", schedule | when)
    assert stored.status in (200, 201), stored.body
    document = {name: value for name, value in stored.json.items() if name in ScheduleRequest.__struct_fields__}
    again = await _send(api, "POST", "schedules", document)
    assert (again.status, again.json) == (200, stored.json)
    assert (await _send(api, "PATCH", "schedules/report", {})).json == stored.json
