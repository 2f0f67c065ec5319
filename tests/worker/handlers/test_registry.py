from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from raftsched import limits
from raftsched.errors import Invalid
from raftsched.worker import Worker
from raftsched.worker.handlers.registry import HandlerKind, Registry


def plain(payload: object) -> None: ...
def with_context(ctx: object, payload: object) -> None: ...
def with_option(payload: object, *, option: int = 1) -> None: ...
def context_first(ctx: object, payload: object = None) -> None: ...
def default_second(payload: object, limit: int = 1) -> None: ...
async def coroutine(ctx: object, payload: object) -> None: ...
def nothing() -> None: ...
def too_many(a: object, b: object, c: object) -> None: ...


def wants_keyword(payload: object, *, needed: int) -> None: ...
def yields(payload: object) -> Iterator[int]:
    yield 1


async def yields_async(payload: object) -> AsyncIterator[int]:
    yield 1


class Callee:
    async def __call__(self, payload: object) -> None: ...


@pytest.mark.parametrize(
    ("function", "takes_context"),
    [(plain, False), (with_context, True), (with_option, False), (context_first, True), (default_second, False)],
)
def test_handler_is_called_with_what_it_takes(function: Callable[..., Any], takes_context: bool) -> None:
    registry = Registry()
    assert registry.job("a")(function) is function
    handler = registry.find("a")
    assert handler is not None
    assert handler.takes_context is takes_context


@pytest.mark.parametrize(
    ("function", "process", "kind"),
    [
        (plain, False, HandlerKind.THREAD),
        (plain, True, HandlerKind.PROCESS),
        (coroutine, False, HandlerKind.COROUTINE),
        (Callee(), False, HandlerKind.COROUTINE),
    ],
)
def test_handler_runs_where_its_kind_belongs(function: Callable[..., Any], process: bool, kind: HandlerKind) -> None:
    registry = Registry()
    registry.job("a", process=process)(function)
    handler = registry.find("a")
    assert handler is not None
    assert handler.kind is kind


@pytest.mark.parametrize("function", [nothing, too_many, wants_keyword, yields, yields_async, int])
def test_function_that_takes_something_else_is_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(Invalid) as caught:
        Registry().job("a")(function)
    assert caught.value.field == "handler"


@pytest.mark.parametrize("function", [coroutine, lambda payload: payload])
def test_process_handler_must_be_a_plain_function_of_a_module(function: Callable[..., Any]) -> None:
    with pytest.raises(Invalid) as caught:
        Registry().job("a", process=True)(function)
    assert caught.value.field == "process"


def test_second_handler_of_a_name_is_refused_and_the_first_stays() -> None:
    registry = Registry()
    registry.job("a")(plain)
    with pytest.raises(Invalid):
        registry.job("a")(coroutine)
    handler = registry.find("a")
    assert handler is not None
    assert handler.function is plain


@pytest.mark.parametrize(
    "options",
    [
        {"max_attempts": 0},
        {"max_attempts": "3"},
        {"max_attempts": 2.5},
        {"timeout_seconds": 0},
        {"timeout_seconds": "5"},
        {"timeout_seconds": float("nan")},
        {"timeout_seconds": float("inf")},
        {"queue": ""},
        {"queue": "two words"},
        {"queue": 5},
        {"retry_on": ValueError},
        {"no_retry": None},
    ],
)
def test_option_out_of_range_is_refused_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(Invalid) as caught:
        Registry().job("a", **options)
    assert caught.value.field in options


@pytest.mark.parametrize("name", ["", "x" * 129, "two words", "a/b", b"bytes", None, plain])
def test_name_that_no_job_can_have_is_refused(name: Any) -> None:
    with pytest.raises(Invalid) as caught:
        Worker().job(name)
    assert caught.value.field == "name"


@pytest.mark.parametrize("queues", ["send_email", ["two words"], [5], ["**"], ["*mail"], ["a b*"], ["*-*"]])
def test_queues_that_are_no_list_of_names_are_refused_before_the_worker_starts(queues: Any) -> None:
    with pytest.raises(Invalid) as caught:
        Worker(queues=queues)
    assert caught.value.field == "queues"


def test_worker_takes_patterns_of_queues() -> None:
    assert Worker(queues=["mail*", "*", "pay"])._checked_queues() == ["mail*", "*", "pay"]


def test_one_handler_too_many_is_refused_when_it_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "NAMES_PER_LEASE_MAX", 6)
    monkeypatch.setattr(limits, "QUEUES_PER_LEASE_MAX", 4)
    worker, named = Worker(), Worker(queues=["*"])
    for number in range(4):
        worker.job(f"a{number}")(plain)
    with pytest.raises(Invalid, match="queue=") as too_many_queues:
        worker.job("a4")(plain)
    assert too_many_queues.value.field == "queue"
    worker.job("a4", queue="a0")(plain)
    for number in range(6):
        named.job(f"a{number}")(plain)
    with pytest.raises(Invalid, match="several workers") as too_many_handlers:
        named.job("a6")(plain)
    assert too_many_handlers.value.field == "name"


@pytest.mark.parametrize(
    "options",
    [
        {"concurrency": 0},
        {"concurrency": "8"},
        {"concurrency": 2.5},
        {"drain_seconds": "5"},
        {"drain_seconds": -1},
        {"drain_seconds": float("nan")},
        {"name": 5},
        {"region": 5},
    ],
)
def test_setting_that_no_worker_can_have_is_refused_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(Invalid) as caught:
        Worker(**options)
    assert caught.value.field in options
