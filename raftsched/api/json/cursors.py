"""Opaque cursors: where a list, a walk over jobs or a log continues, as a text that says nothing to clients.

A cursor says nothing about the node that gave it out; any other, and a new leader, continues from it. It may come from
anyone, so it is only read, never trusted.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Any, Final, NoReturn, TypeVar

import msgspec

from raftsched import limits
from raftsched.errors import Malformed

_VERSION: Final = 1
_DIGEST_BYTES: Final = 8
_C = TypeVar("_C", bound=msgspec.Struct)
_encode = msgspec.msgpack.Encoder().encode


class KeyCursor(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Where a list continues that is read by key."""

    version: int
    digest: bytes
    """Of the filters: a cursor belongs to the list that it came from."""
    after: bytes


def encode_cursor(cursor: msgspec.Struct) -> str:
    """Return `cursor` as text."""
    return base64.urlsafe_b64encode(_encode(cursor)).decode()


def decode_cursor(text: str, kind: type[_C]) -> _C:
    """Return the cursor in `text`; raises `Malformed` for one that was not given out, as far as that can be told."""
    try:
        return msgspec.msgpack.decode(base64.b64decode(text, altchars=b"-_", validate=True), type=kind)
    except (binascii.Error, ValueError, msgspec.DecodeError):
        raise_foreign()


def write_cursor(after: bytes, *filters: Any) -> str | None:
    """Return the cursor that continues after the key `after` in the list of these filters; None for b""."""
    return encode_cursor(KeyCursor(_VERSION, _digest(filters), after)) if after else None


def read_cursor(text: str | None, *filters: Any) -> bytes:
    """Return the key after which to continue, b"" = from the beginning; raises `Malformed` for a cursor of another list."""
    if text is None:
        return b""
    cursor = decode_cursor(text, KeyCursor)
    if cursor.version != _VERSION or cursor.digest != _digest(filters):
        raise_other_list()
    if len(cursor.after) > limits.KEY_BYTES_MAX:
        raise_foreign()
    return cursor.after


def raise_foreign() -> NoReturn:
    """Raise the error for a cursor that was not given out."""
    raise Malformed("cursor: not one that this server gave out", field="cursor") from None


def raise_other_list() -> NoReturn:
    """Raise the error for a cursor of a list with other filters."""
    raise Malformed("cursor: it belongs to a list with other filters or another order", field="cursor")


def _digest(filters: tuple[Any, ...]) -> bytes:
    return hashlib.blake2b(msgspec.msgpack.encode(filters), digest_size=_DIGEST_BYTES).digest()
