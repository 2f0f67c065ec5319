"""Store the state's position in the log, and the version of its format: the rows of the table `META`.

Changing the format. A data directory outlives the program that wrote it, so every change of the tables follows these
steps:

1. A new field at the end of a record, with a default, does not change the format: older rows read with the default.
   Prefer that. (If `apply` depends on it, the other nodes are concerned, too; see `core.operations.CODEC_VERSION`.)
2. For all other changes (a key's shape, a value's meaning, a new table that must be filled) raise `FORMAT_VERSION`, and
   let `read_position` upgrade from the version before instead of refusing it: a function of the store rewrites what
   changed, in the open transaction. The next checkpoint writes the new version in the same transaction, so an
   interrupted upgrade has no effect.
3. Keep in tests/storage a state written by the version before; open it and run `invariants.check` on it.
4. Say in the changelog that an upgraded node can't go back: older programs refuse the directory.

A directory of any other version is refused and not changed.
"""

from __future__ import annotations

import msgspec

from raftsched.core.records.backup import LastBackup
from raftsched.core.records.encryption import ClusterKey
from raftsched.core.records.ids import FencingToken, TimeMs
from raftsched.errors import RaftschedError
from raftsched.storage.store.port import Store, Table

FORMAT_VERSION = 9

_FORMAT_KEY = b"format"
_FORMAT_BYTES = 4
_POSITION_KEY = b"position"
_CONFIGURATION_KEY = b"configuration"


class UnknownFormat(RaftschedError):
    """The data has a format that this raftsched does not read; it is left unchanged."""

    code = "unknown_format"


class Position(msgspec.Struct, frozen=True, array_like=True):
    """Record how far the log is applied, and the values that the log has advanced."""

    applied_index: int = 0
    applied_term: int = 0
    cluster_time_ms: TimeMs = TimeMs(0)
    fence: FencingToken = FencingToken(0)
    operation_version: int = 0
    """The version in force: the highest of any entry with operations that was applied; 0 before the first."""
    outage_ended_at_ms: TimeMs = TimeMs(0)
    """The time at which a leader took over after the latest outage; 0 = there was none."""
    zone_rules: str = ""
    """The version of the time zone rules by which next fire times were computed; "" = not known."""
    cluster_key: ClusterKey | None = None
    """The key with which the leader encrypts its files; None if none has any."""
    last_backup: LastBackup | None = None


_decode_position = msgspec.msgpack.Decoder(Position).decode
_encode_position = msgspec.msgpack.Encoder().encode


class Configuration(msgspec.Struct, frozen=True, array_like=True):
    """Carry the cluster's configuration as of the entry at `index`, encoded by `consensus`."""

    index: int
    content: bytes


_decode_configuration = msgspec.msgpack.Decoder(Configuration).decode


def read_configuration(store: Store) -> Configuration | None:
    """Return the last configuration applied; None if no log entry had one."""
    stored = store.get(Table.META, _CONFIGURATION_KEY)
    return None if stored is None else _decode_configuration(stored)


def write_configuration(store: Store, configuration: Configuration) -> None:
    """Write the configuration; it is committed with the position of its entry."""
    store.put(Table.META, _CONFIGURATION_KEY, msgspec.msgpack.encode(configuration))


def read_position(store: Store) -> Position:
    """Return the position of `store`, zeros before the first checkpoint; raises `UnknownFormat`."""
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
    """Write the position and the format's version; they are committed with all that was applied."""
    store.put(Table.META, _FORMAT_KEY, FORMAT_VERSION.to_bytes(_FORMAT_BYTES, "big"))
    store.put(Table.META, _POSITION_KEY, _encode_position(position))
