"""A cluster for the tests of client and worker: real HTTP on loopback, a small model behind it, and faults by script.

The model knows what the clients' promises rest on: one job for each idempotency key, one current fencing token for
each job, one recorded outcome for each token. `faults` hold what becomes of the next requests to a route; a request
without a fault is answered.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from typing import Any

import msgspec
from aiohttp import web

from raftsched.client import ClientSettings

PASSED_ON = ("start", "heartbeat_timeout_seconds", "deadline", "workflow_id", "task", "instant", "http", "shell")
"""Fields of a job that its leases have, too."""
WAIT_SECONDS = 60.0
"""For what happens in milliseconds: only a failing test waits so long."""
QUICK = ClientSettings(
    retry_seconds=5.0, request_timeout_seconds=5.0, backoff_base_seconds=0.001, backoff_cap_seconds=0.01
)


def problem_document(problem: dict[str, Any]) -> dict[str, Any]:
    """`problem` as a node sends it."""
    return {"type": f"urn:raftsched:problem:{problem['code']}"} | problem


class Fault(Enum):
    """What becomes of a request."""

    LOST = "the connection breaks before the request is seen"
    REPLY_LOST = "the request takes effect, then the connection breaks"
    REFUSED = "503, not accepted"
    OVERLOADED = "503, not accepted, with a Retry-After of a second"
    UNKNOWN = "503 with a Retry-After of a second, the outcome is unknown, and it took effect"
    GARBLED = "it takes effect, and the reply is no JSON"
    HANGS = "no answer until the test is over"
    SWALLOWED = "the request takes effect, then no answer until the test is over"


@dataclass(slots=True)
class StoredJob:
    """A job of the model."""

    id: str
    document: dict[str, Any]
    status: str = "queued"
    token: int = 0
    attempt_number: int = 0
    result: Any = None
    error: dict[str, Any] | None = None
    completion_id: str = ""
    started_token: int = 0
    """Of the attempt whose start was written down."""
    progress: list[Any] = field(default_factory=list)
    """What its handlers said of themselves, in order."""
    sign_count: int = 0
    log: list[str] = field(default_factory=list)
    """Lines of its latest attempt."""
    log_sequence: int = 0

    def note_progress(self, progress: Any) -> None:
        """Note what is news: a worker that can't know whether its report arrived sends it again."""
        if self.progress[-1:] != [progress]:
            self.progress.append(progress)


@dataclass(slots=True)
class Cluster:
    """The state behind all nodes, and the record of what they were asked."""

    lease_seconds: float = 10.0
    jobs: dict[str, StoredJob] = field(default_factory=dict)
    by_key: dict[str, str] = field(default_factory=dict)
    leader: Node | None = None
    nodes: list[Node] = field(default_factory=list)
    faults: defaultdict[str, deque[Fault]] = field(default_factory=lambda: defaultdict(deque))
    item_problems: deque[dict[str, Any]] = field(default_factory=deque)
    """Problems for the next items of batches, each used once."""
    refusal: dict[str, Any] | None = None
    """A problem that answers every request."""
    requests: list[tuple[str, Any]] = field(default_factory=list)
    """(path, document) of every request that was seen."""
    outcomes: list[dict[str, Any]] = field(default_factory=list)
    """Accepted ones, in order."""
    refused: list[dict[str, Any]] = field(default_factory=list)
    granted: dict[str, list[Any]] = field(default_factory=dict)
    """What the latest request for leases got, by its id."""
    documents: dict[str, Any] = field(default_factory=dict)
    """What else there is to read or to ask for, by path."""
    is_paused: bool = False
    """No leases are granted."""
    cancel_requested: set[str] = field(default_factory=set)
    """Job ids whose workers shall be told."""
    lost_tokens: set[int] = field(default_factory=set)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _numbers: Any = field(default_factory=lambda: count(1))

    def bodies(self, path: str) -> list[Any]:
        """The documents sent to `path` so far."""
        return [document for seen, document in self.requests if seen == path]

    async def until(self, condition: Callable[[], Any]) -> None:
        """Wait until `condition` holds; it is looked at after every request."""
        async with asyncio.timeout(WAIT_SECONDS), self.changed:
            await self.changed.wait_for(condition)

    async def poke(self) -> None:
        """Look again: the test changed something."""
        async with self.changed:
            self.changed.notify_all()

    async def add_job(self, name: str, payload: Any = None, **fields: Any) -> StoredJob:
        """Store a job as if a client had submitted it."""
        job = self._store({"name": name, "payload": payload} | fields)
        await self.poke()
        return job

    async def finished(self, *jobs: StoredJob) -> None:
        """Wait until each of `jobs` has an outcome."""
        await self.until(lambda: all(job.status in ("completed", "dead_letter", "cancelled") for job in jobs))

    # -- the routes ---------------------------------------------------------------------------------------------------

    def submit_batch(self, document: Any) -> Any:
        if any(job["name"] == "poison" for job in document["jobs"]):
            return None  # refused as a whole
        return {"results": [self._submit(job) for job in document["jobs"]]}

    def _submit(self, document: dict[str, Any]) -> dict[str, Any]:
        if self.item_problems:
            problem = self.item_problems.popleft()
            return {"status": problem["status"], "problem": problem}
        key = document.pop("idempotency_key")
        if key in self.by_key:
            job = self.jobs[self.by_key[key]]
            if job.document == document:
                return {"status": 200, "id": job.id, "revision": 1}
            return {"status": 422, "problem": {"status": 422, "code": "idempotency_mismatch", "detail": "other body"}}
        job = self._store(document)
        self.by_key[key] = job.id
        return {"status": 201, "id": job.id, "revision": 1}

    def _store(self, document: dict[str, Any]) -> StoredJob:
        job = StoredJob(f"00000000-0000-7000-8000-{next(self._numbers):012d}", document)
        self.jobs[job.id] = job
        return job

    async def lease(self, document: Any) -> Any:
        request_id = document.get("request_id", "")
        leases: list[Any] = self.granted.get(request_id, [])
        if leases:
            return {"leases": leases}
        try:
            async with asyncio.timeout(document.get("wait_seconds", 0.0)), self.changed:
                await self.changed.wait_for(lambda: bool(self._due(document["queues"])))
                leases = [self._grant(job) for job in self._due(document["queues"])[: document.get("capacity", 1)]]
        except TimeoutError:
            pass  # nothing came due in time
        if request_id:
            self.granted = {request_id: leases}
        return {"leases": leases}

    def _due(self, queues: list[str]) -> list[StoredJob]:
        if self.is_paused:
            return []
        return [
            job
            for job in self.jobs.values()
            if job.status == "queued" and (job.document.get("queue") or job.document["name"]) in queues
        ]

    def _grant(self, job: StoredJob) -> dict[str, Any]:
        job.status, job.token = "running", next(self._numbers)
        job.attempt_number += 1
        return {
            "job_id": job.id,
            "run_id": f"{job.id}.1",
            "fencing_token": job.token,
            "name": job.document["name"],
            "queue": job.document.get("queue") or job.document["name"],
            "payload": job.document.get("payload"),
            "attempt_number": job.attempt_number,
            "lease_seconds": self.lease_seconds,
            "timeout_seconds": job.document.get("timeout_seconds"),
            "revision": 1,
        } | {name: job.document[name] for name in PASSED_ON if name in job.document}

    def heartbeat(self, document: Any) -> Any:
        states = []
        for lease in document["leases"]:
            job = self.jobs[lease["run_id"].partition(".")[0]]
            valid = (
                job.token == lease["fencing_token"] and job.status == "running" and job.token not in self.lost_tokens
            )
            cancel = job.id in self.cancel_requested
            if valid:
                if "progress" in lease:
                    job.note_progress(lease["progress"])
                job.sign_count += lease.get("alive", False) or "progress" in lease
            states.append({"run_id": lease["run_id"], "valid": valid, "cancel_requested": cancel})
        return {"leases": states}

    def told(self, run_id: str, what: str, document: Any) -> Any:
        """What a worker says of a running attempt: that it starts, its progress, its log."""
        job = self.jobs[run_id.partition(".")[0]]
        if job.token != document["fencing_token"] or job.token in self.lost_tokens or job.status != "running":
            return {"status": 409, "code": "lease_lost", "detail": "not the current token"}
        if what == "start":
            job.started_token = job.token
        elif what == "progress":
            job.note_progress(document["progress"])
        elif document["sequence"] > job.log_sequence:
            job.log_sequence = document["sequence"]
            job.log += document["lines"]
        return {"run_id": run_id}

    def record_outcomes(self, document: Any) -> Any:
        return {"outcomes": [self._record(outcome) for outcome in document["outcomes"]]}

    def _record(self, outcome: dict[str, Any]) -> dict[str, Any]:
        run_id = outcome["run_id"]
        if self.item_problems:
            return {"run_id": run_id, "accepted": False} | self.item_problems.popleft()
        job = self.jobs[run_id.partition(".")[0]]
        is_repeated = outcome["completion_id"] == job.completion_id
        if job.token != outcome["fencing_token"] or job.token in self.lost_tokens:
            code = "lease_lost"
        elif job.status != "running" and not is_repeated:
            code = "already_recorded"
        elif self._must_start_first(job, outcome):
            code = "not_started"
        else:
            if not is_repeated:
                self._apply(job, outcome)
            return {"run_id": run_id, "accepted": True, "revision": 1}
        self.refused.append(outcome)
        return {"run_id": run_id, "accepted": False, "code": code, "detail": code}

    def _must_start_first(self, job: StoredJob, outcome: dict[str, Any]) -> bool:
        is_once = job.document.get("start") == "at_most_once"
        return is_once and job.started_token != job.token and outcome["status"] != "snoozed"

    def _apply(self, job: StoredJob, outcome: dict[str, Any]) -> None:
        self.outcomes.append(outcome)
        job.completion_id = outcome["completion_id"]
        job.result, job.error = outcome.get("result"), outcome.get("error")
        if job.id in self.cancel_requested:
            job.status = "cancelled"
        elif outcome["status"] == "completed":
            job.status = "completed"
        elif (outcome["status"] == "failed" and not outcome.get("retryable", True)) or job.started_token == job.token:
            job.status = "dead_letter"
        else:
            job.status = "queued"


class Node:
    """One node: a server on loopback with a port of its own."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.url = ""
        self.forwards = True
        """A follower answers what it is asked; False: it answers 503 and names the leader."""
        self.seen: list[str] = []
        """Paths of its requests."""
        self.health = {"status": "ok", "node": "n1"}
        self.is_silent = False
        """It takes connections and says nothing until it stops, as a process that is paused."""
        self.is_cut_off = False
        """It has no majority on its side: it refuses all but stale reads."""
        self.named: Node | None = None
        """Whom it takes for the leader, if not the cluster's."""
        self.authorization: str | None = None
        self._over = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self._port = 0

    async def start(self) -> None:
        """Serve, on the same port as before."""
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/api/v1/{path:.*}", self._answer)
        app.router.add_get("/healthz", self._healthz)
        self._over.clear()
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        self._port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{self._port}"

    async def stop(self) -> None:
        """Break all connections and refuse new ones."""
        self._over.set()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _healthz(self, request: web.Request) -> web.Response:
        del request
        self.seen.append("/healthz")
        await self.cluster.poke()
        if self.is_silent:
            await self._over.wait()
        return web.json_response(self.health)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        cluster, path = self.cluster, f"/{request.match_info['path']}"
        self.seen.append(path)
        self.authorization = request.headers.get("Authorization")
        await cluster.poke()
        body = await request.read()
        fault = cluster.faults[path].popleft() if cluster.faults[path] else None
        if self.is_silent or fault is Fault.HANGS:
            fault = Fault.HANGS
            await self._over.wait()
        if fault in (Fault.LOST, Fault.HANGS):
            return self._broken(request)
        if cluster.refusal is not None:
            return web.json_response(problem_document(cluster.refusal), status=cluster.refusal["status"])
        if fault is Fault.OVERLOADED:
            return self._problem("unavailable", "too much to do", retry_after="1")
        if fault is Fault.REFUSED or (not self.forwards and cluster.leader is not self):
            return self._problem("not_leader", "this node does not lead")
        response = await self._effect(request, path, body)
        if fault is Fault.SWALLOWED:
            await self._over.wait()
        if fault in (Fault.REPLY_LOST, Fault.SWALLOWED):
            return self._broken(request)
        if fault is Fault.UNKNOWN:
            return self._problem("outcome_unknown", "nobody knows", retry_after="1")
        if fault is Fault.GARBLED:
            return web.Response(text="<html>", headers=self._headers())
        return response

    async def _effect(self, request: web.Request, path: str, body: bytes) -> web.Response:
        is_stale = request.query.get("consistency") == "stale"
        if self.is_cut_off and not is_stale:
            return self._problem("no_majority", "this node is cut off")
        document = msgspec.json.decode(body) if body else None
        self.cluster.requests.append((path, msgspec.json.decode(body) if body else dict(request.query)))
        answer = await self._reply(request, path, document)
        await self.cluster.poke()
        if answer is None:
            status, code = (400, "malformed") if request.method == "POST" else (404, "not_found")
            problem = problem_document({"status": status, "code": code, "detail": "no"})
            return web.json_response(problem, status=status, headers=self._headers())
        status = answer["status"] if "code" in answer else 200
        answer = problem_document(answer) if "code" in answer else answer
        age = {"Raftsched-Age-Ms": "5"} if is_stale else {}
        return web.json_response(answer, status=status, headers=self._headers() | age)

    async def _reply(self, request: web.Request, path: str, document: Any) -> Any:
        cluster = self.cluster
        routes: dict[str, Callable[[Any], Any]] = {
            "/jobs/batch": cluster.submit_batch,
            "/leases": cluster.lease,
            "/leases/heartbeat": cluster.heartbeat,
            "/leases/outcomes": cluster.record_outcomes,
            "/cluster": lambda _: {
                "leader": "n1",
                "term": 1,
                "nodes": [{"id": n.url, "api": n.url} for n in cluster.nodes],
            },
        }
        if path in routes:
            answer = routes[path](document)
            return await answer if isinstance(answer, Awaitable) else answer
        if path in cluster.documents:
            return cluster.documents[path]
        if path.startswith("/runs/"):
            run_id, _, what = path.removeprefix("/runs/").partition("/")
            return cluster.told(run_id, what, document)
        job = cluster.jobs.get(path.removeprefix("/jobs/"))
        if job is None:
            return None
        if request.method == "DELETE":
            job.status = "cancelled"
        return {"id": job.id, "name": job.document["name"], "status": job.status, "result": job.result}

    def _headers(self) -> dict[str, str]:
        leader = self.named or self.cluster.leader
        return {"Raftsched-Leader": leader.url} if leader is not None else {}

    def _problem(self, code: str, detail: str, **headers: str) -> web.Response:
        problem = problem_document({"status": 503, "code": code, "detail": detail, "retryable": True})
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.json_response(problem, status=503, headers=self._headers() | named)

    def _broken(self, request: web.Request) -> web.Response:
        if request.transport is not None:
            request.transport.abort()
        return web.Response()


@asynccontextmanager
async def running_cluster(node_count: int = 1, **options: Any) -> AsyncIterator[Cluster]:
    """A cluster of so many nodes, the first of them the leader."""
    cluster = Cluster(**options)
    async with AsyncExitStack() as stack:
        for _ in range(node_count):
            node = Node(cluster)
            await node.start()
            stack.push_async_callback(node.stop)
            cluster.nodes.append(node)
        cluster.leader = cluster.nodes[0]
        yield cluster
