"""Turn the end of a handler's call into the form that the cluster takes.

An `Outcome` knows nothing of leases: it is made in the thread or process of the handler. It always fits what the API
takes: texts are bounded and valid. A result without a JSON form, or a delay beyond what the API takes, is a failure
that no retry would fix. Everything that a handler returns or raises has an outcome: the functions here don't raise.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Coroutine
from typing import Any, Final

import msgspec

from raftsched import limits
from raftsched.client.http.documents import encode_document
from raftsched.errors import Invalid, Malformed, TooLarge
from raftsched.values import check_value
from raftsched.wire.workers import ErrorReport, Outcome
from raftsched.worker.handlers.verdicts import Accepted, GiveUp, Retry, Snooze

COMPLETED: Final = "completed"
FAILED: Final = "failed"
SNOOZED: Final = "snoozed"
ACCEPTED: Final = "accepted"


class RetryRules(msgspec.Struct, frozen=True):
    """Decide which errors of a handler are retried, by the full names of their classes.

    By name, so that they mean the same in a process of its own; a rule for a class also covers its subclasses.
    """

    retry_on: tuple[str, ...] | None = None
    """None = all."""
    no_retry: tuple[str, ...] = ()

    def allow(self, error: BaseException) -> bool:
        """Return whether to try again after `error`."""
        if self.retry_on is None and not self.no_retry:
            return True
        names = {full_name(kind) for kind in type(error).__mro__}
        return names.isdisjoint(self.no_retry) and (self.retry_on is None or not names.isdisjoint(self.retry_on))


ALWAYS = RetryRules()
_NO_RESULT = Outcome(COMPLETED)
_DELAY_SECONDS_MAX = limits.DELAY_MS_MAX / 1000


def full_name(kind: type[BaseException]) -> str:
    """Return the name of an exception class, the same in the worker and in its processes."""
    module = "__main__" if kind.__module__ == "__mp_main__" else kind.__module__
    return f"{module}.{kind.__qualname__}"


def completed(value: Any) -> Outcome:
    """Return the outcome of a handler that returned `value`."""
    if value is None:
        return _NO_RESULT
    try:
        text = encode_document(value, field="result")
        check_value(text, bytes_max=limits.RESULT_BYTES_MAX, field="result")
    except TooLarge as error:
        return failed("ResultTooLarge", str(error), retryable=False)
    except Malformed as error:
        return failed("ResultTooDeep", str(error), retryable=False)
    except Invalid as error:
        if inspect.iscoroutine(value):
            return _unawaited(value)
        return failed("ResultNotJson", str(error), retryable=False)
    except BaseException as error:  # noqa: BLE001  # raised by an attribute or an iterator of the user's
        return failed("ResultNotJson", f"result: reading it raised {_named(error)}", retryable=False)
    return Outcome(COMPLETED, msgspec.Raw(text))


def _unawaited(coroutine: Coroutine[Any, Any, Any]) -> Outcome:
    """Return the failure of a plain function around an async one, as a decorator makes it: the async one did not run."""
    if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
        coroutine.close()  # or there would be a warning about it, too
    message = "the handler returned a coroutine that nobody awaits: make it, or what decorates it, an async function"
    return failed("ResultNotAwaited", message, retryable=False)


def failed(kind: str, message: str, *, trace: str = "", retryable: bool = True, delay: float | None = None) -> Outcome:
    """Return a failed attempt."""
    error = ErrorReport(
        valid_text(kind)[: limits.NAME_CHARS_MAX],
        valid_text(message)[: limits.ERROR_MESSAGE_CHARS_MAX],
        valid_text(trace)[-limits.ERROR_TRACE_CHARS_MAX :],  # the end of a trace has the place of the error
    )
    return Outcome(FAILED, error=error, retryable=retryable, retry_after_seconds=delay)


def snoozed(seconds: float) -> Outcome:
    """Return a snoozed attempt: run it again later; no attempt is used."""
    return Outcome(SNOOZED, snooze_seconds=seconds)


def raised(error: BaseException, rules: RetryRules = ALWAYS) -> Outcome:
    """Return the outcome for `error`: a verdict, or a failure that is final if `rules` say so."""
    try:
        return _verdict(error) or _failure(error, rules)
    except BaseException as broken:  # noqa: BLE001  # as for a verdict whose class lost its fields
        return failed(type(error).__qualname__, f"its message can't be read: {type(broken).__qualname__}")


def _verdict(error: BaseException) -> Outcome | None:
    """Return the handler's decision, or None if `error` is no verdict."""
    if isinstance(error, Snooze):
        return _too_long("Snooze", error.seconds) or snoozed(error.seconds)
    if isinstance(error, Retry):
        return _too_long("Retry", error.after_seconds) or failed(
            error.error_type, str(error), delay=error.after_seconds
        )
    if isinstance(error, Accepted):
        return Outcome(ACCEPTED)
    if isinstance(error, GiveUp):
        return failed(error.error_type, str(error), retryable=False)
    return None


def _too_long(verdict: str, seconds: float | None) -> Outcome | None:
    if seconds is None or seconds <= _DELAY_SECONDS_MAX:
        return None
    message = f"{verdict}: a delay of {seconds:.0f} s, more than {_DELAY_SECONDS_MAX:.0f}"
    return failed("DelayTooLong", message, retryable=False)


def _failure(error: BaseException, rules: RetryRules) -> Outcome:
    trace = "".join(traceback.format_exception(error))
    return failed(type(error).__qualname__, _message(error), trace=trace, retryable=rules.allow(error))


def outcome_of(function: Callable[..., Any], arguments: tuple[Any, ...], rules: RetryRules = ALWAYS) -> Outcome:
    """Call a plain handler and return how it ended."""
    try:
        value = function(*arguments)
    except BaseException as error:  # noqa: BLE001  # whatever a handler raises is its outcome
        return raised(error, rules)
    return completed(value)


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as broken:  # noqa: BLE001  # an exception of the user's whose own text can't be made
        return f"its message can't be made: {type(broken).__qualname__}"


def _named(error: BaseException) -> str:
    return f"{type(error).__qualname__}: {_message(error)}"


def valid_text(text: str) -> str:
    """Return text that UTF-8 can carry and the API takes: lone surrogates and NUL become visible escapes."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
