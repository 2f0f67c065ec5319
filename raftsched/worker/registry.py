"""Which function handles which job, and how it is called."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from raftsched import limits
from raftsched.errors import Invalid

F = TypeVar("F", bound=Callable[..., Any])


class HandlerKind(Enum):
    """Where a handler runs."""

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


class Registry:
    """The handlers of a worker, by job name."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}
        self.find = self._handlers.get

    @property
    def queues(self) -> list[str]:
        """The queues of all handlers, in the order of their registration."""
        return list(dict.fromkeys(handler.queue for handler in self._handlers.values()))

    @property
    def processes_needed(self) -> bool:
        return any(handler.kind is HandlerKind.PROCESS for handler in self._handlers.values())

    def job(
        self,
        name: str,
        *,
        queue: str | None = None,
        max_attempts: int | None = None,
        timeout_seconds: float | None = None,
        process: bool = False,
    ) -> Callable[[F], F]:
        """Return the decorator that registers a function under `name` and leaves it as it is; see `Worker.job`."""
        _check_options(name, max_attempts, timeout_seconds)

        def register(function: F) -> F:
            if name in self._handlers:
                raise Invalid(f"name: there is a handler for {name!r} already", field="name")
            self._handlers[name] = Handler(
                name=name,
                function=function,
                kind=_kind(function, process=process),
                takes_context=_takes_context(function),
                queue=queue or name,
                max_attempts=max_attempts,
                timeout_seconds=timeout_seconds,
            )
            return function

        return register


def _check_options(name: str, max_attempts: int | None, timeout_seconds: float | None) -> None:
    if callable(name):
        raise Invalid("name: the handler needs its job's name: write @worker.job('name')", field="name")
    if not 0 < len(name) <= limits.NAME_CHARS_MAX:
        raise Invalid(f"name: 1 to {limits.NAME_CHARS_MAX} characters, not {len(name)}", field="name")
    if max_attempts is not None and not 1 <= max_attempts <= limits.ATTEMPTS_MAX:
        raise Invalid(f"max_attempts: 1 to {limits.ATTEMPTS_MAX}, not {max_attempts}", field="max_attempts")
    if timeout_seconds is not None and not timeout_seconds > 0:
        raise Invalid(f"timeout_seconds: more than 0, not {timeout_seconds}", field="timeout_seconds")


def _kind(function: Callable[..., Any], *, process: bool) -> HandlerKind:
    call = getattr(function, "__call__", function)  # noqa: B004  # its code may be in the method, as for an instance
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
    """Whether to call it with (ctx, payload), or with (payload)."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = [each for each in inspect.signature(function).parameters.values() if each.kind in kinds]
    required = [each for each in parameters if each.default is inspect.Parameter.empty]
    if not parameters or len(required) > 2:
        raise Invalid("handler: it takes (ctx, payload) or (payload)", field="handler")
    return len(required) == 2 or (len(parameters) > 1 and parameters[0].name in ("ctx", "context"))
