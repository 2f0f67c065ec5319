"""Opaque cursors of lists that are read on from a key. They come back from anyone, so they are only read, never trusted."""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Any, Final

import msgspec

from raftsched import limits
from raftsched.errors import Malformed

_VERSION: Final = 1
_DIGEST_BYTES: Final = 8


class _Cursor(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    version: int
    digest: bytes
    """Of the filters: a cursor goes on with the list that it came from."""
    after: bytes


_decode = msgspec.msgpack.Decoder(_Cursor).decode
_encode = msgspec.msgpack.Encoder().encode


def write_cursor(after: bytes, *filters: Any) -> str | None:
    """Return the cursor that goes on behind the key `after` in the list of these filters; None for b""."""
    if not after:
        return None
    return base64.urlsafe_b64encode(_encode(_Cursor(_VERSION, _digest(filters), after))).decode()


def read_cursor(text: str | None, *filters: Any) -> bytes:
    """Return the key behind which to go on, b"" = from the beginning; raises `Malformed` for a cursor of another list."""
    if text is None:
        return b""
    try:
        cursor = _decode(base64.b64decode(text, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, msgspec.DecodeError):
        raise Malformed("cursor: not one that this server gave out", field="cursor") from None
    if cursor.version != _VERSION or cursor.digest != _digest(filters):
        raise Malformed("cursor: it belongs to a list with other filters or another order", field="cursor")
    if len(cursor.after) > limits.KEY_BYTES_MAX:
        raise Malformed("cursor: not one that this server gave out", field="cursor")
    return cursor.after


def _digest(filters: tuple[Any, ...]) -> bytes:
    return hashlib.blake2b(msgspec.msgpack.encode(filters), digest_size=_DIGEST_BYTES).digest()
