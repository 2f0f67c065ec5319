"""Check the tenants of workers: one that is given the jobs of a tenant gets no other's."""

from __future__ import annotations

from chaos.checkers.history.events import Change, Granted
from chaos.checkers.history.views import Answer, History
from chaos.checkers.report import Violation


def leases_stay_in_their_tenant(history: History) -> list[Violation]:
    """A worker of a tenant is leased jobs of that one alone: by the log, and by what workers say (DESIGN 13)."""
    tenants = {change.job: change.tenant for change in history.changes if change.f == "submit"}
    violations = [
        Violation(
            f"job {lease.job} of {lease.tenant} is leased at index {lease.index} to {lease.worker_tenant}", lease.t
        )
        for lease in _bound_leases(history)
        if lease.tenant != lease.worker_tenant
    ]
    violations += [
        Violation(
            f"{answer.operation} gets job {grant.job} of {tenants[grant.job]}, for {answer.call.tenant}", answer.reply.t
        )
        for answer, grant in _bound_grants(history)
        if tenants.get(grant.job, answer.call.tenant) != answer.call.tenant
    ]
    return violations


def bound_count(history: History) -> int:
    """Grants to workers of one tenant."""
    return len(_bound_grants(history))


def _bound_leases(history: History) -> list[Change]:
    return [change for change in history.changes if change.f == "lease" and change.worker_tenant]


def _bound_grants(history: History) -> list[tuple[Answer, Granted]]:
    return [(answer, grant) for answer, grant in history.grants if answer.call.tenant]
