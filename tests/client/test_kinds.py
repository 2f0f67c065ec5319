"""Jobs without a handler: what a client makes of a request or a command, against the real API."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from raftsched.client import Client, HttpOptions, JobOptions, JobSpec, ShellOptions, http_job, shell_job
from raftsched.errors import Invalid
from raftsched.wire.calls import HttpCall, ShellCommand
from tests.client.cluster import QUICK
from tests.client.real import RealNode
from tests.for_each import for_each

URL = "https://hooks.example.org/invoices"
REQUEST: HttpOptions = {
    "method": "PUT",
    "headers": {"Accept": "text/plain"},
    "body": {"to": ["a", None]},
    "http_timeout_seconds": 5,
    "success_statuses": [200, "3xx"],
    "retry_statuses": [404],
    "max_redirects": 2,
    "sign": "shop",
    "bearer": "shop_token",
    "completion": "callback",
}
COMMAND: ShellOptions = {
    "env": {"LANG": "C"},
    "cwd": "/tmp",
    "stdin": "a\n",
    "success_exit_codes": [0, 3],
    "retry_exit_codes": [75],
    "nice": 5,
    "memory_mib": 512,
    "cpu_seconds": 60,
}


def test_every_field_of_a_request_and_of_a_command_is_an_option() -> None:
    job = set(JobOptions.__annotations__)
    request = set(HttpOptions.__annotations__) - job - {"sign", "http_timeout_seconds"}
    assert request | {"url", "signing_secret", "timeout_seconds"} == set(HttpCall.__struct_fields__)
    assert set(ShellOptions.__annotations__) - job | {"argv"} == set(ShellCommand.__struct_fields__)
    http, shell = http_job(URL, **REQUEST), shell_job(["cat"], **COMMAND)
    assert http.http.keys() == set(HttpCall.__struct_fields__)
    assert shell.shell.keys() == set(ShellCommand.__struct_fields__)


async def test_submitted_request_and_command_read_back_as_they_were_given(node: RealNode) -> None:
    async with Client(node.api_url, settings=QUICK) as client:
        plain = await (await client.http(URL)).get()
        assert (plain.http, plain.name, plain.queue, plain.payload, plain.shell) == (
            {"url": URL},
            *["http"] * 2,
            *[None] * 2,
        )
        options: HttpOptions = {**REQUEST, "queue": "calls", "priority": "high", "timeout_seconds": 60}
        info = await (await client.http(URL, name="invoice", **options)).get()
        assert (info.name, info.queue, info.priority, info.timeout_seconds) == ("invoice", "calls", 8, 60.0)
        assert info.http == {
            "url": URL,
            "method": "PUT",
            "headers": {"Accept": "text/plain"},
            "body": {"to": ["a", None]},
            "timeout_seconds": 5.0,
            "success_statuses": ["200", "3xx"],
            "retry_statuses": ["404"],
            "max_redirects": 2,
            "signing_secret": "shop",
            "bearer": {"secret": "shop_token"},
            "completion": "callback",
        }
        shell = await (await client.shell(["cat", "-"], **COMMAND)).get()
        assert (shell.name, shell.shell) == ("shell", {"argv": ["cat", "-"], **COMMAND})


async def test_blocking_client_has_the_same_calls(node: RealNode) -> None:
    def submitted() -> tuple[Any, Any]:
        with Client.blocking(node.api_url, settings=QUICK) as client:
            return client.http(URL, method="GET").get().http, client.shell(["date"], max_attempts=1).get().shell

    assert await asyncio.to_thread(submitted) == ({"url": URL, "method": "GET"}, {"argv": ["date"]})


async def test_hooks_and_schedules_take_such_a_job_as_a_spec_or_as_fields(node: RealNode) -> None:
    async with Client(node.api_url, settings=QUICK) as client:
        page = http_job(URL, body={"text": "down"}, priority="high")
        job = await (await client.shell(["date"], on_failure=page, on_success={"name": "tidy"})).get()
        assert (job.on_failure["http"], job.on_failure["priority"]) == ({"url": URL, "body": {"text": "down"}}, 8)
        assert job.on_success["name"] == "tidy"
        set_for_all = await client.queue("shell").configure(on_failure=page)
        assert set_for_all.on_failure["http"]["url"] == URL
        dump = shell_job(["pg_dump"], name="dump", on_failure=page)
        saved = await client.schedules.save("nightly", dump, cron="0 3 * * *")
        assert (saved.job["name"], saved.job["shell"]) == ("dump", {"argv": ["pg_dump"]})
        assert saved.job["on_failure"]["http"]["url"] == URL
        again = await client.schedules.save("nightly", {"shell": {"argv": ["pg_dump"]}, "name": "dump", "on_failure": {
            "http": {"url": URL, "body": {"text": "down"}}, "priority": 8}}, cron="0 3 * * *")  # fmt: skip
        assert again.generation == saved.generation


WRONG: list[tuple[JobSpec, str]] = [
    (http_job("ftp://x"), "http.url"),
    (http_job(URL, completion="callback"), "timeout_seconds"),
    (http_job(URL, success_statuses=[99]), "http.success_statuses[0]"),
    (http_job(URL, shell={"argv": ["date"]}), "shell"),
    (http_job(URL, headers={"Host": "x"}), "http.headers"),
    (shell_job([]), "shell.argv"),
    (shell_job(["date"], cwd="tmp"), "shell.cwd"),
    (shell_job(["date"], on_failure={"nam": "x"}), "on_failure.nam"),
    (shell_job(["date"], on_success=http_job("x")), "on_success.http.url"),
    (shell_job(["date"], env={"a": float("nan")}), "shell"),  # type: ignore[dict-item]  # as from a file
]


async def test_refusal_names_the_field(node: RealNode) -> None:
    async with Client(node.api_url, settings=QUICK) as client:
        errors = await client.submit_many(spec for spec, _ in WRONG)
        assert [isinstance(error, Invalid) and error.field for error in errors] == [field for _, field in WRONG]


@for_each(
    ("call", "told"),
    [
        (lambda: http_job(URL, http={"url": URL}), "multiple values for keyword argument 'http'"),
        (lambda: http_job(URL, boddy=1), "no option 'boddy'"),  # type: ignore[call-arg]  # it is the test that there is none
        (lambda: shell_job("rm -rf x"), "['rm', '-rf', 'x']"),
    ],
)
def test_call_that_can_not_be_meant_is_a_type_error(call: Any, told: str) -> None:
    with pytest.raises(TypeError, match=re.escape(told)):
        call()
