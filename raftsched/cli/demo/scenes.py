"""Act on queues, schedules, a workflow and single jobs while the demo runs."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from raftsched.cli.demo.evidence import Timetable
from raftsched.cli.demo.graph import AT_ONCE, Graph
from raftsched.cli.demo.jobs_table import JobsTable, finished_count
from raftsched.cli.demo.plan import (
    EXECUTED_KINDS,
    NARROW_AT_ONCE,
    RATE_COUNT,
    RATE_SECONDS,
    Planned,
    command,
    note,
    request,
    unique,
)
from raftsched.client import Client, JobSpec, Unique
from raftsched.client.bulk import DeadLetterFilter
from raftsched.client.records import Preview, Rate, ScheduleInfo
from raftsched.client.workflows import WorkflowRun
from raftsched.errors import Rejected
from raftsched.executors.placeholders import timestamp

PLAYED_KINDS: Final = frozenset(("priority", "requeue", "cancel", "pause", "once"))
"""Kinds that are acted on before the leader is killed."""
_CRON = "*/2 * * * * *"
_ZONE = "Europe/Berlin"
_PREVIEW_COUNT = 4
_DECIDE_SECONDS_MAX = 10.0
_POLL_SECONDS = 0.05


class Scenes:
    """Play the scenes, and add the jobs that they submit to `planned`."""

    def __init__(
        self, client: Client, jobs_table: JobsTable, planned: dict[str, Planned], *, receiver: str, ledger: Path
    ) -> None:
        self._receiver = receiver
        self._ledger = ledger
        self._client = client
        self._jobs_table = jobs_table
        self._planned = planned
        self._timetables: list[Timetable] = []
        self.unique_ids: list[str] = []
        self.workflow: WorkflowRun | None = None

    # -- before the jobs come -----------------------------------------------------------------------------------------

    async def set_up(self) -> None:
        """Set the queues' limits, and start the schedules, which run all the time."""
        queue = self._client.queue
        await queue("narrow").configure(concurrency=NARROW_AT_ONCE)
        await queue("rate").configure(rate=Rate(RATE_COUNT, RATE_SECONDS, burst=1))
        await queue("workflow").configure(concurrency=AT_ONCE)
        await queue("priority").configure(concurrency=1)
        await queue("priority").pause(reason="until all of them wait")
        await self._save_schedules()

    async def _save_schedules(self) -> None:
        schedules = self._client.schedules
        every = await schedules.save("every", _tick("every"), every="1s", overlap="allow", misfire="run_all")
        outlook = await schedules.next("every", count=_PREVIEW_COUNT)
        self._note_schedule(every, timedelta(seconds=1), outlook)
        outlook = await schedules.preview(cron=_CRON, timezone=_ZONE, count=_PREVIEW_COUNT)
        times = ", ".join(f"{instant:%H:%M:%S}" for instant in outlook.firings)
        self._jobs_table.say(f"cron {_CRON} in {_ZONE} will fire at {times} UTC, and so on")
        cron = await schedules.save(
            "cron", _tick("cron"), cron=_CRON, timezone=_ZONE, overlap="allow", misfire="run_all"
        )
        self._note_schedule(cron, timedelta(seconds=2), outlook)
        for kind in ("http-2s", "shell-2s"):
            spec = self._ticking(kind, "{{fire_time}}").spec
            saved = await schedules.save(kind, spec, every="2s", overlap="allow", misfire="run_all")
            self._note_schedule(saved, timedelta(seconds=2), await schedules.next(kind, count=_PREVIEW_COUNT))

    def _ticking(self, kind: str, text: str) -> Planned:
        """Return the job of a schedule: it records its fire time, `text`."""
        if kind == "http-2s":
            return request(kind, self._receiver, text)
        if kind == "shell-2s":
            return replace(command(kind, self._ledger), recorded=text)
        return Planned(_tick(kind), result={"instant": text}, recorded=text)

    def _note_schedule(self, schedule: ScheduleInfo, period: timedelta, outlook: Preview) -> None:
        assert schedule.next_at is not None, "a new schedule without an instant"
        first = schedule.next_at
        previewed = [instant for instant in outlook.firings if instant >= first]
        self._timetables.append(
            Timetable(name=schedule.name, period=period, first=first, through=first, previewed=previewed)
        )

    # -- while they run -----------------------------------------------------------------------------------------------

    async def play(self) -> None:
        """Act on the jobs of `PLAYED_KINDS`, which are all submitted by now."""
        await self._client.queue("priority").resume()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._submit_unique())
            group.create_task(self._requeue())
            group.create_task(self._cancel())
            group.create_task(self._client.bulk("resume", ids=self._ids("pause")))
        await self._until_ended("priority", "once")
        self._jobs_table.say("resumed, requeued, cancelled and put in order; now the bulk, and a workflow")
        await self._submit_workflow()

    async def _submit_workflow(self) -> None:
        graph = Graph()
        self.workflow = await self._client.workflows.submit(graph.workflow)
        self._planned |= {job.id: graph.planned[task] for task, job in self.workflow.jobs.items()}

    async def _submit_unique(self) -> None:
        job = unique()
        spec = job.spec
        for conflict in ("return", "return", "reject"):
            rule = Unique(key="the daily report", for_seconds=3600, on_conflict=conflict)
            try:
                handle = await self._client.submit(spec.name, spec.payload, queue=spec.queue, unique=rule)
                self.unique_ids.append(handle.id)
            except Rejected as refused:
                self.unique_ids.append(str(refused.job_id))
        self._planned[self.unique_ids[0]] = job

    async def _requeue(self) -> None:
        """Wait until all have been given up for the same reason, then requeue all of that reason."""
        expected = len(self._ids("requeue"))
        chosen: DeadLetterFilter = {"reason": "rejected", "queue": "requeue"}
        while (await self._client.dead_letters.requeue(filter=chosen, dry_run=True)).matched < expected:
            await asyncio.sleep(_POLL_SECONDS)
        done = (await self._client.dead_letters.requeue(filter=chosen)).done
        self._jobs_table.say(f"{done} dead letters with the reason rejected run again")

    async def _cancel(self) -> None:
        """Cancel at once those that wait, and the others when they run."""
        jobs = {job_id: self._planned[job_id].spec.name for job_id in self._ids("cancel")}
        await self._client.bulk("cancel", ids=[job_id for job_id, name in jobs.items() if name != "long"])
        running = [job_id for job_id, name in jobs.items() if name == "long"]
        for job_id in running:
            while (await self._client.get(job_id)).status != "running":
                await asyncio.sleep(_POLL_SECONDS)
        await self._client.bulk("cancel", ids=running)

    async def _until_ended(self, *kinds: str) -> None:
        wanted = {kind: len(self._ids(kind)) for kind in kinds}
        while any(finished_count(queue) < wanted.get(queue["name"], 0) for queue in await self._client.queues()):
            await asyncio.sleep(_POLL_SECONDS)

    def _ids(self, *kinds: str) -> list[str]:
        return [job_id for job_id, job in self._planned.items() if job.kind in kinds]

    async def half_way(self) -> str:
        """Report the progress of those that take long, in one line."""
        assert self.workflow is not None
        workflow = await self.workflow.get()
        told = [f"workflow {workflow.job_count - workflow.unfinished_count} of {workflow.job_count}"]
        for table in self._timetables:
            schedule = await self._client.schedules.get(table.name)
            told.append(f"{table.name} {schedule.fired_count} instants")
        reports = [await self._client.get(job_id) for job_id in self._ids("report")]
        told += [f"a report is at {report.progress}" for report in reports[:1] if report.progress]
        return ", ".join(told)

    # -- at the end ---------------------------------------------------------------------------------------------------

    async def finish_schedules(self) -> list[Timetable]:
        """Let the schedules decide all fire times up to now, stop them, and return the decisions.

        Late decisions are missing from the result. Their jobs are added to those planned.
        """
        through = datetime.now(UTC)
        return [await self._finish(replace(table, through=through)) for table in self._timetables]

    async def _finish(self, table: Timetable) -> Timetable:
        schedules = self._client.schedules
        with suppress(TimeoutError):
            async with asyncio.timeout(_DECIDE_SECONDS_MAX):
                while (next_at := (await schedules.get(table.name)).next_at) and next_at <= table.through:
                    await asyncio.sleep(_POLL_SECONDS)
        await schedules.pause(table.name, reason="the demo ends")
        ledger = [line async for line in schedules.firings(table.name, order="asc", page_size=1_000)]
        for line in ledger:
            if line.job_id:
                is_executed = table.name in EXECUTED_KINDS
                text = timestamp(line.instant) if is_executed else line.instant.isoformat()
                self._planned[line.job_id] = self._ticking(table.name, text)
        return replace(table, ledger=ledger)

    async def find_hooks(self) -> None:
        """Add the jobs that the ends of others submitted to the plan."""
        async for job in self._client.list(queue="hook", page_size=1_000):
            cause = self._planned.get(str(job.hook_of))
            text = f"{cause.spec.name if cause else '?'} {job.hook_of} ended: attempts_exhausted"
            self._planned[job.id] = note("hook", text)


def _tick(kind: str) -> JobSpec:
    return JobSpec(name="tick", queue=kind)
