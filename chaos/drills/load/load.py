"""All users and workers of a drill."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from random import Random
from typing import Final

from chaos.checkers.history.events import AnyEvent
from chaos.drills.history.recorder import Recorder, in_order
from chaos.drills.load.asking import Asker
from chaos.drills.load.feature_users import FLOW, TICKS, FeatureUser, QueueUser, ScheduleUser, WorkflowUser
from chaos.drills.load.http_executor import QUEUE as HTTP_QUEUE
from chaos.drills.load.processes import HTTP_EXECUTOR, SDK_WORKER, LoadProcess
from chaos.drills.load.raw_worker import RawWorker
from chaos.drills.load.receiver import Receiver
from chaos.drills.load.sdk_client import PROCESS as SDK_CLIENT
from chaos.drills.load.users import QUEUES, JobsKnown, User, document_of
from chaos.drills.nodes import Node

_RAW_WORKERS: Final = 3
"""So many for each of several hosts, since far workers take longer."""
_EXECUTORS: Final = 2
_FEATURE_USERS: Final = ("scheduler", "planner", "tuner")
_DRAINED: Final = (*QUEUES, TICKS, FLOW, HTTP_QUEUE)
_HERD: Final = "100 1 0.5 sdk"
"""As `chaos.drills.load.crowd` has it: a hundred clients."""
_FLAT_OUT: Final = "1 40 0 idle"
"""The same for each of several hosts: users who wait for nothing but their answers. Nobody takes their jobs."""
_LIVES_MAX: Final = 1000
"""Of one process; each has a range of operation numbers."""
_UNFINISHED: Final = ("queued", "running", "retrying", "scheduled", "cancelling", "waiting_dependencies")
_OK: Final = 200
_PAUSE_SECONDS: Final = 0.3
PROBE_SECONDS_MAX: Final = 10.0
CROWD: Final = "crowd"


class Load:
    """A user for each node, raw workers, processes with a `Client` and with a `Worker`, and a crowd that waits.

    Without `hosts` also users of schedules, workflows and queues, and executors of HTTP jobs with their target. `hosts`
    begin the command lines of other hosts, with a client and a worker each. Without any these are on the harness's own,
    one client and two workers.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        directory: Path,
        recorder: Recorder,
        random: Random,
        hosts: Sequence[Sequence[str]] = (),
    ) -> None:
        self._nodes = nodes
        self._recorder = recorder
        self._random = random
        self._known = JobsKnown()
        self._is_rich = not hosts
        raw = [f"raw-{number}" for number in range(_RAW_WORKERS * max(1, len(hosts)))]
        names = [*(f"user-{node.id}" for node in nodes), *raw, *_FEATURE_USERS, "prober"]
        self._askers = {name: self._asker(name) for name in names}
        self._receiver = Receiver(recorder, Random(f"receiver {random.random()}"))
        self._feature_users = self._made_feature_users() if self._is_rich else []
        self._raw_workers = [RawWorker(self._askers[name]) for name in raw]
        numbers = count()

        def process(kind: str, name: str, host: Sequence[str] = (), **settings: str) -> LoadProcess:
            number = next(numbers)
            lives = range(number * _LIVES_MAX + 1, (number + 1) * _LIVES_MAX)
            module = f"chaos.drills.load.{kind}"
            return LoadProcess(module, name, nodes, directory, recorder, numbers=lives, settings=settings, host=host)

        self.clients = [process("sdk_client", name, host) for name, host in _named(SDK_CLIENT, hosts, 1)]
        self.workers = [process("sdk_worker", name, host) for name, host in _named(SDK_WORKER, hosts, 2)]
        self.crowds = [
            process("crowd", name, host, DRILL_CROWD=_FLAT_OUT if hosts else _HERD)
            for name, host in _named(CROWD, hosts, 1)
        ]
        """Not started by themselves."""
        executors = range(1, _EXECUTORS + 1) if self._is_rich else ()
        self.workers += [process("http_executor", f"{HTTP_EXECUTOR}-{number}") for number in executors]
        self._processes = (*self.clients, *self.workers, *self.crowds)
        self._using: list[asyncio.Task[None]] = []
        self._working: list[asyncio.Task[None]] = []

    def _made_feature_users(self) -> list[FeatureUser]:
        schedules, workflows, queues = (self._askers[name] for name in _FEATURE_USERS)
        return [ScheduleUser(schedules), WorkflowUser(workflows, self._known), QueueUser(queues)]

    def _asker(self, name: str) -> Asker:
        return Asker(self._recorder, name, self._nodes, Random(f"{name} {self._random.random()}"))

    async def start(self) -> None:
        for process in (*self.clients, *self.workers):
            process.start()
        target = await self._receiver.open() if self._is_rich else ""
        users = [User(self._askers[f"user-{node.id}"], node, self._known, target) for node in self._nodes]
        lives = [*(user.live() for user in users), *(user.live() for user in self._feature_users)]
        self._using = [asyncio.create_task(life) for life in lives]
        self._working = [asyncio.create_task(worker.live()) for worker in self._raw_workers]

    def check(self) -> None:
        """Raise whatever ended a user or a worker of ours: a harness that does nothing proves nothing."""
        for task in (*self._using, *self._working):
            if task.done():
                task.result()
                raise RuntimeError("a user or a worker of the drill has ended by itself")

    async def probe(self) -> None:
        """At each node, submit a job, lease it and complete it; try again and again for `PROBE_SECONDS_MAX`."""
        async with asyncio.TaskGroup() as probes:
            for node in self._nodes:
                probes.create_task(self._probe(node))

    async def _probe(self, node: Node) -> None:
        asker, queue = self._askers["prober"], f"probe-{node.id}"
        worker = RawWorker(asker, queues=[queue], node=node)
        deadline = time.monotonic() + PROBE_SECONDS_MAX
        while time.monotonic() < deadline:
            submitted = await asker.ask("POST", "/jobs", document_of(queue, asker.recorder.new_op()), node=node)
            if submitted.is_definite and await worker.work_once():
                return
            await asyncio.sleep(_PAUSE_SECONDS)

    async def drain(self, *, seconds: float = 60.0) -> str:
        """Submit no more, and wait until all jobs have ended; return "", or what has not."""
        for raw_worker in self._raw_workers:
            raw_worker.calm()
        self._receiver.is_calm = True
        await _cancelled(self._using)
        await asyncio.gather(*(user.tidy() for user in self._feature_users))
        for client in self.clients:
            client.ask_to_stop()
        await asyncio.gather(*(asyncio.to_thread(client.stop) for client in self.clients))
        deadline = time.monotonic() + seconds
        while (left := await self._unfinished()) and time.monotonic() < deadline:
            await asyncio.sleep(_PAUSE_SECONDS)
        await _cancelled(self._working)
        for worker in self.workers:
            worker.ask_to_stop()
        await asyncio.gather(*(asyncio.to_thread(worker.stop) for worker in self.workers))
        return left

    async def _unfinished(self) -> str:
        for status in _UNFINISHED:
            for queue in _DRAINED:
                answer = await self._askers["prober"].ask("GET", f"/jobs?status={status}&queue={queue}&limit=1")
                if answer.status != _OK:
                    return f"unknown: status {answer.status}"
                for job in answer.document["jobs"]:
                    return f"job {job['id']} is {status}"
        return ""

    async def close(self) -> None:
        """End everything at once, if it has not ended yet."""
        await _cancelled([*self._using, *self._working])
        for process in self._processes:
            process.kill()
        for asker in self._askers.values():
            await asker.close()
        await self._receiver.close()

    def events_of_processes(self) -> list[AnyEvent]:
        return in_order(event for process in self._processes for event in process.events())


def _named(kind: str, hosts: Sequence[Sequence[str]], count_at_home: int) -> list[tuple[str, Sequence[str]]]:
    """Return (name, beginning of its command line) of each process of a kind."""
    return [(f"{kind}-{number}", host) for number, host in enumerate(hosts or [()] * count_at_home, start=1)]


async def _cancelled(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    tasks.clear()
