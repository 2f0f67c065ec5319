"""Read the fields of an object in a foreign document, and report those that no converter asks for."""

from __future__ import annotations

from typing import Any, Final, TypeVar

from raftsched.cli.converters.report import Entry
from raftsched.cli.terminal.files import Document
from raftsched.errors import Invalid

T = TypeVar("T")
_NAMES: Final = {str: "a text", int: "a whole number", bool: "true or false", dict: "an object", list: "a list"}
_EMPTY: Final[tuple[Any, ...]] = (None, "", [], {})


class Fields:
    """The fields of an object at `path`. A field that is absent, null or empty reads as nothing."""

    def __init__(self, document: Document, path: str, value: Any) -> None:
        self._document = document
        self._path = path
        self._value = _typed(value, dict, path)
        self._asked: set[str] = set()

    @property
    def is_empty(self) -> bool:
        return not self._value

    def line(self, name: str = "") -> int | None:
        """Return the line of a field, or of the object."""
        return self._document.line_of(f"{self._path}.{name}" if name and self._path else name or self._path)

    def text(self, name: str) -> str:
        return self._get(name, str) or ""

    def integer(self, name: str) -> int | None:
        return self._get(name, int)

    def flag(self, name: str) -> bool:
        return bool(self._get(name, bool))

    def inner(self, name: str) -> Fields:
        """Return the object in a field, an empty one if it is absent."""
        return Fields(self._document, self._at(name), self._get(name, dict) or {})

    def each(self, name: str) -> list[Fields]:
        """Return the objects of a list."""
        items = self._get(name, list) or []
        return [Fields(self._document, f"{self._at(name)}[{number}]", item) for number, item in enumerate(items)]

    def texts(self, name: str) -> list[str]:
        """Return the texts of a list."""
        items = self._get(name, list) or []
        return [_typed(item, str, f"{self._at(name)}[{number}]") for number, item in enumerate(items)]

    def table(self, name: str) -> dict[str, str]:
        """Return an object whose values are texts."""
        return {
            key: _typed(value, str, f"{self._at(name)}.{key}") for key, value in (self._get(name, dict) or {}).items()
        }

    def ignore(self, *names: str) -> None:
        """Count fields as read that have no effect on runs."""
        self._asked.update(names)

    def report_rest(self, entry: Entry, reason: str = "") -> None:
        """Report the fields that were neither asked for nor ignored."""
        for name, value in self._value.items():
            if name not in self._asked and value not in _EMPTY and value is not False:
                entry.not_kept(f"{self._at(name)}{f': {reason}' if reason else ''}", self.line(name))

    def _get(self, name: str, kind: type[T]) -> T | None:
        self._asked.add(name)
        value = self._value.get(name)
        return None if value is None else _typed(value, kind, self._at(name))

    def _at(self, name: str) -> str:
        return f"{self._path}.{name}" if self._path else name


def _typed(value: Any, kind: type[T], path: str) -> T:
    """Return the value; raises `Invalid` if it is of another type."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise Invalid(f"{path or 'the document'}: must be {_NAMES[kind]}")
    return value
