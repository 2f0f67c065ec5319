"""Report outcomes until the cluster has given a definite answer, gathered into `POST /leases/outcomes`.

Each outcome has its own completion id, the same in every repetition, so that a repeat after a lost reply is answered
again and not refused. The handler's reports before its end are sent first. There is no deadline: the work is done, and
its record is worth waiting for through any election; heartbeats keep the run's lease meanwhile. An outcome that the
cluster refuses (the lease was lost, the job was cancelled) is logged and never sent again. One that it can't take (JSON
too deep, a limit of an older release) is reported as a failure that says so: without an outcome the job would wait out
its lease, and then do the same again. The 413 of a proxy is treated the same. Any other refusal that is not the
cluster's settles nothing: the report is repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import structlog

from raftsched.client.http.batches import Answers, BatchSender, OutgoingItem
from raftsched.client.http.connection import Connection
from raftsched.client.http.gather import Gatherer, GatherLimits
from raftsched.client.http.idempotency_keys import KeyFactory
from raftsched.client.http.problems import RefusedByProxy, problem_error
from raftsched.client.http.settings import ClientSettings
from raftsched.errors import Invalid, RaftschedError, Unavailable
from raftsched.wire.common import Problem
from raftsched.wire.workers import Outcome, OutcomeReply, OutcomeReport, OutcomesReply
from raftsched.worker.handlers.progress import AttemptReports
from raftsched.worker.handlers.result import COMPLETED, failed
from raftsched.worker.runs.log_shipper import LogShipper
from raftsched.worker.runs.runs import Grant, Run, RunTable

_log = structlog.get_logger(__name__)
_CONFLICT = 409
_IN_FLIGHT_MAX = 2
"""More would only make each request smaller: outcomes wait for nothing but the log."""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(OutcomesReply).decode


class _Report(OutgoingItem):
    __slots__ = ("_ended", "_is_refusal_told", "is_substitute", "outcome", "run")

    def __init__(
        self, body: bytes, run: Run, outcome: Outcome, ended: Callable[[_Report, object], None], *, is_substitute: bool
    ) -> None:
        super().__init__(body)
        self.run = run
        self.outcome = outcome
        self.is_substitute = is_substitute
        """It replaces a report that the cluster could not take."""
        self._ended = ended
        self._is_refusal_told = False

    def failed(self, error: RaftschedError) -> None:
        super().failed(error)
        if isinstance(error, RefusedByProxy) and not self._is_refusal_told:
            self._is_refusal_told = True
            grant = self.run.grant
            _log.warning("outcome_not_recorded_yet", run_id=grant.run_id, name=grant.name, reason=str(error))

    def deliver(self, answer: object | RaftschedError) -> None:
        self._ended(self, answer)


class Reporter:
    """Send outcomes; a run leaves `runs` when its outcome is settled."""

    def __init__(self, connection: Connection, worker: str, runs: RunTable, shipper: LogShipper) -> None:
        head = b'{"worker":%b,"outcomes":[' % _encode(worker)
        self._runs = runs
        self._shipper = shipper
        self._flushing: set[asyncio.Task[None]] = set()
        self._keys = KeyFactory(connection.clock, connection.randomness)
        sender = BatchSender(connection, "/leases/outcomes", head, _read)
        self._gatherer: Gatherer[_Report] = Gatherer(sender.send, _bounds(connection.settings))

    def report(self, run: Run, outcome: Outcome) -> None:
        """Report how `run` ended, once its log is sent; call it once for a run."""
        reports = run.reports
        if reports is None or not self._shipper.holds(reports):
            self._close(run)
            self._send(run, outcome)
            return
        task = asyncio.get_running_loop().create_task(self._send_log_first(run, reports, outcome))
        self._flushing.add(task)
        task.add_done_callback(self._flushing.discard)

    def drop(self, run: Run) -> None:
        """Report nothing, since the cluster ends `run` by itself; the handler's last reports are refused there."""
        self._close(run)
        del self._runs[run.grant.fencing_token]

    def _close(self, run: Run) -> None:
        if run.reports is not None:
            if run.reports.has_lines:
                _log.info("log_dropped", run_id=run.grant.run_id, name=run.grant.name)
            run.reports.close()

    async def _send_log_first(self, run: Run, reports: AttemptReports, outcome: Outcome) -> None:
        try:
            await self._shipper.flush(reports)
        finally:  # cancelled or not: the result of the outcome is handled there
            self._send(run, outcome)

    def _send(self, run: Run, outcome: Outcome, *, is_substitute: bool = False) -> None:
        """Send; a bug here must not leave a run whose lease is renewed and whose outcome never comes."""
        try:
            body = self._encoded(run.grant, outcome)
            self._gatherer.add(_Report(body, run, outcome, self._settled, is_substitute=is_substitute))
        except BaseException:
            self._runs.pop(run.grant.fencing_token, None)
            raise

    def _encoded(self, grant: Grant, outcome: Outcome) -> bytes:
        report = OutcomeReport(
            run_id=grant.run_id,
            fencing_token=grant.fencing_token,
            completion_id=self._keys.next(),
            **msgspec.structs.asdict(outcome),
        )
        return _encode(report)

    async def wait_idle(self) -> None:
        """Return once every outcome has its answer."""
        while self._flushing:
            await asyncio.wait(self._flushing)
        await self._gatherer.wait_idle()

    async def close(self) -> None:
        """Stop sending; outcomes without an answer are logged, and their leases run out."""
        flushing = list(self._flushing)
        for task in flushing:
            task.cancel()
        if flushing:
            await asyncio.wait(flushing)
        await self._gatherer.close()

    def _settled(self, report: _Report, answer: object | RaftschedError) -> None:
        grant = report.run.grant
        if isinstance(answer, RaftschedError):
            _log.warning("outcome_refused", code=answer.code, run_id=grant.run_id, name=grant.name, reason=str(answer))
            if isinstance(answer, Invalid) and not report.is_substitute:
                # A retry would end the same way.
                kind = "ResultRefused" if report.outcome.status == COMPLETED else "OutcomeRefused"
                self._send(report.run, failed(kind, str(answer), retryable=False), is_substitute=True)
                return
        self._runs.pop(grant.fencing_token, None)


def _bounds(settings: ClientSettings) -> GatherLimits:
    return GatherLimits(
        items_max=settings.batch_jobs_max,
        bytes_max=settings.batch_bytes_max,
        in_flight_max=_IN_FLIGHT_MAX,
        early_items=settings.early_batch_jobs,
        late_seconds=settings.late_seconds,
        late_max=settings.late_requests_max,
        waiting_max=settings.waiting_jobs_max,
    )


def _read(body: bytes) -> Answers:
    return [_recorded(answer) for answer in _decode(body).outcomes]


def _recorded(answer: OutcomeReply) -> object | RaftschedError:
    if answer.accepted:
        return answer
    if answer.retryable:
        return Unavailable(answer.detail or answer.code)
    return problem_error(Problem(code=answer.code, detail=answer.detail), _CONFLICT)
