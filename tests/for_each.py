"""Run one test for many cases, and report all that fail."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

import pytest


def for_each(names: str | Sequence[str], cases: Iterable[Any]) -> Callable[[Callable[..., Any]], Any]:
    """Call the test for each case, as `pytest.mark.parametrize` does, but as one test that reports all cases that fail.

    It is for tables and seeds whose cases are many and quick. Fixtures are set up once, for all cases.
    """
    keys = [names] if isinstance(names, str) else list(names)
    rows = [dict(zip(keys, [case] if isinstance(names, str) else case, strict=True)) for case in cases]
    assert rows, "a table without cases tests nothing"

    def decorate(test: Callable[..., Any]) -> Any:
        @wraps(test)
        def run(**fixtures: Any) -> None:
            with _report(len(rows)) as faults:
                for row in rows:
                    with _collect(faults, row):
                        test(**fixtures, **row)

        @wraps(test)
        async def run_async(**fixtures: Any) -> None:
            with _report(len(rows)) as faults:
                for row in rows:
                    with _collect(faults, row):
                        await test(**fixtures, **row)

        decorated: Any = run_async if inspect.iscoroutinefunction(test) else run
        signature = inspect.signature(test)
        fixtures = [each for each in signature.parameters.values() if each.name not in keys]
        decorated.__signature__ = signature.replace(parameters=fixtures)
        return decorated

    return decorate


@contextmanager
def _report(count: int) -> Iterator[list[BaseException]]:
    """Raise all faults that were collected, if any."""
    faults: list[BaseException] = []
    yield faults
    if faults:
        raise BaseExceptionGroup(f"{len(faults)} of {count} cases fail", faults)


@contextmanager
def _collect(faults: list[BaseException], row: dict[str, Any]) -> Iterator[None]:
    """Keep what is raised, with the case that it is about."""
    try:
        yield
    except (Exception, pytest.fail.Exception) as fault:  # noqa: BLE001  # all are reported
        fault.add_note("case: " + ", ".join(f"{name}={value!r}" for name, value in row.items()))
        faults.append(fault)
