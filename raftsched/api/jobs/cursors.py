"""Cursors of walks over jobs, logs and workflows: where they go on, as a text that says nothing to clients.

A cursor says nothing about the node that gave it out; any other, and a new leader, goes on from it. It may come from
anyone, so it is only read, never trusted.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final, NoReturn, TypeVar

import msgspec

from raftsched import limits
from raftsched.api.jobs.selection import Place, Selection, newest_id, part_count
from raftsched.errors import Malformed
from raftsched.storage.reader import StateReader
from raftsched.storage.tables.facets import ID_BYTES

_VERSION: Final = 4
_C = TypeVar("_C", bound=msgspec.Struct)
_encode = msgspec.msgpack.Encoder().encode


class WalkCursor(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Where a walk over jobs goes on."""

    version: int
    digest: bytes
    """Of what is walked over: a cursor goes on with the list that it came from."""
    newest: bytes
    """Id of the newest job when the walk began."""
    part: int
    after: bytes
    """Key of the last row examined; b"" = from the beginning of the part."""

    @property
    def place(self) -> Place:
        return Place(self.part, self.after)

    def at(self, place: Place) -> WalkCursor:
        return msgspec.structs.replace(self, part=place.part, after=place.after)


def decode_cursor(text: str, kind: type[_C]) -> _C:
    """Return the cursor in `text`; raises `Malformed` for one that was not given out, as far as that can be told."""
    try:
        return msgspec.msgpack.decode(base64.b64decode(text, altchars=b"-_", validate=True), type=kind)
    except (binascii.Error, ValueError, msgspec.DecodeError):
        raise_foreign()


def encode_cursor(cursor: msgspec.Struct) -> str:
    return base64.urlsafe_b64encode(_encode(cursor)).decode()


def walk_cursor(text: str | None, state: StateReader, selection: Selection, digest: bytes) -> WalkCursor:
    """Return where the walk over `selection` stands; raises `Malformed` for a cursor that is of another one."""
    if text is None:
        return WalkCursor(_VERSION, digest, newest_id(state), 0, b"")
    cursor = decode_cursor(text, WalkCursor)
    if cursor.version != _VERSION or cursor.digest != digest:
        raise Malformed("cursor: it belongs to a list with other filters or another order", field="cursor")
    if (
        len(cursor.newest) != ID_BYTES
        or len(cursor.after) > limits.KEY_BYTES_MAX
        or not 0 <= cursor.part < part_count(selection)
        or (selection.is_by_facets and len(cursor.after) not in (0, ID_BYTES))
    ):
        raise_foreign()
    return cursor


def raise_foreign() -> NoReturn:
    """Raise the error for a cursor that was not given out."""
    raise Malformed("cursor: not one that this server gave out", field="cursor") from None
