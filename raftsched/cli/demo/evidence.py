"""What the demo gathered: what was planned, and what the cluster and the receiver say of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from raftsched.cli.demo.ledger import Span
from raftsched.cli.demo.plan import Planned
from raftsched.client import JobInfo
from raftsched.client.records import Firing, Graph


@dataclass(frozen=True, slots=True, kw_only=True)
class Timetable:
    """A schedule: its grid by the demo's own arithmetic, what the cluster foretold of it, and its ledger."""

    name: str
    period: timedelta
    first: datetime
    through: datetime
    """Each instant of the grid up to here must be decided."""
    foretold: Sequence[datetime] = ()
    ledger: Sequence[Firing] = ()
    """Oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that is judged. Maps are by job id where nothing else is said."""

    planned: Mapping[str, Planned]
    found: Mapping[str, JobInfo]
    recorded: Mapping[str, Sequence[str]]
    """What the receiver recorded, by run id."""
    spans: Sequence[Span] = ()
    """Attempts that the receiver witnessed."""
    timetables: Sequence[Timetable] = ()
    graph: Graph = field(default_factory=Graph)
    histories: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Names of the events in the lives of jobs that were paused."""
    logs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Lines of jobs that wrote some."""
    unique_ids: Sequence[str] = ()
    """What each submission of the unique job was answered with."""

    def of_kind(self, kind: str) -> list[JobInfo]:
        """Jobs of a kind that were planned and found."""
        return [self.found[job_id] for job_id, job in self.planned.items() if job.kind == kind and job_id in self.found]
