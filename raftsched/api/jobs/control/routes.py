"""Change one job: cancel, pause, resume, retry, replay, amend.

Each verb is one operation, which decides. It leaves a note on the job and a line in the audit trail.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from aiohttp import web

from raftsched.api.access.principal import principal_of
from raftsched.api.access.rules import Access
from raftsched.api.backend import Backend
from raftsched.api.http.actor import actor_of, signed
from raftsched.api.http.bodies import Bodies
from raftsched.api.http.idempotency_key import key_of
from raftsched.api.http.proposals import granted, propose
from raftsched.api.http.routes import BASE_PATH, MATCH_HEADER, Handler, Route, verb_route
from raftsched.api.jobs.control.amendment import amendment, wanted_due_at_ms
from raftsched.api.jobs.control.replay import changes_of, replay_operation
from raftsched.api.jobs.convert import fingerprint_of
from raftsched.api.jobs.reply import found_job, job_response
from raftsched.api.jobs.submission.routes import submitted_response
from raftsched.api.json.decode import StructDecoder, parse_query
from raftsched.api.json.times import due_at_ms, due_or_now_ms, pause_end_ms
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import OPERATIONS
from raftsched.core.operations.control import RequeueJob
from raftsched.core.records.ids import TimeMs, job_id_text
from raftsched.core.records.job import Job
from raftsched.core.state.results import Cancelled, Changed, Submitted
from raftsched.errors import Malformed
from raftsched.wire.control import AmendRequest, ReplayRequest, RetryRequest
from raftsched.wire.verbs import JOB, Verb

_match_etag: Final = re.compile(r'"?(?P<revision>[0-9]{1,18})"?').fullmatch

Change = Callable[[Job], Operation]
"""Returns the operation that changes a job."""


class ChangeContext(NamedTuple):
    """The caller of a change, its time and its conditions."""

    actor: str
    now_ms: int
    if_revision: int = 0
    """Change only a job of this revision; 0 = any."""
    dead_letter_reason: str = ""
    """Only jobs of the dead-letter queue with this reason; "" = any."""


# -- the operation of each verb ------------------------------------------------------------------------------------------


OperationOf = Callable[[Any, ChangeContext], Change]
"""Reads what is wanted; raises `Malformed`, `TooLarge` or `Invalid` naming the field."""


_TIMES: Final[Mapping[str, Callable[[Any, int], TimeMs]]] = {
    "until_ms": lambda wanted, now_ms: pause_end_ms(wanted.until, wanted.for_seconds, now_ms),
    "due_at_ms": lambda wanted, now_ms: due_or_now_ms(due_at_ms(wanted.run_at, wanted.delay_seconds, now_ms, "")),
}
"""Time of an operation -> how it is made from a request, which has it as a moment or as a span."""


def _retry(wanted: RetryRequest, context: ChangeContext) -> Change:
    due_ms = _TIMES["due_at_ms"](wanted, context.now_ms)
    return lambda job: RequeueJob(job.id, job.tenant, due_ms, context.dead_letter_reason, context.actor)


def _amend(wanted: AmendRequest, context: ChangeContext) -> Change:
    wanted_due_at_ms(wanted, context.now_ms)  # a wrong time is refused even if no job matches
    return lambda job: amendment(
        wanted, job, now_ms=context.now_ms, if_revision=context.if_revision, actor=context.actor
    )


def _plain(operation: type[Operation]) -> OperationOf:
    """Return how `operation` is made: each of its fields is the one of the request with the same name, or a time."""
    names = [name for name in operation.__struct_fields__ if name not in ("job_id", "tenant", "actor")]

    def operation_of(wanted: Any, context: ChangeContext) -> Change:
        values = {
            name: _TIMES[name](wanted, context.now_ms) if name in _TIMES else getattr(wanted, name) for name in names
        }
        fields: Any = {name: value for name, value in values.items() if value is not None}
        return lambda job: operation(job_id=job.id, tenant=job.tenant, actor=context.actor, **fields)

    return operation_of


_BY_NAME: Final = {operation.__name__: operation for operation in OPERATIONS}
_MADE_HERE: Final[Mapping[str, OperationOf]] = {
    "retry": _retry,
    **dict.fromkeys(("amend", "reschedule", "reprioritise"), _amend),
}


def _of_verb(verb: Verb) -> OperationOf | None:
    """Return how the operation of a verb is made; None for `replay` and `delete`, which do not change a job."""
    plain = _BY_NAME.get(f"{verb.name.capitalize()}Job")
    return _MADE_HERE.get(verb.name) or (None if plain is None else _plain(plain))


OPERATIONS_OF_VERBS: Final = {name: made for name, verb in JOB.items() if (made := _of_verb(verb)) is not None}
"""Verb -> how its operation is made, for one job and in bulk. An operation that is named like its verb is plain."""


# -- the routes ----------------------------------------------------------------------------------------------------------


class Controls:
    """The routes that change one job."""

    def __init__(self, backend: Backend, bodies: Bodies) -> None:
        self._backend = backend
        self._bodies = bodies
        self._replay = StructDecoder(ReplayRequest)

    def routes(self) -> tuple[Route, ...]:
        return tuple(
            verb_route(
                Access.SUBMIT, verb, self._changing(verb) if verb.name in OPERATIONS_OF_VERBS else self.replay_job
            )
            for verb in JOB.values()
            if verb.has_route
        )

    def _changing(self, verb: Verb) -> Handler:
        """Return the handler of a verb that changes the job in the path, and answers with it."""
        operation_of = OPERATIONS_OF_VERBS[verb.name]
        body = None if verb.body is None else StructDecoder(verb.body)

        async def change_job(request: web.Request) -> web.Response:
            wanted: Any = None
            if body is not None and verb.is_body_required:
                wanted, _ = body.read(await self._bodies.read_json(request))
            elif body is not None:
                wanted = body.read_optional(await self._bodies.read_optional_json(request))
            elif verb.query is not None:
                wanted = parse_query(request, verb.query)
            if queue := getattr(wanted, "queue", None):
                principal_of(request).require_queue(queue)
            if_revision = _revision_of(request) if verb.is_conditional else 0
            change = operation_of(wanted, ChangeContext(actor_of(request), self._backend.now_ms(), if_revision))
            answer = await self._backend.propose(change(self._job(request)))
            job = answer.job if isinstance(answer, Cancelled) else granted(answer, Changed).job
            return job_response(self._backend, job)

        return change_job

    async def replay_job(self, request: web.Request) -> web.Response:
        """Answer 201 with the new job, or 200 if its idempotency key was used."""
        wanted, document = self._replay.read(await self._bodies.read_optional_json(request) or b"{}")
        if wanted.queue:
            principal_of(request).require_queue(wanted.queue)
        changes = changes_of(wanted, self._backend.now_ms())
        actor = actor_of(request)
        job, key = self._job(request), key_of(request, None)
        operation = replay_operation(
            job,
            self._backend.fresh_state().payload(job.id),
            changes,
            job_id=self._backend.new_job_id(),
            key=key,
            fingerprint=fingerprint_of({"replay_of": job_id_text(job.id), "changes": document}) if key else b"",
        )
        submitted = await propose(self._backend, signed(operation, actor), Submitted)
        response = submitted_response(self._backend, submitted)
        response.headers["Location"] = f"{BASE_PATH}/jobs/{job_id_text(submitted.job.id)}"
        return response

    def _job(self, request: web.Request) -> Job:
        job = found_job(self._backend.fresh_state(), request)
        principal_of(request).require_within_queues(job.spec.queue)
        return job


def _revision_of(request: web.Request) -> int:
    """Return the revision in `If-Match`, 0 = any; raises `Malformed` for a value other than a revision or `*`."""
    values = request.headers.getall(MATCH_HEADER, [])
    if not values or values == ["*"]:
        return 0
    found = _match_etag(values[0].strip())
    if len(values) > 1 or found is None or not int(found["revision"]):
        raise Malformed(f'{MATCH_HEADER}: expected one revision, as in "42", or *', field=MATCH_HEADER)
    return int(found["revision"])
