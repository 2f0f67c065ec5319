"""Properties of regions: who has one keeps it, and workers get what is of theirs, or of none."""

from __future__ import annotations

from chaos.checkers.history.events import Change, Invoke, ScheduleChanged
from chaos.checkers.history.views import History
from chaos.checkers.report import Violation


def jobs_keep_their_region(history: History) -> list[Violation]:
    """A job has the region that its submit asked for, or its schedule, and keeps it whatever befalls it (DESIGN 8)."""
    regions = _regions(history)
    return [
        Violation(
            f"job {change.job} is of region {change.region!r} after the {change.f} at index {change.index}, "
            f"and was made for {regions[change.job]!r}",
            change.t,
        )
        for change in history.changes
        if change.f != "purge" and change.region != regions.get(change.job, change.region)
    ]


def leases_stay_in_their_region(history: History) -> list[Violation]:
    """Jobs of a region are leased to its workers alone: by the log, and by what workers say of themselves (DESIGN 8)."""
    regions = _regions(history)
    violations = []
    for lease in _leases(history):
        region = regions.get(lease.job, "")
        if region not in ("", lease.worker_region):
            what = f"job {lease.job} of {region} is leased at index {lease.index} to {_whom(lease.worker_region)}"
            violations.append(Violation(what, lease.t))
    for answer, grant in history.grants:
        region = regions.get(grant.job, "")
        if region not in ("", answer.call.region):
            what = f"{answer.operation} gets job {grant.job} of {region}, for {_whom(answer.call.region)}"
            violations.append(Violation(what, answer.reply.t))
    return violations


def region_count(history: History) -> int:
    """Leases of jobs that have a region."""
    return sum(1 for lease in _leases(history) if lease.region)


def _whom(region: str) -> str:
    return f"a worker of {region}" if region else "a worker without region"


def _leases(history: History) -> list[Change]:
    return [change for change in history.changes if change.f == "lease"]


def _regions(history: History) -> dict[str, str]:
    """Job -> its region: what its schedule said then, or the client, as far as the log says who that was.

    If it does not, it is what the job was made with.
    """
    asked = {call.op: call.region for call in history.of(Invoke) if call.f == "submit"}
    said: dict[str, str] = {}
    regions: dict[str, str] = {}
    for event in history.log_of(Change, ScheduleChanged):
        if isinstance(event, ScheduleChanged):
            said[event.schedule] = event.region
        elif isinstance(event, Change) and event.f == "submit":
            wish = said.get(event.schedule) if event.schedule else asked.get(event.op)
            regions[event.job] = event.region if wish is None else wish
    return regions
