"""Which of the things that hang together a seed's users do: schedules, workflows, limits of queues, control of jobs.

Drawn apart from all else, so that a seed's faults and plain jobs don't depend on them; in a part of the seeds there are
none at all, and those are the runs that they always were.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

GREEN, AMBER = "green", "amber"
FEATURE_QUEUES = (GREEN, AMBER)
"""Beside the plain ones, which nobody limits or pauses: there, every node must serve."""
_SHARE = 0.6
_CATCHUP_MS = 6_000
"""Where wall clocks are far off, cluster time may jump by thousands of instants; no more are made up than of this."""


@dataclass(frozen=True, slots=True)
class Features:
    """What users do beside plain jobs; all zero where they do nothing of it."""

    schedule_count: int = 0
    workflow_users: int = 0
    tuners: int = 0
    controllers: int = 0
    think: float = 0.5
    """Mean time between two steps of such a user."""
    catchup_ms: int = _CATCHUP_MS
    job_options: float = 0.0
    """Part of a controller's submits whose jobs have options."""

    @property
    def is_on(self) -> bool:
        return bool(self.schedule_count or self.workflow_users or self.tuners or self.controllers)


NO_FEATURES = Features()


def draw_features(seed: int) -> Features:
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
