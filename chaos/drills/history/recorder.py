"""Record what one process of a drill sees, as events of `chaos.checkers.history`, one file a process.

All processes of a drill are on one machine, so they share its monotonic clock: `Clock` counts from the start of the
drill. Each process has a range of operation numbers of its own. `merged` puts the files together in the order of time.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import count, pairwise
from pathlib import Path
from typing import Any, Final, Self

from chaos.checkers.history.events import (
    AnyEvent,
    BadHistory,
    Effect,
    Granted,
    Invoke,
    Reply,
    append_event,
    read_history,
)

_ORIGIN: Final = "DRILL_ORIGIN_NS"
_FILE: Final = "DRILL_HISTORY"
_FIRST_OP: Final = "DRILL_FIRST_OP"
OPS_PER_PROCESS: Final = 10_000_000


class Recorder:
    """Appends events to `path`; `events` keeps them, too. Operation numbers begin at `first_op`."""

    def __init__(self, path: Path, *, origin_ns: int | None = None, first_op: int = 1) -> None:
        self._file = path.open("ab", buffering=0)
        self.origin_ns: Final = time.monotonic_ns() if origin_ns is None else origin_ns
        self._first_op = first_op
        self._ops = count(first_op)
        self._lock = threading.Lock()
        self.events: list[AnyEvent] = []

    @classmethod
    def of_process(cls) -> Self:
        """Return the recorder of a process that was started with `settings_for`."""
        given = os.environ
        return cls(Path(given[_FILE]), origin_ns=int(given[_ORIGIN]), first_op=int(given[_FIRST_OP]))

    def settings_for(self, path: Path, number: int) -> Mapping[str, str]:
        """Return the environment of process `number`, from 1 on, which records to `path`."""
        first_op = self._first_op + number * OPS_PER_PROCESS
        return {_FILE: str(path), _ORIGIN: str(self.origin_ns), _FIRST_OP: str(first_op)}

    @property
    def t(self) -> int:
        """Return the microseconds since the start of the drill."""
        return (time.monotonic_ns() - self.origin_ns) // 1000

    def add(self, kind: type[AnyEvent], *, t: int | None = None, **fields: Any) -> int:
        """Record that something happens now, or happened at `t`, in whichever thread; return the time."""
        with self._lock:
            event = kind(t=self.t if t is None else t, **fields)
            append_event(self._file, event)  # unbuffered: a line is one write, whole if we are killed
            self.events.append(event)
            return event.t

    def new_op(self) -> int:
        """Return a number that no operation has; from any thread."""
        return next(self._ops)

    def invoke(self, process: str, op: int, f: str, **fields: Any) -> int:
        return self.add(Invoke, process=process, op=op, f=f, **fields)

    def reply(self, process: str, op: int, kind: str, **fields: Any) -> None:
        self.add(Reply, process=process, op=op, type=kind, **fields)

    def effect(self, phase: str, grant: Granted, worker: str) -> None:
        """A job's body begins or ends."""
        job, run, attempt, token = grant.job, grant.run, grant.attempt, grant.token
        self.add(Effect, phase=phase, job=job, run=run, attempt=attempt, token=token, worker=worker)

    def close(self) -> None:
        self._file.close()


def merged(paths: Iterable[Path]) -> list[AnyEvent]:
    """Return the events of all files in the order of time; raises `BadHistory` naming a file whose times fall.

    A call may be recorded late, if nothing else is known of its process.
    """
    events: list[AnyEvent] = []
    for path in paths:
        of_file = read_history(path)
        counts = Counter(event.process for event in of_file if isinstance(event, Invoke | Reply))
        on_time = [event for event in of_file if not isinstance(event, Invoke) or counts[event.process] > 1]
        if any(later.t < earlier.t for earlier, later in pairwise(on_time)):
            raise BadHistory(f"{path}: time runs back")
        events += of_file
    return in_order(events)


def in_order(events: Iterable[AnyEvent]) -> list[AnyEvent]:
    """Return the events in the order of time; those without one come last, in their own order."""
    return sorted(events, key=lambda event: (event.t < 0, event.t))
