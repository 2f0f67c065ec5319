"""Users with production's `Client`: what they ask goes over HTTP, and is repeated, batched and followed by the client.

One call is one operation of the history, whatever the client sent for it. A value is `ok`, `OutcomeUnknown` is `info`,
and every other error is `fail`: so an "it did not happen" of what did happen is a violation. A client that lives long
learns the nodes of the cluster; at times, and when all is healed, it is opened again with those that are in use.
"""

from __future__ import annotations

import asyncio
from asyncio import sleep
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from chaos.sim.features import TENANT
from chaos.sim.network.sockets import SimulatedPool
from chaos.sim.record.log_changes import OP_TAG, job_name
from chaos.sim.users.callers import Refusal, Unknown
from chaos.sim.users.clients import Submission
from chaos.sim.users.workload import Workload
from raftsched.api.http.consistency import REVISION_HEADER
from raftsched.api.jobs.convert import fingerprint_of
from raftsched.client import Client, ClientSettings, JobInfo, JobSpec
from raftsched.core.records.ids import JobId
from raftsched.errors import OutcomeUnknown, RaftschedError
from raftsched.exchange import Exchange, Reply, Timeouts

T = TypeVar("T")
SETTINGS = ClientSettings(
    request_timeout_seconds=1.0,
    connect_timeout_seconds=0.3,
    hedge_seconds=0.2,
    retry_seconds=2.5,
    avoid_seconds=0.5,
)
_REOPEN = 0.3
"""Part of the unknown outcomes after which the client is opened again."""
_ALONE = 0.4
"""Part of the submits that are requests for one job."""
_SCHEDULES = 2
_REFUSED = 400


class _WatchedPool(SimulatedPool):
    """Counts what it sends that may change something, and keeps what the API says of its state."""

    sent_count = 0
    applied = 0
    """The log index on which the latest success rests."""

    async def send(self, exchange: Exchange, timeouts: Timeouts) -> Reply:
        self.sent_count += exchange.method != "GET"
        reply = await super().send(exchange, timeouts)
        # Any node answers the first two; and a refusal may come beside another request's success.
        if reply.status < _REFUSED and not exchange.url.endswith(("/cluster", "/healthz")):
            self.applied = int(reply.headers.get(REVISION_HEADER, 0))
        return reply


class SdkUser:
    """Submits, one job or several at once, cancels and reads; saves, pauses, resumes and deletes schedules."""

    def __init__(self, workload: Workload, name: str) -> None:
        self._workload = workload
        self._world = workload.world
        self._name = name
        self._lives = 0
        self._schedules: dict[str, str] = {}
        """Name -> id, in hexadecimal digits, of those that it has heard of."""
        self._open()

    def _open(self) -> None:
        world = self._world
        self._http = _WatchedPool()
        urls = [f"http://{host}:{port}" for host, port in (world.hosts[node].api_address for node in world.ids)]
        world.random.shuffle(urls)
        self._client = Client(
            *urls, actor=self._name, settings=SETTINGS, clock=world.clock, randomness=world.random, http=self._http
        )

    async def _reopen(self) -> None:
        await self._client.close()
        self._open()

    async def live(self) -> None:
        random = self._world.random
        was_calm = False
        while not self._workload.is_over:
            await sleep(random.expovariate(1 / self._world.rates.think))
            if self._workload.is_calm and not was_calm:
                was_calm = True
                await self._reopen()
            try:
                await self._step()
            except Refusal:
                continue
            except Unknown:
                if random.random() < _REOPEN:
                    await self._reopen()
        await self._client.close()

    async def _step(self) -> None:
        steps = (self._submit, self._cancel, self._get, self._save, self._control, self._delete)
        await self._world.random.choices(steps, (5, 2, 1, 1, 1, 1))[0]()

    # -- jobs ---------------------------------------------------------------------------------------------------------

    async def _submit(self) -> None:
        count = self._world.random.choice((1, 1, 1, 3))
        outcomes = await asyncio.gather(*map(self._submit_one, range(count)), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _submit_one(self, number: int) -> None:
        world = self._world
        op = world.recorder.new_op()
        wanted = Submission(world, op, f"{self._name}-{op}")
        spec = JobSpec(**_options_of(wanted))
        document = msgspec.json.decode(spec.encoded())
        fields = wanted.fields | {"body": fingerprint_of(document).hex()}
        submitted: Awaitable[Any]
        if world.random.random() < _ALONE:
            submitted = self._submit_alone(document)
        else:
            submitted = self._client.submit(**_options_of(wanted))
        job: Any = await self._ask(
            "submit",
            submitted,
            _stored,
            op=op,
            part=f".{number}",
            **fields,
        )
        self._workload.met(JobId(bytes.fromhex(_digits(job.id))))
        world.unserved_users.discard(self._name)

    async def _submit_alone(self, document: dict[str, Any]) -> JobInfo:
        """Submit with a request for one job, as other programs do; followers pass these on together."""
        calls = self._client._calls  # noqa: SLF001  # the client itself sends batches only
        return await calls.call(JobInfo, "POST", "/jobs", document)

    def _any_job(self) -> str:
        jobs = self._workload.jobs[-8:]
        if not jobs:
            raise Refusal("nobody has heard of a job")
        return job_name(self._world.random.choice(jobs))

    async def _cancel(self) -> None:
        job = self._any_job()
        sent_count = self._http.sent_count + 1
        await self._ask(
            "cancel",
            self._client.job(_uuid(job)).cancel(),
            # What is shown after a repetition need not be the result of the change.
            lambda info: _shown(info) if self._http.sent_count == sent_count else {},
            tenant="",
            job=job,
        )

    async def _get(self) -> None:
        job = self._any_job()
        await self._ask("get", self._client.job(_uuid(job)).get(), _shown, tenant="", job=job)

    # -- schedules ----------------------------------------------------------------------------------------------------

    async def _save(self) -> None:
        """One that never fires here: what counts is if it is there."""
        name = f"{self._name}-{self._world.random.randrange(_SCHEDULES)}"
        job = {"name": "tick", "queue": "red", "priority": self._world.random.choice((1, 2))}
        saved = self._client.schedules.save(name, job, every="1h")
        info = await self._ask("save_schedule", saved, lambda _: {}, subject=name)
        self._schedules[name] = _digits(info.id)

    def _any_schedule(self) -> tuple[str, str]:
        if not self._schedules:
            raise Refusal("there is no schedule")
        return self._world.random.choice(list(self._schedules.items()))

    async def _control(self) -> None:
        name, schedule_id = self._any_schedule()
        action = self._world.random.choice(("pause", "resume"))
        control = getattr(self._client.schedules, action)
        await self._ask("control_schedule", control(name), lambda _: {}, subject=schedule_id, action=action)

    async def _delete(self) -> None:
        name, schedule_id = self._any_schedule()
        del self._schedules[name]
        deleted = self._client.schedules.delete(name)
        await self._ask("control_schedule", deleted, lambda _: {}, subject=schedule_id, action="delete")

    # -- the history --------------------------------------------------------------------------------------------------

    async def _ask(
        self,
        f: str,
        call: Awaitable[T],
        answer: Callable[[T], dict[str, Any]],
        *,
        op: int = 0,
        part: str = "",
        **fields: Any,
    ) -> T:
        """One operation: asked, answered, written down. Raises `Refusal` or `Unknown`."""
        recorder = self._world.recorder
        op = op or recorder.new_op()
        process = f"{self._name}.{self._lives}{part}"
        recorder.invoke(process, op, f, **({"tenant": TENANT} | fields))
        try:
            result = await call
        except OutcomeUnknown as error:
            self._world.trace.say(process, f"op {op}: {error}")
            recorder.reply(process, op, "info")
            self._lives += 1
            raise Unknown from error
        except RaftschedError as error:
            self._world.trace.say(process, f"op {op}: {error}")
            recorder.reply(process, op, "fail", error=error.code)
            raise Refusal(error.code) from error
        recorder.reply(process, op, "ok", applied=self._http.applied, **answer(result))
        return result


def _options_of(wanted: Submission) -> dict[str, Any]:
    """The options of the job that `Submission.operation` stores."""
    return {
        "name": wanted.name,
        "payload": {"n": wanted.op},
        "queue": wanted.queue,
        "priority": wanted.priority,
        "delay_seconds": wanted.delay_ms / 1000 if wanted.delay_ms else None,
        "max_attempts": wanted.max_attempts,
        "max_lost_workers": wanted.max_lost_workers or None,
        "timeout_seconds": wanted.timeout_ms / 1000 if wanted.timeout_ms else None,
        "retry_policy": {"backoff": "fixed", "base_seconds": 0.2},
        "idempotency_key": wanted.key,
        "tags": [f"{OP_TAG}{wanted.op}"],
        "region": wanted.region or None,
        "tenant": wanted.tenant,
    }


def _stored(job: Any) -> dict[str, Any]:
    return {"job": _digits(job.id)}


def _shown(info: JobInfo) -> dict[str, Any]:
    return {"status": info.status, "attempt": info.attempt_number, "revision": info.revision}


def _digits(text: str) -> str:
    return text.replace("-", "")


def _uuid(digits: str) -> str:
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
