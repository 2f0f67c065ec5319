"""Users of what hangs together: schedules, workflows and queues, over raw HTTP at any node.

Once the load ends they leave everything as it should work: no schedule fires any more, and no queue is paused.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from chaos.drills.load.asking import Asker
from chaos.drills.load.users import JobsKnown

TICKS: Final = "ticks"
FLOW: Final = "flow"
_PAUSE_SECONDS: Final = 1.0
_TIDY_SECONDS_MAX: Final = 30.0
_RETRY: Final = {"backoff": "fixed", "base_seconds": 0.2}
_OVERLAPS: Final = ("skip", "buffer_one", "buffer_all", "allow", "cancel_previous", "terminate_previous")
_CONDITIONS: Final = ("success", "success", "completion", "failure")
_TRIES: Final = 3
Step = Callable[[], Awaitable[object]]


class FeatureUser(ABC):
    """Does one step after another, each asked once of any node."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker
        self._random = asker.random

    async def live(self) -> None:
        while True:
            await asyncio.sleep(2 * _PAUSE_SECONDS * self._random.random())
            steps, weights = zip(*self._steps(), strict=True)
            await self._random.choices(steps, weights)[0]()

    async def tidy(self) -> None:
        """Put things in order, again until it is answered."""
        for method, path in self._left():
            deadline = time.monotonic() + _TIDY_SECONDS_MAX
            while time.monotonic() < deadline and not (await self._asker.ask(method, path)).is_definite:
                await asyncio.sleep(0.2)

    @abstractmethod
    def _steps(self) -> Sequence[tuple[Step, float]]:
        """Return the steps, each with its weight in the draw."""

    @abstractmethod
    def _left(self) -> Sequence[tuple[str, str]]:
        """Return the requests that put things in order: (method, path)."""

    def _ask(self, method: str, path: str) -> Step:
        return lambda: self._asker.ask(method, path)


class ScheduleUser(FeatureUser):
    """Saves a few schedules of seconds, pauses, resumes, runs and deletes them."""

    def __init__(self, asker: Asker) -> None:
        super().__init__(asker)
        self._ids: dict[str, str] = {}
        """Name -> id of those that it has heard of."""

    def _steps(self) -> Sequence[tuple[Step, float]]:
        steps: list[tuple[Step, float]] = [(self._save, 2.0 if self._ids else 8.0)]
        if self._ids:
            path = f"/schedules/{self._random.choice(list(self._ids.values()))}"
            steps += [(self._ask("POST", f"{path}/{verb}"), 2.0) for verb in ("pause", "resume", "resume")]
            steps += [(self._ask("POST", f"{path}/trigger"), 1.0), (self._ask("DELETE", path), 0.5)]
        return steps

    async def _save(self) -> None:
        random, name = self._random, f"ticker-{self._random.randrange(3)}"
        job = {"name": TICKS, "queue": TICKS, "payload": {}, "max_attempts": 2, "retry_policy": _RETRY}
        document = {
            "name": name,
            "every": random.choice(("1s", "1s", "2s", "3s")),
            "job": job | {"priority": random.choice((0, 5, 9))},
            "overlap": random.choice(_OVERLAPS),
            "misfire": random.choice(("run_once", "skip", "run_all")),
            "catchup_window_seconds": 60,
        }
        answer = await self._asker.ask("POST", "/schedules", document)
        if "id" in answer.document:
            self._ids[name] = answer.document["id"]

    def _left(self) -> Sequence[tuple[str, str]]:
        return [("DELETE", f"/schedules/{schedule}") for schedule in self._ids.values()]


class WorkflowUser(FeatureUser):
    """Submits small graphs of jobs under a key, again where nobody knows, and cancels some."""

    def __init__(self, asker: Asker, known: JobsKnown) -> None:
        super().__init__(asker)
        self._known = known
        self._latest: list[str] = []

    def _steps(self) -> Sequence[tuple[Step, float]]:
        cancels = [(self._ask("DELETE", f"/workflows/{workflow}"), 0.5) for workflow in self._latest[-1:]]
        return [(self._submit, 2.0), *cancels]

    async def _submit(self) -> None:
        key = f"{self._asker.name}-{self._asker.recorder.new_op()}"
        numbers = range(self._random.choice((3, 4, 6)))
        document = {"name": FLOW, "jobs": {f"t{number}": self._task(number) for number in numbers}}
        for _ in range(_TRIES):
            answer = await self._asker.ask("POST", "/workflows", document, key=key)
            if answer.is_definite:
                break
        if "id" in answer.document:
            self._latest.append(answer.document["id"])
            for job in answer.document["jobs"].values():
                self._known.add(job)

    def _task(self, number: int) -> dict[str, Any]:
        random = self._random
        parents = random.sample(range(number), min(number, random.choice((0, 1, 1, 2))))
        return {
            "name": FLOW,
            "queue": FLOW,
            "payload": {"n": number},
            "max_attempts": random.choice((1, 2)),
            "retry_policy": _RETRY,
            "priority": random.choice((0, 5, 9)),
            "on_dependency_failure": random.choice(("skip", "fail")),
            "depends_on": [{"task": f"t{parent}", "condition": random.choice(_CONDITIONS)} for parent in parents],
        }

    def _left(self) -> Sequence[tuple[str, str]]:
        return ()


class QueueUser(FeatureUser):
    """Pauses the queue of workflows now and then, and changes how many of its jobs may run at once."""

    def _steps(self) -> Sequence[tuple[Step, float]]:
        path = f"/queues/{FLOW}"
        pauses = [(self._ask("POST", f"{path}/{verb}"), weight) for verb, weight in (("pause", 1.0), ("resume", 3.0))]
        return [*pauses, (self._limit, 1.0)]

    async def _limit(self) -> None:
        limit = self._random.choice((None, 2, 5))
        await self._asker.ask("PATCH", f"/queues/{FLOW}", {"concurrency": limit})

    def _left(self) -> Sequence[tuple[str, str]]:
        return [("POST", f"/queues/{FLOW}/resume")]
