"""Those who use the cluster: clients that submit, cancel and read, workers that run jobs, a receiver that checks tokens.

They are coroutines on a loop of their own, outside of the faults. Some speak to nodes as the API's handlers do
(`callers`), others over HTTP with production's client (`sdk`).
"""

from __future__ import annotations

from chaos.sim.users.clients import Client, Prober
from chaos.sim.users.controllers import Controller
from chaos.sim.users.feature_users import FeatureUser, ScheduleUser, Tuner, WorkflowUser
from chaos.sim.users.sdk import SdkUser
from chaos.sim.users.targets import Target
from chaos.sim.users.workers import WorkerProcess
from chaos.sim.users.workload import Workload
from chaos.sim.world.world import World
from raftsched.core.records.spec import CallKind

_WORKERS_MORE = 2
"""Beside those of the plain jobs, if others exist."""
User = Client | WorkerProcess | Prober | FeatureUser | SdkUser


class Crowd(Workload):
    """Starts everybody who uses the cluster until `stop`."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        rates = world.rates
        self.sdk_users = tuple(f"u{number}" for number in range(rates.sdk_count))
        for number in range(rates.client_count):
            self._begin(Client(self, f"c{number}"), number)
        for name in self.sdk_users:
            self._begin(SdkUser(self, name), 0)
        homes = rates.features.served_regions
        for number in range(max(rates.worker_count, len(homes) + 1) if homes else rates.worker_count):
            region = homes[number] if number < len(homes) else ""
            knows_all = number <= len(homes)
            self._begin(WorkerProcess(self, f"w{number}", region=region, knows_all=knows_all), number)
        for number, tenant in enumerate(rates.features.bound_workers):
            self._begin(WorkerProcess(self, f"t{number}", tenant=tenant), number)
        self._begin_features()
        for number, node in enumerate(world.ids):
            self._begin(Prober(self, f"p{number}", node), number)

    def _begin_features(self) -> None:
        features = self.world.rates.features
        if features.schedule_count:
            self._begin(ScheduleUser(self, "s0"), 0)
        for number in range(features.workflow_users):
            self._begin(WorkflowUser(self, f"f{number}"), number)
        for number in range(features.tuners):
            self._begin(Tuner(self, f"q{number}"), number)
        for number in range(features.controllers):
            self._begin(Controller(self, f"m{number}"), number)
        for number in range(features.targets):
            self._begin(Target(self, f"g{number}"), number)
            self._begin(WorkerProcess(self, f"e{number}", names=(CallKind.HTTP.handler,)), number)
        if features.is_on:
            for number in range(_WORKERS_MORE):
                self._begin(WorkerProcess(self, f"v{number}", knows_all=not number), number)

    def _begin(self, user: User, number: int) -> None:
        self.world.timeline.after(0.3 + 0.01 * number, lambda: self._start(user))

    def _start(self, user: User) -> None:
        self.world.loop.create_task(user.live())

    def calm_down(self) -> None:
        """Nobody stalls or dies from now on, and each region has a worker."""
        self.is_calm = True
        self.world.unserved_users = set(self.sdk_users)
        late_region = self.world.rates.features.late_region
        if late_region:
            self._begin(WorkerProcess(self, "late", region=late_region), 0)
