"""Convert a problem document (RFC 9457) to its exception.

An unknown code still gets the right family by its HTTP status. An error without our problem document comes from
something between client and cluster: a proxy, a firewall, a gateway. Such an answer leaves the outcome unknown: the
cluster may have seen the request. Only its 413 and 429 mean that the request was not passed on.
"""

from __future__ import annotations

import http.client
import re
from http import HTTPStatus
from typing import Final

import msgspec

from raftsched.errors import (
    Invalid,
    Malformed,
    NotFound,
    NotLeader,
    OutcomeUnknown,
    QuotaExceeded,
    RaftschedError,
    Rejected,
    StorageFull,
    TooLarge,
    Unavailable,
    UnsupportedMediaType,
)
from raftsched.wire.common import Problem

_INVALID = {kind.code: kind for kind in (Invalid, Malformed, TooLarge, UnsupportedMediaType)}
_UNAVAILABLE = {kind.code: kind for kind in (Unavailable, OutcomeUnknown, StorageFull)}


_OURS: Final = "urn:raftsched:problem:"
"""Prefix of `type` in every problem document of a node."""
_SHOWN_CHARS: Final = 200
_NO_TEXT: Final = re.compile(r"<[^>]*>|\s+")


class TooLargeForProxy(TooLarge):
    """Something between client and cluster refused the request for its size; the cluster has not seen it."""


class RefusedByProxy(OutcomeUnknown):
    """Something between client and cluster refused the request; the cluster may have seen it."""


_PART = re.compile(r"^(?:jobs|outcomes)\[\d+\]\.")
"""Prefix of a field within a batch; it is removed, since the caller knows its item only, not the batch."""

_decode = msgspec.json.Decoder(Problem).decode


def read_problem(status: int, body: bytes) -> RaftschedError:
    """Return the exception for an HTTP error reply with any body."""
    try:
        problem = _decode(body)
    except msgspec.DecodeError:
        return _proxy_error(status, body)
    return problem_error(problem, status) if problem.type.startswith(_OURS) else _proxy_error(status, body)


def _proxy_error(status: int, body: bytes) -> RaftschedError:
    """Return the exception for an error reply that is not from a node."""
    phrase = http.client.responses.get(status, "")
    shown = " ".join(_NO_TEXT.sub(" ", body[: 4 * _SHOWN_CHARS].decode("utf-8", "replace")).split())[:_SHOWN_CHARS]
    text = f"{status} {phrase}".rstrip() + " from something between client and cluster, such as a proxy"
    text += f": {shown}" if shown else ""
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return TooLargeForProxy(text)
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return Unavailable(text)
    return RefusedByProxy(text)


def problem_error(problem: Problem, status: int) -> RaftschedError:
    """Return the exception of `problem`; `status` is the HTTP status of its reply."""
    error = _error_of(problem, status)
    error.request_id = problem.request_id or ""
    return error


def _error_of(problem: Problem, status: int) -> RaftschedError:
    text = problem.detail or problem.title or f"the server answered {status}"
    if problem.code in _INVALID:
        return _INVALID[problem.code](_PART.sub("", text), field=_PART.sub("", problem.field or ""))
    if problem.code in _UNAVAILABLE:
        return _UNAVAILABLE[problem.code](text)
    if problem.code == QuotaExceeded.code:
        return QuotaExceeded(text, retry_after_seconds=problem.retry_after_seconds or 0.0)
    if problem.code == NotLeader.code:
        return NotLeader()
    if problem.code == "not_found":
        return NotFound(text)
    return _by_status(problem, status, text)


def _by_status(problem: Problem, status: int, text: str) -> RaftschedError:
    if status == 429:
        return Unavailable(text)
    if status >= 500:
        return Unavailable(text) if status == 503 else OutcomeUnknown(text)
    return Rejected(
        problem.code or f"http_{status}",
        _PART.sub("", text),
        http_status=status,
        field=_PART.sub("", problem.field or ""),
        job_id=problem.job_id or "",
        members=tuple(problem.members or ()),
    )
