"""Show the progress of the demo: a line for each kind of job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TaskID, TextColumn
from rich.table import Column

from raftsched.cli.demo.plan import KINDS
from raftsched.cli.terminal.output import console
from raftsched.wire.common import FINISHED, STATUS_NAMES

_BAR_WIDTH = 12
_WORDS: Final = {"waiting_dependencies": "waiting", "dead_letter": "dead"}
_NAME_WIDTH = 9
_COUNT_WIDTH = 9
_NOW_WIDTH = 26
_SHOWS_WIDTH = max(map(len, KINDS.values()))


def _columns() -> list[ProgressColumn]:
    """Return the columns; on a narrow terminal the descriptions of kinds are cut, never their progress."""
    gaps = 4
    room = console.width - _NAME_WIDTH - _BAR_WIDTH - _COUNT_WIDTH - _NOW_WIDTH - gaps
    shows = Column(width=max(1, min(_SHOWS_WIDTH, room)), no_wrap=True, overflow="ellipsis")
    return [
        TextColumn("{task.description}", table_column=Column(width=_NAME_WIDTH, no_wrap=True)),
        TextColumn("{task.fields[shows]}", style="dim", table_column=shows),
        BarColumn(_BAR_WIDTH, table_column=Column(width=_BAR_WIDTH)),
        MofNCompleteColumn(table_column=Column(min_width=_COUNT_WIDTH, no_wrap=True, justify="right")),
        TextColumn("{task.fields[now]}", style="cyan", table_column=Column(no_wrap=True, overflow="ellipsis")),
    ]


class JobsTable:
    """The table on the terminal; a pipe gets the printed lines, and the table once at the end."""

    def __init__(self) -> None:
        self._progress = Progress(*_columns(), console=console)
        self._rows: dict[str, TaskID] = {
            kind: self._progress.add_task(kind, total=0, shows=shows, now="") for kind, shows in KINDS.items()
        }

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def say(self, text: str) -> None:
        """Print a line above the table."""
        self._progress.console.print(text, soft_wrap=True)

    def show(self, queues: Sequence[Mapping[str, Any]]) -> None:
        """Show the jobs of each queue."""
        for queue in queues:
            if (row := self._rows.get(queue["name"])) is None:
                continue
            total = sum(queue.get(status, 0) for status in STATUS_NAMES)
            self._progress.update(row, completed=finished_count(queue), total=total, now=_now(queue))


def finished_count(queue: Mapping[str, Any]) -> int:
    """Return the number of jobs of a queue that have ended."""
    return sum(int(queue.get(status, 0)) for status in FINISHED)


def _now(queue: Mapping[str, Any]) -> str:
    """Describe the state of a queue's unfinished jobs, and the other ends than completed."""
    shown = {status: queue.get(status, 0) for status in STATUS_NAMES if status != "completed"}
    return ", ".join(f"{count} {_WORDS.get(status, status)}" for status, count in shown.items() if count)
