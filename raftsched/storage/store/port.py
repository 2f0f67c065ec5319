"""Define the port `Store`: ordered tables of bytes in one long write transaction.

Theory of operation. All writes are in one open transaction. Reads of the same store see them at once, and `commit` makes
them durable together. A crash, a power loss or `close` takes the store back to the last commit: it is intact, and the
journal replays the rest. A copy has exactly the last commit and can be made in another thread while the transaction
continues.

`LmdbStore` implements the port on disk, `MemoryStore` in memory for tests and simulation. One conformance suite
(tests/storage/store/test_conformance.py) tests both.

`ForkedRows` keeps writes apart from a store, to see their effect before they are made.

Left out: several transactions at a time, and reads of older versions. One thread owns a store; only `copy_to` may be
called from another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from enum import IntEnum
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol

from raftsched import limits
from raftsched.errors import InvariantBroken, RaftschedError, Unavailable


class Table(IntEnum):
    """List the tables, with the parts of their keys (`keys`). On disk a table has its name in lower case.

    DESIGN section 4 draws one `by_status` index whose key depends on the status. Here these are three tables, `WAITING`,
    `LEASED` and `FINISHED`, each with one shape of key. That is also faster. A put descends from its table's root, so
    with 10 million waiting jobs a lease costs two levels in a small tree instead of five in a large one. And each table
    grows at the ends of its ranges, and LMDB fills those pages completely.
    """

    META = 0
    """name → format version, position."""
    JOBS = 1
    """job id → record."""
    PAYLOADS = 2
    """job id → JSON text; no row if there is none. Under a schedule's id: its template's."""
    RESULTS = 3
    """job id → JSON text; no row if there is none."""
    WAITING = 4
    """queue, tenant, 9 - priority, due, job id → nothing: the ready index, a lane for each tenant."""
    TIMERS = 5
    """status, due, job id → priority, tenant, queue: waiting jobs that were not due when they were written."""
    LEASED = 6
    """job id → nothing."""
    FINISHED = 7
    """status, finished time, job id → nothing."""
    KEYS = 8
    """tenant, idempotency key → job id."""
    WORKERS = 9
    """name → record."""
    COUNTERS = 10
    """tenant, queue, status → count of jobs; tenant, reason, 0 → count of dead letters; as of the last checkpoint."""
    PARKED = 11
    """status, job id → nothing: jobs that wait for something other than time."""
    BLOCKED = 12
    """queue, concurrency key, 9 - priority, due, job id → nothing: in place of `WAITING` while a job is blocked."""
    DEADLINES = 13
    """kind, time, id or name → nothing: the next deadline of each record."""
    UNIQUE = 14
    """tenant, unique key → job id, while the job holds the key."""
    DEPENDENCIES = 15
    """job id → what it depends on, as it was submitted."""
    DEPENDANTS = 16
    """parent's job id, child's job id → condition and verdict, until the child is removed."""
    WORKFLOWS = 17
    """workflow id → record."""
    WORKFLOW_KEYS = 18
    """tenant, idempotency key → workflow id."""
    WORKFLOW_JOBS = 19
    """workflow id, job id → nothing."""
    SCHEDULES = 20
    """schedule id → record."""
    SCHEDULE_NAMES = 21
    """tenant, name → schedule id."""
    FIRINGS = 22
    """schedule id, fire time, kind → line of the ledger."""
    QUEUES = 23
    """name → record."""
    BACKGROUND_WORK = 24
    """kind, id or name → cursor of the next background step."""
    LOGS = 25
    """job id, run, attempt, offset → the lines that begin there."""
    LOG_SIZES = 26
    """job id, run, attempt → size of the log in `LOGS`."""
    AUDIT = 27
    """log index, number within it → line."""
    SCHEDULE_JOBS = 28
    """schedule id, job id → nothing."""
    FACETS = 29
    """kind, text, 0 or the status it ended in, job id → nothing: jobs by queue, by name and by tag, for lists."""
    TOKENS = 30
    """id → record."""
    TENANTS = 31
    """name → record."""
    DEAD_LETTERS = 32
    """reason, finished time, job id → nothing: the dead letters of `FINISHED` by their reason."""


Row = tuple[bytes, bytes]
"""Key and value."""
Place = tuple[Table, bytes]
"""A table, and the first key of its rest."""

REPLACE_THIS_NODE = (
    "This node's state can't be trusted any more; while the others have a majority nothing is lost. Remove this node from "
    "the cluster, and add it again under a NEW id with an empty data directory."
)


class StorageFailed(InvariantBroken):
    """The store can't continue and refuses all calls; the process must stop.

    After a failed write or sync the content of the disk is unknown. The next start reads the last complete commit.
    """

    code = "storage_failed"


class DamagedValue(InvariantBroken):
    """A stored value differs from what was written: disk or memory has changed it. The process must stop.

    The value was not used. The data of the other nodes is not affected, nor is this node's journal.
    """

    code = "damaged_value"

    def __init__(self, table: str, key: bytes) -> None:
        self.fault = (
            f"table {table}: the value under key {key.hex()} is not what was written: disk or memory changed it"
        )
        super().__init__(f"the state is damaged, {self.fault}. {REPLACE_THIS_NODE}")
        self.table = table
        self.key = key


class CopyFailed(Unavailable):
    """No copy was made, and no file is left of the attempt. The store itself is intact."""

    code = "copy_failed"


class DamagedCopy(RaftschedError):
    """The file is not a complete copy of a state; it must not be sent or installed."""

    code = "damaged_copy"


class StoreFigures(NamedTuple):
    """Describe how full the store and its disk are."""

    used_bytes: int
    """Bytes of the file in use or once used; free pages inside are used again before it grows."""
    map_bytes: int
    """Address space reserved for the file; 0 for a store in memory."""
    free_disk_bytes: int
    """Free space of the file system for this process."""


class Rows(Protocol):
    """Read and write rows of ordered tables.

    Keys have 1 to 511 bytes and sort bytewise. Each method raises `StorageFailed` if the store can't continue, and
    from then on. Reads raise `DamagedValue` if a row is not what was written (`raftsched.storage.store.seals`).
    """

    def get(self, table: Table, key: bytes) -> bytes | None:
        """Return the value, uncommitted ones included; None if there is no such key."""

    def put(self, table: Table, key: bytes, value: bytes) -> None:
        """Store `value`; replaces an older one. Raises `InvariantBroken` for a key that is too long or empty.

        Nothing is changed then.
        """

    def insert(self, table: Table, key: bytes, value: bytes) -> None:
        """Store a row whose key does not exist; it costs less than `put`.

        Raises as `put` does, and `InvariantBroken` if the key exists: at once, or when the row is written to the disk, at
        the latest by `commit`. The store must not be used after that.
        """

    def delete(self, table: Table, key: bytes) -> bool:
        """Remove the key; return False if there was none."""

    def remove(self, table: Table, key: bytes) -> None:
        """Remove a row whose key exists; raises `InvariantBroken` if it does not, at the same times as `insert`."""

    def scan(self, table: Table, start: bytes, stop: bytes | None, *, limit: int, reverse: bool = False) -> list[Row]:
        """Return up to `limit` rows with start <= key < stop, in order; from the upper end down if `reverse`.

        `start` may be empty; `stop` None means: to the end of the table.
        """


class TableSums(Protocol):
    """Tell what the rows of the tables add up to (`raftsched.storage.store.seals.Sums`)."""

    compared: ClassVar[tuple[Table, ...]]
    """The tables whose content depends on the log only."""

    def of(self, table: Table) -> int:
        """Return the sum of one table."""

    def digest(self) -> int:
        """Return one number over the tables of `compared`."""


class Store(Rows, Protocol):
    """Keep ordered tables of bytes in one long write transaction.

    Only `close` may be called after a method has raised `StorageFailed`.
    """

    def write_behind(self, tables: Collection[Table], write: Callable[[], None]) -> None:
        """Call `write` before rows of `tables` are scanned, before `sums` are read, and before a commit.

        So its owner may hold back rows of these tables until then. It inserts, puts and deletes, nothing else. A `get`
        does not call it.
        """

    @property
    def sums(self) -> TableSums:
        """Return the sums of the tables, uncommitted writes included."""

    def commit(self) -> None:
        """Sync all writes to disk together. The store is unusable after a failure."""

    def rows_by_key(self) -> dict[str, int]:
        """Return the counts of encrypted rows by the id of their key; "" = rows that would be encrypted if written now."""

    def reencrypt(self, place: Place, *, rows_max: int) -> Place | None:
        """Examine `rows_max` rows from `place` on, and encrypt under the present key those that are not.

        Returns the next place; None at the end of the last table. A commit makes it durable. Begin at
        `row_codec.FIRST_PLACE`.
        """

    def copy_to(self, path: Path) -> None:
        """Write the last commit to a new file at `path`, compact and synced; may run in another thread.

        Raises `CopyFailed`; then there is no file, and the store continues.
        """

    def close(self) -> None:
        """Drop uncommitted writes and close the file. Waits for a copy that is being made."""

    def figures(self) -> StoreFigures: ...

    def check_readers(self) -> int:
        """Release the slots of readers of dead processes, and return their count. Cheap: call it often."""


def check_key(key: bytes, *, bytes_max: int) -> None:
    """Raise `InvariantBroken` for a key that no store can hold."""
    if not 0 < len(key) <= bytes_max:
        raise InvariantBroken(f"a key has {len(key)} bytes; 1 to {bytes_max} are possible")


def all_rows(store: Rows, table: Table, start: bytes = b"", stop: bytes | None = None) -> Iterator[Row]:
    """Yield the rows with start <= key < stop, read in steps of `limits.SCAN_ROWS_MAX`. Each step sees earlier writes."""
    while rows := store.scan(table, start, stop, limit=limits.SCAN_ROWS_MAX):
        yield from rows
        start = rows[-1][0] + b"\0"
