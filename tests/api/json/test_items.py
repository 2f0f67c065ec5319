"""Items that stand alone: whatever is wrong in one, it alone is refused, with its index, and the others are taken."""

from __future__ import annotations

import json
from typing import Any

import pytest

from raftsched import limits
from raftsched.api.json.items import _array, named_text
from tests.api.node import Api, run_of

DEEP = b"[" * 80 + b"]" * 80
FLAWS: list[tuple[bytes, str]] = [
    (b'{"name":"x","payload":{"a":NaN}}', "jobs[1].payload.a"),
    (b'{"name":"x","payload":[1,-Infinity]}', "jobs[1].payload[1]"),
    (b'{"name":"x","delay_seconds":1e400}', "jobs[1].delay_seconds"),
    (b'{"name":"x","priority":%b}' % (b"9" * 5_000), "jobs[1]"),
    (b'{"name":"x","name":"y"}', "jobs[1].name"),
    (b'{"name":"x","payload":{"k":1,"k":2}}', "jobs[1].k"),
    (rb'{"name":"x","payload":"\ud800"}', "jobs[1].payload"),
    (rb'{"name":"x","tags":["a","\u0000"]}', "jobs[1].tags[1]"),
    (rb'{"name":"x","payload":{"\udfff":1}}', "jobs[1].payload"),
    (b'{"name":"x","payload":%b}' % DEEP, "jobs[1]"),
    (b'{"name":"x","payload":"\xff\xfe"}', "jobs[1]"),
    (b'{"name":"x","payload":"%b"}' % (b"y" * (limits.PAYLOAD_BYTES_MAX + 1)), "jobs[1].payload"),
    (b"[1,2]", "jobs[1]"),
    (b'"text"', "jobs[1]"),
    (b"null", "jobs[1]"),
    (b"{}", "jobs[1].name"),
    (b'{"name":"x","max_attempts":"3"}', "jobs[1].max_attempts"),
    (rb'{"name":"\"]},{[","payload":NaN}', "jobs[1].payload"),
]


async def test_a_flaw_in_one_job_of_a_batch_refuses_that_job_alone(api: Api) -> None:
    wrong: list[object] = []
    for flawed, field in FLAWS:
        body = b'{ "jobs" : [ {"name":"a","payload":"\\"]"} ,' + flawed + b',{"name":"b","payload":{"]":"["}}]}'
        answer = await api.post("jobs/batch", body)
        results = answer.json.get("results", [])
        statuses = [each["status"] for each in results]
        problem = results[1].get("problem", {}) if len(results) == 3 else {}
        named = str(problem.get("field", ""))
        if statuses != [201, 422, 201] or not named.startswith(field) or named not in problem["detail"]:
            wrong.append((flawed[:60], statuses, problem or answer.body[:300]))
    assert not wrong


async def test_all_flaws_at_once_are_each_told_in_their_place(api: Api) -> None:
    body = b'{"jobs":[' + b",".join(b'{"name":"ok"},' + flawed for flawed, _ in FLAWS) + b"]}"
    results = (await api.post("jobs/batch", body)).json["results"]
    assert [each["status"] for each in results] == [201, 422] * len(FLAWS)
    for at, (_, field) in enumerate(FLAWS):
        assert results[2 * at + 1]["problem"]["field"].startswith(field.replace("[1]", f"[{2 * at + 1}]", 1))


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b'{"jobs":[{"name":"a"},nonsense]}', 400),
        (b'{"jobs":[{"name":"a"},{"name":NaN},]}', 400),
        (b'{"jobs":[{"name":"a" NaN}]}', 400),
        (b'{"jobs":[{"name":"a","payload":NaN}]', 400),
        (b'{"jobs":[{"name":"a","payload":NaN}]]', 400),
        (b'{"jobs":[{"name":NaN}],"jobs":[{"name":"b"}]}', 400),
        (b'{"jobs":[{"name":NaN}],"other":1}', 400),
        (b'{"jobs":[{"name":NaN}],"other":NaN}', 400),
        (b'{"jobs":{"name":NaN}}', 400),
        (b"[NaN]", 400),
        (b"NaN", 400),
        (b'{"jobs":[' + b",".join([b'{"name":NaN}'] * (limits.BATCH_JOBS_MAX + 1)) + b"]}", 400),
        (b'{"jobs":[NaN,[' + b",".join([b"1"] * limits.JSON_VALUES_MAX) + b"]]}", 413),
        (b'{"jobs":[' + b"[" * 500_000 + b"]}", 400),
    ],
)
async def test_what_is_no_json_around_its_items_is_refused_as_a_whole(api: Api, body: bytes, status: int) -> None:
    answer = await api.post("jobs/batch", body)
    assert answer.status == status, answer.body[:300]
    assert not api.node.proposed


async def test_a_flawed_outcome_refuses_itself_alone(api: Api) -> None:
    await api.submit()
    [lease] = await api.lease()
    good = json.dumps(run_of(lease, status="completed"))
    bad = b'{"run_id":"r.1","fencing_token":1,"status":"completed","result":Infinity}'
    answer = await api.post("leases/outcomes", b'{"worker":"w1","outcomes":[%b,%b]}' % (bad, good.encode()))
    replies = answer.json["outcomes"]
    assert [(each["run_id"], each["accepted"]) for each in replies] == [("r.1", False), (lease["run_id"], True)]
    assert replies[0]["detail"].startswith("outcomes[0].result")


async def test_a_flawed_part_of_a_heartbeat_takes_no_other_lease_down(api: Api) -> None:
    for _ in range(3):
        await api.submit()
    leases = await api.lease()
    texts = [json.dumps(run_of(lease)).encode()[:-1] + b"%b}" for lease in leases]
    deep = b',"progress":' + DEEP
    for flaw in (b',"progress":NaN', deep, b',"progress":"%b"' % (b"y" * (limits.PROGRESS_BYTES_MAX + 1))):
        parts = [texts[0] % b"", texts[1] % flaw, b'{"run_id":"x","fencing_token":0}', texts[2] % b', "alive":true']
        answer = await api.post("leases/heartbeat", b'{"worker":"w1","leases":[%b]}' % b",".join(parts))
        assert answer.status == 200, answer.body
        states = answer.json["leases"]
        assert [each["valid"] for each in states] == [True, True, False, True], "a lease goes on without its progress"
        assert ["problem" in each for each in states] == [False, True, True, False]
        assert states[1]["problem"]["field"] == "leases[1].progress" or flaw == deep
        assert states[2]["run_id"] == "x"


def test_an_array_is_found_whatever_its_strings_hold() -> None:
    items: list[Any] = ['[{"jobs":[1]}]', {"jobs": [1, [2]], "a": '\\"'}, [], 7, None, "", "\\"]
    for indent in (None, 2):
        body = json.dumps({"first": {"jobs": [9]}, "jobs": items, "last": ["jobs"]}, indent=indent).encode()
        found = _array(body, "jobs")
        assert found is not None
        assert [json.loads(item) for item in found.items] == items
        assert json.loads(body[found.start : found.stop]) == items
    for body in (
        b'{"jobs":[1],"jobs":[2]}',
        b"[]",
        b'{"job":[]}',
        b'{"a":{"jobs":[1]}}',
        b'{"jobs":[1]',
        b'{"jobs":"[1]"}',
    ):
        assert _array(body, "jobs") is None, body
    assert named_text(b'{"a":1,"run_id" : "x.1","b":NaN}', "run_id") == "x.1"
