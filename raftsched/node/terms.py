"""The leader's duties, from the beginning of each term that this node leads to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence

import structlog

from raftsched.consensus.machine import Change, ReplicatedState
from raftsched.consensus.proposer import Proposer
from raftsched.consensus.raft.clocks.cluster_clock import ClusterClock
from raftsched.consensus.replica import Replica
from raftsched.core.operations.base import Operation
from raftsched.core.records.ids import JobId
from raftsched.core.state.results import Result
from raftsched.core.state.writes import Write
from raftsched.leader.leadership import Leadership
from raftsched.leader.settings import LeaderSettings
from raftsched.node.metrics import NodeMetrics
from raftsched.ports import Randomness

log = structlog.get_logger()


class Terms:
    """Begin and end the duties as `replica` tells that this node leads; an error that ends them goes to `on_fault`."""

    def __init__(
        self,
        *,
        machine: ReplicatedState,
        replica: Replica,
        proposer: Proposer,
        clock: ClusterClock,
        randomness: Randomness,
        metrics: NodeMetrics,
        new_job_id: Callable[[], JobId],
        propose: Callable[[Operation], asyncio.Future[Result]],
        settings: Callable[[], LeaderSettings],
        on_fault: Callable[[BaseException], None],
    ) -> None:
        """`settings` returns those of now."""
        self.current: Leadership | None = None
        """The duties of this node; None if it has none now."""
        self._machine = machine
        self._replica = replica
        self._proposer = proposer
        self._clock = clock
        self._randomness = randomness
        self._metrics = metrics
        self._new_job_id = new_job_id
        self._propose = propose
        self._make_settings = settings
        self._settings = settings()
        self._on_fault = on_fault
        self._tasks: set[asyncio.Task[None]] = set()
        """Of the duties that are under way, and of those that end."""

    def on_leadership(self, leads: bool) -> None:
        """Begin duties, or end those of now."""
        if leads:
            self._begin()
        elif self.current is not None:
            retired, self.current = self.current, None
            retired.retire()
            self._proposer.begin_with(None)
            self._spawn(retired.stop())

    def _begin(self) -> None:
        self._settings = self._make_settings()
        self.current = Leadership(
            state=self._machine.state,
            propose=self._propose,
            clock=self._clock,
            randomness=self._randomness,
            new_job_id=self._new_job_id,
            settings=self._settings,
        )
        self.current.start()
        self._metrics.events.named_queues(self._machine.state)
        self._proposer.begin_with(self.current.preface, self.current.note_silence)
        log.info("leading", term=self._replica.term)
        self._spawn(self.current.wait())

    def on_settings(self) -> None:
        """Take over the settings of now, as far as they may change while duties are under way."""
        new, used = self._make_settings(), self._settings
        used.retention_ms, used.cancel_grace_ms, used.key = new.retention_ms, new.cancel_grace_ms, new.key
        if self.current is not None:
            self.current.on_settings()

    def on_changes(self, changes: Sequence[Change]) -> None:
        """Tell the duties which jobs were changed."""
        if self.current is not None:
            self._metrics.events.on_changes(changes)
            self.current.on_changes(changes)

    def on_records(self, records: Sequence[Write]) -> None:
        """Tell the duties which other records were changed."""
        if self.current is not None:
            self._metrics.events.on_records(records)
            self.current.on_records(records)

    async def wait(self) -> None:
        """Wait until all duties have ended, one way or another."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_fault(error)
