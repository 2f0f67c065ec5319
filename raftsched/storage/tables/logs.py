"""Store the logs of attempts, in the pieces that the worker sent.

Theory of operation. A piece is stored under the offset at which it begins, so reading from any offset is one look-up. The
size of a log has a row of its own, which costs the same however long the log is. These rows also lead to all logs of a
job, so removing a job without logs costs one look-up in a small table.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from raftsched import limits
from raftsched.core.records.ids import JobId
from raftsched.core.state.entries import LogSize
from raftsched.core.state.writes import PutLog
from raftsched.errors import InvariantBroken
from raftsched.storage.store.port import Rows, Table
from raftsched.storage.tables import keys

_decode_size = msgspec.msgpack.Decoder(LogSize).decode
_encode = msgspec.msgpack.Encoder().encode
_NONE = LogSize(0, 0, 0)


class LogPart(NamedTuple):
    """Carry a part of an attempt's log."""

    offset: int
    """The offset of `lines` in the log."""
    lines: bytes
    next_offset: int
    """The offset of the next part; at the end of the log, that of the next lines to come."""


def size(store: Rows, job_id: JobId, run_number: int, attempt_number: int) -> LogSize:
    """Return the size of the attempt's log."""
    stored = store.get(Table.LOG_SIZES, keys.log_key(job_id, run_number, attempt_number))
    return _NONE if stored is None else _decode_size(stored)


def append(store: Rows, write: PutLog) -> None:
    """Append a piece to the log; its `sequence` is recorded unless it is 0."""
    log = keys.log_key(write.job_id, write.run_number, write.attempt_number)
    before = size(store, write.job_id, write.run_number, write.attempt_number)
    if write.lines:
        store.put(Table.LOGS, keys.log_piece_key(log, before.byte_count), write.lines)
    after = LogSize(
        before.byte_count + len(write.lines),
        write.sequence or before.last_sequence,
        before.piece_count + bool(write.lines),
    )
    store.put(Table.LOG_SIZES, log, _encode(after))


def read(
    store: Rows, job_id: JobId, run_number: int, attempt_number: int, *, offset: int = 0, bytes_max: int
) -> LogPart:
    """Return the log from `offset` on: whole pieces until `bytes_max` is reached, and at least one if there is any.

    The first piece is cut if `offset` is inside it, so every offset is safe.
    """
    offset = max(offset, 0)
    log = keys.log_key(job_id, run_number, attempt_number)
    start, stop = keys.log_piece_key(log, offset), log + keys.LOG_END
    first = store.scan(Table.LOGS, log, keys.after(start), limit=1, reverse=True)
    begin = first[0][0] if first else start
    lines = bytearray()
    for key, piece in store.scan(Table.LOGS, begin, stop, limit=limits.SCAN_ROWS_MAX):
        lines += piece[max(offset - keys.log_offset(key), 0) :]
        if len(lines) >= bytes_max:
            break
    return LogPart(offset, bytes(lines), offset + len(lines))


def attempts(store: Rows, job_id: JobId) -> list[tuple[int, int, LogSize]]:
    """Return (run, attempt, size) of every log of the job, in order."""
    rows = store.scan(Table.LOG_SIZES, job_id, keys.after_id(job_id), limit=limits.SCAN_ROWS_MAX)
    return [(*keys.read_log_key(key)[1:], _decode_size(value)) for key, value in rows]


def remove(store: Rows, job_id: JobId) -> None:
    """Remove all logs of the job."""
    stop = keys.after_id(job_id)
    while logs := store.scan(Table.LOG_SIZES, job_id, stop, limit=limits.SCAN_ROWS_MAX):
        for log, value in logs:
            store.delete(Table.LOG_SIZES, log)
            _remove_pieces(store, log, _decode_size(value).piece_count)


def _remove_pieces(store: Rows, log: bytes, piece_count: int) -> None:
    removed_count = 0
    while pieces := store.scan(Table.LOGS, log, log + keys.LOG_END, limit=limits.SCAN_ROWS_MAX):
        removed_count += len(pieces)
        for key, _ in pieces:
            store.delete(Table.LOGS, key)
    if removed_count != piece_count:
        raise InvariantBroken(f"a log has {removed_count} pieces, not {piece_count}: {log.hex()}")


def read_size(key: bytes, value: bytes) -> tuple[JobId, int, int, LogSize]:
    """Return (job id, run, attempt, size) from a row of `LOG_SIZES`."""
    return (*keys.read_log_key(key), _decode_size(value))
