"""Judge a reply: what is wrong with it, in sentences. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import jsonschema_rs
import msgspec

from raftsched.api.http.advice import ADVICE
from raftsched.errors import Unavailable
from tests.drills.api_fuzz.callers import Caller, Cast
from tests.drills.api_fuzz.requests import Request

_PROBLEM_TYPE: Final = "application/problem+json"
_RETRY_LATER: Final = frozenset({429, 503, 507})
_UNEXPECTED: Final = frozenset({"internal_error", "data_unreadable", "invariant_broken"})
_BY_ITEM: Final = frozenset({"/api/v1/jobs/batch", "/api/v1/leases/heartbeat", "/api/v1/leases/outcomes"})
"""Paths of bodies whose items are accepted or refused on their own: the reply has a result for each."""
_TRACE: Final = re.compile(r'Traceback \(most recent|File "[^"]+", line \d+|site-packages|\w+\.py\b')


def _codes_of(status: int) -> frozenset[str]:
    """Return the codes of the errors with this status."""
    found, kinds = set(), [Unavailable]
    while kinds:
        kind = kinds.pop()
        kinds += kind.__subclasses__()
        if kind.http_status == status:
            found.add(kind.code)
    return frozenset(found)


FAULTS: Final = {status: _codes_of(status) for status in (503, 507)}
"""The only statuses from 500 on that a client may see, and their codes."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    has_ended: bool = True
    """False for a stream that we left."""

    @property
    def content_type(self) -> str:
        return self.headers.get("Content-Type", "").partition(";")[0]


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The checks of all replies of one run."""

    problem: jsonschema_rs.Validator
    cast: Cast
    inner: tuple[str, ...]
    """Texts that no reply may have: directories of the nodes, and addresses that are between them."""
    owners: Mapping[str, str]
    """The tenant of each id."""

    def faults(self, request: Request, caller: Caller, headers: Mapping[str, str], reply: Reply) -> Iterator[str]:
        """Yield what is wrong with the reply."""
        sent = request.target.encode() + (request.content or b"") + repr(dict(headers)).encode()
        if reply.status < 400:
            yield from self._faults_of_success(request, caller, reply)
        else:
            yield from problem_faults(reply, self.problem)
        yield from self._leaks(request, caller, sent, reply)

    def _faults_of_success(self, request: Request, caller: Caller, reply: Reply) -> Iterator[str]:
        operation = request.operation
        if request.method != operation.method:
            return  # another operation of this path, perhaps: its replies are judged when it is asked by its name
        if reply.status not in operation.statuses:
            yield f"status {reply.status} is not documented"
        if reply.content_type != operation.reply_type:
            yield f"content type {reply.content_type!r}; documented is {operation.reply_type}"
        elif operation.reply is not None and reply.has_ended:
            yield from _mismatches(operation.reply, reply.body)
        if not caller.is_valid and not operation.is_public:
            yield f"{caller.name} was let in"
        is_health = not operation.path.startswith("/api")  # load balancers add parameters to these
        if ("nmae" in request.query and not is_health) or (isinstance(request.body, dict) and "nmae" in request.body):
            yield "an unknown field was accepted"
        owner = self.owners.get(request.path.get("id", ""))
        if caller.tenant and owner is not None and owner != caller.tenant:
            yield f"{caller.name} reached a record of {owner}"
        if operation.body is not None and request.content and operation.path not in _BY_ITEM:
            yield from _mismatches(operation.body, request.content, "a body was accepted that is not")

    def _leaks(self, request: Request, caller: Caller, sent: bytes, reply: Reply) -> Iterator[str]:
        """Yield what the reply tells and should not, unless the request has said it."""
        for text in (*self.inner, *self.cast.secrets, self.cast.reserved_tenant):
            if text.encode() in reply.body and text.encode() not in sent and not _may_tell(request, caller, text):
                yield f"the reply tells {text[:40]}"
        for tenant in self.cast.tenants:
            is_foreign = bool(caller.tenant) and caller.tenant != tenant
            if is_foreign and tenant.encode() in reply.body and tenant.encode() not in sent:
                yield f"{caller.name} is told of {tenant}"
        found = _TRACE.search(reply.body.decode(errors="replace")) if reply.status >= 400 else None
        if found is not None and found[0].encode() not in sent:
            yield f"the reply tells of code: {found[0]}"


def _may_tell(request: Request, caller: Caller, text: str) -> bool:
    """Return whether the route is there to tell this: members have addresses, and the admin of all sees all tenants.

    A backup holds both.
    """
    if request.operation.path.endswith("/cluster/backup"):
        return caller.is_everywhere and (":" in text or text.startswith("reserved-"))  # the state, but no secrets
    if request.operation.noun == "cluster":
        return ":" in text and caller.is_valid
    return caller.is_everywhere and text.startswith("reserved-")


def problem_faults(reply: Reply, schema: jsonschema_rs.Validator) -> Iterator[str]:
    """Yield what is wrong with the reply to a request that was refused, or failed."""
    if reply.content_type != _PROBLEM_TYPE:
        yield f"status {reply.status} with the content type {reply.content_type!r}"
        return
    if not reply.body:
        return  # of HEAD
    wrong = list(_mismatches(schema, reply.body))
    if wrong:
        yield from wrong
        return
    problem = msgspec.json.decode(reply.body)
    code = problem["code"]
    if problem["status"] != reply.status:
        yield f"status {reply.status}, and {problem['status']} in its problem"
    if code not in ADVICE or code in _UNEXPECTED:
        yield f"code {code}"
    if not problem.get("advice") or not problem["detail"]:
        yield f"code {code} without advice or detail"
    if reply.status >= 500 and code not in FAULTS.get(reply.status, ()):
        yield f"status {reply.status} with the code {code}"
    if reply.status in _RETRY_LATER and not reply.headers.get("Retry-After", "").isdigit():
        yield f"status {reply.status} without Retry-After"
    if reply.status == 405 and not reply.headers.get("Allow"):
        yield "status 405 without Allow"


def _mismatches(schema: jsonschema_rs.Validator, body: bytes, what: str = "the reply is not") -> Iterator[str]:
    """Yield the first difference between a document and its schema."""
    try:
        document = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        yield f"{what} JSON: {error}"
        return
    for found in schema.iter_errors(document):
        path = ".".join("[]" if isinstance(each, int) else str(each) for each in found.instance_path)
        yield f"{what} as documented: {path}: {found.message[:60]}"
        return
