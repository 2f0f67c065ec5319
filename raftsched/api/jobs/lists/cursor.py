"""Encode and check the cursor of a walk over jobs."""

from __future__ import annotations

from typing import Final

import msgspec

from raftsched import limits
from raftsched.api.jobs.lists.selection import Place, Selection, newest_id, part_count
from raftsched.api.json.cursors import decode_cursor, raise_foreign, raise_other_list
from raftsched.storage.reader import StateReader
from raftsched.storage.tables.facets import ID_BYTES

_VERSION: Final = 4


class WalkCursor(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The position at which a walk over jobs continues."""

    version: int
    digest: bytes
    """Digest of the selection: a cursor is valid only for the list that issued it."""
    newest: bytes
    """Id of the newest job when the walk began."""
    part: int
    after: bytes
    """Key of the last examined row; b"" = start of the part."""

    @property
    def place(self) -> Place:
        return Place(self.part, self.after)

    def at(self, place: Place) -> WalkCursor:
        return msgspec.structs.replace(self, part=place.part, after=place.after)


def walk_cursor(text: str | None, state: StateReader, selection: Selection, digest: bytes) -> WalkCursor:
    """Return the cursor of the walk over `selection`; raises `Malformed` for a cursor of another walk."""
    if text is None:
        return WalkCursor(_VERSION, digest, newest_id(state), 0, b"")
    cursor = decode_cursor(text, WalkCursor)
    if cursor.version != _VERSION or cursor.digest != digest:
        raise_other_list()
    if (
        len(cursor.newest) != ID_BYTES
        or len(cursor.after) > limits.KEY_BYTES_MAX
        or not 0 <= cursor.part < part_count(selection)
        or (selection.is_by_facets and len(cursor.after) not in (0, ID_BYTES))
    ):
        raise_foreign()
    return cursor
