"""Jobs without a handler: what is stored of a request or command, what is shown of it, and what is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from raftsched.core.records.spec import CallKind
from raftsched.errors import Invalid
from tests.api.jobs.test_convert import operation_of
from tests.api.node import Api
from tests.for_each import for_each

HTTP: dict[str, Any] = {"url": "https://hooks.example.org/invoices?a=1", "body": {"to": "a"}}
SHELL: dict[str, Any] = {"argv": ["/bin/cat"], "stdin": "text"}

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, "name"),
    ({"http": HTTP, "shell": SHELL}, "shell"),
    ({"http": HTTP, "payload": 1}, "payload"),
    ({"shell": SHELL, "payload": 1}, "payload"),
    ({"http": {}}, "http.url"),
    *(
        ({"http": {"url": url}}, "http.url")
        for url in (
            *("x", "//x", "ftp://x", "file:///etc/passwd", "http://", "http:///p", "http://a:b@x/", "http://x:0/"),
            *(
                "http://2130706433/",
                "http://0x7f.1/",
                "http://0177.0.0.1/",
                "http://127.1/",
                "http://[fe80::1%25eth0]/",
            ),
            *("http://169.254.169.254/", "http://[::ffff:169.254.169.254]/", "http://0.0.0.0/", "http://[::]/"),
            *("http://224.0.0.1/", "http://[ff02::1]/", "http://255.255.255.255/", "http://-x/", "http://x..y/"),
            *(
                "http://[64:ff9b::a9fe:a9fe]/",
                "http://good.example:80@127.0.0.1:6379/",
                "http://x:65536/",
                "http://x/a b",
                "http://x/\n",
                "http://x\\@y/",
                "http://[::1/",
                "http://ä.example/",
            ),
        )
    ),
    *(
        ({"http": HTTP | {"headers": headers}}, "http.headers")
        for headers in (
            *({"Host": "x"}, {"content-length": "1"}, {"Raftsched-Run-Id": "x"}, {"Webhook-Id": "x"}),
            *({"Idempotency-Key": "x"}, {"Transfer-Encoding": "chunked"}, {"a": "1", "A": "2"}, {"a b": "x"}),
        )
    ),
    *(({"http": HTTP | {"headers": {"a": text}}}, "http.headers[...]") for text in ("b\r\nc: d", "b\nc", "b\0", " b")),
    ({"http": HTTP | {"headers": {"authorization": "x"}, "bearer": {"secret": "s"}}}, "http.bearer"),
    ({"http": HTTP | {"success_statuses": []}}, "http.success_statuses"),
    ({"http": HTTP | {"retry_statuses": ["6xx"]}}, "http.retry_statuses[0]"),
    ({"http": HTTP | {"completion": "callback"}}, "timeout_seconds"),
    ({"http": HTTP | {"headers": {f"a{n}": "x" * 8_000 for n in range(3)}}}, "http"),
    ({"http": HTTP | {"body": "x" * 300_000}}, "http.body"),
    ({"shell": {"argv": []}}, "shell.argv"),
    ({"shell": {"argv": [""]}}, "shell.argv[0]"),
    ({"shell": {"argv": ["a", "b\0"]}}, "shell.argv[1]"),
    ({"shell": SHELL | {"env": {"A=B": "x"}}}, "shell.env"),
    ({"shell": SHELL | {"env": {"RAFTSCHED_URL": "x"}}}, "shell.env"),
    ({"shell": SHELL | {"env": {"A": "\0"}}}, "shell.env.A"),
    ({"shell": SHELL | {"cwd": "tmp"}}, "shell.cwd"),
    ({"name": "a", "on_failure": {}}, "on_failure.name"),
    ({"name": "a", "on_failure": {"name": "b", "on_failure": {"name": "c"}}}, "on_failure.on_failure"),
    ({"name": "a", "on_success": {"http": HTTP | {"url": "x"}}}, "on_success.http.url"),
    ({"name": "a", "on_success": {"name": "b", "payload": "x" * 20_000}}, "on_success.payload"),
    ({"name": "a", "on_success": {"name": "b", "deadline_in_seconds": 1}}, "on_success.deadline_in_seconds"),
]


@for_each(("fields", "field"), REFUSED)
def test_refusal_names_the_field(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as caught:
        operation_of(fields)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("kind", "call", "body"), [(CallKind.HTTP, HTTP, b'{"to":"a"}'), (CallKind.SHELL, SHELL, b'"text"')]
)
def test_body_is_the_payload_and_name_and_queue_are_those_of_the_kind(
    kind: CallKind, call: dict[str, Any], body: bytes
) -> None:
    stored = operation_of({kind.label: call})
    assert stored.spec.options is not None
    assert stored.spec.options.call is not None
    text = msgspec.json.decode(stored.spec.options.call.text)
    assert text == {name: value for name, value in call.items() if name not in ("body", "stdin")}
    assert (stored.payload, stored.spec.name, stored.spec.queue) == (body, kind.label, kind.label)
    named = operation_of({kind.label: call, "name": "n"})
    assert (named.spec.name, named.spec.queue, named.spec.handler) == ("n", kind.label, f":{kind.label}")


def test_unique_jobs_to_other_addresses_are_others() -> None:
    jobs = [operation_of({"http": HTTP | {"url": f"http://x/{path}"}, "unique": {}}).spec.options for path in "aba"]
    first, second, third = (job.unique_key for job in jobs if job is not None)
    assert first == third != second


async def test_job_shows_what_it_was_told_and_only_executors_of_its_kind_get_it(api: Api) -> None:
    hook = {"http": HTTP, "priority": 8}
    job = await api.submit(name="invoice", http=HTTP, on_failure=hook)
    assert (job["http"], job["payload"], job["shell"], job["queue"]) == (HTTP, None, None, "http")
    assert job["on_failure"] | hook == job["on_failure"]
    told = (await api.get(f"jobs/{job['id']}/explain")).json["reasons"][0]["text"]
    assert "raftsched worker --http --queue http" in told
    for others in ({"names": ["invoice", "http"]}, {"executes": ["shell"]}, {"names": [], "executes": ["shell"]}):
        assert await api.lease("http", **others) == []
    told = (await api.get(f"jobs/{job['id']}/explain")).json["reasons"][0]["text"]
    assert "an executor of http jobs" in told
    [lease] = await api.lease("http", executes=["http"])
    assert (lease["name"], lease["payload"], lease["http"]) == ("invoice", HTTP["body"], {"url": HTTP["url"]})


async def test_schedule_and_replay_keep_the_request(api: Api) -> None:
    job = {"http": HTTP, "on_success": {"shell": SHELL}}
    saved = await api.post("schedules", {"name": "nightly", "cron": "0 3 * * *", "job": job})
    assert saved.status == 201, saved.body
    assert saved.json["job"]["http"] == HTTP
    assert saved.json["job"]["on_success"]["shell"] == SHELL
    fired = await api.post("schedules/nightly/trigger", {})
    run = (await api.get(f"jobs/{fired.json['job_id']}")).json
    replayed = (await api.post(f"jobs/{run['id']}/replay", {})).json
    assert run["http"] == replayed["http"] == HTTP
    amended = await api.ask("PATCH", f"jobs/{replayed['id']}", json={"payload": "other"})
    assert (amended.status, amended.json["http"]["body"]) == (200, "other")


async def test_end_submits_the_hook_of_the_job_or_of_its_queue(api: Api) -> None:
    told = {"name": "page", "payload": {"text": "{{cause.name}} ended: {{cause.error}}"}}
    unknown = await api.ask("PATCH", "queues/mail", json={"on_failure": told | {"payload": "{{cause.nmae}}"}})
    assert (unknown.status, unknown.json["field"]) == (422, "on_failure.payload")
    configured = await api.ask("PATCH", "queues/mail", json={"on_failure": told})
    assert configured.json["on_failure"]["payload"] == told["payload"], configured.body
    job = await api.submit(queue="mail")
    await api.end("mail", status="failed", retryable=False, error={"type": "Boom", "message": "no"})
    [page] = (await api.get("jobs", name="page")).json["jobs"]
    assert (page["payload"], page["hook_of"]) == ({"text": "send_email ended: Boom: no"}, job["id"])
    audited = (await api.get("audit")).json["entries"]
    assert any("on_failure: none -> page" in (entry["detail"] or "") for entry in audited), audited
