"""A receiver that makes effects happen once: the other half of exactly once (RELIABILITY G6).

In one transaction with the effect it refuses a token smaller than the largest it has seen for the run, and a run that
it has recorded already gets the recorded value back. `entries` has no uniqueness constraint on purpose: a fault of this
protocol must show up as a run recorded twice, not be hidden by the database.
"""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import NamedTuple


class Superseded(Exception):  # it describes the caller's situation
    """A later attempt of this run was recorded; this one must not act any more."""


class Span(NamedTuple):
    """The start and end of an attempt, as its worker saw them, on the clock that all processes here share."""

    queue: str
    run_id: str
    token: int
    began_ms: int
    ended_ms: int


def now_ms() -> int:
    """Return the machine's monotonic time."""
    return time.monotonic_ns() // 1_000_000


class Ledger:
    """Store effects by run id in a SQLite file; one object a thread, any number of processes."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, timeout=30, isolation_level=None)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=NORMAL")

    @classmethod
    def create(cls, path: Path) -> Ledger:
        ledger = cls(path)
        ledger._database.executescript(
            "CREATE TABLE entries (run_id TEXT, token INTEGER, value TEXT);"
            "CREATE INDEX entries_by_run ON entries (run_id);"
            "CREATE TABLE fences (run_id TEXT PRIMARY KEY, token INTEGER);"
            "CREATE TABLE spans (queue TEXT, run_id TEXT, token INTEGER, began_ms INTEGER, ended_ms INTEGER);"
        )
        return ledger

    def record(self, run_id: str, token: int, value: str) -> str:
        """Record `value` for the run, once; return the recorded value. Raises `Superseded` for an old token."""
        database = self._database
        database.execute("BEGIN IMMEDIATE")
        try:
            recorded = self._record(run_id, token, value)
        except BaseException:
            database.execute("ROLLBACK")
            raise
        database.execute("COMMIT")
        return recorded

    def _record(self, run_id: str, token: int, value: str) -> str:
        fence = self._database.execute("SELECT token FROM fences WHERE run_id = ?", (run_id,)).fetchone()
        if fence and token < fence[0]:
            raise Superseded(f"run {run_id}: token {token} is older than {fence[0]}")
        self._database.execute("INSERT OR REPLACE INTO fences VALUES (?, ?)", (run_id, token))
        found = self._database.execute("SELECT value FROM entries WHERE run_id = ?", (run_id,)).fetchone()
        if found:
            return str(found[0])
        self._database.execute("INSERT INTO entries VALUES (?, ?, ?)", (run_id, token, value))
        return value

    def values(self) -> dict[str, list[str]]:
        """Return all recorded values by run id; more than one means a run was recorded twice."""
        found: dict[str, list[str]] = {}
        for run_id, value in self._database.execute("SELECT run_id, value FROM entries"):
            found.setdefault(run_id, []).append(value)
        return found

    def witness(self, span: Span) -> None:
        """Record that an attempt ran; unlike effects, attempts are not fenced: all of them must be visible."""
        self._database.execute("INSERT INTO spans VALUES (?, ?, ?, ?, ?)", span)

    def spans(self) -> list[Span]:
        """Return all recorded attempts."""
        return [Span(*row) for row in self._database.execute("SELECT * FROM spans")]

    def close(self) -> None:
        self._database.close()
