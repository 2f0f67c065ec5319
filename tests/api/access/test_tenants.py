"""What belongs to another tenant is answered as what does not exist: the same status, headers and body.

Every route that names an object is asked twice by an admin of the tenant `zeta`: about what `acme` has, and about what
nobody has. Both answers must be equal, but for the name itself, and nothing of `acme` may have changed.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from raftsched import limits
from raftsched.api.access.principal import Principal
from raftsched.api.http.routes import STREAM_TYPE
from raftsched.core.operations.codec import MarkWorkers, WorkerMark
from raftsched.core.records.api_token import Role
from raftsched.core.records.ids import TimeMs
from tests.api.access.scene import Caller, Door, guarded
from tests.api.access.test_roles import routes
from tests.api.node import NOBODY, Answer, Api, run_of

CALLERS: Final = {
    "a": Caller(Role.ADMIN, "acme"),
    "w": Caller(Role.WORKER, "acme"),
    "b": Caller(Role.ADMIN, "zeta"),
    "all": Caller(Role.ADMIN, "*"),
}
CANARY: Final = "canary"
"""In every name, text and value that `acme` chose."""
_VARYING: Final = ("Date", "Raftsched-Revision", "Content-Length")
_OTHERS: Final = {"PATCH": {"priority": 1}, "PUT": {}, "POST": {}}
_BODIES: Final[dict[str, Any]] = {
    "/schedules/{id}": {"description": "x"},
    "/schedules/{id}/backfill": {"from": "2030-03-01T00:00:00Z", "to": "2030-03-02T00:00:00Z"},
    "/queues/{name}": {"concurrency": 1},
    "/jobs/{id}/pause": {},
    "/runs/{id}/start": {"fencing_token": 1},
    "/runs/{id}/logs": {"fencing_token": 1, "lines": ["x"]},
    "/runs/{id}/progress": {"fencing_token": 1, "progress": 1},
    "/runs/{id}/complete": {},
}


@dataclass(frozen=True, slots=True)
class Twin:
    """What `acme` has, and the name of the same kind of thing that nobody has."""

    noun: str
    foreign: str
    missing: str


@dataclass(frozen=True, slots=True)
class World:
    """Two tenants at one node."""

    a: Api
    w: Api
    """A worker of `acme`."""
    b: Api
    everybody: Api
    twins: tuple[Twin, ...]
    run: dict[str, Any]
    """The running attempt of `acme`, as a report names it."""
    queued: str
    own: str
    """A job of `zeta`."""

    def of(self, noun: str) -> list[Twin]:
        return [twin for twin in self.twins if twin.noun == noun]


@asynccontextmanager
async def world(directory: Path, more: Mapping[str, Caller] = {}, **options: Any) -> AsyncIterator[World]:  # read only
    """Let two tenants have things of every kind; `more` are further callers, and `options` those of `serving`."""
    async with guarded(directory, {**CALLERS, **more}, **options) as api, Door(api) as door:
        a, w, b, everybody = [await door.by(caller.token(name)) for name, caller in CALLERS.items()]
        queue = f"acme:{CANARY}"
        plain = {"name": f"{CANARY}-job", "queue": queue, "payload": {CANARY: 1}, "tags": [CANARY]}
        done = await a.submit(**plain, unique={"key": CANARY}, idempotency_key=f"{CANARY}-done")
        await end(w, queue, status="completed", result=CANARY)
        dead = await a.submit(**plain, max_attempts=1)
        await end(w, queue, status="failed", error={"type": CANARY, "message": CANARY})
        running = await a.submit(**plain)
        [lease] = await w.lease(queue, worker=f"{CANARY}-worker")
        run = run_of(lease)
        await w.post(f"runs/{run['run_id']}/logs", {"fencing_token": run["fencing_token"], "lines": [CANARY]})
        queued = await a.submit(**plain, delay_seconds=3_600, idempotency_key=CANARY)
        schedule = (await a.post("schedules", {"name": f"{CANARY}-daily", "cron": "0 3 * * *", "job": plain})).json
        await a.post(f"schedules/{schedule['id']}/trigger", {})
        workflow = (await a.post("workflows", {"name": f"{CANARY}-flow", "jobs": {f"{CANARY}-task": plain}})).json
        token = (await a.post("tokens", {"role": "viewer", "name": f"{CANARY}-token"})).json
        await a.patch(f"queues/{queue}", {"concurrency": 3})
        await everybody.patch("tenants/acme", {"weight": 2})
        await everybody.post("queues/shared/pause", {})
        mark = WorkerMark(f"acme:{CANARY}", (queue,), 1, TimeMs(api.node.now_ms()), tenant="acme")
        api.node.apply(MarkWorkers((mark,)))
        twins = (
            *(Twin("jobs", each["id"], NOBODY) for each in (done, dead, running, queued)),
            Twin("runs", run["run_id"], run["run_id"].replace(running["id"], NOBODY)),
            Twin("schedules", schedule["id"], NOBODY),
            Twin("schedules", schedule["name"], "nothing"),
            Twin("workflows", workflow["id"], NOBODY),
            Twin("tokens", token["id"], "0" * 16),
            Twin("queues", queue, f"beta:{CANARY}"),
            Twin("workers", f"acme:{CANARY}", f"beta:{CANARY}"),
            Twin("tenants", "acme", "beta"),
        )
        assert run["run_id"] != twins[4].missing
        own = await b.submit(name="own", delay_seconds=3_600)
        yield World(a, w, b, everybody, twins, run, queued["id"], own["id"])


async def end(worker: Api, queue: str, **outcome: Any) -> None:
    [lease] = await worker.lease(queue)
    assert (await worker.report(run_of(lease, **outcome))).status == 200


def shown(answer: Answer, name: str) -> tuple[int, dict[str, str], str]:
    """The answer without the name that was asked for, and without what differs between any two answers."""
    headers = {key: value.replace(name, "…") for key, value in answer.headers.items() if key not in _VARYING}
    return answer.status, headers, answer.body.decode().replace(name, "…")


async def asked(api: Api, method: str, path: str, body: Any) -> Answer:
    options: dict[str, Any] = {} if body is None else {"json": body}
    return await api.ask(method, path, **options)


def with_name(template: Any, name: str) -> Any:
    return msgspec.json.decode(msgspec.json.encode(template).replace(b"NAME", name.encode()))


def path_probes() -> list[tuple[str, str, str, Any]]:
    """Return (noun, method, path, body) for each route with an object in its path."""
    probes: list[tuple[str, str, str, Any]] = []
    for route in routes():
        for part in ("{id}", "{name}"):
            if part not in route.path or route.path.startswith("/api/v1/cluster"):
                continue
            path = route.path.removeprefix("/api/v1")
            noun = path.split("/")[1]
            body = _BODIES.get(path, _OTHERS.get(route.method)) if route.method in _OTHERS else None
            probes.append((noun, route.method, route.path.replace(part, "NAME"), body))
    return probes


BODY_PROBES: Final[list[tuple[str, str, str, Any]]] = [
    ("jobs", "POST", "jobs", {"name": "x", "depends_on": ["NAME"]}),
    ("jobs", "POST", "jobs", {"name": "x", "depends_on": [{"job": "NAME", "condition": "any"}]}),
    ("jobs", "POST", "jobs/batch", {"jobs": [{"name": "x", "depends_on": ["NAME"]}]}),
    ("jobs", "POST", "workflows", {"name": "x", "jobs": {"t": {"name": "x", "depends_on": [{"job": "NAME"}]}}}),
    *(
        ("jobs", "POST", "jobs/bulk", {"action": action, "ids": ["NAME"], "dry_run": is_dry} | more)
        for is_dry in (True, False)
        for action, more in {
            **{name: {} for name in ("cancel", "pause", "resume", "retry", "replay", "delete")},
            "reschedule": {"delay_seconds": 1},
            "reprioritise": {"priority": 1},
        }.items()
    ),
    ("jobs", "POST", "dead-letters/requeue", {"ids": ["NAME"]}),
    ("jobs", "POST", "dead-letters/purge", {"ids": ["NAME"]}),
    ("jobs", "GET", "events?job=NAME", None),
    ("jobs", "GET", "audit?subject=job:NAME", None),
    *(
        ("runs", "POST", path, {"worker": "w1", items: [{"run_id": "NAME", "fencing_token": 1} | more]})
        for path, items, more in (
            ("leases/heartbeat", "leases", {}),
            ("leases/heartbeat", "leases", {"progress": 1}),
            ("leases/heartbeat", "leases", {"progress": "x" * 100_000}),
            ("leases/outcomes", "outcomes", {"status": "completed"}),
            ("leases/outcomes", "outcomes", {"status": "accepted"}),
        )
    ),
    ("schedules", "GET", "jobs?schedule=NAME", None),
    ("workflows", "GET", "jobs?workflow=NAME", None),
    *(
        ("queues", method, path, body)
        for method, path, body in (
            ("GET", "jobs?queue=NAME", None),
            ("GET", "jobs?queue=NAME&status=queued", None),
            ("GET", "dead-letters?queue=NAME", None),
            ("GET", "schedules?queue=NAME", None),
            ("GET", "audit?subject=queue:NAME", None),
            ("POST", "jobs", {"name": "x", "queue": "NAME"}),
            ("POST", "jobs", {"name": "x", "on_failure": {"name": "y", "queue": "NAME"}}),
            ("POST", "jobs/batch", {"jobs": [{"name": "x", "queue": "NAME"}]}),
            ("POST", "workflows", {"name": "x", "jobs": {"t": {"name": "x", "queue": "NAME"}}}),
            ("POST", "schedules", {"name": "x", "cron": "0 3 * * *", "job": {"name": "x", "queue": "NAME"}}),
            (
                "PUT",
                "schedules",
                {"schedules": [{"name": "x", "at": None, "cron": "0 3 * * *", "job": {"name": "x", "queue": "NAME"}}]},
            ),
            ("POST", "leases", {"worker": "w1", "queues": ["NAME"], "capacity": 1}),
            ("POST", "tokens", {"role": "worker", "queues": ["NAME"]}),
            ("PATCH", "queues/zeta:own", {"on_failure": {"name": "y", "queue": "NAME"}}),
            ("PATCH", "jobs/OWN", {"queue": "NAME"}),
            ("POST", "jobs/OWN/replay", {"queue": "NAME"}),
            ("POST", "jobs/bulk", {"action": "cancel", "filter": {"queue": "NAME"}}),
        )
    ),
    *(
        ("tenants", method, path, body)
        for method, path, body in (
            *(
                ("GET", f"{noun}?tenant=NAME", None)
                for noun in ("jobs", "schedules", "workflows", "dead-letters", "audit", "events")
            ),
            ("POST", "jobs", {"name": "x", "tenant": "NAME"}),
            ("POST", "jobs/batch", {"jobs": [{"name": "x", "tenant": "NAME"}]}),
            ("POST", "workflows", {"name": "x", "tenant": "NAME", "jobs": {"t": {"name": "x"}}}),
            ("POST", "schedules", {"name": "x", "tenant": "NAME", "cron": "0 3 * * *", "job": {"name": "x"}}),
            ("PUT", "schedules", {"tenant": "NAME", "schedules": []}),
            ("POST", "jobs/bulk", {"action": "cancel", "filter": {"tenant": "NAME"}}),
            ("POST", "tokens", {"role": "viewer", "tenant": "NAME"}),
        )
    ),
]


async def differences(scene: World) -> list[str]:
    """Return what tells `zeta` whether something of `acme` exists."""
    found: list[str] = []
    for noun, method, path, body in [*path_probes(), *BODY_PROBES]:
        for twin in scene.of(noun):
            answers = []
            for name in (twin.foreign, twin.missing):
                url = path.replace("NAME", name).replace("OWN", scene.own)
                if "events?" in url:
                    answers.append(await first_of_stream(scene.b, url))
                    continue
                answer = await asked(scene.b, method, url, with_name(body, name))
                answers.append(shown(answer, name))
            if answers[0] != answers[1]:
                found.append(f"{method} {path} {body}: {answers[0]} is not {answers[1]}"[:600])
    return found


async def first_of_stream(api: Api, path: str) -> object:
    async with api.session.get(f"{api.node.api_url}/api/v1/{path}") as reply:
        is_stream = reply.headers["Content-Type"] == STREAM_TYPE
        return reply.status, None if is_stream else re.sub("acme|beta", "…", await reply.text())


async def owned_by_acme(scene: World) -> list[object]:
    """Everything that `acme` sees of its own."""
    paths = [
        f"{noun}/{twin.foreign}" for noun in ("jobs", "schedules", "workflows", "queues") for twin in scene.of(noun)
    ]
    lists = ["jobs", "schedules", "workflows", "queues", "tokens", "audit", "workers"]
    found = [(await scene.a.get(path)).json for path in [*paths, *lists]]
    for token in found[len(paths) + lists.index("tokens")]["tokens"]:
        del token["last_used_at"]  # these requests are a use
    return found


async def test_other_tenants_are_answered_as_what_does_not_exist(tmp_path: Path) -> None:
    async with world(tmp_path) as scene:
        before = await owned_by_acme(scene)
        assert await differences(scene) == []
        assert await owned_by_acme(scene) == before, "nothing of acme has changed"


async def test_difference_is_found_if_everybody_sees_every_tenant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path) as scene:
        monkeypatch.setattr(Principal, "sees", lambda _self, _tenant: True)
        assert len(await differences(scene)) > 20


async def test_lists_of_a_tenant_show_nothing_of_another(tmp_path: Path) -> None:
    """Every GET without an object, with any filter by what the other has, in any order, and any cursor of the other."""
    filters = [
        "",
        f"name={CANARY}-job",
        f"tag={CANARY}",
        f"queue=acme:{CANARY}",
        f"reason={CANARY}",
        "order=asc",
        "limit=1",
    ]
    filters += ["status=queued", "status=running", "consistency=stale", "subject=token", "actor=a"]
    ids = []
    leaks: list[str] = []
    async with world(tmp_path) as scene:
        ids = [twin.foreign for twin in scene.twins if twin.noun != "tenants"]
        for route in routes():
            if route.method != "GET" or "{" in route.path or route.reply_type == STREAM_TYPE:
                continue
            known = {field.name for field in msgspec.structs.fields(route.query)} if route.query else set[str]()
            cursor = ""
            if "cursor" in known and "limit" in known:
                listed = await scene.a.ask("GET", f"{route.path}?limit=1")
                cursor = listed.json.get("next_cursor", "") if listed.status == 200 else ""
            for each in (*filters, *([f"limit=1&cursor={cursor}"] if cursor else [])):
                if each and not {pair.partition("=")[0] for pair in each.split("&")} <= known:
                    continue
                answer = await scene.b.ask("GET", f"{route.path}?{each}")
                text = answer.body.decode().replace(each.partition("=")[2], "")
                if answer.status == 200 and (CANARY in text or "acme" in text or any(one in text for one in ids)):
                    leaks.append(f"{route.path}?{each}: {answer.body!r}"[:400])
        assert leaks == []


async def test_names_and_keys_of_two_tenants_do_not_collide(tmp_path: Path) -> None:
    async with world(tmp_path) as scene:
        a, b = scene.a, scene.b
        job = {"name": f"{CANARY}-job", "payload": {CANARY: 1}}
        made = [
            await b.post("jobs", job | {"idempotency_key": CANARY}),
            await b.post("jobs", job | {"unique": {"key": CANARY}}),
            await b.post("schedules", {"name": f"{CANARY}-daily", "cron": "0 4 * * *", "job": job}),
            await b.post("workflows", {"name": f"{CANARY}-flow", "jobs": {"t": job}}, Idempotency_Key=CANARY),
            await b.post("tokens", {"role": "viewer", "name": f"{CANARY}-token"}),
        ]
        assert [answer.status for answer in made] == [201] * len(made)
        assert (await a.get(f"schedules/{CANARY}-daily")).json["cron"] == "0 3 * * *"
        assert (await a.post("jobs", job | {"idempotency_key": CANARY})).status == 422, "its own key is taken"


async def test_concurrency_key_of_one_tenant_blocks_no_job_of_another(tmp_path: Path) -> None:
    async with world(tmp_path) as scene:
        for api in (scene.a, scene.b):
            await api.submit(name="charge", concurrency_key="account-7")
        assert len(await scene.a.lease("charge")) == 1
        assert len(await scene.b.lease("charge")) == 1
        await scene.b.submit(name="charge", concurrency_key="account-7")
        assert await scene.b.lease("charge") == []


async def test_counts_and_reasons_of_a_shared_queue_are_the_callers_own(tmp_path: Path) -> None:
    async with world(tmp_path) as scene:
        for number in range(3):
            await scene.a.submit(name=f"{CANARY}{number}", queue="open")
        mine = await scene.b.submit(name="x", queue="open")
        assert await scene.a.lease("nothing", "open", worker=CANARY, capacity=1)
        scale = (await scene.b.get("queues/open/scale")).json
        assert (scale["ready"], scale["running"], scale["waiting_workers"]) == (1, 0, 0)
        reasons = (await scene.b.get(f"jobs/{mine['id']}/explain")).body.decode()
        assert "no_worker" in reasons
        assert CANARY not in reasons
        assert '"worker_count"' not in reasons, "how many workers another tenant has"


async def test_one_tenant_leaves_room_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TENANT_TOKENS_MAX", 3)
    monkeypatch.setattr(limits, "TENANT_QUEUES_CONFIGURED_MAX", 1)
    monkeypatch.setattr(limits, "TENANT_EVENT_STREAMS_MAX", 1)
    async with world(tmp_path) as scene:
        own = {name: scene.a if name == "acme" else scene.b for name in ("acme", "zeta")}
        tokens = {name: await api.post("tokens", {"role": "viewer"}) for name, api in own.items()}
        assert {name: answer.status for name, answer in tokens.items()} == {"acme": 409, "zeta": 201}
        queues = {name: await api.patch(f"queues/{name}:new", {"concurrency": 1}) for name, api in own.items()}
        assert {name: answer.status for name, answer in queues.items()} == {"acme": 409, "zeta": 200}
        assert {tokens["acme"].code, queues["acme"].code} == {"limit_reached"}
        assert (await scene.a.patch(f"queues/acme:{CANARY}", {"concurrency": 1})).status == 200, "it has settings"
        url = f"{scene.a.node.api_url}/api/v1/events"
        async with (
            scene.a.session.get(url) as first,
            scene.a.session.get(url) as more,
            scene.b.session.get(url) as other,
        ):
            assert [reply.status for reply in (first, more, other)] == [200, 503, 200]


async def test_relations_across_tenants_cannot_be_made_by_a_token_of_all(tmp_path: Path) -> None:
    async with world(tmp_path) as scene:
        refused = await scene.everybody.post("jobs", {"name": "x", "tenant": "zeta", "depends_on": [scene.queued]})
        assert (refused.status, refused.code) == (422, "unknown_dependency")
