"""Who is let in: forms of headers, the admin file, a node that is cut off, refusals, and requests that last long."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from multidict import CIMultiDict
from structlog.testing import capture_logs

from raftsched.api.access.door import TRUST_SECONDS
from raftsched.api.http.submit_relay import RELAY_PATH, RelayedReply, RelayedSubmit
from raftsched.core.operations.access import RevokeToken
from raftsched.core.records.api_token import Role
from raftsched.storage.state import State
from raftsched.storage.store.memory_store import MemoryStore
from tests.api.access.scene import ADMIN_TEXT, BAD, Caller, Door, executor_token, guarded, make_token
from tests.api.node import Answer, Api, SimulatedNode

CALLERS: Final = BAD | {
    "acme": Caller(Role.SUBMITTER),
    "zeta": Caller(Role.SUBMITTER, "zeta"),
    "worker": Caller(Role.WORKER),
    "limited": Caller(Role.ADMIN, queues=("mail*",)),
    "all": Caller(Role.OPERATOR, "*"),
    "root": Caller(Role.ADMIN, "*"),
}
TOKENS: Final = {name: caller.token(name) for name, caller in CALLERS.items()}
JOBS: Final = "/api/v1/jobs"


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with guarded(tmp_path, CALLERS) as served:
        yield served


@pytest.fixture
async def follower(api: Api, tmp_path: Path) -> AsyncIterator[Api]:
    async with guarded(tmp_path, {}, leader=api.node) as served:
        yield served


async def told(api: Api, *headers: tuple[str, str], path: str = JOBS) -> int:
    return (await api.ask("GET", path, headers=CIMultiDict(headers))).status


def bearer(token: str) -> tuple[str, str]:
    return "Authorization", f"Bearer {token}"


# -- headers ----------------------------------------------------------------------------------------------------------


async def test_one_bearer_token_is_read_and_every_other_form_is_refused(api: Api, follower: Api) -> None:
    token, tenant = TOKENS["acme"], "Raftsched-Tenant"
    cases: dict[tuple[tuple[str, str], ...], int] = {
        (bearer(token),): 200,
        (("authorization", f"bEaReR   {token}"),): 200,
        (): 401,
        (("Authorization", token),): 401,
        (("Authorization", f"Basic {token}"),): 401,
        (("Authorization", "Bearer "),): 401,
        (bearer(f"{token} x"),): 401,
        (bearer(token), bearer(token)): 401,
        (bearer(token), bearer(TOKENS["zeta"])): 401,
        (bearer(f"{token}, Bearer {TOKENS['zeta']}"),): 401,
        (bearer(token.upper()),): 401,
        (bearer(token[:-1]),): 401,
        (bearer(f"{token}="),): 401,
        (bearer("x" * 513),): 401,
        (bearer(ADMIN_TEXT),): 200,
        (bearer(f"{ADMIN_TEXT}x"),): 401,
        (bearer(token), (tenant, "acme")): 200,
        (bearer(token), (tenant, "zeta")): 403,
        (bearer(token), (tenant, "*")): 400,
        (bearer(token), (tenant, "")): 400,
        (bearer(token), (tenant, "acme"), (tenant, "zeta")): 400,
        (bearer(TOKENS["all"]), (tenant, "zeta")): 200,
        ((tenant, "zeta"),): 401,
    }

    async def wrong(node: str, served: Api, headers: tuple[tuple[str, str], ...], status: int) -> object:
        found = await told(served, *headers)
        return None if found == status else (node, headers, found, status)

    asked = [
        wrong(node, served, headers, status)
        for node, served in (("leader", api), ("follower", follower))
        for headers, status in cases.items()
    ]
    assert [each for each in await asyncio.gather(*asked) if each] == []
    assert await told(api, path=f"{JOBS}?token={token}") == 401, "no token is read from a URL"


async def test_tenant_of_a_request_narrows_a_token_of_all(api: Api) -> None:
    async with Door(api) as door:
        for name in ("acme", "zeta"):
            await (await door.by(TOKENS[name])).submit(name=name)
        narrowed = await door.by(TOKENS["all"], Raftsched_Tenant="zeta")
        assert [job["tenant"] for job in (await narrowed.get("jobs")).json["jobs"]] == ["zeta"]
        assert (await narrowed.submit(name="x"))["tenant"] == "zeta"
        assert (await narrowed.post("jobs", {"name": "x", "tenant": "acme"})).status == 403


async def test_actor_is_the_name_of_the_token(api: Api) -> None:
    async with Door(api) as door:
        acme, root = await door.by(TOKENS["acme"], Raftsched_Actor="somebody"), await door.by(TOKENS["root"])
        job = await acme.submit(name="x")
        await acme.ask("DELETE", f"jobs/{job['id']}")
        audit = (await root.get("audit", subject=f"job:{job['id']}")).json["entries"]
        assert {line["actor"] for line in audit} == {"acme"}
        for name in ("admin", "executor", "anonymous"):
            assert (await root.post("tokens", {"role": "viewer", "name": name})).json["field"] == "name"


async def test_refusal_tells_nothing_of_the_cluster_or_the_fault(api: Api) -> None:
    answers = [await api.ask("GET", JOBS, headers={"Authorization": f"Bearer {TOKENS[name]}x"}) for name in BAD]
    answers.append(await api.ask("GET", JOBS, headers={"Authorization": "Bearer rs_nobody_x"}))
    assert len({answer.body for answer in answers}) == 1
    assert answers[0].headers["WWW-Authenticate"] == "Bearer"
    assert not {name for name in answers[0].headers if name.startswith("Raftsched-")}


async def test_who_is_refused_costs_no_question_to_other_nodes(api: Api) -> None:
    path = f"{JOBS}?consistency=quorum"
    assert await told(api, bearer(f"{TOKENS['acme']}x"), path=path) == 401
    assert api.node.confirmed == 0
    assert await told(api, bearer(TOKENS["acme"]), path=path) == 200
    assert api.node.confirmed == 1


# -- limits of a token -------------------------------------------------------------------------------------------------


async def test_token_with_queues_changes_nothing_beyond_them(api: Api) -> None:
    async with Door(api) as door:
        limited, other = await door.by(TOKENS["limited"]), await door.by(TOKENS["acme"])
        job, mine = await other.submit(name="pay", delay_seconds=60), await other.submit(name="mail", delay_seconds=60)
        body = {"name": "nightly", "cron": "0 3 * * *", "job": {"name": "pay"}}
        schedule = (await other.post("schedules", body)).json["id"]
        running = await other.submit(name="pay2")
        [lease] = await (await door.by(TOKENS["worker"])).lease("pay2")
        report = {"run_id": lease["run_id"], "fencing_token": lease["fencing_token"]}
        bulk = {"action": "cancel", "ids": [job["id"]]}
        whole = (await (await door.by(TOKENS["root"])).post("tokens", {"role": "admin", "tenant": "acme"})).json["id"]
        answers = {
            "submit": await limited.post("jobs", {"name": "pay"}),
            "cancel": await limited.ask("DELETE", f"jobs/{job['id']}"),
            "move away": await limited.patch(f"jobs/{job['id']}", {"queue": "mail"}),
            "move there": await limited.patch(f"jobs/{mine['id']}", {"queue": "pay"}),
            "replay": await limited.post(f"jobs/{job['id']}/replay", {}),
            "trigger": await limited.post(f"schedules/{schedule}/trigger", {}),
            "pause": await limited.post(f"schedules/{schedule}/pause", {}),
            "delete": await limited.ask("DELETE", f"schedules/{schedule}"),
            "amend": await limited.patch(f"schedules/{schedule}", {"job": {"name": "mail"}}),
            "replace": await limited.post("schedules", body | {"job": {"name": "mail"}}),
            "apply": await limited.ask("PUT", "schedules", json={"schedules": [body | {"job": {"name": "mail"}}]}),
            "lease": await limited.post("leases", {"worker": "w", "queues": ["*"], "capacity": 1}),
            "new token": await limited.post("tokens", {"role": "admin"}),
            "wider token": await limited.post("tokens", {"role": "admin", "queues": ["m*"]}),
            "rotate": await limited.post(f"tokens/{whole}/rotate", {}),
            "revoke": await limited.ask("DELETE", f"tokens/{whole}"),
        }
        assert {name: answer.status for name, answer in answers.items()} == dict.fromkeys(answers, 403)
        assert (await limited.post("jobs/bulk", bulk)).json["failed"][0]["code"] == "forbidden"
        outcome = {"worker": "w1", "outcomes": [report | {"status": "completed"}]}
        for path, sent in {
            "leases/outcomes": outcome,
            f"runs/{lease['run_id']}/progress": {"fencing_token": lease["fencing_token"], "progress": 1},
        }.items():
            assert (await limited.post(path, sent)).status in (404, 409), path
        assert (await other.job(running["id"]))["status"] == "running"
        assert (await limited.ask("DELETE", f"jobs/{mine['id']}")).status == 200
        assert (await limited.post("tokens", {"role": "worker", "queues": ["mail-eu"]})).status == 201


async def test_tenant_with_a_colon_owns_no_queue_of_another(api: Api) -> None:
    """`a:b` would own `a:b:x`, and so would `a`."""
    async with Door(api) as door:
        root = await door.by(TOKENS["root"])
        assert (await root.post("tokens", {"role": "viewer", "tenant": "a:b"})).json["field"] == "tenant"


# -- the admin file ----------------------------------------------------------------------------------------------------


async def test_admin_file_is_read_again_and_a_damaged_one_lets_nobody_in(api: Api, tmp_path: Path) -> None:
    path, new = tmp_path / "admin.token", "n" * len(ADMIN_TEXT)
    former, executor = path.stat(), executor_token(path)

    async def let_in(*texts: str) -> list[bool]:
        return [await told(api, bearer(text), path="/api/v1/cluster") == 200 for text in texts]

    assert await let_in(ADMIN_TEXT, executor, new) == [True, True, False]
    path.write_text(f"{new}\n{ADMIN_TEXT}\n")
    assert await let_in(ADMIN_TEXT, executor, new) == [True, True, True]
    path.write_text(new)
    os.utime(path, ns=(former.st_atime_ns, former.st_mtime_ns))
    assert await let_in(ADMIN_TEXT, executor, new) == [False, False, True], "the same size and time, other text"
    for damaged in (b"", b"short", f"{new}\nshort".encode(), "ä".encode() * 20, b"\xff" * 20):
        path.write_bytes(damaged)
        assert await let_in(ADMIN_TEXT, executor, new) == [False] * 3, damaged
    path.unlink()
    assert await let_in(ADMIN_TEXT, executor, new) == [False] * 3
    assert await told(api, bearer(TOKENS["acme"])) == 200, "others depend on no file"


async def test_executor_token_is_for_work_alone(api: Api, tmp_path: Path) -> None:
    async with Door(api) as door:
        executor = await door.by(executor_token(tmp_path / "admin.token"))
        job = await (await door.by(TOKENS["acme"])).submit(name="x")
        [lease] = await executor.lease("x")
        assert (lease["job_id"], lease["tenant"]) == (job["id"], "acme")
        refused = [
            *[
                await executor.get(path)
                for path in ("jobs", "queues", "tokens", "audit", "events", f"jobs/{job['id']}")
            ],
            *[await executor.post(path, {}) for path in ("jobs", "schedules", "tokens", "jobs/bulk", "workflows")],
            *[await executor.ask("DELETE", f"jobs/{job['id']}"), await executor.patch("queues/x", {})],
        ]
        assert {answer.status for answer in refused} == {403}


async def test_node_without_a_leader_trusts_the_admin_file_alone(follower: Api, tmp_path: Path) -> None:
    path, executor = "/api/v1/jobs?consistency=stale", executor_token(tmp_path / "admin.token")
    callers = [bearer(TOKENS["acme"]), bearer("rs_nobody_x"), bearer(ADMIN_TEXT), bearer(f"{executor}x")]
    found = {}
    for age_ms in (0, TRUST_SECONDS * 1000, TRUST_SECONDS * 1000 + 1, -1):
        follower.node.age_ms = int(age_ms)
        found[age_ms] = [await told(follower, caller, path=path) for caller in callers]
        found[age_ms].append(await told(follower, bearer(executor), path="/api/v1/openapi.json"))
    trusted, isolated = [200, 401, 200, 401, 200], [503, 503, 200, 503, 200]
    assert list(found.values()) == [trusted, trusted, isolated, isolated]


async def test_metrics_of_a_node_without_a_leader_are_read_by_the_tokens_that_it_knows(follower: Api) -> None:
    follower.node.age_ms = -1
    callers = {"all": 200, "acme": 403, "revoked": 401, "expired": 401}
    assert {name: await told(follower, bearer(TOKENS[name]), path="/metrics") for name in callers} == callers


# -- refusals ----------------------------------------------------------------------------------------------------------


async def test_refusals_are_logged_without_the_token_counted_and_slow(api: Api) -> None:
    text = f"{TOKENS['acme']}wrong"
    with capture_logs() as logs:
        began = time.monotonic()
        refused = [asyncio.ensure_future(told(api, bearer(text))) for _ in range(20)]
        assert await told(api, bearer(TOKENS["acme"])) == 200
        assert not any(each.done() for each in refused), "a valid token is not slowed down by those of others"
        assert set(await asyncio.gather(*refused)) == {401}
        assert time.monotonic() - began >= 0.25
    lines = [line for line in logs if line["event"] == "request_refused"]
    assert len(lines) == 1, "once in a while"
    assert (lines[0]["code"], lines[0]["route"], lines[0]["refused_count"]) == ("unauthorized", JOBS, 1)
    assert "secret" not in repr(logs)


async def test_follower_screens_and_the_leader_decides(api: Api, follower: Api) -> None:
    assert await told(follower, bearer(TOKENS["acme"])) == 200
    assert await told(follower, bearer(TOKENS["revoked"])) == 401
    follower.node.state = State(MemoryStore())  # it has applied nothing yet
    assert await told(follower, bearer(TOKENS["acme"])) == 200, "made a moment ago: the leader knows it"
    here = asyncio.ensure_future(told(follower, bearer(TOKENS["acme"]), path="/api/v1/openapi.json"))
    asyncio.get_running_loop().call_later(0.05, setattr, follower.node, "state", api.node.state)
    assert await here == 200, "a follower looks a second time"
    before = len(api.node.proposed)
    api.node.elect(follower.node)  # nobody leads here any more
    assert await told(follower, bearer("a b")) == 401
    assert len(api.node.proposed) == before


async def test_relayed_submits_keep_their_own_callers(api: Api, follower: Api) -> None:
    def sent(*callers: tuple[tuple[str, str], ...]) -> bytes:
        return msgspec.msgpack.encode([RelayedSubmit(b'{"name":"x"}', (), caller) for caller in callers])

    with capture_logs() as logs:
        began = time.monotonic()
        callers = (bearer(TOKENS["acme"]),), (bearer(TOKENS["worker"]),), (bearer("rs_nobody_x"),), ()
        answer = await api.ask("POST", RELAY_PATH, data=sent(*callers, (bearer(TOKENS["zeta"]),)))
    replies = msgspec.msgpack.decode(answer.body, type=list[RelayedReply])
    assert [reply.status for reply in replies] == [201, 403, 401, 401, 201]
    tenants = [msgspec.json.decode(reply.body)["tenant"] for reply in replies if reply.status == 201]
    assert tenants == ["acme", "zeta"]
    assert [line["code"] for line in logs if line["event"] == "request_refused"] == ["unauthorized"]
    assert time.monotonic() - began >= 0.25, "who guesses tokens here is slowed down, too"
    async with Door(follower) as door:
        names = ["acme", "zeta"] * 10
        clients = {name: await door.by(TOKENS[name]) for name in set(names)}
        jobs = await asyncio.gather(*(clients[name].submit(name="x", idempotency_key="same") for name in names))
        assert [job["tenant"] for job in jobs] == names
        assert len({job["id"] for job in jobs}) == 2
        bad = await door.by(f"{TOKENS['acme']}x")
        assert (await bad.post("jobs", {"name": "x"})).status == 401


# -- requests that last long -------------------------------------------------------------------------------------------


async def test_stream_of_events_ends_when_its_token_is_revoked_or_expires(api: Api) -> None:
    node = api.node
    brief = Caller(Role.VIEWER, expires_at_ms=node.clock.now_ms + 1_000)
    ends: dict[str, Any] = {
        "revoked": (make_token(node, "brief1", Caller(Role.VIEWER)), lambda: node.apply(RevokeToken("brief1"))),
        "expired": (
            make_token(node, "brief2", brief),
            lambda: setattr(node.clock, "now_ms", node.clock.now_ms + 1_000),
        ),
    }
    async with Door(api) as door:
        acme = await door.by(TOKENS["acme"])
        for name, (token, end) in ends.items():
            reader = await door.by(token)
            async with reader.session.get(f"{node.api_url}/api/v1/events?types=job") as stream:
                await acme.submit(name=f"before-{name}")
                seen = b""
                while f"before-{name}".encode() not in seen:
                    seen += await stream.content.readany()
                end()
                await acme.submit(name=f"after-{name}")
                async with asyncio.timeout(5):
                    assert f"after-{name}".encode() not in await stream.content.read(), name


async def test_long_polls_give_nothing_to_a_token_that_was_revoked_meanwhile(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, reads = api.node, list[None]()
    async with Door(api) as door:
        acme, worker = await door.by(TOKENS["acme"]), await door.by(make_token(node, "w2", Caller(Role.WORKER)))
        asked = {"worker": "w2", "queues": ["x"], "capacity": 1, "wait_seconds": 30}
        poll = asyncio.ensure_future(worker.post("leases", asked))
        await until(lambda: node.leadership().queue_scale("x").waiting_workers > 0)
        node.apply(RevokeToken("w2"))
        await acme.submit(name="x")
        assert (await answer_of(poll)).status == 401
        other = await door.by(TOKENS["worker"])
        [lease] = (await other.post("leases", asked | {"worker": "w3"})).json["leases"]
        viewer = await door.by(make_token(node, "v2", Caller(Role.VIEWER)))
        monkeypatch.setattr(node, "fresh_state", partial(counted, node, reads))
        logs = asyncio.ensure_future(viewer.get(f"jobs/{lease['job_id']}/logs", wait_seconds=20))
        await until(lambda: len(reads) > 1)
        node.apply(RevokeToken("v2"))
        assert (await answer_of(logs)).status == 401


def counted(node: SimulatedNode, reads: list[None]) -> State:
    reads.append(None)
    return node.state


async def answer_of(request: asyncio.Future[Answer]) -> Answer:
    async with asyncio.timeout(10):
        return await request


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)
