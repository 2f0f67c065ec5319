"""Cases A01 to A25 of bad input, each input as it stands in its file."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from raftsched import limits
from raftsched.api.json import scan as scanning
from raftsched.worker.handlers.result import valid_text
from tests.api.cases import case, inputs
from tests.api.node import Answer, Api, run_of

Do = Callable[[Api], Awaitable[Answer]]


def _post(body: bytes | dict[str, Any], path: str = "jobs") -> Do:
    return lambda api: api.post(path, body)


def _get(path: str) -> Do:
    return lambda api: api.ask("GET", path)


def _named(body: str) -> bytes:
    """The body with a job's name in front, so that it is refused for what the case says and not for its lack."""
    return b'{"name":"x",%b' % body.removeprefix("{").encode()


async def _refused(api: Api, do: Do) -> Answer:
    answer = await do(api)
    assert answer.status in (400, 404, 415), answer.body
    assert answer.code in ("malformed", "not_found", "unsupported_media_type")
    assert api.node.proposed == []
    assert (await api.get("jobs")).json["jobs"] == []
    return answer


# -- A01, A02, A25: bodies as they stand ------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [text for text, _ in inputs("A01") if text.startswith("{")])
async def test_case_a01_numbers_that_json_does_not_have(api: Api, body: str) -> None:
    answer = await _refused(api, _post(_named(body)))
    assert re.search("NaN|Infinity|1e400", answer.json["detail"])
    batch = await api.post("jobs/batch", b'{"jobs":[{"name":"y"},%b]}' % _named(body))
    stored, refused = batch.json["results"]
    assert (stored["status"], refused["status"], refused["problem"]["code"]) == (201, 422, "malformed")
    assert re.search("NaN|Infinity|1e400", refused["problem"]["detail"])


async def test_case_a01_progress_that_json_does_not_have(api: Api) -> None:
    assert inputs("A01")[-1] == ("a worker reports progress NaN", "400")
    beat = b'{"worker":"w","leases":[{"run_id":"01900000-0000-7000-8000-000000000000.1","fencing_token":1,"progress":NaN}]}'
    [state] = (await api.post("leases/heartbeat", beat)).json["leases"]
    assert not state["valid"]
    assert "NaN" in state["problem"]["detail"]
    assert api.node.proposed == []


@pytest.mark.parametrize("body", [text for text, _ in inputs("A02")])
async def test_case_a02_the_same_key_twice(api: Api, body: str) -> None:
    key = body.split('"')[1]
    for document in (_named(body), b'{"name":"x","payload":%b}' % body.encode()):
        assert (await _refused(api, _post(document))).json["field"] == key


@pytest.mark.parametrize("body", [text for text, _ in inputs("A25") if text.startswith("{")])
async def test_case_a25_misspelt_and_unknown_fields(api: Api, body: str) -> None:
    answer = await _refused(api, _post(_named(body)))
    assert answer.json["field"] == body.split('"')[1]
    assert "known are" in answer.json["detail"]


async def test_case_a25_more_than_one_time_or_none(api: Api) -> None:
    both = await api.post("jobs", {"name": "x", "run_at": "2031-01-01T00:00:00Z", "delay_seconds": 5})
    assert (both.status, both.json["field"]) == (422, "run_at")
    assert api.node.proposed == []
    assert (await api.submit())["status"] == "queued"  # none of them: runs now, as documented


# -- A03: nesting -----------------------------------------------------------------------------------------------------


def _levels() -> list[int]:
    [step] = [step for step in case("A03")["steps"] if "levels" in step]
    return [int(number.replace(",", "")) for number in re.findall(r"[\d,]{3,}", step)]


@pytest.mark.parametrize("levels", _levels())
async def test_case_a03_deep_nesting_is_refused_before_it_is_parsed(
    api: Api, levels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[str] = []
    decode = scanning._decode

    def counted(text: str) -> Any:
        parsed.append(text)
        return decode(text)

    monkeypatch.setattr(scanning, "_decode", counted)
    payload = b"[" * levels + b"]" * levels
    bodies = {
        "jobs": b'{"name":"x","payload":%b}' % payload,
        "jobs/batch": b'{"jobs":[{"name":"x","payload":%b}]}' % payload,
        "leases/outcomes": b'{"worker":"w","outcomes":[{"result":%b}]}' % payload,
    }
    for path, body in bodies.items():
        answer = await api.post(path, body)
        problem = answer.json
        stands_alone = path == "jobs/batch" and levels < limits.JSON_VALUES_MAX
        if stands_alone:
            [result] = problem["results"]
            problem = result["problem"]
        assert (problem["status"], problem["code"]) == (422 if stands_alone else 400, "malformed")
        assert "deeper" in problem["detail"]
    assert all("[[" not in text for text in parsed), "what stands around a deep item is parsed, the item never"
    assert api.node.proposed == []
    parsed.clear()
    assert api.node.proposed == []
    await api.submit()
    assert len(parsed) == 1  # what is not refused does come by here


async def test_case_a03_what_is_accepted_reads_back(api: Api) -> None:
    payload = b"[" * (limits.VALUE_DEPTH_MAX) + b"]" * (limits.VALUE_DEPTH_MAX)
    assert (await api.post("jobs", b'{"name":"x","payload":%b}' % payload)).status == 201
    assert payload in (await api.get("jobs")).body


# -- A04: text --------------------------------------------------------------------------------------------------------

_BROKEN_TEXTS: dict[str, list[Do]] = {
    "bytes 22 ff 22 as name": [_post(b'{"name":"\xff"}')],
    '"\\ud800" as name, tag, payload key, payload value': [
        _post(rb'{"name":"\ud800"}'),
        _post(rb'{"name":"x","tags":["\ud800"]}'),
        _post(rb'{"name":"x","payload":{"\ud800":1}}'),
        _post(rb'{"name":"x","payload":"\ud800"}'),
    ],
    '"a\\u0000b" as name': [_post(rb'{"name":"a\u0000b"}')],
    "UTF-8 with byte order mark": [_post(b'\xef\xbb\xbf{"name":"x"}')],
    "UTF-16 body": [
        _post('{"name":"x"}'.encode("utf-16")),
        _post('{"name":"x"}'.encode("utf-16-le")),
        lambda api: api.post("jobs", '{"name":"x"}'.encode("utf-16"), Content_Type="application/json; charset=utf-16"),
    ],
}
_LOG_LINE = "worker log line with bytes ff fe"


@pytest.mark.parametrize("text", [text for text, _ in inputs("A04") if text != _LOG_LINE])
async def test_case_a04_broken_text(api: Api, text: str) -> None:
    for do in _BROKEN_TEXTS[text]:
        await _refused(api, do)


async def test_case_a04_log_line_of_broken_bytes_spoils_no_log(api: Api) -> None:
    """As bytes it is refused, whole; as our worker escapes it, it is stored and read."""
    job = await api.submit()
    [lease] = await api.lease()
    path = f"runs/{lease['run_id']}/logs"
    line = valid_text(b"\xff\xfe".decode(errors="surrogateescape"))
    for lines in (b'"\xff\xfe"', rb'"\udcff\udcfe"'):
        answer = await api.post(path, b'{"fencing_token":%d,"lines":["before",%b]}' % (lease["fencing_token"], lines))
        assert (answer.status, answer.code) == (400, "malformed")
        assert (await api.get(f"jobs/{job['id']}/logs")).json["text"] == ""
    assert (await api.post(path, {"fencing_token": lease["fencing_token"], "lines": [line]})).status == 200
    assert (await api.get(f"jobs/{job['id']}/logs")).json["text"] == "\\udcff\\udcfe\n"


async def test_case_a04_one_job_never_spoils_the_list(api: Api) -> None:
    texts = ["\u2028", "\ufffd", "\U0010ffff", "\x7f", "a\tb", "\u202e", "é" * 64]
    for text in texts:
        await api.submit(payload={text: text}, tags=[text])
    assert [job["payload"] for job in (await api.get("jobs")).json["jobs"]] == [{text: text} for text in texts]


# -- A06: ids ---------------------------------------------------------------------------------------------------------

_PATHS: dict[str, list[Do]] = {
    "GET /jobs/..%2F..%2Fetc%2Fpasswd": [_get("jobs/..%2F..%2Fetc%2Fpasswd")],
    "GET /jobs/%2e%2e%2f%2e%2e%2f/logs": [_get("jobs/%2e%2e%2f%2e%2e%2f/logs"), _get("jobs/%2e%2e%2f/result")],
    'id "../../x" at submit': [_post({"name": "x", "id": "../../x"}), _post({"name": "../../x"})],
    'worker name "../../tmp/x"': [
        _post({"worker": "../../tmp/x", "queues": ["x"]}, "leases"),
        _post({"worker": "../../tmp/x", "leases": []}, "leases/heartbeat"),
        _post({"worker": "../../tmp/x", "outcomes": []}, "leases/outcomes"),
    ],
    "id with %00, backslash, newline": [
        _get("jobs/x%00"),
        _get("jobs/01900000-0000-7000-8000-000000000000%00"),
        _get("jobs/..%5Cx"),
        _get("jobs/x%0A"),
        _get("jobs/01900000-0000-7000-8000-000000000000%0A"),
        _get("jobs/%ff%fe"),
        _get("jobs/{01900000-0000-7000-8000-000000000000}"),
        _get("jobs/01900000000070008000000000000000"),
    ],
    'id "." and ".."': [_get("jobs/%2e"), _get("jobs/%2e%2e"), _get("jobs/%2e%2e/result")],
}


@pytest.mark.parametrize("text", [text for text, _ in inputs("A06")])
async def test_case_a06_ids_with_path_parts(api: Api, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []
    monkeypatch.setattr("builtins.open", lambda *name, **_: opened.append(name))
    for do in _PATHS[text]:
        await _refused(api, do)
    assert opened == []


async def test_case_a06_dots_on_the_wire_reach_no_file(api: Api) -> None:
    for path in (b"/api/v1/jobs/..", b"/api/v1/jobs/../../../etc/passwd", b"/../../etc/passwd", b"/api/v1/jobs/."):
        reply = await api.raw(b"GET %b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % path)
        status = int(reply.split(b" ", 2)[1])
        assert status in (200, 400, 404)
        assert status != 200 or reply.endswith(b'{"jobs":[],"next_cursor":null}')  # `jobs/.` is `jobs`
        assert b"root:" not in reply


# -- A07: delays ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "expected"), inputs("A07"))
async def test_case_a07_delays_out_of_range(api: Api, text: str, expected: str) -> None:
    kind, values = text.split(" ", 1)
    for value in values.removesuffix(" with jitter 60").split(" / "):
        field, number = {
            "delay": ("delay_seconds", value),
            "run_at": ("run_at", f'"{value}"'),
            "interval": ("interval", value),  # comes with schedules; not a field yet
        }[kind]
        body = b'{"name":"x","%b":%b}' % (field.encode(), number.encode())
        if value.startswith("9999"):
            job = (await api.post("jobs", body)).json
            assert (job["status"], job["run_at"][:10]) == ("scheduled", "9999-12-31"), "accepted, and shown again"
        elif expected == "runs now":
            assert (await api.post("jobs", body)).json["status"] == "queued"
        else:
            assert (await _refused(api, _post(body))).json["field"] == field


@pytest.mark.parametrize("field", ["delay_seconds", "retry_after_seconds"])
async def test_case_a07_the_maximum_is_stated_and_accepted(api: Api, field: str) -> None:
    most = limits.DELAY_MS_MAX / 1000
    if field == "delay_seconds":
        assert str(most) in (await api.post("jobs", {"name": "x", field: most + 1})).json["detail"]
        assert (await api.submit(delay_seconds=most))["run_at"].startswith("2040-")
        assert (await api.submit())["status"] == "queued"
    else:
        await api.submit()
        [lease] = await api.lease()
        report = run_of(lease, status="failed")
        assert str(most) in (await api.report(report | {field: most + 1})).json["detail"]
        assert (await api.report(report | {field: most})).status == 200


# -- A12, A24: what has no inputs as data -----------------------------------------------------------------------------


async def test_case_a12_same_key_for_another_endpoint_and_order(api: Api, follower: Api) -> None:
    first = await api.post("jobs", b'{"name":"x","payload":{"a":1,"b":2}}', Idempotency_Key="k")
    batch = b'{"jobs":[{"idempotency_key":"k","payload":{"b":2,"a":1},"name":"x"},{"idempotency_key":"k","name":"x"}]}'
    results = (await follower.post("jobs/batch", batch)).json["results"]
    assert (results[0]["status"], results[0]["id"]) == (200, first.json["id"])
    assert (results[1]["status"], results[1]["problem"]["code"]) == (422, "idempotency_mismatch")


async def test_case_a24_a_million_tiny_jobs(api: Api) -> None:
    assert ("batch of 1,000,000 tiny jobs", "413/400") in inputs("A24")
    for count, status in ((1_000_000, 413), (10_000, 400)):
        answer = await api.post("jobs/batch", b'{"jobs":[' + b",".join([b"{}"] * count) + b"]}")
        assert answer.status == status
    assert api.node.proposed == []


async def test_case_a24_too_many_tags(api: Api) -> None:
    body = {"name": "x", "tags": [f"t{n}" for n in range(limits.TAGS_MAX + 1)]}
    assert (await _refused(api, _post(body))).json["field"] == "tags"


def test_every_case_is_read_as_it_stands() -> None:
    assert {text for text, _ in inputs("A04")} == {*_BROKEN_TEXTS, _LOG_LINE}
    assert {text for text, _ in inputs("A06")} == set(_PATHS)
    assert msgspec.json.encode(_levels()) == b"[500,1100,20000,500000]"
