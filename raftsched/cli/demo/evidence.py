"""Hold the evidence of the demo: the plan, and the records of the cluster and the receiver."""

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
    """A schedule: its fire times by the demo's own arithmetic, the cluster's preview of them, and its ledger."""

    name: str
    period: timedelta
    first: datetime
    through: datetime
    """Each fire time up to here must be decided."""
    previewed: Sequence[datetime] = ()
    ledger: Sequence[Firing] = ()
    """Oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that is judged. Maps are by job id unless stated otherwise."""

    planned: Mapping[str, Planned]
    found: Mapping[str, JobInfo]
    recorded: Mapping[str, Sequence[str]]
    """The receiver's records, by run id."""
    spans: Sequence[Span] = ()
    """Attempts that the receiver recorded."""
    timetables: Sequence[Timetable] = ()
    graph: Graph = field(default_factory=Graph)
    histories: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Names of the events in the history of jobs that were paused."""
    logs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Lines of jobs that wrote some."""
    unique_ids: Sequence[str] = ()
    """The answer to each submission of the unique job."""

    def of_kind(self, kind: str) -> list[JobInfo]:
        """Return jobs of a kind that were planned and found."""
        return [self.found[job_id] for job_id, job in self.planned.items() if job.kind == kind and job_id in self.found]
