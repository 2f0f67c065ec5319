"""Draw what a seed's users do of the things that hang together: schedules, workflows, limits of queues, control of jobs.

And whether jobs and workers have regions or tenants, and workers say which names they have handlers for. Drawn apart
from all else, so that a seed's faults and plain jobs don't depend on them; in a part of the seeds there are none at all,
and those are the runs that they always were.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

GREEN, AMBER = "green", "amber"
FEATURE_QUEUES = (GREEN, AMBER)
"""Beside the plain ones, which nobody limits or pauses: there, every node must serve."""
_SHARE = 0.6
_CATCHUP_MS = 6_000
"""If wall clocks are far off, cluster time may jump by thousands of instants; no more are made up than of this."""
_REGIONS_SHARE = 0.3
_REGIONS = ("north", "south", "west")
_HANDLERS_SHARE = 0.3
_TARGETS_SHARE = 0.5
"""Of the seeds that have other users."""
_TENANTS_SHARE = 0.3
TENANT = "default"
"""The tenant of all jobs, if there are no others."""
_OTHER_TENANTS = ("acme", "globex")
TICK, FLOW, WORK, CHORE = "tick", "flow", "work", "chore"
NAMES = (TICK, FLOW, WORK, CHORE)
"""Of jobs: of schedules, of workflows, and of all others."""


@dataclass(frozen=True, slots=True)
class Features:
    """The actions of users beside plain jobs; all zero if they do nothing of it."""

    schedule_count: int = 0
    workflow_users: int = 0
    tuners: int = 0
    controllers: int = 0
    think: float = 0.5
    """Mean time between two steps of such a user."""
    catchup_ms: int = _CATCHUP_MS
    job_options: float = 0.0
    """Part of a controller's submits whose jobs have options."""
    regions: tuple[str, ...] = ()
    """Of jobs and of workers, beside none; () = nobody knows of any."""
    late_region: str = ""
    """The one of them that has no worker until all is healed."""
    targets: int = 0
    """Those who have requests sent, and report their outcomes by callbacks; each with an executor."""
    has_handlers: bool = False
    """Jobs have several names, and most workers say which of them they know."""
    tenants: tuple[str, ...] = ()
    """Tenants of plain jobs, `TENANT` among them; () = that one alone. Some workers are given jobs of one only."""

    @property
    def is_on(self) -> bool:
        """Whether there are other jobs than plain ones; those may have regions, too."""
        return bool(self.schedule_count or self.workflow_users or self.tuners or self.controllers or self.targets)

    def job_region(self, random: Random) -> str:
        """A region for a job, or none; no coin is thrown if no regions exist."""
        return random.choice(("", *self.regions)) if self.regions else ""

    @property
    def bound_workers(self) -> tuple[str, ...]:
        """Return the tenants that have a worker of their own throughout."""
        return tuple(tenant for tenant in self.tenants if tenant != TENANT)

    def job_tenant(self, random: Random) -> str:
        """The tenant of a plain job; no coin is thrown if there is only one."""
        return random.choice(self.tenants) if self.tenants else TENANT

    def worker_tenant(self, random: Random) -> str:
        """The tenant whose jobs a worker is given, "" = all; no coin is thrown if there is only one."""
        return random.choice(("", *self.tenants)) if self.tenants else ""

    def job_name(self, random: Random) -> str:
        """The name of a job that somebody submits; no coin is thrown where all have the same."""
        return random.choice((WORK, CHORE)) if self.has_handlers else WORK

    def worker_names(self, random: Random, *, knows_all: bool) -> tuple[str, ...]:
        """The names that a worker says it has handlers for; () = it does not say."""
        if not self.has_handlers:
            return ()
        if knows_all:
            return random.choice(((), NAMES))
        return random.choice(((), NAMES, (WORK,), (CHORE, TICK), (WORK, FLOW)))

    def worker_region(self, random: Random) -> str:
        """The same for a worker, before all is healed."""
        served = self.served_regions
        return random.choice(("", *served)) if served else ""

    @property
    def served_regions(self) -> tuple[str, ...]:
        """Those that have a worker of their own from the start."""
        return tuple(region for region in self.regions if region != self.late_region)


NO_FEATURES = Features()


def draw_features(seed: int) -> Features:
    features = _with_targets(_draw_users(seed), Random(f"targets of {seed}"))
    features = _with_regions(features, Random(f"regions of {seed}"))
    has_tenants = Random(f"tenants of {seed}").random() < _TENANTS_SHARE
    return replace(
        features,
        has_handlers=Random(f"handlers of {seed}").random() < _HANDLERS_SHARE,
        tenants=(TENANT, *_OTHER_TENANTS) if has_tenants else (),
    )


def _with_targets(features: Features, random: Random) -> Features:
    if not features.is_on or random.random() >= _TARGETS_SHARE:
        return features
    return replace(features, targets=random.choice((1, 2, 3)))


def _with_regions(features: Features, random: Random) -> Features:
    if random.random() >= _REGIONS_SHARE:
        return features
    regions = _REGIONS[: random.choice((2, 3))]
    return replace(features, regions=regions, late_region=random.choice(("", regions[-1])))


def _draw_users(seed: int) -> Features:
    random = Random(f"features of {seed}")
    if random.random() >= _SHARE:
        return NO_FEATURES
    return Features(
        schedule_count=random.choice((0, 1, 2, 4)),
        workflow_users=random.choice((0, 1, 1, 2)),
        tuners=random.choice((0, 1)),
        controllers=random.choice((1, 2)),
        think=random.choice((0.2, 0.5)),
        catchup_ms=random.choice((2_000, _CATCHUP_MS)),
        job_options=random.choice((0.5, 0.9)),
    )
