"""The story of a run for people: one line an event, in virtual time; nothing is kept unless someone will read it."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any

import msgspec
import structlog

from chaos.checkers.history.events import AnyEvent, Durable, StateDigest

_DULL = (Durable, StateDigest)


class Trace:
    """Lines with their time; `is_on` False keeps none. `now` gives microseconds since the start."""

    def __init__(self, *, is_on: bool = False) -> None:
        self.is_on = is_on
        self.lines: list[str] = []
        self.now: Callable[[], int] = lambda: 0

    def event(self, event: AnyEvent) -> None:
        """An event of the history; what only checkers want is left out."""
        if self.is_on and not isinstance(event, _DULL):
            fields = msgspec.to_builtins(event)
            kind, _ = fields.pop("event"), fields.pop("t", 0)
            self.say(kind, " ".join(f"{name}={value}" for name, value in fields.items() if name != "jobs"))

    def say(self, who: str, what: str) -> None:
        if self.is_on:
            self.lines.append(f"{self.now() / 1e6:12.6f}  {who:<10} {what}")

    def log(self, _logger: object, _method: str, event: MutableMapping[str, Any]) -> str:
        """A structlog processor: production's own log lines, among the events."""
        name = str(event.pop("event"))
        self.say("log", f"{name} " + " ".join(f"{key}={value}" for key, value in event.items()))
        raise structlog.DropEvent
