"""Record the outcomes of attempts that workers report.

An outcome counts once, and only with the current fencing token of its run. All outcomes of a request are proposed
together, independently. A single rejected one is a 409, so that even the simplest worker notices it; in a batch each
has its own result.
"""

from __future__ import annotations

from typing import Final

import msgspec
from aiohttp import web
from msgspec import UNSET

from raftsched import limits
from raftsched.api.access.principal import Principal, principal_of
from raftsched.api.access.rules import Access
from raftsched.api.backend import Backend
from raftsched.api.http.bodies import Bodies
from raftsched.api.http.json_reply import json_response
from raftsched.api.http.problems import problem_of, problem_response, refusal
from raftsched.api.http.proposals import Answer, answers_of, propose
from raftsched.api.http.routes import Route, route
from raftsched.api.jobs.calls import NULL, json_bytes
from raftsched.api.json.decode import StructDecoder, run_id_at, run_id_in_path
from raftsched.api.json.items import Item, ItemsDecoder, named_text
from raftsched.api.json.times import milliseconds
from raftsched.core.jobs.callbacks import completion_id_of, fencing_token_of
from raftsched.core.operations.codec import RecordOutcome
from raftsched.core.operations.control import AwaitCallback
from raftsched.core.records.ids import FencingToken
from raftsched.core.records.job import AttemptEnd, JobError
from raftsched.core.state.results import OutcomeRecorded, Refused
from raftsched.errors import Invalid, InvariantBroken, NotFound, RaftschedError, Rejected
from raftsched.wire.workers import (
    CALLBACK_TOKEN_HEADER,
    CallbackReport,
    ErrorReport,
    OutcomeReply,
    OutcomeReport,
    OutcomesReply,
    OutcomesRequest,
)

_OPERATIONS: Final = (RecordOutcome, AwaitCallback)
_ENDS: Final = {
    "completed": AttemptEnd.COMPLETED,
    "failed": AttemptEnd.FAILED,
    "snoozed": AttemptEnd.SNOOZED,
}


class Outcomes:
    """The route of outcomes."""

    def __init__(self, backend: Backend, bodies: Bodies) -> None:
        self._backend = backend
        self._bodies = bodies
        self._request = ItemsDecoder(OutcomesRequest, "outcomes")
        self._report = StructDecoder(OutcomeReport)
        self._callback = StructDecoder(CallbackReport)

    def routes(self) -> tuple[Route, ...]:
        return (
            route(Access.WORK, "POST", "/leases/outcomes", self.record_outcomes, OutcomesReply, body=OutcomesRequest),
            route(
                Access.CALLBACK,
                "POST",
                "/runs/{id}/complete",
                self.complete_run,
                OutcomeReply,
                body=CallbackReport,
                headers=(CALLBACK_TOKEN_HEADER,),
            ),
        )

    async def record_outcomes(self, request: web.Request) -> web.Response:
        """Record the outcomes of attempts; a single outcome that does not count is a 409."""
        asked = self._request.read(await self._bodies.read_json(request))
        items = asked.items
        caller = principal_of(request)
        worker = caller.own_name(asked.around.worker)
        prepared = [self._prepared(item, f"outcomes[{at}]", caller, worker) for at, item in enumerate(items)]
        propose = self._backend.propose
        futures = [propose(operation) for operation in prepared if isinstance(operation, _OPERATIONS)]
        results = iter(await answers_of(futures))
        answers = [next(results) if isinstance(item, _OPERATIONS) else item for item in prepared]
        replies = [_outcome_reply(_run_id(item), answer) for item, answer in zip(items, answers, strict=True)]
        if len(answers) == 1 and not replies[0].accepted:
            error = _error(answers[0])
            status = 409 if isinstance(error, Rejected) else error.http_status
            return problem_response(problem_of(error, status=status, outcomes=replies))
        return json_response(OutcomesReply(outcomes=replies))

    async def complete_run(self, request: web.Request) -> web.Response:
        """Record the outcome of a run whose request was accepted, as its target reports it with its callback token.

        A repeated report gets the same answer. Without a body the run is completed without a result.
        """
        report = self._callback.read_optional(await self._bodies.read_optional_json(request))
        _check_fields(report, "")
        run_id, token = request.match_info["id"], request.headers.get(CALLBACK_TOKEN_HEADER, "")
        job_id, run_number = run_id_in_path(request)
        job = self._backend.fresh_state().job(job_id)
        fencing_token = None if job is None else fencing_token_of(job, run_number, token)
        if fencing_token is None:
            told = (
                f"no report is awaited for this run under this token; send the {CALLBACK_TOKEN_HEADER} of its request"
            )
            raise Rejected("lease_lost", told)
        outcome = OutcomeReport(
            run_id=run_id,
            fencing_token=fencing_token,
            completion_id=completion_id_of(token),
            **msgspec.structs.asdict(report),
        )
        recorded = await propose(self._backend, self._operation(outcome, ""), OutcomeRecorded)
        return json_response(OutcomeReply(run_id=run_id, accepted=True, revision=recorded.job.revision))

    def _prepared(
        self, item: Item, at: str, caller: Principal, worker: str
    ) -> RecordOutcome | AwaitCallback | RaftschedError:
        if item.flaw is not None:
            return item.flaw
        try:
            report = self._report.decode(item.text, at=at)
            _check_fields(report, at)
            operation = self._operation(report, at)
        except Invalid as error:
            return error
        return self._fault_of(operation, caller, worker) or operation

    def _fault_of(
        self, operation: RecordOutcome | AwaitCallback, caller: Principal, worker: str
    ) -> RaftschedError | None:
        """Return why the caller may not report this; None if it may.

        A fencing token is a number, which can be guessed: so with tokens only the worker that has the lease reports on it.
        """
        if not caller.token_id:
            return None
        job = self._backend.fresh_state().job(operation.job_id)
        if job is None or not caller.sees(job.tenant) or not caller.is_within_queues(job.spec.queue):
            return NotFound("there is no such job")
        if job.lease is not None and job.lease.worker != worker:
            return Rejected("lease_lost", "another worker has the lease of this run")
        return None

    def _operation(self, report: OutcomeReport, at: str) -> RecordOutcome | AwaitCallback:
        prefix = f"{at}." if at else ""
        job_id, run_number = run_id_at(report.run_id, f"{prefix}run_id")
        if report.status == "accepted":
            return AwaitCallback(job_id, run_number, FencingToken(report.fencing_token))
        wait = report.snooze_seconds if report.snooze_seconds is not None else report.retry_after_seconds
        return RecordOutcome(
            job_id=job_id,
            run_number=run_number,
            token=FencingToken(report.fencing_token),
            end=_ENDS[report.status],
            completion_id=report.completion_id or "",
            result=json_bytes(report.result, limits.RESULT_BYTES_MAX, f"{prefix}result"),
            error=None if report.error is None else _job_error(report.error),
            retryable=report.retryable,
            delay_ms=-1 if wait is None else milliseconds(wait),
            jitter=self._backend.jitter() if report.status == "failed" else 0,
        )


def _check_fields(report: OutcomeReport | CallbackReport, at: str) -> None:
    """Raise `Invalid` for a field that does not belong to this status: it shows a mistake of the worker."""
    failed = report.status == "failed"
    misplaced = {
        "result": report.result is not UNSET and report.result != NULL and report.status != "completed",
        "error": report.error is not None and not failed,
        "retryable": not report.retryable and not failed,
        "retry_after_seconds": report.retry_after_seconds is not None and not failed,
        "snooze_seconds": (getattr(report, "snooze_seconds", None) is not None) != (report.status == "snoozed"),
    }
    for field, is_misplaced in misplaced.items():
        if is_misplaced:
            verb = "is required" if field == "snooze_seconds" and report.status == "snoozed" else "is not allowed"
            path = f"{at}.{field}" if at else field
            raise Invalid(f"{path}: {verb} with the status {report.status}", field=path)


def _job_error(error: ErrorReport) -> JobError:
    return JobError(
        type=error.type[: limits.NAME_CHARS_MAX],
        message=error.message[: limits.ERROR_MESSAGE_CHARS_MAX],
        trace=error.trace[-limits.ERROR_TRACE_CHARS_MAX :],
    )


def _outcome_reply(run_id: str, answer: Answer) -> OutcomeReply:
    if isinstance(answer, OutcomeRecorded):
        return OutcomeReply(run_id=run_id, accepted=True, revision=answer.job.revision)
    error = _error(answer)
    return OutcomeReply(run_id=run_id, accepted=False, code=error.code, detail=str(error), retryable=error.retryable)


def _error(answer: Answer) -> RaftschedError:
    """Return the error of a rejected outcome."""
    match answer:
        case Refused():
            return refusal(answer)
        case RaftschedError():
            return answer
        case _:
            raise InvariantBroken(f"an outcome gave a result of another kind: {type(answer).__name__}")


def _run_id(item: Item) -> str:
    """Return the run id as it was sent, so that the reply can be matched even if the report is invalid."""
    run_id = item.document.get("run_id") if isinstance(item.document, dict) else named_text(item.text, "run_id")
    return run_id[: limits.NAME_CHARS_MAX] if isinstance(run_id, str) else ""
