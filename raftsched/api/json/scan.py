"""Check that bytes are a JSON document that all parsers read alike.

Parsers disagree about the edge cases of JSON. Some keep the first of two equal keys and some the last. Some read NaN or
a lone surrogate that others cannot write. Many recurse until the stack overflows. One bad job must never make a list of
jobs unreadable, so such documents are rejected before anything is stored, whatever field has the flaw.

Theory of operation. Each step protects the next. Nesting is counted on the raw bytes, so that no parser recurses
deeply. Then UTF-8 is checked strictly. Then the standard library parses, with hooks for every object, float and
constant. Now the document is well-formed and a backslash can only be within a string; so a search finds escapes that
are not text.

No other code of the node runs meanwhile, heartbeats included, so the largest body must not take long, whatever its
content. Only single operations in C read all of its bytes, and none of them creates an object for each string or escape
before their number is known to be small. Measured for 8 MiB: 20 to 230 ms; up to 0.5 s only for the largest allowed
number of keys.

Left out: the meaning of fields (`decode`), and the limit of bytes (`bodies`).
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from raftsched import limits
from raftsched.api.json.locations import path_of_flaw
from raftsched.errors import Malformed, TooLarge

_SHOWN_CHARS: Final = 60

_NOT_STRUCTURE: Final = bytes(byte for byte in range(256) if byte not in b'[]{},"')
_OPENING: Final = frozenset(b"[{")
_MARKS: Final = (b",", b"[", b"{")
"""A document has at most one value more than these."""
_QUOTES_PER_VALUE: Final = 4
"""The largest number: two around the key, two around the value."""

_UNSOUND_ESCAPE: Final = re.compile(
    rb"""\\u (?: 0000
              | [dD] (?: [89abAB] .. (?! \\u [dD][c-fC-F] )
                       | (?<! \\u [dD][89abAB].. \\u [dD] ) [c-fC-F]
                     )
            )""",
    re.VERBOSE,
)
"""NUL, or half of a surrogate pair without the other half, in a well-formed document without escaped backslashes."""


class NotJson(Malformed):
    """The body breaks the grammar of JSON, so its items cannot be found."""


def scan(body: bytes) -> Any:
    """Return the document as plain objects.

    Raises `Malformed` for anything but one JSON value in UTF-8, with unique keys in each object, numbers that fit a
    double, no NUL and no lone surrogate in its strings, and at most `limits.JSON_DEPTH_MAX` levels; `TooLarge` for
    more than `limits.JSON_VALUES_MAX` values. Linear in the length of the body.
    """
    bare = body.replace(rb"\\", b"__")  # from left to right, so each remaining backslash escapes the next character
    _check_structure(bare)
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Malformed(f"the body is not UTF-8: byte {error.start} can't be there") from None
    try:
        document = _decode(text)
    except _Flaw as flaw:
        raise _located(str(flaw), text) from None
    except json.JSONDecodeError as error:
        raise NotJson(f"the body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except ValueError:
        raise Malformed("the body holds an integer with too many digits") from None
    if b"\\u" in bare:
        _check_escapes(bare, text)
    return document


def _check_structure(bare: bytes) -> None:
    structure = _structure(bare)
    # No legal document has more brackets and commas than this; the cut bounds the cost of all others.
    _check_depth(structure[: 2 * limits.JSON_VALUES_MAX])
    if _value_count(structure) > limits.JSON_VALUES_MAX:
        raise _too_many_values()


def has_too_many_values(body: bytes) -> bool:
    """Return whether a body, which may have other flaws, has more than `limits.JSON_VALUES_MAX` values."""
    try:
        return _value_count(_structure(body.replace(rb"\\", b"__"))) > limits.JSON_VALUES_MAX
    except TooLarge:
        return True


def _value_count(structure: bytes) -> int:
    return sum(map(structure.count, _MARKS))


def _check_depth(structure: bytes) -> None:
    depth = 0
    for bracket in structure.translate(None, b","):
        if bracket in _OPENING:
            depth += 1
            if depth > limits.JSON_DEPTH_MAX:
                raise Malformed(f"the body nests deeper than {limits.JSON_DEPTH_MAX} levels")
        else:
            depth -= 1


def _structure(bare: bytes) -> bytes:
    """Return the brackets and commas of the document in order, those in strings left out."""
    rest = bare.replace(rb"\"", b"__").translate(None, _NOT_STRUCTURE)
    # A string without such characters is now two quotes. Removing a pair keeps each other byte inside or outside.
    rest = rest.replace(b'""', b"")
    if b'"' not in rest:
        return rest
    if rest.count(b'"') > _QUOTES_PER_VALUE * limits.JSON_VALUES_MAX:
        raise _too_many_values()
    return b"".join(rest.split(b'"')[::2])


def _too_many_values() -> TooLarge:
    return TooLarge(f"the body holds more than {limits.JSON_VALUES_MAX} values")


class _Flaw(Exception):
    """A number that JSON does not allow, at an unknown path."""


def _located(fault: str, text: str) -> Malformed:
    path = path_of_flaw(text)
    return Malformed(f"{path}: {fault}" if path else fault, field=path)


def _check_escapes(bare: bytes, text: str) -> None:
    unsound = _UNSOUND_ESCAPE.search(bare)
    if unsound is not None:
        escape = bare[unsound.start() :][:6].decode()
        raise _located(f"a string holds {escape}: NUL and lone surrogates are not text", text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        name = _repeated(pairs)
        raise Malformed(f"{name}: duplicate key", field=name)
    return result


def _repeated(pairs: list[tuple[str, Any]]) -> str:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            return name[:_SHOWN_CHARS].encode("utf-8", "replace").decode()
        seen.add(name)
    return ""


def _float(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise _Flaw(f"{text[:_SHOWN_CHARS]} is too large for a number")
    return value


def _constant(name: str) -> Any:
    raise _Flaw(f"{name} is not a number of JSON")


_decode = json.JSONDecoder(object_pairs_hook=_object, parse_float=_float, parse_constant=_constant).decode
