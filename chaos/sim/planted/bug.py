"""Put a planted bug into production code, and take it out again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from chaos.sim.planted.scripts.stage import Schedule
from chaos.sim.rates import Rates
from chaos.sim.run.twins import planting

Plant = Callable[[Any], None]
"""Takes a `Patch`, or pytest's monkeypatch, and spoils something with it."""
_ABSENT: Any = object()


class Patch:
    """Replaces attributes and rows of tables, as pytest's monkeypatch, and puts them back."""

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, Any]] = []
        self._rows: list[tuple[Any, Any, Any]] = []

    def setattr(self, target: Any, name: str, value: Any, *, raising: bool = True) -> None:
        """Replace an attribute. With `raising` there must be one: after a renaming nothing would be planted."""
        if raising and not hasattr(target, name):
            raise AttributeError(f"{target!r} has no {name}: nothing would be planted")
        self._undo.append((target, name, vars(target).get(name, _ABSENT)))
        setattr(target, name, value)

    def setitem(self, table: Any, key: Any, value: Any) -> None:
        self._rows.append((table, key, table[key]))
        table[key] = value

    def undo(self) -> None:
        while self._rows:
            table, key, value = self._rows.pop()
            table[key] = value
        while self._undo:
            target, name, value = self._undo.pop()
            if value is _ABSENT:
                delattr(target, name)
            else:
                setattr(target, name, value)


def as_drawn(rates: Rates) -> Rates:
    return rates


@dataclass(frozen=True, slots=True)
class Bug:
    """A planted bug: `schedule` leads straight to it if it has one; else worlds of the kind that is said here do."""

    plant: Plant
    source: str
    """The claim, defect or fix of RELIABILITY.md and PYSYNCOBJ.md that it breaks."""
    node_count: int = 3
    alter: Callable[[Rates], Rates] = as_drawn
    schedule: Schedule | None = None

    @property
    def name(self) -> str:
        return self.plant.__name__


@contextmanager
def planted(bug: Bug) -> Iterator[None]:
    """Have the bug in production code within this block."""
    patch = Patch()
    try:
        bug.plant(patch)
        with planting(bug.name):
            yield
    finally:
        patch.undo()
