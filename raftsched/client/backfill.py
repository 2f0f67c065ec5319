"""A backfill from its first instant to its last, by as many requests as it takes.

The cluster answers for the whole range that it was asked for, but stops making runs where there is no room for more
unfinished ones, or no more time for one request, and names the first instant that remains. The next request asks for the
range from there on: what is decided is not asked for again, so how long the cluster knows of it does not matter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any, Final

PATIENCE_SECONDS: Final = 10.0
"""How long a backfill without room waits for one of its runs to end."""
PAUSE_SECONDS: Final = 1.0
"""Between requests while there is no room."""
_COUNTED: Final = {"run": "run_count", "skip": "skipped_count", "known": "known_count"}
"""What becomes of an instant, and where an answer counts that."""


class BackfillWalk:
    """What remains to be asked for, and what the answers so far come to; `asked` is the request for it."""

    def __init__(self, asked: Mapping[str, Any]) -> None:
        self.asked = dict(asked)
        self.remaining_count = 0
        self.is_done = False
        self._answer: dict[str, Any] = {}
        self._decided: list[dict[str, Any]] = []
        self._counts: Counter[str] = Counter()

    @property
    def run_count(self) -> int:
        """Runs made by the requests that got further."""
        return self._counts["run"]

    def take(self, answer: dict[str, Any]) -> bool:
        """Take in the answer to `asked`; return whether it got further, or to the end."""
        self._answer = answer
        self.remaining_count = answer["remaining_count"]
        following = answer["next_instant"]
        if following is None:
            self.is_done = True
            return True
        gone = list(takewhile(lambda item: item["instant"] != following, answer["instants"]))
        if gone:
            self._decided += gone
            self._counts.update(item["action"] for item in gone)
            self.asked = _from(self.asked, following)
        return bool(gone)

    def total(self) -> dict[str, Any]:
        """Return the answer about the whole range, once it is done or an answer got no further."""
        counts = {field: self._counts[action] + self._answer[field] for action, field in _COUNTED.items()}
        return {**self._answer, **counts, "instants": self._decided + self._answer["instants"]}


def _from(asked: dict[str, Any], following: str) -> dict[str, Any]:
    """The request for the instants from `following` on, in the order of the runs."""
    if asked.get("order") == "desc":
        return {**asked, "to": (datetime.fromisoformat(following) + timedelta(milliseconds=1)).isoformat()}
    return {**asked, "from": following}
