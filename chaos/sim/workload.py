"""Those who use the cluster: clients that submit, cancel and read, workers that run jobs, a receiver that checks tokens.

They are coroutines on a loop of their own, outside of the faults, and speak to nodes as the API's handlers do
(`callers`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.sim.clients import Client, Prober
from chaos.sim.workers import Receiver, WorkerProcess
from raftsched.core.ids import JobId

if TYPE_CHECKING:
    from chaos.sim.world import World


class Workload:
    """Everybody who uses the cluster until `stop`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.is_calm = False
        self.is_over = False
        self.jobs: list[JobId] = []
        """The latest ones that somebody heard of."""
        self.receiver = Receiver(world)
        rates = world.rates
        for number in range(rates.client_count):
            self._begin(Client(self, f"c{number}"), number)
        for number in range(rates.worker_count):
            self._begin(WorkerProcess(self, f"w{number}"), number)
        for number, node in enumerate(world.ids):
            self._begin(Prober(self, f"p{number}", node), number)

    def _begin(self, user: Client | WorkerProcess | Prober, number: int) -> None:
        self.world.timeline.after(0.3 + 0.01 * number, lambda: self._start(user))

    def _start(self, user: Client | WorkerProcess | Prober) -> None:
        self.world.loop.create_task(user.live())

    def calm_down(self) -> None:
        """Nobody stalls or dies from now on."""
        self.is_calm = True

    def stop(self) -> None:
        self.is_over = True

    def met(self, job_id: JobId) -> None:
        self.jobs.append(job_id)
        if len(self.jobs) > 30:
            del self.jobs[:10]
