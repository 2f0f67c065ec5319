"""Define the demo's workflow: pages counted in parallel, the counts added up in two steps, and a publication that
fails.

split → page-1 … page-30 → sum-1 … sum-5 → total → publish (fails) → announce → archive   (both skipped)
                                                          ├ on failure → alarm
                                                          └ on completion → clean
"""

from __future__ import annotations

from collections.abc import Sequence

from raftsched.cli.demo.plan import Planned
from raftsched.client import Workflow
from raftsched.client.specs import Condition
from raftsched.client.workflows import Task

AT_ONCE = 4
"""Jobs of it that run at the same time, so that the leader is killed half-way."""
_PAGE_COUNT = 30
_SUM_COUNT = 5
_PAGE_SECONDS = 0.5


class Graph:
    """A workflow, and how each of its jobs must end."""

    def __init__(self) -> None:
        self.workflow = Workflow("count-pages")
        self.planned: dict[str, Planned] = {}
        """By task name."""
        split = self._count("split", 0)
        pages = [
            self._count(f"page-{page}", page, after=[split], seconds=_PAGE_SECONDS)
            for page in range(1, _PAGE_COUNT + 1)
        ]
        sums = [
            self._sum(f"sum-{n + 1}", sum(range(n + 1, _PAGE_COUNT + 1, _SUM_COUNT)), pages[n::_SUM_COUNT])
            for n in range(_SUM_COUNT)
        ]
        total = self._sum("total", sum(range(_PAGE_COUNT + 1)), sums)
        publish = self._add("publish", "hopeless", {"account": "press"}, [total], ends_as="dead_letter", max_attempts=1)
        announce = self._add("announce", "count", {"value": 0}, [publish], ends_as="skipped")
        self._add("archive", "count", {"value": 0}, [announce], ends_as="skipped")
        self._count("alarm", 1, after=[publish], on="failure")
        self._count("clean", 2, after=[publish], on="completion")

    def _count(
        self, task: str, value: int, *, after: Sequence[Task] = (), on: Condition = "success", seconds: float = 0.0
    ) -> Task:
        return self._add(task, "count", {"value": value, "seconds": seconds}, after, on=on, result=value)

    def _sum(self, task: str, value: int, parents: Sequence[Task]) -> Task:
        return self._add(task, "add_up", {"parents": [parent.name for parent in parents]}, parents, result=value)

    def _add(
        self,
        task: str,
        name: str,
        payload: object,
        after: Sequence[Task],
        *,
        on: Condition = "success",
        ends_as: str = "completed",
        result: int | None = None,
        max_attempts: int | None = None,
    ) -> Task:
        added = self.workflow.job(
            name, payload, task=task, after=after, on=on, queue="workflow", max_attempts=max_attempts
        )
        self.planned[task] = Planned(
            added.spec,
            ends_as,
            result=None if result is None else {"value": result},
            attempts=0 if ends_as == "skipped" else 1,
            recorded=None if result is None else str(result),
        )
        return added
