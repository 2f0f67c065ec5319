"""Read the items of a request independently: a flaw in one rejects that item, with its index, and no other.

Theory of operation. A sound body is read as a whole, at no extra cost. If the scan has rejected it, it is split: into
the bytes of each item of the array, and the document around the array. Strings, brackets and commas are enough to find
the items, and nothing is parsed for that, so NaN, a duplicate key, a lone surrogate or deep nesting do not matter. Then
each item is scanned on its own.

A body that is not JSON at all (`NotJson`), or has too many values, is rejected as a whole: its items cannot be found,
or finding them would cost too much.
"""

from __future__ import annotations

import re
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from raftsched.api.json.decode import StructDecoder
from raftsched.api.json.scan import NotJson, has_too_many_values, scan
from raftsched.errors import Invalid, Malformed

T = TypeVar("T")
_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[\]{},:]', re.DOTALL)
"""A string, or a byte of structure."""
_OPENING: Final = frozenset(b"[{")
_CLOSING: Final = frozenset(b"]}")


class Item(NamedTuple):
    """An item as it was sent."""

    text: bytes | msgspec.Raw
    document: Any
    """Plain objects; None if there is a flaw."""
    flaw: Invalid | None = None
    """The fault that prevents reading it."""


class Items(NamedTuple, Generic[T]):
    """The items of an array, and the document around the array."""

    around: T
    items: list[Item]


class ItemsDecoder(Generic[T]):
    """Reads bodies with independent items in the array `name`; the struct keeps them as `Raw`."""

    def __init__(self, struct: type[T], name: str) -> None:
        self._decoder = StructDecoder(struct)
        self._name = name

    def read(self, body: bytes) -> Items[T]:
        """Return the items in order; raises `Malformed` or `TooLarge` for a fault outside the items."""
        try:
            document = scan(body)
        except NotJson:
            raise
        except Malformed as error:
            return self._split(body, error)
        around = self._decoder.decode(body)
        parts = zip(getattr(around, self._name), document[self._name], strict=True)
        return Items(around, [Item(raw, part) for raw, part in parts])

    def _split(self, body: bytes, error: Malformed) -> Items[T]:
        """Return the items of a body that the scan rejected with `error`; raises it if the flaw is outside them."""
        array = None if has_too_many_values(body) else _array(body, self._name)
        if array is None:
            raise error
        shell = b"".join((body[: array.start], b"[", b",".join([b"0"] * len(array.items)), b"]", body[array.stop :]))
        scan(shell)
        around = self._decoder.decode(shell)
        return Items(around, [_item(text, f"{self._name}[{at}]") for at, text in enumerate(array.items)])


def _item(text: bytes, at: str) -> Item:
    try:
        return Item(text, scan(text))
    except NotJson:
        raise
    except Invalid as error:
        return Item(text, None, behind(error, at))


def behind(error: Invalid, at: str) -> Invalid:
    """Return the error of an item with the item's path in its text and field."""
    detail = str(error).removeprefix("the body ").removeprefix(f"{error.field}: ")
    field = f"{at}.{error.field}" if error.field and not error.field.startswith("[") else f"{at}{error.field}"
    return type(error)(f"{field}: {detail}", field=field)


class _Array(NamedTuple):
    """The range of an array in a body, brackets included, and the bytes of its items."""

    start: int
    stop: int
    items: list[bytes]


def _array(body: bytes, name: str) -> _Array | None:
    """Return the array under the key `name` of the object `body`; None unless there is exactly one."""
    key = b'"%b"' % name.encode()
    depth = 0
    found: _Array | None = None
    start = begin = -1
    items: list[bytes] = []
    last = before = b""
    for token in _TOKEN.finditer(body):
        text = token[0]
        byte = text[0]
        if byte in _OPENING:
            if depth == 1 and (before, last, byte) == (key, b":", ord("[")):
                if found is not None or start >= 0:
                    return None
                start, begin = token.start(), token.end()
            depth += 1
        elif byte in _CLOSING:
            depth -= 1
            if depth == 1 and start >= 0 and found is None:
                _add(items, body[begin : token.start()], is_last=True)
                found = _Array(start, token.end(), items)
        elif byte == ord(",") and depth == 2 and start >= 0 and found is None:
            _add(items, body[begin : token.start()])
            begin = token.end()
        before, last = last, text
    return found if depth == 0 else None


def _add(items: list[bytes], text: bytes, *, is_last: bool = False) -> None:
    text = text.strip()
    if text or items or not is_last:
        items.append(text)


def named_text(item: bytes | msgspec.Raw, name: str) -> str:
    """Return the first plain ASCII text under `name` in an unreadable item; "" if there is none."""
    found = re.search(rb'"%b"\s*:\s*"([ !#-\[\]-~]*)"' % name.encode(), bytes(item))
    return found[1].decode() if found else ""


def without(item: Item, name: str) -> bytes | None:
    """Return an unreadable item without its value under `name`; None if it is still unreadable."""
    value = _value(bytes(item.text), name)
    if value is None:
        return None
    text = bytes(item.text)
    rest = text[: value.start] + b"null" + text[value.stop :]
    try:
        document = scan(rest)
    except Malformed:
        return None
    document.pop(name)
    return msgspec.json.encode(document)


class _Value(NamedTuple):
    """The range of a key's value in an object."""

    start: int
    stop: int


def _value(text: bytes, name: str) -> _Value | None:
    """Return the range of the value under the key `name` in the object `text`; None unless there is exactly one."""
    key = b'"%b"' % name.encode()
    depth = 0
    start = -1
    found: _Value | None = None
    last = b""
    for token in _TOKEN.finditer(text):
        byte = token[0][0]
        if byte == ord(":") and depth == 1 and last == key:
            if start >= 0:
                return None
            start = token.end()
        elif start >= 0 and found is None and depth == 1 and byte in b",}":
            found = _Value(start, token.start())
        depth += (byte in _OPENING) - (byte in _CLOSING)
        last = token[0]
    return found if depth == 0 else None
