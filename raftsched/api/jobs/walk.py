"""Where a walk over jobs continues."""

from __future__ import annotations

from typing import Final

import msgspec

from raftsched import limits
from raftsched.api.jobs.selection import Place, Selection, newest_id, part_count
from raftsched.api.json.cursors import decode_cursor, raise_foreign, raise_other_list
from raftsched.storage.reader import StateReader
from raftsched.storage.tables.facets import ID_BYTES

_VERSION: Final = 4


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


def walk_cursor(text: str | None, state: StateReader, selection: Selection, digest: bytes) -> WalkCursor:
    """Return where the walk over `selection` stands; raises `Malformed` for a cursor that is of another one."""
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
