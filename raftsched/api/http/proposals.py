"""Propose operations and wait for their results, without a task for each: those of one request commit together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeGuard, TypeVar

from raftsched.api.backend import Backend
from raftsched.api.http.problems import refusal
from raftsched.core.operations.base import Operation
from raftsched.core.state.results import Refused, Result
from raftsched.errors import InvariantBroken, OutcomeUnknown, QuotaExceeded, RaftschedError, Unavailable

Answer = Result | RaftschedError
_R = TypeVar("_R")


async def propose(backend: Backend, operation: Operation, kind: type[_R]) -> _R:
    """Propose the operation and return its result, which is of `kind`; raises the error of a refusal."""
    return granted(await backend.propose(operation), kind)


def granted(result: Answer, kind: type[_R], *, at: str = "") -> _R:
    """Return the result, which is of `kind`; raises the error of a refusal, with fields below the path `at`."""
    if isinstance(result, kind):
        return result
    if isinstance(result, Refused):
        raise refusal(result, at=at)
    if isinstance(result, RaftschedError):
        raise result
    raise InvariantBroken(f"an operation gave a result of another kind: {type(result).__name__}")


async def answers_of(futures: Sequence[asyncio.Future[Result]]) -> list[Answer]:
    """Return the result or the error of each proposal, in order.

    Raises `Unavailable` if not one of several entered the log, so that the whole request is repeated at another node,
    and `InvariantBroken`, by which this node stops: then the outcome of each is unknown.
    Cancelling this cancels the wait for all of them, not the proposals.
    """
    answers: list[Answer] = []
    try:
        for future in futures:
            # The first await waits for the whole batch; to await a future that is done is nearly free.
            try:
                answers.append(await future)
            except InvariantBroken:
                raise
            except RaftschedError as error:
                answers.append(error)
    except asyncio.CancelledError:
        for future in futures:
            future.cancel()
        raise
    refused = [answer for answer in answers if is_refused_now(answer)]
    if refused and len(refused) == len(answers):
        raise refused[0]
    return answers


def is_refused_now(answer: object) -> TypeGuard[Unavailable]:
    """Return whether the operation is certainly not in the log, for a temporary reason that another node may not have."""
    return isinstance(answer, Unavailable) and not isinstance(answer, OutcomeUnknown | QuotaExceeded)
