"""From a problem document (RFC 9457) to the exception that it stands for.

A code that this version doesn't know still gets the right family by its HTTP status. A 5xx without a code of ours
comes from something between us and the cluster, or from a node that broke: what it did is unknown.
"""

from __future__ import annotations

import re

import msgspec

from raftsched.errors import (
    Invalid,
    Malformed,
    NotFound,
    NotLeader,
    OutcomeUnknown,
    RaftschedError,
    Rejected,
    StorageFull,
    TooLarge,
    Unavailable,
    UnsupportedMediaType,
)

_INVALID = {kind.code: kind for kind in (Invalid, Malformed, TooLarge, UnsupportedMediaType)}
_UNAVAILABLE = {kind.code: kind for kind in (Unavailable, OutcomeUnknown, StorageFull)}


class Problem(msgspec.Struct, frozen=True):
    """The parts of a problem document that decide what is raised."""

    status: int = 0
    code: str = ""
    title: str = ""
    detail: str = ""
    field: str | None = None
    retryable: bool | None = None
    job_id: str = ""
    members: tuple[str, ...] = ()


_PART = re.compile(r"^(?:jobs|outcomes)\[\d+\]\.")
"""Where in a batch a field stands; the caller knows the one item it handed in, not the batch it travelled in."""

_decode = msgspec.json.Decoder(Problem).decode


def read_problem(status: int, body: bytes) -> RaftschedError:
    """Return the exception for an HTTP error reply, whatever its body holds."""
    try:
        problem = _decode(body)
    except msgspec.DecodeError:
        problem = Problem(detail=body[:200].decode("utf-8", "replace"))
    return problem_error(problem, status)


def problem_error(problem: Problem, status: int) -> RaftschedError:
    """Return the exception that `problem` stands for; `status` is the HTTP status that came with it."""
    text = problem.detail or problem.title or f"the server answered {status}"
    if problem.code in _INVALID:
        return _INVALID[problem.code](_PART.sub("", text), field=_PART.sub("", problem.field or ""))
    if problem.code in _UNAVAILABLE:
        return _UNAVAILABLE[problem.code](text)
    if problem.code == NotLeader.code:
        return NotLeader()
    if problem.code == "not_found":
        return NotFound(text)
    return _by_status(problem, status, text)


def _by_status(problem: Problem, status: int, text: str) -> RaftschedError:
    if status == 429:
        return Unavailable(text)
    if status >= 500:
        refused = status == 503 and bool(problem.code)
        return Unavailable(text) if refused else OutcomeUnknown(text)
    return Rejected(
        problem.code or f"http_{status}",
        _PART.sub("", text),
        http_status=status,
        field=_PART.sub("", problem.field or ""),
        job_id=problem.job_id,
        members=problem.members,
    )
