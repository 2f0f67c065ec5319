"""Parameters of schedules over HTTP: definitions, the values of runs, refusals."""

from __future__ import annotations

from typing import Any, Final

from raftsched import limits
from tests.api.node import Api, Fault, misjudged
from tests.api.schedules.scene import MINUTE, REPORT, at, decided, patch, saved

REGION: Final = {"name": "region", "type": "choice", "choices": ["eu", "us"], "default": "eu", "required": True}
DEFINITIONS: Final[list[dict[str, Any]]] = [
    REGION,
    {"name": "rows", "type": "integer", "default": 10, "description": "At most."},
    {"name": "share", "type": "number", "default": 1.50},
    {"name": "full", "type": "boolean", "default": False},
    {"name": "note", "type": "text"},
    {"name": "token", "type": "secret", "default": "shop_token"},
]
DEFAULTS: Final = {
    "region": "eu",
    "rows": 10,
    "share": 1.5,
    "full": False,
    "note": None,
    "token": {"secret": "shop_token"},
}


async def triggered(api: Api, **fields: Any) -> Any:
    """Run the schedule by hand beside other runs; return the job."""
    answer = await api.post("schedules/report/trigger", {"overlap": "allow"} | fields)
    assert answer.status == 201, answer.body
    return (await api.get(f"jobs/{answer.json['job_id']}")).json


async def test_definitions_read_back_and_sent_again_change_nothing(api: Api) -> None:
    schedule = await saved(api, parameters=DEFINITIONS)
    assert schedule["parameters"] == [{"required": False} | each for each in DEFINITIONS]
    assert await saved(api, parameters=schedule["parameters"]) == schedule
    changed = (await patch(api, "report", {"parameters": [REGION]})).json
    assert (changed["parameters"], changed["generation"]) == ([REGION], 1)
    line = (await api.get("audit")).json["entries"][0]
    assert line["detail"].endswith('token secret = "shop_token" -> region choice (eu|us) = "eu" required')
    assert (await patch(api, "report", {"parameters": None})).json["parameters"] == []


async def test_a_run_by_hand_has_the_values_that_it_is_given_and_defaults_for_the_rest(api: Api) -> None:
    await saved(api, parameters=DEFINITIONS)
    assert (await triggered(api))["parameters"] == DEFAULTS
    given = {"region": "us", "rows": -3, "share": 1e3, "full": True, "note": 'a "quoted" {{text}}', "token": "other"}
    job = await triggered(api, parameters=given)
    assert job["parameters"] == given | {"token": {"secret": "other"}}
    leases = {lease["job_id"]: lease for lease in await api.lease("build_report", capacity=10)}
    assert leases[job["id"]]["parameters"] == job["parameters"]
    replayed = await api.post(f"jobs/{job['id']}/replay", {})
    assert replayed.json["parameters"] == job["parameters"]
    assert (await api.submit())["parameters"] is None


async def test_a_run_by_time_has_the_defaults(api: Api) -> None:
    schedule = await saved(api, cron="* * * * *", parameters=DEFINITIONS)
    decided(api, schedule, at_ms := api.node.clock.now_ms // MINUTE * MINUTE + MINUTE)
    [firing] = (await api.get("schedules/report/firings")).json["firings"]
    assert (firing["instant"], firing["kind"]) == (at(at_ms), "planned")
    assert (await api.get(f"jobs/{firing['job_id']}")).json["parameters"] == DEFAULTS


async def test_a_schedule_whose_runs_must_be_given_a_value_has_no_timing(api: Api) -> None:
    must = [{"name": "region", "required": True}]
    answer = await api.post("schedules", REPORT | {"parameters": must})
    assert (answer.status, answer.json["status"], answer.json["next_at"]) == (201, "manual", None)
    assert (await api.get("schedules/report/next")).json["firings"] == []
    assert (await triggered(api, parameters={"region": "eu"}))["parameters"] == {"region": "eu"}
    timed = await patch(api, "report", {"cron": "@daily", "parameters": [must[0] | {"default": "us"}]})
    assert (timed.json["status"], timed.json["generation"]) == ("active", 2)
    by_hand = await patch(api, "report", {"cron": None, "parameters": must})
    assert (by_hand.json["status"], by_hand.json["next_at"]) == ("manual", None)


_TIMED: Final = {"cron": "@daily"}


def _defined(**fields: Any) -> dict[str, Any]:
    return _TIMED | {"parameters": [{"name": "ok"}, {"name": "p"} | fields]}


_DEFINITIONS_REFUSED: Final[list[Fault]] = [
    (_defined(name="1st"), 400, "parameters[1].name"),
    (_defined(name="a-b"), 400, "parameters[1].name"),
    (_defined(name="OK"), 422, "parameters"),
    (_defined(type="date"), 400, "parameters[1].type"),
    (_defined(typ="text"), 400, "parameters[1].typ"),
    (_defined(type="choice"), 422, "parameters[1].choices"),
    (_defined(choices=["a"]), 422, "parameters[1].choices"),
    (_defined(type="choice", choices=["a", "a"]), 422, "parameters[1].choices"),
    (_defined(type="choice", choices=["a"] * 101), 400, "parameters[1].choices"),
    (_defined(type="choice", choices=["a"], default="b"), 422, "parameters[1].default"),
    (_defined(default=1), 422, "parameters[1].default"),
    (_defined(type="secret", default=""), 422, "parameters[1].default"),
    (_defined(required=True), 422, "parameters[1].default"),
    (_defined(required=True, default=None), 422, "parameters[1].default"),
    (_defined(description="x" * 501), 400, "parameters[1].description"),
    (_defined(default="x" * limits.PARAMETERS_BYTES_MAX), 422, "parameters"),
    (_TIMED | {"parameters": [{}]}, 400, "parameters[0].name"),
    (_TIMED | {"parameters": [{"name": f"p{number}"} for number in range(33)]}, 400, "parameters"),
    ({"parameters": [{"name": "p"}]}, 422, "cron"),
    (
        _TIMED | {"job": {"http": {"url": "https://a.example", "body": {"a": ["{{ parameters.p }}"]}}}},
        422,
        "job.http.body",
    ),
    (_defined(name="q") | {"job": {"shell": {"argv": ["a"], "stdin": "{{parameters.p}}"}}}, 422, "job.shell.stdin"),
    ({"parameters": [{"name": "p", "required": True}], "every": "1h"}, 422, "parameters[0].default"),
]
_WRONG_VALUES: Final[dict[str, list[Any]]] = {
    "must": [None],
    "other": [1],
    "region": ["asia", ["eu"]],
    "rows": ["10", 1.0, 1.5, True, None, 10**18, {}],
    "share": ["1", False, None],
    "full": ["true", 1, None],
    "note": [1, None, ["a"], {"secret": "a"}],
    "token": ["", {"secret": "a"}, "x" * 129],
}
_VALUES_REFUSED: Final[list[Fault]] = [
    ({}, 422, "must"),
    *(({name: value}, 422, name) for name, values in _WRONG_VALUES.items() for value in values),
]


async def test_a_definition_that_makes_no_sense_is_refused_and_its_field_is_named(api: Api) -> None:
    assert await misjudged(_DEFINITIONS_REFUSED, lambda fields: api.post("schedules", REPORT | fields)) == []
    applied = {"schedules": [REPORT | _defined(default=1)]}
    assert (await api.ask("PUT", "schedules", json=applied)).json["field"] == "schedules[0].parameters[1].default"
    assert api.node.proposed == []


async def test_a_body_can_name_parameters_and_a_payload_of_a_handler_what_it_likes(api: Api) -> None:
    body = "{{parameters.region}} {{run_id}} {{{{parameters.x}}"
    for job in ({"http": {"url": "https://a.example", "body": body}}, {"name": "x", "payload": "{{parameters.x}}"}):
        await saved(api, parameters=[REGION], job=job)


async def test_a_value_that_does_not_fit_its_definition_is_refused_by_name_and_nothing_is_stored(api: Api) -> None:
    definitions = [*DEFINITIONS, {"name": "must", "type": "integer", "required": True}]
    before = (await api.post("schedules", REPORT | {"parameters": definitions})).json

    async def trigger(values: dict[str, Any]) -> Any:
        given = values if "must" in values or not values else values | {"must": 1}
        return await api.post("schedules/report/trigger", {"parameters": given})

    assert await misjudged(_VALUES_REFUSED, trigger, "parameters.") == []
    odd = await api.post("schedules/report/trigger", {"parameters": {"a b": 1}})
    assert (odd.status, odd.json["field"]) == (400, "parameters")
    large = {"must": 1, "note": "x" * limits.PARAMETERS_BYTES_MAX}
    refused = await api.post("schedules/report/trigger", {"parameters": large})
    assert (refused.status, refused.json["field"]) == (422, "parameters")
    assert (await api.get("jobs")).json["jobs"] == []
    assert (await api.get("schedules/report")).json == before


async def test_a_repeated_trigger_finds_its_run_only_with_the_same_values(api: Api) -> None:
    await saved(api, parameters=DEFINITIONS)
    for same in ({"idempotency_key": "k"}, {"instant": "2030-01-01T00:00:00Z"}):
        first = await api.post("schedules/report/trigger", same | {"overlap": "allow", "parameters": {"rows": 1}})
        await patch(api, "report", {"parameters": None})
        again = await api.post("schedules/report/trigger", same | {"overlap": "allow", "parameters": {"rows": 1}})
        assert (again.status, again.json["job_id"]) == (200, first.json["job_id"])
        other = await api.post("schedules/report/trigger", same | {"overlap": "allow", "parameters": {"rows": 2}})
        assert (other.status, other.code) == (422, "idempotency_mismatch")
        await patch(api, "report", {"parameters": DEFINITIONS})
