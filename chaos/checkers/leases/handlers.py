"""Check the handlers of workers: a worker that says which names it knows gets no other job."""

from __future__ import annotations

from chaos.checkers.history.events import Granted
from chaos.checkers.history.views import Answer, History
from chaos.checkers.report import Violation


def leases_fit_their_handlers(history: History) -> list[Violation]:
    """A worker that says which names it has handlers for is granted jobs of those alone (DESIGN 8)."""
    names = {change.job: change.name for change in history.changes if change.f == "submit"}
    return [
        Violation(
            f"{answer.operation} gets job {grant.job}, {names[grant.job]!r}, for {answer.call.names}", answer.reply.t
        )
        for answer, grant in _choosy(history)
        if names.get(grant.job, answer.call.names[0]) not in answer.call.names
    ]


def choosy_count(history: History) -> int:
    """Grants to workers that say which names they know."""
    return len(_choosy(history))


def _choosy(history: History) -> list[tuple[Answer, Granted]]:
    return [(answer, grant) for answer, grant in history.grants if answer.call.names]
