"""Register the handler of each operation, so that both are declared where the operation is handled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from raftsched.core.operations.base import Operation
from raftsched.core.state.results import Applied, Context
from raftsched.core.state.view import ForkableView

Handler = Callable[[ForkableView, Any, Context], Applied]
H = TypeVar("H", bound=Callable[..., Applied])

HANDLERS: Final[dict[type[Operation], Handler]] = {}
"""Operation -> its handler. `core.apply` imports all modules that fill it, and a test holds that none is missing."""


def handles(operation: type[Operation]) -> Callable[[H], H]:
    """Return the decorator that registers the handler of `operation`."""

    def register(handler: H) -> H:
        HANDLERS[operation] = handler
        return handler

    return register
