"""From a problem document (RFC 9457) to the exception that it stands for.

A code that this version doesn't know still gets the right family by its HTTP status. An error without a problem
document of ours comes from something between us and the cluster: a proxy, a firewall, a gateway. Such an answer settles
nothing, for it may have been given before or after the cluster saw the request. Only its 413 and 429 say that the
request was not passed on.
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
"""Every problem document of a node begins its `type` so."""
_SHOWN_CHARS: Final = 200
_NO_TEXT: Final = re.compile(r"<[^>]*>|\s+")


class TooLargeOnTheWay(TooLarge):
    """Something between client and cluster refused the request for its size; the cluster has not seen it."""


class RefusedOnTheWay(OutcomeUnknown):
    """Something between client and cluster refused the request; whether the cluster has seen it is unknown."""


_PART = re.compile(r"^(?:jobs|outcomes)\[\d+\]\.")
"""Where in a batch a field stands; the caller knows the one item it handed in, not the batch it travelled in."""

_decode = msgspec.json.Decoder(Problem).decode


def read_problem(status: int, body: bytes) -> RaftschedError:
    """Return the exception for an HTTP error reply, whatever its body holds."""
    try:
        problem = _decode(body)
    except msgspec.DecodeError:
        return _on_the_way(status, body)
    return problem_error(problem, status) if problem.type.startswith(_OURS) else _on_the_way(status, body)


def _on_the_way(status: int, body: bytes) -> RaftschedError:
    """Return the exception for an error reply that no node gave."""
    phrase = http.client.responses.get(status, "")
    shown = " ".join(_NO_TEXT.sub(" ", body[: 4 * _SHOWN_CHARS].decode("utf-8", "replace")).split())[:_SHOWN_CHARS]
    text = f"{status} {phrase}".rstrip() + " from something between client and cluster, such as a proxy"
    text += f": {shown}" if shown else ""
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return TooLargeOnTheWay(text)
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return Unavailable(text)
    return RefusedOnTheWay(text)


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
        return Unavailable(text) if status == 503 else OutcomeUnknown(text)
    return Rejected(
        problem.code or f"http_{status}",
        _PART.sub("", text),
        http_status=status,
        field=_PART.sub("", problem.field or ""),
        job_id=problem.job_id or "",
        members=tuple(problem.members or ()),
    )
