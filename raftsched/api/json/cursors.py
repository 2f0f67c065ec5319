"""Encode and decode cursors: the position at which a list, a walk over jobs or a log continues, as opaque text.

A cursor does not depend on the node that issued it; any node, and a new leader, continues from it. Anyone may send one,
so it is checked, never trusted.
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
    """The position of a list that is read by key."""

    version: int
    digest: bytes
    """Digest of the filters: a cursor is valid only for the list that issued it."""
    after: bytes


def encode_cursor(cursor: msgspec.Struct) -> str:
    """Return `cursor` as text."""
    return base64.urlsafe_b64encode(_encode(cursor)).decode()


def decode_cursor(text: str, kind: type[_C]) -> _C:
    """Return the cursor in `text`; raises `Malformed` for a text that is evidently not an issued cursor."""
    try:
        return msgspec.msgpack.decode(base64.b64decode(text, altchars=b"-_", validate=True), type=kind)
    except (binascii.Error, ValueError, msgspec.DecodeError):
        raise_foreign()


def write_cursor(after: bytes, *filters: Any) -> str | None:
    """Return the cursor that continues after the key `after` in the list with these filters; None for b""."""
    return encode_cursor(KeyCursor(_VERSION, _digest(filters), after)) if after else None


def read_cursor(text: str | None, *filters: Any) -> bytes:
    """Return the key after which to continue, b"" = from the start; raises `Malformed` for a cursor of another list."""
    if text is None:
        return b""
    cursor = decode_cursor(text, KeyCursor)
    if cursor.version != _VERSION or cursor.digest != _digest(filters):
        raise_other_list()
    if len(cursor.after) > limits.KEY_BYTES_MAX:
        raise_foreign()
    return cursor.after


def raise_foreign() -> NoReturn:
    """Raise the error for a cursor that was not issued."""
    raise Malformed("cursor: not one that this server issued", field="cursor") from None


def raise_other_list() -> NoReturn:
    """Raise the error for a cursor of a list with other filters."""
    raise Malformed("cursor: it belongs to a list with other filters or another order", field="cursor")


def _digest(filters: tuple[Any, ...]) -> bytes:
    return hashlib.blake2b(msgspec.msgpack.encode(filters), digest_size=_DIGEST_BYTES).digest()
