"""Nodes for the tests of the API: the real `apply`, state and leadership, without a log between them.

What is proposed is applied at once, so everything is deterministic; the clock stands still unless a test moves it.
`proposal_error` and `is_leading` play the faults of consensus; `leader` makes a node a follower of another one, over
real HTTP.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from raftsched import limits
from raftsched.api.access.door import Door, OpenDoor
from raftsched.api.access.origin import origin_for
from raftsched.api.app import create_app, create_runner
from raftsched.api.event_log import EventLog
from raftsched.consensus.raft.membership.members import Member, Membership
from raftsched.core.apply import apply
from raftsched.core.operations.base import Operation
from raftsched.core.records.backup import LastBackup
from raftsched.core.records.ids import JobId, JobIdFactory, TimeMs
from raftsched.core.records.job import Job
from raftsched.core.records.origin import Origin
from raftsched.core.state.results import Context, Result
from raftsched.core.state.writes import PutFence, PutJob, RemoveJob
from raftsched.errors import BackupUnderWay, InvariantBroken, NotLeader, RaftschedError, Rejected
from raftsched.leader.leadership import LeaderSettings, Leadership
from raftsched.metrics.cluster_gauges import ClusterGauges
from raftsched.metrics.job_events import JobEvents
from raftsched.metrics.reading import Reading
from raftsched.metrics.requests import RequestTimes
from raftsched.storage.backup import OpenBackup
from raftsched.storage.state import State
from raftsched.storage.store.memory_store import MemoryStore
from raftsched.storage.store.port import StorageFailed
from raftsched.wire.cluster import ClusterStatus, EncryptionStatus, NodeFacts, NodeStatus

START_MS = 1_900_000_000_000
"""2030-03-17T17:46:40Z."""

REQUEST_ID = "a-test"

NOBODY = "01900000-0000-7000-8000-000000000000"
"""The id of no job."""


class StillClock:
    """A clock that moves only when told to."""

    def __init__(self) -> None:
        self.now_ms = START_MS

    def monotonic(self) -> float:
        return self.now_ms / 1000

    def wall_ms(self) -> int:
        return self.now_ms


class SimulatedNode:
    """A `raftsched.api.backend.Backend`: a node that leads, unless `leader` is another one."""

    def __init__(self, node_id: str = "n1", *, leader: SimulatedNode | None = None) -> None:
        self.node_id = node_id
        self.api_url = ""
        self.leader = leader
        self.is_leading = leader is None
        self.ready = (True, "")
        self.age_ms = 0
        self.transfer_count = 0
        self.transferred_to = ""
        self.confirmed = 0
        """How often a majority was asked whether this node leads."""
        self.leader_change_count = 0
        self.asked_for_change = asyncio.Event()
        """Set once a request waits for a leader, too: the forwarder itself does from its start."""
        self._leader_changed = asyncio.Event()
        self._waiting_count = 0
        self.takes_over = True
        self.other_nodes: tuple[NodeStatus, ...] = ()
        """What `GET /cluster` tells beside this node; a transfer needs another."""
        self.members = Membership.of([Member(node_id, "127.0.0.1:8401", "127.0.0.1:8400")])
        self.open_backup: Callable[[], OpenBackup] | None = None
        """Makes the backup that is sent; None = one is being made."""
        self.faults: list[InvariantBroken] = []
        self.proposed: list[Operation] = []
        self.proposal_error: Callable[[Operation], RaftschedError | None] = lambda _: None
        self.store_fails_when_applied = False
        """Whether the store fails for good once the next operation is committed and applied."""
        self.withheld: asyncio.Queue[asyncio.Future[Result]] | None = None
        """Where proposals end up that nobody answers; None = all are answered."""
        self.clock: StillClock = leader.clock if leader else StillClock()
        self._store = MemoryStore()
        self.state: State = leader.state if leader else State(self._store)
        self.events = EventLog(self.state)
        self.request_times = RequestTimes()
        self.job_events = JobEvents()
        self._gauges = ClusterGauges(self.job_events)
        self.longest_round_trip_ms = 0
        self.followers: list[SimulatedNode] = []
        if leader is not None:
            leader.followers.append(self)
        self._random = random.Random(1)
        self._ids = JobIdFactory(self._random.randbytes)
        self._leadership: Leadership | None = None

    async def start(self) -> None:
        if self.leader is None:
            self._leadership = Leadership(
                state=self.state,
                propose=self.propose,
                clock=self.clock,
                randomness=self._random,
                new_job_id=self.new_job_id,
                settings=LeaderSettings(),
            )
            self._leadership.start()

    async def stop(self) -> None:
        if self._leadership is not None:
            await self._leadership.stop()

    def leader_url(self) -> str | None:
        return self.leader.api_url if self.leader else None

    def round_trip_ms(self) -> int:
        return self.longest_round_trip_ms

    async def leader_change(self, since: int) -> None:
        """Wait for `elect`."""
        self._waiting_count += 1
        if self._waiting_count > 1:
            self.asked_for_change.set()
        try:
            while self.leader_change_count == since:
                await self._leader_changed.wait()
        finally:
            self._waiting_count -= 1

    def elect(self, leader: SimulatedNode | None = None) -> None:
        """Make `leader`, or this node, the leader."""
        self.leader = leader
        self.is_leading = leader is None
        self.leader_change_count += 1
        changed, self._leader_changed = self._leader_changed, asyncio.Event()
        changed.set()

    def fresh_state(self) -> State:
        self._check_leading()
        return self.state

    async def confirm_lead(self) -> None:
        self.confirmed += 1
        self._check_leading()

    def stale_state(self) -> tuple[State, int]:
        return self.state, self.age_ms

    def leadership(self) -> Leadership:
        self._check_leading()
        assert self._leadership is not None
        return self._leadership

    def propose(self, operation: Operation) -> asyncio.Future[Result]:
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        error = self.proposal_error(operation) if self.is_leading else NotLeader()
        if error is not None:
            future.set_exception(error)
        elif self.withheld is None:
            future.set_result(self.apply(operation, origin_for(operation)))
        else:
            self.withheld.put_nowait(future)
        return future

    def apply(self, operation: Operation, origin: Origin | None = None) -> Result:
        """Apply an operation as one log entry."""
        self.proposed.append(operation)
        state = self.state
        index = state.applied_index + 1
        now_ms = TimeMs(max(state.cluster_time_ms, self.clock.now_ms))
        result, writes = apply(state, operation, Context(now_ms, index, origin=origin))
        state.execute(writes)
        state.advance(index=index, term=1, now_ms=now_ms)
        changes: list[tuple[Job | None, Job | None]] = [
            (write.old, write.new if isinstance(write, PutJob) else None)
            for write in writes
            if isinstance(write, PutJob | RemoveJob)
        ]
        records = [write for write in writes if not isinstance(write, PutJob | RemoveJob | PutFence)]
        for node in (self, *self.followers):
            node.events.feed(state, records=records, changes=changes)
        self.job_events.on_records(records)
        self.job_events.on_changes(changes)
        if self._leadership is not None:
            if records:
                self._leadership.on_records(records)
            self._leadership.on_changes(changes)
        if self.store_fails_when_applied:
            self._store.fail_next_commit()
            with suppress(StorageFailed):
                self._store.commit()
        return result

    def new_job_id(self) -> JobId:
        return self._ids.next(self.clock.now_ms)

    def now_ms(self) -> int:
        return max(self.state.cluster_time_ms, self.clock.now_ms)

    def wall_ms(self) -> int:
        return self.clock.now_ms

    def jitter(self) -> int:
        return 500

    def cluster_status(self) -> ClusterStatus:
        leader = self.leader or self
        state = "leader" if self.is_leading else "follower"
        own = NodeStatus(self.node_id, self.api_url, state, operations_read=2)
        return ClusterStatus(leader.node_id, 1, (own, *self.other_nodes), operation_version=1)

    def facts(self) -> NodeFacts:
        return NodeFacts(id=self.node_id, release="1.2", is_ready=True)

    async def backup(self) -> OpenBackup:
        if self.open_backup is None:
            raise BackupUnderWay(self.node_id)
        return self.open_backup()

    def last_backup(self) -> LastBackup | None:
        return self.state.last_backup

    def encryption(self) -> EncryptionStatus:
        return EncryptionStatus(self.node_id, "off", None)

    def reencrypt(self) -> EncryptionStatus:
        raise Rejected("encryption_off", f"node {self.node_id} encrypts nothing")

    def readings(self) -> Iterator[Reading]:
        yield from self.request_times.readings()
        if self.is_leading:
            yield from self.job_events.readings()
            yield from self._gauges.readings(self.state, self.leadership(), self.now_ms())

    def readiness(self) -> tuple[bool, str]:
        return self.ready

    def fail(self, error: InvariantBroken) -> None:
        self.faults.append(error)

    async def add_member(self, node_id: str, *, raft: str, api: str) -> tuple[NodeStatus, ...]:
        self._check_leading()
        self.members = self.members.with_joining(Member(node_id, raft, api))
        return self._nodes()

    async def remove_member(self, node_id: str) -> tuple[NodeStatus, ...]:
        self._check_leading()
        self.members = self.members.without(node_id)
        return self._nodes()

    def _nodes(self) -> tuple[NodeStatus, ...]:
        return tuple(
            NodeStatus(each.id, f"http://{each.api}", "follower", raft=each.raft, voter=each.is_voter)
            for each in self.members.members
        )

    async def transfer_leadership(self, to: str = "") -> bool:
        self.transfer_count += 1
        self.transferred_to = to
        return self.takes_over

    def _check_leading(self) -> None:
        if not self.is_leading:
            raise NotLeader


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def code(self) -> str:
        """The code of a problem."""
        assert self.headers["Content-Type"] == "application/problem+json", self.body
        problem = self.json
        assert problem["status"] == self.status
        return str(problem["code"])


@dataclass(slots=True)
class Api:
    """A node that serves, and a client of it."""

    node: SimulatedNode
    session: aiohttp.ClientSession
    port: int
    runner: web.AppRunner

    @property
    def connection_count(self) -> int:
        """Connections that are open to it."""
        assert self.runner.server is not None
        return len(self.runner.server.connections)

    async def ask(self, method: str, path: str, **options: Any) -> Answer:
        """Send one request; a path without a leading slash is below /api/v1."""
        url = path if path.startswith("/") else f"/api/v1/{path}"
        async with self.session.request(method, self.node.api_url + url, **options) as reply:
            return Answer(reply.status, reply.headers, await reply.read())

    async def get(self, path: str, **query: Any) -> Answer:
        return await self.ask("GET", path, params=query)

    async def post(self, path: str, document: Any, **headers: str) -> Answer:
        """POST a document, or bytes as they are."""
        return await self._send("POST", path, document, headers)

    async def patch(self, path: str, document: Any, **headers: str) -> Answer:
        return await self._send("PATCH", path, document, headers)

    async def _send(self, method: str, path: str, document: Any, headers: Mapping[str, str]) -> Answer:
        body = document if isinstance(document, bytes) else msgspec.json.encode(document)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.ask(method, path, data=body, headers={"Content-Type": "application/json"} | named)

    async def pages(self, path: str, items: str, **query: Any) -> list[list[Any]]:
        """Follow the cursors of a list to its end; return the items of each page."""
        pages: list[list[Any]] = []
        cursor: dict[str, str] = {}
        while True:
            answer = await self.get(path, **query, **cursor)
            assert answer.status == 200, answer.body
            pages.append(answer.json[items])
            if answer.json["next_cursor"] is None:
                return pages
            cursor = {"cursor": answer.json["next_cursor"]}

    async def all(self, path: str, items: str, **query: Any) -> list[Any]:
        """Return the items of all pages of a list."""
        return [item for page in await self.pages(path, items, **query) for item in page]

    async def job(self, job_id: str) -> Any:
        return (await self.get(f"jobs/{job_id}")).json

    async def submit_many(self, count: int, **fields: Any) -> list[str]:
        """Submit `count` equal jobs as one batch; return their ids."""
        results = (await self.post("jobs/batch", {"jobs": [{"name": "x"} | fields] * count})).json["results"]
        return [result["id"] for result in results]

    async def submit(self, **fields: Any) -> Any:
        """Submit a job and return it."""
        answer = await self.post("jobs", {"name": "send_email"} | fields)
        assert answer.status in (200, 201), answer.body
        return answer.json

    async def lease(self, *queues: str, **fields: Any) -> list[Any]:
        """Lease jobs of `queues` and return the leases."""
        asked = {"worker": "w1", "queues": list(queues) or ["send_email"], "capacity": 10} | fields
        answer = await self.post("leases", asked)
        assert answer.status == 200, answer.body
        leases: list[Any] = answer.json["leases"]
        return leases

    async def end(self, *queues: str, count: int = 1, status: str = "completed", **outcome: Any) -> None:
        """Lease `count` jobs of `queues` and report how each ended."""
        leases = await self.lease(*queues, capacity=count)
        assert len(leases) == count
        await self.report(*(run_of(lease, status=status, **outcome) for lease in leases))

    async def report(self, *outcomes: dict[str, Any]) -> Answer:
        return await self.post("leases/outcomes", {"worker": "w1", "outcomes": list(outcomes)})

    async def raw(self, data: bytes, *, until: bytes = b"") -> bytes:
        """Send bytes over a socket of their own; return what comes back until the end, or until `until` was seen."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        try:
            return await (reader.readuntil(until) if until else reader.read())
        finally:
            writer.close()


def run_of(lease: Mapping[str, Any], **outcome: Any) -> dict[str, Any]:
    """Return what names the run of a lease in a report, and how it ended."""
    return {"run_id": lease["run_id"], "fencing_token": lease["fencing_token"]} | outcome


Fault = tuple[dict[str, Any], int, str]
"""Fields of a document, and the status and the field that its refusal names."""


def malformed(faults: Mapping[str, Sequence[Any]]) -> Iterator[Fault]:
    """Return a fault for each value: `{"tags[1]": [["a", ""]]}` is tags=["a", ""], refused with 400 by tags[1]."""
    for path, values in faults.items():
        for value in values:
            yield {re.split(r"[.\[]", path, maxsplit=1)[0]: value}, 400, path


async def misjudged(
    faults: Iterable[Fault], send: Callable[[Any], Awaitable[Answer]], prefix: str = ""
) -> list[object]:
    """Send the fields of each fault; return those not refused with its status, its field and advice, with the answer."""
    wrong: list[object] = []
    for fields, status, field in faults:
        answer = await send(fields)
        told = answer.json
        is_named = told.get("field", "") == prefix + field and (prefix + field).partition("[...]")[0] in told["detail"]
        if answer.status != status or not is_named or told["retryable"] or not told["advice"]:
            wrong.append((str(fields)[:100], status, field, answer.body[:300]))
    return wrong


Extend = Callable[[web.Application, Any], Callable[[web.AppRunner], None]]


@asynccontextmanager
async def serving(
    node: SimulatedNode,
    *,
    election_seconds: float = 0.0,
    door: Door = OpenDoor(),  # noqa: B008  # it has no state
    extend: Extend = lambda *_: lambda _: None,
) -> AsyncIterator[Api]:
    """Serve the API of `node` on loopback, with the runner that nodes use; by default nothing waits for a leader.

    `extend` adds more than the API to the application, and returns what gets the runner.
    """
    app = create_app(node, door, election_seconds=election_seconds)
    on_runner = extend(app, door)
    runner = create_runner(app, stop_seconds=0.1)
    on_runner(runner)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=limits.ACCEPT_BACKLOG)
    await site.start()
    port = runner.addresses[0][1]
    node.api_url = f"http://127.0.0.1:{port}"
    await node.start()
    try:
        # One id for all requests, so that their replies can be compared.
        async with aiohttp.ClientSession(headers={"X-Request-Id": REQUEST_ID}) as session:
            yield Api(node, session, port, runner)
    finally:
        await node.stop()
        await runner.cleanup()
