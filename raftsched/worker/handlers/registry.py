"""Register the handlers of jobs, and how they are called."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from raftsched import limits
from raftsched.core.records.queue_patterns import STAR, is_pattern
from raftsched.errors import Invalid
from raftsched.wire.calls import KINDS, Kind
from raftsched.worker.handlers.context import Context
from raftsched.worker.handlers.result import ALWAYS, RetryRules, full_name

F = TypeVar("F", bound=Callable[..., Any])
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@-]*")
_TIMEOUT_SECONDS_MAX = limits.TIMEOUT_MS_MAX / 1000


class HandlerKind(Enum):
    """Place in which a handler runs."""

    COROUTINE = "coroutine"
    THREAD = "thread"
    PROCESS = "process"


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """A registered function and its options."""

    name: str
    function: Callable[..., Any]
    kind: HandlerKind
    takes_context: bool
    queue: str
    max_attempts: int | None = None
    timeout_seconds: float | None = None
    rules: RetryRules = ALWAYS
    captures_stdout: bool = False


class Registry:
    """The handlers of a worker, by job name."""

    def __init__(self, *, queues_are_named: bool = False) -> None:
        """Make it empty; `queues_are_named`: the worker takes jobs from queues given to it, not from those of its
        handlers.
        """
        self._queues_are_named = queues_are_named
        self._handlers: dict[str, Handler] = {}
        self._executors: dict[Kind, Handler] = {}
        self.on_stop: list[Callable[[], Awaitable[None]]] = []
        """Awaited once the last run of the worker has ended."""

    @property
    def queues(self) -> list[str]:
        """Return the queues of all handlers and kinds, in the order of their registration."""
        handlers = (*self._handlers.values(), *self._executors.values())
        return list(dict.fromkeys(handler.queue for handler in handlers))

    @property
    def names(self) -> list[str]:
        """Return the names of the jobs that have a handler."""
        return list(self._handlers)

    @property
    def kinds(self) -> list[Kind]:
        """Return the kinds of jobs that need no handler and have an executor."""
        return list(self._executors)

    def find(self, name: str, kind: Kind | None = None) -> Handler | None:
        """Return the handler of jobs called `name`, or of all jobs of a `kind`; None if there is none."""
        return self._handlers.get(name) if kind is None else self._executors.get(kind)

    @property
    def stdout_wanted(self) -> bool:
        """Return whether some handler in this process asks that its output goes to the job's log."""
        handlers = self._handlers.values()
        return any(handler.captures_stdout and handler.kind is not HandlerKind.PROCESS for handler in handlers)

    def job(
        self,
        name: str,
        *,
        queue: str | None = None,
        max_attempts: int | None = None,
        timeout_seconds: float | None = None,
        retry_on: Sequence[type[BaseException]] | None = None,
        no_retry: Sequence[type[BaseException]] = (),
        capture_stdout: bool = False,
        process: bool = False,
    ) -> Callable[[F], F]:
        """Return the decorator that registers a function under `name` and leaves it as it is; see `Worker.job`."""
        _check_options(name, queue, max_attempts, timeout_seconds)
        rules = _rules(retry_on, no_retry)

        def register(function: F) -> F:
            if name in self._handlers:
                raise Invalid(f"name: there is a handler for {name!r} already", field="name")
            self._check_room(name if queue is None else queue)
            self._handlers[name] = Handler(
                name=name,
                function=function,
                kind=_kind(function, process=process),
                takes_context=_takes_context(function),
                queue=name if queue is None else queue,
                max_attempts=max_attempts,
                timeout_seconds=timeout_seconds,
                rules=rules,
                captures_stdout=capture_stdout,
            )
            return function

        return register

    def execute(
        self,
        kind: Kind,
        function: Callable[[Context, Any], Awaitable[Any]],
        *,
        on_stop: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Register the function that runs all jobs of a kind; see `Worker.execute`."""
        if kind not in KINDS:
            raise Invalid(f"kind: one of {', '.join(KINDS)}, not {kind!r}", field="kind")
        if kind in self._executors:
            raise Invalid(f"kind: there is an executor of {kind} jobs already", field="kind")
        self._executors[kind] = Handler(
            name=kind, function=function, kind=HandlerKind.COROUTINE, takes_context=True, queue=kind
        )
        if on_stop is not None:
            self.on_stop.append(on_stop)

    def _check_room(self, queue: str) -> None:
        """Raise `Invalid` if one more handler, with its queue, is more than a request for jobs may name."""
        if len(self._handlers) >= limits.NAMES_PER_LEASE_MAX:
            limit = f"a worker has at most {limits.NAMES_PER_LEASE_MAX} handlers; split them between several workers"
            raise Invalid(f"name: {limit}", field="name")
        queues = (
            self.queues if len(self._handlers) >= limits.QUEUES_PER_LEASE_MAX and not self._queues_are_named else []
        )
        if queue not in queues and len(queues) >= limits.QUEUES_PER_LEASE_MAX:
            limit = f"handlers of one worker are in at most {limits.QUEUES_PER_LEASE_MAX} queues"
            raise Invalid(
                f"queue: {limit}; put some in one queue (queue=...), or make Worker(queues=['*'])", field="queue"
            )


def checked_pattern(queue: Any, *, field: str) -> str:
    """Return the name of a queue, or a pattern, that the API takes for a worker's queues; raises `Invalid` for any other."""
    if isinstance(queue, str) and is_pattern(queue):
        if queue != STAR:
            checked_name(queue.removesuffix(STAR), field=field)
        return queue
    return checked_name(queue, field=field)


def checked_name(name: Any, *, field: str) -> str:
    """Return a name that the API takes for jobs, queues and regions; raises `Invalid` for any other."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > limits.NAME_CHARS_MAX:
        rule = f"1 to {limits.NAME_CHARS_MAX} letters, digits and _ . : @ -, the first a letter or digit"
        raise Invalid(f"{field}: {rule}, not {name!r}", field=field)
    return name


def _check_options(name: Any, queue: Any, max_attempts: Any, timeout_seconds: Any) -> None:
    if callable(name):
        raise Invalid("name: the handler needs its job's name: write @worker.job('name')", field="name")
    checked_name(name, field="name")
    if queue is not None:
        checked_name(queue, field="queue")
    if max_attempts is not None and not (type(max_attempts) is int and 1 <= max_attempts <= limits.ATTEMPTS_MAX):
        text = f"max_attempts: a whole number, 1 to {limits.ATTEMPTS_MAX}, not {max_attempts!r}"
        raise Invalid(text, field="max_attempts")
    if timeout_seconds is not None and not (
        isinstance(timeout_seconds, int | float) and 0 < timeout_seconds <= _TIMEOUT_SECONDS_MAX
    ):
        text = f"timeout_seconds: more than 0, at most {_TIMEOUT_SECONDS_MAX:.0f}, not {timeout_seconds!r}"
        raise Invalid(text, field="timeout_seconds")


def _rules(retry_on: Any, no_retry: Any) -> RetryRules:
    for field, kinds in (("retry_on", () if retry_on is None else retry_on), ("no_retry", no_retry)):
        if not isinstance(kinds, Iterable) or not all(
            isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds
        ):
            raise Invalid(f"{field}: a list of classes of exceptions, not {kinds!r}", field=field)
    allowed = None if retry_on is None else tuple(map(full_name, retry_on))
    return RetryRules(allowed, tuple(map(full_name, no_retry)))


def _kind(function: Callable[..., Any], *, process: bool) -> HandlerKind:
    call = getattr(function, "__call__", function)  # noqa: B004  # its code may be in the method, as for an instance
    if any(inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each) for each in (function, call)):
        raise Invalid(
            "handler: it yields, and a call of it would run nothing; it must return its result", field="handler"
        )
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call):
        if process:
            raise Invalid("process: a handler in a process is a plain function, not an async one", field="process")
        return HandlerKind.COROUTINE
    if process and "<" in getattr(function, "__qualname__", "<"):
        raise Invalid(
            "process: the handler must be a function at the top of a module, to be found again", field="process"
        )
    return HandlerKind.PROCESS if process else HandlerKind.THREAD


def _takes_context(function: Callable[..., Any]) -> bool:
    """Return whether to call it with (ctx, payload), or with (payload)."""
    try:
        signature = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise Invalid(f"handler: {error}", field="handler") from None
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = [each for each in signature if each.kind in kinds]
    required = [each for each in parameters if each.default is inspect.Parameter.empty]
    wants_keyword = any(
        each.kind is inspect.Parameter.KEYWORD_ONLY and each.default is inspect.Parameter.empty for each in signature
    )
    if not parameters or len(required) > 2 or wants_keyword:
        raise Invalid("handler: it takes (ctx, payload) or (payload)", field="handler")
    return len(required) == 2 or (len(parameters) > 1 and parameters[0].name in ("ctx", "context"))
