"""A worker of raw HTTP, without the SDK: any node is asked, and some runs outlive their leases in silence."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Final

from chaos.drills.history.exchanges import granted
from chaos.drills.load.asking import Asker
from chaos.drills.load.feature_users import FLOW, TICKS
from chaos.drills.nodes import Node

QUEUES: Final = ("raw", TICKS, FLOW)
_OK: Final = 200
_CAPACITY: Final = 3
_SILENT: Final = 0.03
"""Part of the runs that send no sign of life for longer than their lease, and then report."""
_SILENT_TERMS: Final = 1.6
_LONG: Final = 0.05
"""Part of the runs that take several leases, kept by heartbeats."""
_BEATS: Final = 5
_FAILED: Final = 0.05
_REPORT_SECONDS_MAX: Final = 40.0
_SHORT_SECONDS_MAX: Final = 0.2
_PAUSE_SECONDS: Final = 0.1


class RawWorker:
    """Leases a few jobs of `queues` at a time, and asks again once all have ended; `node` if it asks no other."""

    def __init__(self, asker: Asker, *, queues: Sequence[str] = QUEUES, node: Node | None = None) -> None:
        self._asker = asker
        self._queues = queues
        self._node = node
        self._is_calm = node is not None

    def calm(self) -> None:
        """Take no long runs any more."""
        self._is_calm = True

    async def live(self) -> None:
        while True:
            if not await self.work_once():
                await asyncio.sleep(_PAUSE_SECONDS)

    async def work_once(self) -> bool:
        """Lease jobs, and do them; return whether there were any."""
        asked = {"worker": self._asker.name, "queues": self._queues, "capacity": _CAPACITY, "wait_seconds": 1}
        answer = await self._asker.ask("POST", "/leases", asked, node=self._node)
        leases = answer.document["leases"] if answer.status == _OK else []
        async with asyncio.TaskGroup() as runs:
            for lease in leases:
                runs.create_task(self._run(lease))
        return bool(leases)

    async def _run(self, lease: dict[str, Any]) -> None:
        recorder, grant = self._asker.recorder, granted(lease)
        recorder.effect("begin", grant, self._asker.name)
        keeps = await self._work(lease)
        recorder.effect("end", grant, self._asker.name)
        if keeps:
            await self._report(lease)

    async def _work(self, lease: dict[str, Any]) -> bool:
        """Take some time; return whether the outcome is to be reported."""
        drawn, term = self._asker.random.random(), lease["lease_seconds"]
        if not self._is_calm and drawn < _SILENT:
            await asyncio.sleep(_SILENT_TERMS * term)
        elif not self._is_calm and drawn < _SILENT + _LONG:
            for _ in range(_BEATS):
                await asyncio.sleep(term / 3)
                if not await self._beat(lease):
                    return False
        else:
            await asyncio.sleep(_SHORT_SECONDS_MAX * self._asker.random.random())
        return True

    async def _beat(self, lease: dict[str, Any]) -> bool:
        """Return whether the lease is kept, as far as anybody says."""
        held = {"run_id": lease["run_id"], "fencing_token": lease["fencing_token"]}
        answer = await self._asker.ask("POST", "/leases/heartbeat", {"worker": self._asker.name, "leases": [held]})
        return answer.status != _OK or bool(answer.document["leases"][0]["valid"])

    async def _report(self, lease: dict[str, Any]) -> None:
        token = lease["fencing_token"]
        has_failed = self._asker.random.random() < _FAILED
        end = (
            {"status": "failed", "error": {"type": "Drawn"}} if has_failed else {"status": "completed", "result": token}
        )
        completion_id = f"{self._asker.name}-{token}"
        report = {"run_id": lease["run_id"], "fencing_token": token, "completion_id": completion_id, **end}
        deadline = time.monotonic() + _REPORT_SECONDS_MAX
        while time.monotonic() < deadline:
            body = {"worker": self._asker.name, "outcomes": [report]}
            if (await self._asker.ask("POST", "/leases/outcomes", body, node=self._node)).is_definite:
                return
            await asyncio.sleep(_PAUSE_SECONDS)
