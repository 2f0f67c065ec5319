"""The port `Store`: ordered tables of bytes in one long write transaction.

Theory of operation. All that is written lies in one open transaction, which readers of the same store see at once, and
which `commit` makes durable as a whole. A crash, a power loss or `close` takes the store back to the last commit: it
is intact and merely behind, and the journal replays the rest. A copy holds exactly the last commit and can be made in
another thread while the transaction goes on.

`LmdbStore` keeps the promise on disk, `MemoryStore` in memory for tests and simulation; one conformance suite
(tests/storage/store/test_conformance.py) holds both to it.

`ForkedRows` holds writes apart from a store, for those who need to see what they would do.

Left out: several transactions at a time, and reads of older versions. One thread owns a store; only `copy_to` may be
called from another.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from raftsched import limits
from raftsched.errors import InvariantBroken, RaftschedError, Unavailable

if TYPE_CHECKING:
    from raftsched.storage.store.seals import Sums


class Table(IntEnum):
    """The tables, and what their keys are made of (`keys`). On disk a table is known by its name in lower case.

    DESIGN section 4 draws one `by_status` index whose key depends on the status. Here it is three tables, `WAITING`,
    `LEASED` and `FINISHED`, with one shape of key each. That reads better, and it runs better: a put walks down from
    its table's root, so a lease beside 10 million waiting jobs costs two levels in a small tree instead of five in a
    large one, and each table grows at the ends of its ranges, where LMDB fills pages whole.
    """

    META = 0
    """name → format version, position."""
    JOBS = 1
    """job id → record."""
    PAYLOADS = 2
    """job id → JSON text; no row where there is none. Under a schedule's id: its template's."""
    RESULTS = 3
    """job id → JSON text; no row where there is none."""
    WAITING = 4
    """queue, tenant, 9 - priority, due, job id → nothing: the ready index, a lane for each tenant."""
    TIMERS = 5
    """due, job id → status, priority, tenant, queue: waiting jobs that were not due when they came to wait."""
    LEASED = 6
    """job id → nothing."""
    FINISHED = 7
    """status, finished time, job id → nothing."""
    KEYS = 8
    """tenant, idempotency key → job id."""
    WORKERS = 9
    """name → record."""
    COUNTERS = 10
    """tenant, queue, status → count of jobs; as of the last checkpoint."""
    PARKED = 11
    """status, job id → nothing: jobs that wait for something other than time."""
    BLOCKED = 12
    """queue, concurrency key, 9 - priority, due, job id → nothing: in place of `WAITING` while a job is held."""
    DEADLINES = 13
    """kind, time, id or name → nothing: what is due by time, apart from waiting jobs."""
    UNIQUE = 14
    """tenant, unique key → job id, while the job holds its claim."""
    DEPENDENCIES = 15
    """job id → what it depends on, as it was submitted."""
    DEPENDANTS = 16
    """parent's job id, child's job id → condition; as long as the child is there."""
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
    """schedule id, instant, kind → line of the ledger."""
    QUEUES = 23
    """name → record."""
    BACKGROUND_WORK = 24
    """kind, id or name → where the chore stands."""
    LOGS = 25
    """job id, run, attempt, offset → the lines that begin there."""
    LOG_SIZES = 26
    """job id, run, attempt → how much there is in `LOGS`."""
    AUDIT = 27
    """log index, number within it → line."""
    SCHEDULE_JOBS = 28
    """schedule id, job id → nothing."""
    FACETS = 29
    """kind, text, 0 or the status it ended in, job id → nothing: jobs by queue, by name and by tag, for lists."""


Row = tuple[bytes, bytes]
"""Key and value."""

REPLACE_THIS_NODE = (
    "This node's state can't be trusted any more; while the others have a majority nothing is lost. Remove this node from "
    "the cluster, and add it again under a NEW id with an empty data directory."
)


class StorageFailed(InvariantBroken):
    """The store can't go on and refuses everything; the process must stop.

    After a failed write or sync nobody knows what is on disk: the next start finds out from the last whole commit.
    """

    code = "storage_failed"


class DamagedValue(InvariantBroken):
    """A stored value is not what was written under its key: disk or memory has changed it, and the process must stop.

    Nothing of it was used. What the other nodes hold is sound, and so is what this one has acknowledged in its journal.
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
    """No copy was made, and nothing is left of the attempt; the store itself is unharmed."""

    code = "copy_failed"


class DamagedCopy(RaftschedError):
    """The file is not a whole copy of a state; it must not be sent or installed."""

    code = "damaged_copy"


class StoreFigures(NamedTuple):
    """How full the store is."""

    used_bytes: int
    """Bytes of the file in use or once used; free pages inside are used again before it grows."""
    map_bytes: int
    """Address space reserved for the file; 0 where there is no such thing."""
    free_disk_bytes: int
    """What the file system still gives to this process."""


class Rows(Protocol):
    """Read and write rows of ordered tables.

    Keys have 1 to 511 bytes and sort bytewise. Each method raises `StorageFailed` if the store can't continue, and
    from then on. Reads raise `DamagedValue` if a row is not what was written (`raftsched.storage.store.seals`).
    """

    def get(self, table: Table, key: bytes) -> bytes | None:
        """Return the value, uncommitted ones included; None where there is no such key."""

    def put(self, table: Table, key: bytes, value: bytes) -> None:
        """Store `value`, in place of an older one; raises `InvariantBroken` for a key that is too long or empty.

        Nothing is changed then.
        """

    def insert(self, table: Table, key: bytes, value: bytes) -> None:
        """Store a row whose key is not there, which costs less than `put`.

        Raises as `put` does, and `InvariantBroken` where the key is there: at once, or when the row is handed to the
        disk, at the latest by `commit`; the store must not be used any more then.
        """

    def delete(self, table: Table, key: bytes) -> bool:
        """Remove the key; False where there was none."""

    def remove(self, table: Table, key: bytes) -> None:
        """Remove a row whose key is there; raises `InvariantBroken` if it is not, at the same times as `insert`."""

    def scan(self, table: Table, start: bytes, stop: bytes | None, *, limit: int, reverse: bool = False) -> list[Row]:
        """Return up to `limit` rows with start <= key < stop, in order; from the upper end down where `reverse`.

        `start` may be empty; `stop` None means: to the end of the table.
        """


class Store(Rows, Protocol):
    """Keep ordered tables of bytes, in one long write transaction.

    Only `close` may be called after a method has raised `StorageFailed`.
    """

    @property
    def sums(self) -> Sums:
        """The sums of the tables, uncommitted writes included."""

    def commit(self) -> None:
        """Make all writes durable, synced to disk, as one. A failure is final."""

    def copy_to(self, path: Path) -> None:
        """Write the last commit to a new file at `path`, compact and synced; may run in another thread.

        Raises `CopyFailed`; then there is no file, and the store goes on.
        """

    def close(self) -> None:
        """Drop what was not committed and let go of the file. Waits for a copy that is being made."""

    def figures(self) -> StoreFigures: ...

    def check_readers(self) -> int:
        """Free what readers of processes that died still hold; return how many there were. Cheap: call it often."""


def check_key(key: bytes, *, bytes_max: int) -> None:
    """Raise `InvariantBroken` for a key that no store can hold."""
    if not 0 < len(key) <= bytes_max:
        raise InvariantBroken(f"a key has {len(key)} bytes; 1 to {bytes_max} are possible")


def all_rows(store: Rows, table: Table, start: bytes = b"", stop: bytes | None = None) -> Iterator[Row]:
    """Walk start <= key < stop in steps of `limits.SCAN_ROWS_MAX`; each step sees the writes made before it."""
    while rows := store.scan(table, start, stop, limit=limits.SCAN_ROWS_MAX):
        yield from rows
        start = rows[-1][0] + b"\0"
