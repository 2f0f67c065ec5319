"""Define what the checks expect of each finished status.

Said again, not read from `TRAITS`: a wrong row there must not make the checks wrong as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from raftsched.core.records.job import FINISHED, Condition, Status

RUN_AGAIN: Final = frozenset({Status.DEAD_LETTER, Status.CANCELLED, Status.SKIPPED})
"""Users can run these again."""
MEETS: Final[Mapping[Condition, frozenset[Status]]] = {
    Condition.SUCCESS: frozenset({Status.COMPLETED}),
    Condition.FAILURE: frozenset({Status.DEAD_LETTER}),
    Condition.COMPLETION: FINISHED,
}
"""Statuses of a parent in which its dependant's condition is met."""
WORKFLOW_COUNTS: Final[Mapping[str, frozenset[Status]]] = {
    "failed_count": frozenset({Status.DEAD_LETTER}),
    "cancelled_count": frozenset({Status.CANCELLED}),
    "skipped_count": frozenset({Status.SKIPPED}),
}
"""Statuses of the jobs that each count of a workflow has; the other finished ones are the rest."""
