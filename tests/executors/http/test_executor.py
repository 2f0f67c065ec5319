from __future__ import annotations

import asyncio
import base64
import json
import socket
import time
import tracemalloc
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any
from urllib.parse import quote

import pytest
from standardwebhooks.webhooks import Webhook

from raftsched.executors.http import own_ports
from raftsched.executors.http.executor import HttpExecutor, HttpSettings
from raftsched.executors.http.targets import Targets
from raftsched.executors.http.verdicts import (
    FinalStatus,
    InvalidCall,
    NoReply,
    NoReplyInTime,
    RetryStatus,
    TargetRefused,
)
from raftsched.executors.secrets import Secrets
from raftsched.worker import Context, GiveUp, Retry, Snooze, Verdict
from raftsched.worker.handlers.result import completed, raised
from raftsched.worker.handlers.verdicts import Accepted
from tests.client.cluster import running_cluster
from tests.executors.http.target import Target, running_target
from tests.for_each import for_each

KEY = base64.b64encode(b"canary of the signing key").decode()
TOKEN = "canary-of-the/bearer+token"
SECRETS = Secrets(environment={"RAFTSCHED_SECRET_SIGN": f"whsec_{KEY}", "RAFTSCHED_SECRET_TOKEN": TOKEN,
                               "RAFTSCHED_SECRET_BROKEN": "canary\r\nX-Evil: 1"})  # fmt: skip
ALLOWED = Targets(allow=["127.0.0.0/8", "::1"])
FIRE_TIME = datetime(2027, 3, 14, 7, tzinfo=UTC)


@pytest.fixture
async def target() -> AsyncIterator[Target]:
    async with running_target() as running:
        yield running


@pytest.fixture
async def executor() -> AsyncIterator[HttpExecutor]:
    async with executing() as running:
        yield running


@asynccontextmanager
async def executing(**settings: Any) -> AsyncIterator[HttpExecutor]:
    chosen: dict[str, Any] = {"targets": ALLOWED, "secrets": SECRETS} | settings
    executor = HttpExecutor(HttpSettings(**chosen))
    try:
        yield executor
    finally:
        await executor.close()


def context(
    url: str,
    *,
    at_most_once: bool = False,
    callback_token: str | None = None,
    retry_cap_seconds: float = 3_600.0,
    run_at: datetime | None = None,
    parameters: Mapping[str, Any] | None = None,
    traceparent: str | None = None,
    **call: Any,
) -> Context:
    """The context of a run whose call has these fields."""
    return Context(
        job_id="j", run_id="j.1", fencing_token=7, attempt_number=3, name="report", queue="http", schedule_id="s",
        instant=FIRE_TIME, call={"url": url, "timeout_seconds": 5} | call, starts_at_most_once=at_most_once,
        callback_token=callback_token, retry_cap_seconds=retry_cap_seconds, run_at=run_at, parameters=parameters,
        traceparent=traceparent,
    )  # fmt: skip


def loopback(host: str, port: int) -> Sequence[tuple[Any, ...]]:
    """Resolve every name to this machine."""
    return [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)),
        (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", port, 0, 0)),
    ]


async def refused(executor: HttpExecutor, url: str, payload: Any = None, **call: Any) -> Verdict:
    """Return the verdict on a run that does not succeed; it must not name a secret."""
    with pytest.raises(Verdict) as caught:
        await executor(context(url, **call), payload)
    assert "canary" not in str(caught.value)
    return caught.value


# -- the request ------------------------------------------------------------------------------------------------------


async def test_request_has_the_headers_of_the_run_and_those_of_the_job(executor: HttpExecutor, target: Target) -> None:
    headers = {"X-Team": "shop", "traceparent": "00-1-2-01", "Content-Type": "application/vnd.a+json"}
    result = await executor(
        context(f"{target.url}/status?code=201&body=done&h=ETag:%20a", headers=headers), {"run": "{{run_id}}"}
    )
    duration = result.pop("duration_ms")
    assert 0 <= duration < 5_000
    assert result == {
        "status": 201, "headers": {"content-length": "4", "etag": "a"}, "body": "done", "body_encoding": "text",
        "truncated": False, "url": f"{target.url}/status?code=201&body=done&h=ETag:%20a", "address": "127.0.0.1",
    }  # fmt: skip
    [request] = target.received
    assert (request.method, json.loads(request.body)) == ("POST", {"run": "j.1"})
    assert request.headers == {
        "host": f"127.0.0.1:{target.port}", "user-agent": "raftsched", "accept": "*/*", "accept-encoding": "identity",
        "content-type": "application/vnd.a+json", "content-length": "13", "x-team": "shop", "traceparent": "00-1-2-01",
        "idempotency-key": "j.1", "raftsched-job-id": "j", "raftsched-run-id": "j.1", "raftsched-fencing-token": "7",
        "raftsched-attempt": "3", "raftsched-scheduled-at": "2027-03-14T07:00:00.000Z",
    }  # fmt: skip


async def test_request_has_the_span_of_its_job_unless_the_job_gives_one(executor: HttpExecutor, target: Target) -> None:
    for headers in ({}, {"Traceparent": "00-1-2-01"}):
        await executor(context(f"{target.url}/status", headers=headers, traceparent="00-a-b-01"), None)
    assert [request.headers["traceparent"] for request in target.received] == ["00-a-b-01", "00-1-2-01"]


@for_each(
    ("method", "payload", "body", "content_type"),
    [
        ("POST", "text is sent as it is: é", "text is sent as it is: é".encode(), "text/plain; charset=utf-8"),
        ("PUT", [1, None, "é"], '[1,null,"é"]'.encode(), "application/json"),
        ("PATCH", {}, b"{}", "application/json"),
        ("POST", "", b"", "text/plain; charset=utf-8"),
        ("POST", None, b"", None),
        ("GET", None, b"", None),
        ("DELETE", None, b"", None),
        ("HEAD", None, b"", None),
        ("OPTIONS", None, b"", None),
    ],
)
async def test_body_is_sent_as_json_or_as_it_is(
    method: str, payload: Any, body: bytes, content_type: str | None
) -> None:
    async with running_target() as target, executing() as executor:
        await executor(context(f"{target.url}/status?body=x", method=method), payload)
        [request] = target.received
        assert (request.method, request.body, request.headers.get("content-type")) == (method, body, content_type)


async def test_request_is_signed_as_standard_webhooks_says_and_carries_the_bearer(
    executor: HttpExecutor, target: Target
) -> None:
    url = f"{target.url}/status"
    await executor(context(url, signing_secret="sign", bearer={"secret": "token"}), {"amount": 5})
    [request] = target.received
    assert request.headers["authorization"] == f"Bearer {TOKEN}"
    assert Webhook(f"whsec_{KEY}").verify(request.body, request.headers) == {"amount": 5}
    assert request.headers["webhook-id"] == "j.1"


@for_each(
    ("call", "payload", "word"),
    [
        ({"headers": {"Host": "internal"}}, None, "Host is set by the executor"),
        ({"headers": {"Content-Length": "5"}}, None, "Content-Length is set"),
        ({"headers": {"Transfer-Encoding": "chunked"}}, None, "Transfer-Encoding is set"),
        ({"headers": {"idempotency-KEY": "x"}}, None, "is set by the executor"),
        ({"headers": {"Raftsched-Attempt": "x"}}, None, "is set by the executor"),
        ({"headers": {"Webhook-Id": "x"}}, None, "is set by the executor"),
        ({"headers": {"X-A": "1", "x-a": "2"}}, None, "given twice"),
        ({"headers": {"Authorization": "x"}, "bearer": {"secret": "token"}}, None, "given twice"),
        ({"bearer": {"secret": "broken"}}, None, "the secret broken has characters"),
        ({"bearer": {"secret": "absent"}}, None, "RAFTSCHED_SECRET_ABSENT is not set"),
        ({"signing_secret": "absent"}, None, "RAFTSCHED_SECRET_ABSENT is not set"),
        ({"signing_secret": "token"}, None, "the secret token must be whsec_"),
        ({}, "{{nope}}", "no run has the fact 'nope'"),
    ],
)
async def test_call_that_can_not_be_made_ends_finally_before_anything_is_sent(
    call: dict[str, Any], payload: Any, word: str
) -> None:
    async with running_target() as target, executing() as executor:
        verdict = await refused(executor, f"{target.url}/status", payload, **call)
        assert isinstance(verdict, InvalidCall)
        assert word in str(verdict)
        assert target.connection_count == 0


@for_each(
    "call",
    [
        {"headers": {"X-A": "b\r\nX-Evil: 1"}},
        {"headers": {"X-A\r\nX-Evil": "1"}},
        {"headers": {"X-A": "b\n"}},
        {"headers": {"X-A": "b\0"}},
        {"headers": {"X-A": "é"}},
        {"method": "GET / HTTP/1.1\r\nX: y"},
        {"url": "http://127.0.0.1:PORT/status HTTP/1.1\r\nX: y"},
        {"url": "http://127.0.0.1:PORT/\r\nX:y"},
    ],
)
async def test_line_breaks_reach_no_socket(call: dict[str, Any]) -> None:
    async with running_target() as target, executing() as executor:
        call = {
            name: value.replace("PORT", str(target.port)) if name == "url" else value for name, value in call.items()
        }
        with pytest.raises((ValueError, GiveUp)):
            await executor(context(**({"url": f"{target.url}/status"} | call)), None)
        assert target.connection_count == 0


# -- the meaning of a response ----------------------------------------------------------------------------------------

IN_2099 = format_datetime(datetime(2099, 1, 1, tzinfo=UTC), usegmt=True)


@for_each(
    ("status", "call", "retry_after", "verdict", "delay"),
    [
        (200, {}, None, None, None),
        (204, {}, None, None, None),
        (299, {}, None, None, None),
        (404, {}, None, FinalStatus, None),
        (410, {}, "3", FinalStatus, None),
        (302, {}, None, FinalStatus, None),
        (304, {}, None, FinalStatus, None),
        (408, {}, None, RetryStatus, None),
        (425, {}, None, RetryStatus, None),
        (429, {}, "7", RetryStatus, 7),
        (500, {}, None, RetryStatus, None),
        (503, {}, "3", RetryStatus, 3),
        (503, {}, "0", RetryStatus, None),
        (503, {}, "-5", RetryStatus, None),
        (503, {}, "1000000000", RetryStatus, 3_600),
        (503, {}, "9" * 400, RetryStatus, None),
        (503, {}, IN_2099, RetryStatus, 3_600),
        (503, {}, "Thu, 01 Jan 1970 00:00:00 GMT", RetryStatus, None),
        (503, {}, "Thu, 99 Jan 1970 00:00:00 GMT", RetryStatus, None),
        (503, {}, "soon", RetryStatus, None),
        (503, {}, "1e9", RetryStatus, None),
        (503, {}, "", RetryStatus, None),
        (404, {"success_statuses": ["2xx", "404"]}, None, None, None),
        (201, {"success_statuses": ["200"]}, None, FinalStatus, None),
        (418, {"retry_statuses": ["4xx"]}, "2", RetryStatus, 2),
        (503, {"retry_statuses": []}, "2", FinalStatus, None),
        (503, {"success_statuses": ["5xx"]}, None, None, None),
    ],
)
async def test_status_means_success_retry_or_the_end(
    status: int, call: dict[str, Any], retry_after: str | None, verdict: type[Verdict] | None, delay: float | None
) -> None:
    async with running_target() as target, executing() as executor:
        header = "" if retry_after is None else "&h=" + quote(f"Retry-After: {retry_after}")
        url = f"{target.url}/status?code={status}&body=because{header}"
        if status in (204, 304):
            url = url.replace("&body=because", "")
        if verdict is None:
            assert (await executor(context(url, **call), None))["status"] == status
            return
        raised = await refused(executor, url, **call)
        assert type(raised) is verdict
        assert raised.error_type == "HttpStatus"
        assert str(raised).startswith(f"{status} Whatever from {target.url}/status")
        assert status == 304 or str(raised).endswith(": because")
        if isinstance(raised, Retry):
            assert raised.after_seconds == delay


async def test_date_of_retry_after_is_a_delay_from_now(executor: HttpExecutor, target: Target) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    raised = await refused(executor, f"{target.url}/status?code=503&h=" + quote(f"Retry-After: {date}"))
    assert isinstance(raised, RetryStatus)
    assert raised.after_seconds is not None
    assert 90 < raised.after_seconds <= 100


@for_each(
    ("query", "encoding", "body", "truncated"),
    [
        ("body=" + quote("é\t\n"), "text", "é\t\n", False),
        ("body=%00", "base64", "AA==", False),
        ("fill=65536", "text", "x" * 65_536, False),
        ("fill=65537", "text", "x" * 65_536, True),
        ("fill=65535&body=" + quote("é"), "text", "x" * 65_535, True),
    ],
)
async def test_body_of_the_result_is_text_or_base64(query: str, encoding: str, body: str, truncated: bool) -> None:
    async with running_target() as target, executing() as executor:
        result = await executor(context(f"{target.url}/status?{query}", method="GET"), None)
        assert (result["body_encoding"], result["body"], result["truncated"]) == (encoding, body, truncated)


# -- targets that misbehave -------------------------------------------------------------------------------------------


@for_each(
    ("behaviour", "expected"),
    [
        ("hang", NoReplyInTime),
        ("drip?part=head", NoReplyInTime),
        ("drip?part=body", NoReplyInTime),
        ("endless?part=head", NoReply),
        ("endless?part=body", 65_536),
        ("bomb", 65_536),
        ("raw?bytes=", NoReply),
        ("raw?bytes=" + quote("SSH-2.0-OpenSSH\r\n"), NoReply),
        ("raw?bytes=" + quote("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"), NoReply),
        ("raw?bytes=" + quote("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nabc"), NoReply),
        ("raw?bytes=" + quote("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc"), NoReply),
        ("raw?bytes=" + quote("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc"), NoReply),
        ("raw?bytes=" + quote("HTTP/1.1 200 OK\r\nX: ") + "&fill=100000", NoReply),
        ("raw?bytes=" + quote("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc"), NoReply),
        ("raw?bytes=" + quote("HTTP/1.1 999999 OK\r\n\r\n"), NoReply),
        ("raw?bytes=" + quote("HTTP/1.1 200 OK\r\n\r\nuntil the end"), 13),
        ("raw?bytes=" + quote("HTTP/1.1 100 Continue\r\n\r\n" * 20), NoReply),
        (
            "raw?bytes=" + quote("HTTP/1.1 101 Switching Protocols\r\nUpgrade: a\r\nConnection: upgrade\r\n\r\nabc"),
            FinalStatus,
        ),
        ("raw?bytes=" + quote("HTTP/1.1 200 OK\r\nETag: \xff\r\nX: a\r\nX: b\r\nContent-Length: 0\r\n\r\n"), 0),
        ("raw?bytes=" + quote("HTTP/1.1 404 \xff\x1b[31m\r\nContent-Length: 0\r\n\r\n"), FinalStatus),
        (
            "raw?bytes=" + quote("HTTP/1.1 302 Found\r\nLocation: http://\xff\xfe/\r\nContent-Length: 0\r\n\r\n"),
            TargetRefused,
        ),
        ("raw?bytes=" + quote("HTTP/1.1 204 OK\r\nContent-Length: 5\r\n\r\nabcde"), NoReply),
    ],
)
async def test_target_that_misbehaves_ends_in_bounded_time_and_memory(
    behaviour: str, expected: type[Verdict] | int
) -> None:
    async with running_target() as target, executing() as executor:
        tracemalloc.start()
        begun = time.monotonic()
        call = context(f"{target.url}/{behaviour}", timeout_seconds=1.0, max_redirects=1)
        if isinstance(expected, int):
            result = await executor(call, None)
            assert completed(result).status == "completed"
            assert (len(result["body"]), result["truncated"]) in ((expected, expected > 60_000), (87_384, True))
        else:
            with pytest.raises(expected) as caught:
                await executor(call, None)
            assert raised(caught.value).error is not None
        assert time.monotonic() - begun < 5
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak_bytes < 8 << 20
        await target.until(lambda: target.hanging == 0)


async def test_refused_connection_and_unknown_name_are_tried_again(executor: HttpExecutor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert type(await refused(executor, f"http://127.0.0.1:{port}/")) is NoReply
    assert type(await refused(executor, "http://nobody.invalid/")) is NoReply


async def test_cancel_closes_the_connection(executor: HttpExecutor, target: Target) -> None:
    run = asyncio.create_task(executor(context(f"{target.url}/hang"), None))
    await target.until(lambda: target.hanging == 1)
    run.cancel()
    await target.until(lambda: target.closed_count == 1)
    with pytest.raises(asyncio.CancelledError):
        await run


async def test_host_that_hangs_holds_nobody_else_up(target: Target) -> None:
    async with executing(per_host=2) as executor, running_target() as other:
        hanging = [asyncio.create_task(executor(context(f"{target.url}/hang"), None)) for _ in range(2)]
        await target.until(lambda: target.hanging == 2)
        with pytest.raises(Snooze):
            await executor(context(f"{target.url}/hang"), None)
        begun = time.monotonic()
        for _ in range(50):  # now it is known to hang
            with pytest.raises(Snooze):
                await executor(context(f"{target.url}/hang"), None)
        once = asyncio.create_task(executor(context(f"{target.url}/hang", at_most_once=True), None))
        assert (await executor(context(f"{other.url}/status"), None))["status"] == 200
        assert time.monotonic() - begun < 1
        target.release.set()
        results = await asyncio.gather(*hanging, once)
        assert [each["status"] for each in results] == [200] * 3
        assert (await executor(context(f"{target.url}/status"), None))["status"] == 200


async def test_broken_connection_is_not_used_again_in_silence(executor: HttpExecutor, target: Target) -> None:
    url = f"{target.url}/raw?bytes="
    verdict = await refused(executor, url, method="GET")
    assert isinstance(verdict, NoReply)
    assert len(target.received) == 1


async def test_cookies_are_not_kept_and_connections_are(target: Target) -> None:
    async with executing(lookup=loopback) as executor:
        url = f"http://shop.example:{target.port}/status?h=" + quote("Set-Cookie: a=b")
        for _ in range(2):
            await executor(context(url), None)
    assert ["cookie" in request.headers for request in target.received] == [False, False]
    assert target.connection_count == 1


# -- redirects --------------------------------------------------------------------------------------------------------


def redirect(target: Target, status: int, location: str) -> str:
    return f"{target.url}/status?code={status}&h=" + quote(f"Location: {location}")


@for_each(
    ("status", "method", "expected"),
    [
        (301, "POST", "GET"), (302, "POST", "GET"), (303, "POST", "GET"), (307, "POST", "POST"), (308, "POST", "POST"),
        (301, "PUT", "PUT"), (302, "PUT", "PUT"), (303, "PUT", "GET"), (303, "HEAD", "HEAD"), (302, "GET", "GET"),
    ],
)  # fmt: skip
async def test_redirect_repeats_the_request_or_asks_with_get(status: int, method: str, expected: str) -> None:
    async with running_target() as target, executing() as executor:
        call = context(redirect(target, status, "/echo"), method=method, max_redirects=1, bearer={"secret": "token"})
        result = await executor(call, {"a": 1} if method in ("POST", "PUT") else None)
        first, second = target.received
        assert (second.method, result["url"]) == (expected, f"{target.url}/echo")
        assert second.body == (first.body if expected == method else b"")
        assert ("content-type" in second.headers) == (second.body != b"")
        assert second.headers["authorization"] == f"Bearer {TOKEN}"


async def test_redirects_are_counted_and_the_status_beyond_them_is_that_of_the_run(
    executor: HttpExecutor, target: Target
) -> None:
    for most in (0, 1, 3):
        target.received.clear()
        url = redirect(target, 302, redirect(target, 302, redirect(target, 302, redirect(target, 302, "/status"))))
        verdict = await refused(executor, url, max_redirects=most)
        assert isinstance(verdict, FinalStatus)
        assert len(target.received) == most + 1


async def test_another_origin_gets_no_credentials(executor: HttpExecutor, target: Target) -> None:
    async with running_target() as other:
        headers = {"Cookie": "canary", "X-Api-Key": "canary", "traceparent": "00-1-2-01"}
        await executor(
            context(redirect(target, 307, f"{other.url}/status"), headers=headers, max_redirects=1,
                    bearer={"secret": "token"}, signing_secret="sign"),
            {"a": 1},
        )  # fmt: skip
        [first], [second] = target.received, other.received
        assert {"authorization", "cookie", "x-api-key", "webhook-signature"} <= first.headers.keys()
        dropped = first.headers.keys() - second.headers.keys()
        assert dropped == {
            "authorization",
            "cookie",
            "x-api-key",
            "webhook-id",
            "webhook-timestamp",
            "webhook-signature",
        }
        assert "canary" not in second.head
        assert (second.body, second.headers["traceparent"]) == (first.body, "00-1-2-01")


@for_each(
    "location",
    ["http://169.254.169.254/latest/", "http://10.0.0.1/", "//[::ffff:10.0.0.1]/", "http://2130706433/", "file:///etc/passwd",
     "http://a@127.0.0.1/", "gopher://127.0.0.1/", "http://denied.example/"],
)  # fmt: skip
async def test_redirect_to_a_refused_address_ends_the_run(location: str) -> None:
    targets = Targets(allow=["127.0.0.0/8"], deny=["denied.example"])
    async with running_target() as target, executing(targets=targets) as executor:
        verdict = await refused(executor, redirect(target, 302, location), max_redirects=5)
        assert isinstance(verdict, TargetRefused)
        assert verdict.error_type == "TargetRefused"


# -- addresses --------------------------------------------------------------------------------------------------------


async def test_inner_addresses_get_no_connection(target: Target) -> None:
    async with executing(targets=Targets()) as executor:
        for host in ("127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "127.1", "0.0.0.0"):
            verdict = await refused(executor, f"http://{host}:{target.port}/status")
            assert isinstance(verdict, TargetRefused), host
    assert target.connection_count == 0


async def test_nodes_of_the_cluster_get_no_connection_and_other_ports_do(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_cluster(2) as cluster, executing(cluster=[cluster.nodes[1].url]) as executor:
        for node in cluster.nodes:
            for url in (
                node.url,
                node.url.replace("127.0.0.1", "127.0.0.2"),
                node.url.replace("127.0.0.1", "localhost"),
            ):
                verdict = await refused(executor, f"{url}/api/v1/cluster")
                assert isinstance(verdict, TargetRefused)
                assert "belongs to the cluster" in str(verdict)
        assert cluster.bodies("/cluster") == [{}]
        assert (await executor(context(f"{target.url}/status"), None))["status"] == 200
        monkeypatch.setattr(own_ports, "_FRESH_SECONDS", 0.0)
        await cluster.nodes[1].stop()
        assert isinstance(await refused(executor, f"{cluster.nodes[0].url}/"), TargetRefused), "nobody named it now"
    async with executing(cluster=["http://127.0.0.1:1"]) as executor:  # nobody answers there
        assert (await executor(context(f"{target.url}/status"), None))["status"] == 200
        assert isinstance(await refused(executor, "http://127.0.0.1:1/"), TargetRefused)


async def test_name_is_resolved_once_and_the_checked_address_is_the_one_connected_to() -> None:
    lookups: list[str] = []

    def lookup(host: str, port: int) -> Sequence[tuple[Any, ...]]:
        """Answer with an allowed address, the next time with another, as a name that changes after its check."""
        lookups.append(host)
        addresses = ["127.0.0.2", "127.0.0.1"] if len(lookups) == 1 else ["127.0.0.1"]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    targets = Targets(allow=["127.0.0.1"])
    async with running_target() as target, executing(targets=targets, lookup=lookup) as executor:
        result = await executor(context(f"http://changing.example:{target.port}/status"), None)
        assert (result["address"], lookups) == ("127.0.0.1", ["changing.example"])
        assert target.received[0].headers["host"] == f"changing.example:{target.port}"


async def test_name_that_leads_to_inner_addresses_only_is_refused(target: Target) -> None:
    async with executing(targets=Targets(), lookup=loopback) as executor:
        verdict = await refused(executor, f"http://127.0.0.1.nip.io:{target.port}/status")
        assert isinstance(verdict, TargetRefused)
        assert "loopback" in str(verdict)
    async with executing(targets=Targets(allow=["*.nip.io"]), lookup=loopback) as executor:
        result = await executor(context(f"http://127.0.0.1.nip.io:{target.port}/status"), None)
        assert result["address"] == "127.0.0.1"
    assert target.connection_count == 1


async def test_proxy_is_used_if_it_is_configured_and_never_from_the_environment(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    async with executing() as executor:
        await executor(context(f"{target.url}/status"), None)
    async with executing(targets=Targets(), proxy=target.url) as executor:
        await executor(context("http://example.org/status"), None)
        assert target.received[-1].target == "http://example.org/status"
        assert isinstance(await refused(executor, "http://10.0.0.1/status"), TargetRefused)


# -- secrets ----------------------------------------------------------------------------------------------------------


@for_each("form", ["plain", "url", "json"])
async def test_secrets_that_a_target_sends_back_are_redacted(form: str) -> None:
    async with running_target() as target, executing() as executor:
        call: dict[str, Any] = {"bearer": {"secret": "token"}, "signing_secret": "sign"}
        result = await executor(context(f"{target.url}/echo", **call), {"a": 1})
        assert "[secret token]" in result["body"]
        assert result["headers"]["x-request-id"] == "Bearer [secret token]"
        back = {"plain": TOKEN, "url": quote(TOKEN, safe=""), "json": json.dumps(TOKEN)}[form]
        results = [result]
        for filler in (0, 65_536 - 10, 65_536 - len(back) + 1):
            body = quote("x" * (filler % 1_000) + back)
            results.append(
                await executor(context(f"{target.url}/status?body={body}&h=" + quote(f"ETag: {back}"), **call), 1)
            )
        verdict = await refused(executor, f"{target.url}/status?code=500&body=" + quote(back), **call)
        assert "[secret token]" in str(verdict)
        for each in results:
            each.pop("url")  # the job gave it
            assert "canary" not in json.dumps(each)


async def test_parameters_are_filled_in_and_a_secret_among_them_stays_with_the_first_host() -> None:
    parameters = {"region": "eu", "token": {"secret": "token"}}
    body = {"region": "{{parameters.region}}", "token": "{{parameters.token}}"}
    async with running_target() as target, running_target() as other, executing() as executor:
        result = await executor(context(f"{target.url}/echo", parameters=parameters), body)
        assert json.loads(target.received[0].body) == {"region": "eu", "token": TOKEN}
        assert "[secret token]" in result["body"]
        assert "canary" not in json.dumps(result)
        see_other, same = (
            context(redirect(target, status, f"{other.url}/status"), max_redirects=1, parameters=parameters)
            for status in (303, 307)
        )
        await executor(see_other, body)
        with pytest.raises(InvalidCall, match="body: has a secret"):
            await executor(same, body)
        assert [each.body for each in other.received] == [b""]
        missing = context(f"{target.url}/echo", parameters={"token": {"secret": "nope"}})
        with pytest.raises(InvalidCall, match="the secret nope is missing"):
            await executor(missing, body)
        see_other.tenant = "acme"
        with pytest.raises(InvalidCall, match="the secret token is missing: tenants"):
            await executor(see_other, body)


# -- callbacks --------------------------------------------------------------------------------------------------------


async def test_accepted_request_leaves_its_outcome_to_its_target_and_other_statuses_do_not(
    executor: HttpExecutor, target: Target
) -> None:
    def asked(path: str, **call: Any) -> Context:
        return context(f"{target.url}/{path}", callback_token="token of one attempt", completion="callback", **call)

    with pytest.raises(Accepted):
        await executor(asked("status?code=202"), None)
    assert target.received[-1].headers["raftsched-callback-token"] == "token of one attempt"
    assert (await executor(asked("status?code=200"), None))["status"] == 200
    assert (await executor(context(f"{target.url}/status?code=202"), None))["status"] == 202
    with pytest.raises(FinalStatus):
        await executor(asked("status?code=404"), None)
    async with running_target() as other:
        path = redirect(target, 307, f"{other.url}/status?code=202").removeprefix(f"{target.url}/")
        assert (await executor(asked(path, max_redirects=1), None))["status"] == 202, (
            "another origin has no token to report by"
        )
        assert "raftsched-callback-token" not in other.received[-1].headers


async def test_delay_of_a_target_is_at_most_that_of_the_jobs_policy(executor: HttpExecutor, target: Target) -> None:
    url = f"{target.url}/status?code=503&h=Retry-After:%20900"
    verdict = await refused(executor, url, retry_cap_seconds=60.0)
    assert isinstance(verdict, RetryStatus)
    assert verdict.after_seconds == 60
