"""Where the state stands in the log, and the version of its format: the rows of the table `META`.

Changing the format. A data directory outlives the program that wrote it, so every change of what the tables hold goes
through these steps:

1. A new field at the end of a record, with a default, is no change of format: older rows read with the default. Prefer
   that way. (It also concerns the nodes beside this one if `apply` depends on it; see `core.operations.CODEC_VERSION`.)
2. For all else (a key's shape, a value's meaning, a new table that must be filled) raise `FORMAT_VERSION`, and let
   `read_position` take the step from the version before instead of refusing it: a function of the store that rewrites
   what changed, in the open transaction. The new version is written by the next checkpoint, in that same transaction,
   so an upgrade that is cut off never happened.
3. Keep in tests/storage a state written by the version before; open it and run `invariants.check` over it.
4. Say in the changelog that a node that was upgraded can't go back: older programs refuse the directory.

A directory of any other version is refused, and nothing in it is touched.
"""

from __future__ import annotations

import msgspec

from raftsched.core.records.ids import FencingToken, TimeMs
from raftsched.errors import RaftschedError
from raftsched.storage.store.port import Store, Table

FORMAT_VERSION = 6

_FORMAT_KEY = b"format"
_FORMAT_BYTES = 4
_POSITION_KEY = b"position"
_CONFIGURATION_KEY = b"configuration"


class UnknownFormat(RaftschedError):
    """The data was written in a format that this raftsched does not read; it was left untouched."""

    code = "unknown_format"


class Position(msgspec.Struct, frozen=True, array_like=True):
    """How far the log is applied, and what else the log has driven forward."""

    applied_index: int = 0
    applied_term: int = 0
    cluster_time_ms: TimeMs = TimeMs(0)
    fence: FencingToken = FencingToken(0)
    operation_version: int = 0
    """The version in force: the highest of any entry with operations that was applied; 0 before the first."""
    outage_ended_at_ms: TimeMs = TimeMs(0)
    """When a leader took over after the latest outage; 0 = there was none."""
    zone_rules: str = ""
    """The version of the time zone rules by which next instants were computed; "" = not known."""


_decode_position = msgspec.msgpack.Decoder(Position).decode
_encode_position = msgspec.msgpack.Encoder().encode


class Configuration(msgspec.Struct, frozen=True, array_like=True):
    """The cluster's configuration as of the entry at `index`, encoded by whoever made it."""

    index: int
    content: bytes


_decode_configuration = msgspec.msgpack.Decoder(Configuration).decode


def read_configuration(store: Store) -> Configuration | None:
    """Return the last configuration applied; None where no log entry has brought one."""
    stored = store.get(Table.META, _CONFIGURATION_KEY)
    return None if stored is None else _decode_configuration(stored)


def write_configuration(store: Store, configuration: Configuration) -> None:
    """Write the configuration, to be committed with the position that it belongs to."""
    store.put(Table.META, _CONFIGURATION_KEY, msgspec.msgpack.encode(configuration))


def read_position(store: Store) -> Position:
    """Return where `store` stands, zeros before the first checkpoint; raises `UnknownFormat`."""
    stored_format = store.get(Table.META, _FORMAT_KEY)
    stored_position = store.get(Table.META, _POSITION_KEY)
    if stored_format is None and stored_position is None:
        return Position()
    if stored_format is None or stored_position is None:
        raise UnknownFormat("the state has only half a position: no raftsched leaves it so")
    version = int.from_bytes(stored_format, "big")
    if version != FORMAT_VERSION:
        advice = "run the version that wrote it, or a newer one" if version > FORMAT_VERSION else "it is too old"
        raise UnknownFormat(f"the state is in format {version}, this raftsched reads {FORMAT_VERSION}: {advice}")
    return _decode_position(stored_position)


def write_position(store: Store, position: Position) -> None:
    """Write the position and the format's version, to be committed with all that the position says is applied."""
    store.put(Table.META, _FORMAT_KEY, FORMAT_VERSION.to_bytes(_FORMAT_BYTES, "big"))
    store.put(Table.META, _POSITION_KEY, _encode_position(position))
