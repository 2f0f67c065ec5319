"""Convert errors to RFC 9457 problem documents, by the one table in `raftsched.errors`.

Programs compare `code`; `title`, `detail` and `advice` are for people. A detail shows at most the name or the short
text at fault of a request. `field` is the path of the field at fault, such as `jobs[3].priority`.
"""

from __future__ import annotations

import re
from math import ceil
from typing import Any, Final

import msgspec
from aiohttp import web
from msgspec import UNSET

from raftsched import limits
from raftsched.api.http.advice import ADVICE
from raftsched.api.request_id import current_request_id
from raftsched.core.operations.codec import RejectCode
from raftsched.core.records.ids import job_id_text
from raftsched.core.state.results import Refused
from raftsched.errors import Invalid, NotFound, QuotaExceeded, RaftschedError, Rejected
from raftsched.wire.common import Problem

CONTENT_TYPE: Final = "application/problem+json"
RETRY_AFTER_SECONDS: Final = 1
"""An election takes about this long; clients add their own backoff."""
_RETRY_LATER: Final = frozenset({429, 503, 507})
_REFUSAL_STATUS: Final = {
    RejectCode.NOT_FOUND: 404,
    RejectCode.IDEMPOTENCY_MISMATCH: 422,
    RejectCode.UNKNOWN_DEPENDENCY: 422,
    RejectCode.STALE_REVISION: 412,
}
"""HTTP status by code. All other codes have 409: the state does not allow the request now, and may change."""
_HTTP_ADVICE: Final = {
    400: "Send an HTTP/1.1 request with a request line and headers of at most 8 KiB each.",
    404: "See /api/v1/openapi.json for the known paths.",
}
"""Advice for errors of HTTP itself: they have no field or id at fault, so the advice of the code would mislead."""
_FIELD: Final = re.compile(r"(?P<field>[a-z_]+(?:\.[A-Za-z0-9_]+)*)(?: bytes)?: ")
"""The field at the start of the state machine's message, if it names one."""


def problem_of(error: RaftschedError, *, status: int | None = None, outcomes: list[Any] | None = None) -> Problem:
    """Return the problem of `error`; `status` replaces the error's own."""
    return _problem(
        status or error.http_status,
        error.code,
        str(error),
        retryable=error.retryable,
        field=(error.field if isinstance(error, Invalid | Rejected) else "") or UNSET,
        job_id=(error.job_id if isinstance(error, Rejected) else "") or UNSET,
        members=(error.members if isinstance(error, Rejected) else ()) or UNSET,
        outcomes=outcomes or UNSET,
        retry_after_seconds=error.retry_after_seconds if isinstance(error, QuotaExceeded) else UNSET,
    )


def problem_response(problem: Problem) -> web.Response:
    """Return the HTTP reply, with the id of the request, and with Retry-After if the request may be repeated."""
    problem = msgspec.structs.replace(problem, request_id=current_request_id() or UNSET)
    response = web.Response(body=msgspec.json.encode(problem), status=problem.status, content_type=CONTENT_TYPE)
    if problem.status in _RETRY_LATER:
        seconds = problem.retry_after_seconds
        response.headers["Retry-After"] = str(RETRY_AFTER_SECONDS if seconds is UNSET else ceil(seconds))
    return response


def http_problem(status: int, detail: str) -> Problem:
    """Return the problem for an error of HTTP itself: an unknown path, or a method that the path lacks."""
    codes = {404: "not_found", 405: "method_not_allowed", 413: "too_large", 417: "expectation_failed"}
    problem = _problem(status, codes.get(status, "malformed" if status < 500 else "internal_error"), detail)
    return msgspec.structs.replace(problem, advice=_HTTP_ADVICE.get(status, problem.advice))


def refusal(refused: Refused, *, at: str = "") -> RaftschedError:
    """Return the error for an operation that the state machine refused; `at` is its path in the request."""
    if refused.code is RejectCode.NOT_FOUND:
        return NotFound(refused.message)
    if refused.code is RejectCode.QUOTA_EXCEEDED:
        return QuotaExceeded(refused.message, retry_after_seconds=limits.QUOTA_RETRY_SECONDS)
    named = _FIELD.match(refused.message)
    path = f"{at}.{named['field']}" if named and at else named["field"] if named else ""
    message = f"{at}.{refused.message}" if named and at else refused.message
    if refused.code is RejectCode.INVALID:
        return Invalid(message, field=path)
    return Rejected(
        refused.code.label,
        message,
        http_status=_REFUSAL_STATUS.get(refused.code, 409),
        field=path,
        job_id=job_id_text(refused.job_id) if refused.job_id else "",
    )


def _problem(status: int, code: str, detail: str, *, retryable: bool = False, **members: Any) -> Problem:
    return Problem(
        type=f"urn:raftsched:problem:{code}",
        title=code.replace("_", " ").capitalize(),
        status=status,
        detail=detail,
        code=code,
        retryable=retryable,
        advice=ADVICE.get(code) or UNSET,
        **members,
    )
