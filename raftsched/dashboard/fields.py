"""Read the fields of forms and URLs; an error names the field."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from raftsched.errors import Invalid

T = TypeVar("T")
Fields = Mapping[str, str]


def moment(fields: Fields, name: str) -> datetime | None:
    """Return a time; without an offset it is in UTC. None if it is not given."""
    return _read(fields, name, _moment, "expected a time in UTC, such as 2027-03-14T07:00")


def number(fields: Fields, name: str) -> float | None:
    """Return a number; None if it is not given."""
    return _read(fields, name, float, "expected a number")


def whole(fields: Fields, name: str) -> int | None:
    """Return a whole number; None if it is not given."""
    return _read(fields, name, int, "expected a whole number")


def json(fields: Fields, name: str) -> Any:
    """Return JSON of any kind; None if it is not given."""
    text = fields.get(name)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise Invalid(f"{name}: this is not JSON: {error}", field=name) from error


def words(fields: Fields, name: str) -> list[str]:
    """Return the texts between commas."""
    return [word.strip() for word in fields.get(name, "").split(",") if word.strip()]


def is_ticked(fields: Fields, name: str) -> bool:
    return name in fields


def _moment(text: str) -> datetime:
    read = datetime.fromisoformat(text)
    return read if read.tzinfo is not None else read.replace(tzinfo=UTC)


def _read(fields: Fields, name: str, kind: Callable[[str], T], rule: str) -> T | None:
    text = fields.get(name)
    if text is None:
        return None
    try:
        return kind(text)
    except ValueError as error:
        raise Invalid(f"{name}: {rule}, not {text[:100]!r}", field=name) from error
