"""Explain why a document does not fit its struct: the field, the allowed values, and the nearest known name.

msgspec reports the fault and its path. This adds the known fields, the nearest one to an unknown field, the values of
an enumeration, and the meaning of a pattern. It runs for rejected requests only, so it may be slow.
"""

from __future__ import annotations

import difflib
import re
from typing import Final

import msgspec
from msgspec import inspect

from raftsched.errors import Malformed
from raftsched.wire.calls import CALL_RULES
from raftsched.wire.common import PATTERN_RULES

_PLACE: Final = re.compile(r" - at (?P<key>`key` in )?`\$(?P<path>.*)`$", re.DOTALL)
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(?P<name>.*)`", re.DOTALL)
_MISSING: Final = re.compile(r"Object missing required field `(?P<name>.*)`", re.DOTALL)
_REGEX: Final = "Expected `str` matching regex "
_SHOWN_CHARS: Final = 60
_TIME_HINT: Final = (
    "expected an RFC 3339 time with its offset, as in 2027-03-14T07:00:00Z, from 1970 on;"
    " a leap second (:60) is not accepted"
)
_TIMES: Final = frozenset(
    {
        *("run_at", "expires_at", "deadline", "until", "created_after", "created_before"),
        *("at", "start_at", "end_at", "pause_until", "from", "to", "after", "instant"),
    }
)


def explain(error: msgspec.ValidationError, struct: type, *, at: str = "") -> Malformed:
    """Return the error for a document that does not fit `struct`; `at` is the path of the document itself."""
    text = str(error)
    place = _PLACE.search(text)
    path = place["path"].removeprefix(".") if place else ""
    text = text[: place.start()] if place else text
    expected = _type_at(struct, path)
    if unknown := _UNKNOWN.fullmatch(text):
        field = _join(path, unknown["name"][:_SHOWN_CHARS])
        return _malformed(at, field, _unknown_field(unknown["name"], expected))
    if missing := _MISSING.fullmatch(text):
        return _malformed(at, _join(path, missing["name"]), "this field is required")
    if place and place["key"]:  # one of the names in an object that takes any
        return _malformed(at, path, f"of each name in it: {_fault_text(text, None)}")
    return _malformed(at, path, _TIME_HINT if path.rpartition(".")[2] in _TIMES else _fault_text(text, expected))


def _malformed(at: str, path: str, fault: str) -> Malformed:
    field = _join(at, path)
    return Malformed(f"{field or 'the body'}: {fault}", field=field)


def _join(head: str, tail: str) -> str:
    return f"{head}.{tail}" if head and tail else head or tail


def _fault_text(text: str, expected: inspect.Type | None) -> str:
    if text.startswith(_REGEX):
        for pattern, rule in (PATTERN_RULES | CALL_RULES).items():
            if text == f"{_REGEX}{pattern!r}":
                return f"expected {rule}"
    values = _values(expected)
    if values:
        return f"{text[:_SHOWN_CHARS]}; known are {', '.join(values)}{_nearest(text, values)}"
    return text


def _unknown_field(name: str, expected: inspect.Type | None) -> str:
    known = [field.encode_name for field in expected.fields] if isinstance(expected, inspect.StructType) else []
    if not known:
        return "there is no such field; this takes none"
    return f"there is no such field{_nearest(name, known)}; known are {', '.join(known)}"


def _nearest(name: str, known: list[str]) -> str:
    quoted = name.split("'")
    meant = quoted[1] if len(quoted) == 3 else name
    near = difflib.get_close_matches(meant[:_SHOWN_CHARS].lower(), known, 1)
    return f"; did you mean {near[0]}?" if near else ""


def _type_at(struct: type, path: str) -> inspect.Type | None:
    """Return the type that `struct` has at `path`, as in `retry_policy.delays_seconds[0]`."""
    found: inspect.Type | None = inspect.type_info(struct)
    for step in filter(None, re.split(r"\.|(?=\[)", path)):
        found = _item_of(found) if step.startswith("[") else _field_of(found, step)
    return _one_of(found, inspect.StructType, inspect.LiteralType)


def _field_of(kind: inspect.Type | None, name: str) -> inspect.Type | None:
    struct = _one_of(kind, inspect.StructType)
    if not isinstance(struct, inspect.StructType):
        return None
    return next((field.type for field in struct.fields if field.encode_name == name), None)


def _item_of(kind: inspect.Type | None) -> inspect.Type | None:
    found = _one_of(kind, inspect.ListType)
    return found.item_type if isinstance(found, inspect.ListType) else None


def _one_of(kind: inspect.Type | None, *wanted: type[inspect.Type]) -> inspect.Type | None:
    """Return `kind`, or the first alternative of a union, that is one of `wanted`; metadata is looked through."""
    if isinstance(kind, inspect.Metadata):
        return _one_of(kind.type, *wanted)
    if isinstance(kind, inspect.UnionType):
        return next((found for part in kind.types if (found := _one_of(part, *wanted))), None)
    return kind if isinstance(kind, wanted) else None


def _values(expected: inspect.Type | None) -> list[str]:
    return [str(value) for value in expected.values] if isinstance(expected, inspect.LiteralType) else []
