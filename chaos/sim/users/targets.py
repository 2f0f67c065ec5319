"""Requests that are answered with 202: executors send them, and their target reports the outcome by a callback.

The target reports when it likes: before its 202 has arrived, again, after the timeout, after a cancel, or never; at times
it mixes up the tokens of two requests. Executors and target ask over HTTP, at any node.
"""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from msgspec.structs import replace

from chaos.checkers.history.events import Granted
from chaos.sim.features import FEATURE_QUEUES
from chaos.sim.hosts.node import SimulatedNode
from chaos.sim.users.callers import Refusal, Unknown
from chaos.sim.users.clients import Client, Submission
from chaos.sim.users.feature_users import FeatureUser, Step
from chaos.sim.users.http_callers import HttpCaller
from chaos.sim.users.workload import Workload
from raftsched.core.operations.codec import SubmitJob
from raftsched.core.records.ids import JobId, run_id_text
from raftsched.core.records.spec import Call, CallKind, with_options
from raftsched.wire.workers import CALLBACK_TOKEN_HEADER

_CALL = Call(CallKind.HTTP, b'{"url": "http://target.example/", "completion": "callback"}')
_TIMEOUTS_MS = (600, 1_200, 2_500)
_DIGEST_BYTES = 16
_TRIES = 3
_LATER = ("not_leader", "unavailable", "unreachable")
"""Refusals after which the same may be asked again."""


@dataclass(frozen=True, slots=True)
class SentRequest:
    """A request as its target has it."""

    job_id: JobId
    grant: Granted
    worker: str
    callback_token: str
    outcome: str
    """The end that its target means to report."""

    @property
    def run_id(self) -> str:
        return run_id_text(self.job_id, self.grant.run)

    @property
    def fields(self) -> dict[str, Any]:
        """Return what the history says of a request about this attempt."""
        grant = self.grant
        return {"job": grant.job, "run": grant.run, "token": grant.token, "worker": self.worker}


class CallSubmission(Submission):
    """A job that is a request, whose target answers later."""

    def __init__(self, workload: Workload, op: int) -> None:
        super().__init__(workload.world, op, f"call-{op}")
        random = workload.world.random
        self.queue = random.choice(FEATURE_QUEUES)
        self.timeout_ms = random.choice(_TIMEOUTS_MS)
        self.region = ""

    def operation(self, node: SimulatedNode) -> SubmitJob:
        plain = super().operation(node)
        return replace(plain, spec=with_options(plain.spec, call=_CALL))


class CallExecutor:
    """The part of a worker that runs requests: it makes the token, and reports that a request was accepted."""

    def __init__(self, workload: Workload, name: str) -> None:
        self._random = workload.world.random
        self._http = HttpCaller(workload.world, f"{name}-http")

    async def start(self, job_id: JobId, grant: Granted, worker: str) -> SentRequest | None:
        """Commit the start with a token; return the request to send, None if it must not be sent."""
        random = self._random
        outcome = random.choices(("completed", "failed"), (3, 1))[0]
        sent = SentRequest(job_id, grant, worker, f"{random.getrandbits(128):032x}", outcome)
        document = {"fencing_token": grant.token, "callback_token": sent.callback_token}
        fields = sent.fields | {"callback_token": sent.callback_token}
        return sent if await self._ask("start", f"/runs/{sent.run_id}/start", document, fields) else None

    async def accepted(self, sent: SentRequest) -> None:
        """Report that the target has accepted the request; nobody sends heartbeats from then on."""
        report = {"run_id": sent.run_id, "fencing_token": sent.grant.token, "status": "accepted"}
        await self._ask("await", "/leases/outcomes", {"worker": sent.worker, "outcomes": [report]}, sent.fields)

    async def _ask(self, f: str, path: str, document: Any, fields: dict[str, Any]) -> bool:
        """Ask until there is an answer; return whether it was done."""
        for _ in range(_TRIES):
            try:
                await self._http.post(f, path, document, **fields)
            except Refusal as refusal:
                if refusal.code not in _LATER:
                    return False
            except Unknown:
                pass
            else:
                return True
            await sleep(0.1 * self._random.random())
        return False

    async def close(self) -> None:
        await self._http.close()


class Target(FeatureUser):
    """Submits requests, and reports outcomes of those that were sent to it."""

    def __init__(self, workload: Workload, name: str) -> None:
        super().__init__(workload, name)
        self._client = Client(workload, f"{name}-submit")
        self._http = HttpCaller(workload.world, f"{name}-http")

    async def live(self) -> None:
        await super().live()
        await self._http.close()

    def _steps(self) -> Sequence[tuple[Step, int]]:
        return (
            (self._submit, 4),
            (self._report, 6),
            (self._report_another_end, 1),
            (self._mix_up, 2),
            (self._cancel, 1),
        )

    async def _submit(self) -> None:
        op = self._world.recorder.new_op()
        self._workload.met_tied([await self._client.submit(CallSubmission(self._workload, op), op)])

    async def _cancel(self) -> None:
        await self._client.cancel(self._any_request().job_id)

    def _any_request(self) -> SentRequest:
        requests = self._workload.requests
        if not requests:
            raise Refusal("there is no request")
        return self._random.choice(requests)

    async def _report(self) -> None:
        sent = self._any_request()
        await self._complete(sent, sent, sent.outcome)

    async def _report_another_end(self) -> None:
        sent = self._any_request()
        await self._complete(sent, sent, "failed" if sent.outcome == "completed" else "completed")

    async def _mix_up(self) -> None:
        """Report with the token of another request, preferably of an earlier attempt of the same run."""
        sent = self._any_request()
        others = [each for each in self._workload.requests if each.callback_token != sent.callback_token]
        same = [each for each in others if each.job_id == sent.job_id]
        if others:
            await self._complete(sent, self._random.choice(same or others), sent.outcome)

    async def _complete(self, run: SentRequest, owner: SentRequest, outcome: str) -> None:
        """Report the outcome of a run with the token that was made for `owner`."""
        token = owner.callback_token
        digest = blake2b(token.encode(), digest_size=_DIGEST_BYTES).hexdigest()
        fields = {
            "outcome": outcome,
            "completion_id": f"callback-{digest}",
            "callback_token": token,
            "retryable": outcome == "completed" or self._random.random() < 0.8,
        }
        document = {"status": outcome, "retryable": fields["retryable"]}
        path = f"/runs/{run.run_id}/complete"
        asked = owner.fields | {"job": run.grant.job, "run": run.grant.run} | fields
        await self._http.post("outcome", path, document, headers={CALLBACK_TOKEN_HEADER: token}, **asked)
