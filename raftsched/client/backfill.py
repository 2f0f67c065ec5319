"""Run a backfill from its first fire time to its last, in several requests.

The cluster answers for the whole range of a request. It stops making runs when too many are unfinished, or when the
time for one request is over, and names the first remaining fire time. The next request continues from there. So decided
fire times are not requested again, and the cluster need not remember them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any, Final

PATIENCE_SECONDS: Final = 10.0
"""Longest wait for a run to end, while too many are unfinished."""
PAUSE_SECONDS: Final = 1.0
"""Pause between requests, while too many runs are unfinished."""
_COUNT_FIELDS: Final = {"run": "run_count", "skip": "skipped_count", "known": "known_count"}
"""The answer's count for each action on a fire time."""


class BackfillProgress:
    """The sum of the answers so far, and the next `request`, for the remaining fire times."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        self.request = dict(request)
        self.remaining_count = 0
        self.is_done = False
        self._answer: dict[str, Any] = {}
        self._decided: list[dict[str, Any]] = []
        self._counts: Counter[str] = Counter()

    @property
    def run_count(self) -> int:
        """Return the number of runs made by the requests that made progress."""
        return self._counts["run"]

    def add(self, answer: dict[str, Any]) -> bool:
        """Add the answer to `request`; return whether it made progress, or reached the end."""
        self._answer = answer
        self.remaining_count = answer["remaining_count"]
        following = answer["next_instant"]
        if following is None:
            self.is_done = True
            return True
        decided = list(takewhile(lambda item: item["instant"] != following, answer["instants"]))
        if decided:
            self._decided += decided
            self._counts.update(item["action"] for item in decided)
            self.request = _from(self.request, following)
        return bool(decided)

    def total(self) -> dict[str, Any]:
        """Return the answer for the whole range, once it is done or an answer made no progress."""
        counts = {field: self._counts[action] + self._answer[field] for action, field in _COUNT_FIELDS.items()}
        return {**self._answer, **counts, "instants": self._decided + self._answer["instants"]}


def _from(request: dict[str, Any], following: str) -> dict[str, Any]:
    """Return the request for the fire times from `following` on, in the order of the runs."""
    if request.get("order") == "desc":
        return {**request, "to": (datetime.fromisoformat(following) + timedelta(milliseconds=1)).isoformat()}
    return {**request, "from": following}
