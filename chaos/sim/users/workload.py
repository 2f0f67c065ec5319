"""State that all users of a world share: the jobs that they know, the receiver, and whether they continue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from chaos.sim.users.receiver import Receiver
from chaos.sim.world.world import World
from raftsched.core.records.ids import JobId

if TYPE_CHECKING:
    from chaos.sim.users.targets import SentRequest

_REQUESTS_MAX = 12


class Workload:
    """The users of a world, as each of them knows the others."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.is_calm = False
        """Nobody stalls or dies any more."""
        self.is_over = False
        self.jobs: list[JobId] = []
        """The latest ones that somebody heard of."""
        self.tied_jobs: list[JobId] = []
        """The latest of workflows and of those who meddle with jobs."""
        self.requests: list[SentRequest] = []
        """The latest that were sent to the target of all."""
        self.receiver = Receiver(world)

    def stop(self) -> None:
        self.is_over = True

    def met(self, job_id: JobId) -> None:
        self.jobs.append(job_id)
        if len(self.jobs) > 30:
            del self.jobs[:10]

    def sent(self, request: SentRequest) -> None:
        self.requests.append(request)
        del self.requests[:-_REQUESTS_MAX]

    def met_tied(self, job_ids: Sequence[JobId]) -> None:
        self.tied_jobs += job_ids
        del self.tied_jobs[:-60]
