from __future__ import annotations

import asyncio
import inspect
from collections.abc import ValuesView

import pytest

from raftsched import limits
from raftsched.wire.workers import Outcome
from raftsched.worker.handlers.result import completed, raised
from raftsched.worker.handlers.verdicts import Retry, Snooze

LONGEST_SECONDS = limits.DELAY_MS_MAX / 1000


class NoDelay(Retry):
    """A verdict whose class forgot the one that it is derived from."""

    def __init__(self) -> None: ...


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise asyncio.CancelledError


class Sealed(dict[str, None]):
    def values(self) -> ValuesView[None]:  # type: ignore[override]  # as a user's class may well do
        raise KeyboardInterrupt


def kind_of(outcome: Outcome) -> str:
    assert outcome.error is not None
    return outcome.error.type


@pytest.mark.parametrize("error", [NoDelay(), Unspeakable(), BaseException("x"), GeneratorExit(), SystemExit(1)])
def test_whatever_is_raised_has_an_ending_that_names_its_type(error: BaseException) -> None:
    assert kind_of(raised(error)) == type(error).__qualname__


def test_result_that_cannot_be_read_fails_for_good() -> None:
    outcome = completed(Sealed(a=None))
    assert (kind_of(outcome), outcome.retryable) == ("ResultNotJson", False)
    assert outcome.error is not None
    assert "KeyboardInterrupt" in outcome.error.message


def test_coroutine_that_nobody_awaits_fails_for_good_and_says_what_to_do() -> None:
    async def charge() -> None: ...

    coroutine = charge()
    outcome = completed(coroutine)
    assert (kind_of(outcome), outcome.retryable) == ("ResultNotAwaited", False)
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED


@pytest.mark.parametrize("verdict", [Snooze(LONGEST_SECONDS + 1), Retry(after=LONGEST_SECONDS + 1)])
def test_delay_that_the_api_does_not_take_fails_for_good_and_says_so(verdict: Snooze | Retry) -> None:
    outcome = raised(verdict)
    assert (kind_of(outcome), outcome.retryable, outcome.snooze_seconds) == ("DelayTooLong", False, None)
    assert outcome.error is not None
    assert outcome.error.message.startswith(type(verdict).__name__)
    assert f"{LONGEST_SECONDS:.0f}" in outcome.error.message


def test_longest_delay_that_the_api_takes_stands() -> None:
    assert raised(Snooze(LONGEST_SECONDS)).snooze_seconds == LONGEST_SECONDS
    assert raised(Retry(after=LONGEST_SECONDS)).retry_after_seconds == LONGEST_SECONDS
