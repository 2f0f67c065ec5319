"""What commands print: tables that a person likes to read, or JSON for machines; errors in one line with a way out.

Colours and indentation are for terminals only. Results go to standard output; progress and errors to standard error,
so that a pipe gets nothing else. Texts that come from the cluster are never read as markup.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

import click
import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from raftsched.api.advice import ADVICE
from raftsched.cli.times import read_time, with_distance
from raftsched.errors import RaftschedError

_PIPE_WIDTH = 1_000
"""Columns where nobody looks at a terminal: wide enough that nothing is cut off."""

console = Console(highlight=False, width=None if sys.stdout.isatty() else _PIPE_WIDTH)
progress_console = Console(stderr=True, highlight=False)
_MIN_WIDTHS = {"id": 36, "status": 9}
"""What must not be cut off on a narrow terminal."""
_COLUMN_GAP: Final = 3
_STYLES: Final = {
    "completed": "green",
    "fired": "green",
    "active": "green",
    "running": "cyan",
    "queued": "blue",
    "retrying": "yellow",
    "cancelling": "yellow",
    "paused": "yellow",
    "failed": "red",
    "dead_letter": "red",
    "cancelled": "dim",
    "skipped": "dim",
    "ended": "dim",
}
_NEXT_STEPS: Final = {
    **ADVICE,
    "unavailable": "See `raftsched cluster status`, or say with --url or RAFTSCHED_URL where the cluster is.",
    "not_leader": "The cluster has no leader just now: try again in a moment.",
    "outcome_unknown": "It may have happened: look before you do it again, or repeat it with --idempotency-key.",
    "not_found": "See the list for what is there; what was finished long ago is no longer kept.",
    "malformed": "",
    "invalid": "",
}
"""What to do next, by code. What is wrong with a field says itself how to mend it."""
_P = ParamSpec("_P")
_R = TypeVar("_R")

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
url_option = click.option(
    "--url",
    "urls",
    multiple=True,
    envvar="RAFTSCHED_URL",
    default=("http://127.0.0.1:8400",),
    show_default=True,
    help="API of a node; may be given several times. Any node will do. Also from RAFTSCHED_URL (spaces between).",
)


def print_json(value: Any) -> None:
    """Print one JSON document, indented on a terminal, compact in a pipe."""
    data = msgspec.json.encode(value)
    if sys.stdout.isatty():
        data = msgspec.json.format(data, indent=2)
    sys.stdout.write(data.decode() + "\n")


def print_json_line(value: Any) -> None:
    """Print one line of a stream of JSON lines, at once."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    title: str | None = None,
    optional: Sequence[str] = (),
) -> None:
    """Print rows under their column names; numbers align right.

    On a terminal that is too narrow, `optional` columns are left out, the first ones first, and named below the table.
    """
    cells = [[_cell(cell) for cell in row] for row in rows]
    left_out = _not_fitting(columns, cells, optional) if console.is_terminal else []
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold")
    shown = [number for number, column in enumerate(columns) if column not in left_out]
    for number in shown:
        is_numeric = bool(cells) and all(_is_number(row[number].plain) for row in cells)
        table.add_column(
            Text(columns[number]),
            justify="right" if is_numeric else "left",
            no_wrap=True,
            min_width=_MIN_WIDTHS.get(columns[number]),
        )
    for row in cells:
        table.add_row(*(row[number] for number in shown))
    console.print(table)
    if left_out:
        console.print(Text(f"  no room for {', '.join(left_out)}; --json has all", style="dim"))


def _not_fitting(columns: Sequence[str], cells: Sequence[Sequence[Text]], optional: Sequence[str]) -> list[str]:
    """Return the columns to leave out, so that the others fit as far as they can."""
    widths = {
        column: max([len(column), _MIN_WIDTHS.get(column, 0), *(row[number].cell_len for row in cells)])
        for number, column in enumerate(columns)
    }
    left_out: list[str] = []
    for column in optional:
        if sum(width + _COLUMN_GAP for width in widths.values()) < console.width:
            break
        del widths[column]
        left_out.append(column)
    return left_out


def print_fields(fields: Mapping[str, Any]) -> None:
    """Print one record as a list of its fields, without those that are empty."""
    shown = {name: value for name, value in fields.items() if value not in (None, "", [], {})}
    width = max((len(name) for name in shown), default=0)
    for name, value in shown.items():
        console.print(Text(f"{name:>{width}}  ", style="dim"), end="")
        console.print(_field(name, value), soft_wrap=True)


def say(text: str | Text) -> None:
    """Print one line of plain text."""
    console.print(text, markup=False, soft_wrap=True)


def status_text(status: str) -> Text:
    """Return a status in its colour."""
    return Text(status, style=_STYLES.get(status, ""))


def reports_errors(command: Callable[_P, _R]) -> Callable[_P, _R]:
    """Turn an error of ours into one line on standard error and exit code 1; others keep their trace."""

    @wraps(command)
    def wrapped(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return command(*args, **kwargs)
        except RaftschedError as error:
            click.echo(error_line(error), err=True)
            raise SystemExit(1) from None

    return wrapped


def error_line(error: RaftschedError) -> str:
    """Return what is wrong, its code, and what to do next, in one line."""
    told = " ".join(str(error).split())
    next_step = _NEXT_STEPS.get(error.code, "")
    return f"raftsched: {told} [{error.code}]" + (f" {next_step}" if next_step else "")


def _field(name: str, value: Any) -> Text:
    if not isinstance(value, str):
        return Text(msgspec.json.encode(value).decode())
    if name == "status":
        return status_text(value)
    return with_distance(value) if read_time(value) else Text(value)


def _cell(cell: Any) -> Text:
    if isinstance(cell, Text):
        return cell
    if cell is None:
        return Text()
    if isinstance(cell, float):
        return Text(f"{cell:,.2f}")
    return Text(f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else str(cell))


def _is_number(text: str) -> bool:
    return text.replace(",", "").replace(".", "", 1).removeprefix("-").isdecimal() or not text
