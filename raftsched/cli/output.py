"""What commands print: tables that a person likes to read, or JSON for machines; errors in one line with a way out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import click
import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

from raftsched.errors import RaftschedError

_PIPE_WIDTH = 200
"""Columns where nobody looks at a terminal: wide enough that nothing is cut off."""

console = Console(highlight=False, width=None if sys.stdout.isatty() else _PIPE_WIDTH)
progress_console = Console(stderr=True, highlight=False)
_MIN_WIDTHS = {"id": 36, "status": 9}
"""What must not be cut off on a narrow terminal."""
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


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str | None = None) -> None:
    """Print rows under their column names; numbers align right."""
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold")
    materialised = [[_text(cell) for cell in row] for row in rows]
    for number, column in enumerate(columns):
        is_numeric = bool(materialised) and all(_is_number(row[number]) for row in materialised)
        table.add_column(
            column, justify="right" if is_numeric else "left", no_wrap=True, min_width=_MIN_WIDTHS.get(column)
        )
    for row in materialised:
        table.add_row(*row)
    console.print(table)


def print_fields(fields: Mapping[str, Any]) -> None:
    """Print one record as a list of its fields, without those that are empty."""
    width = max((len(name) for name in fields), default=0)
    for name, value in fields.items():
        if value not in (None, "", [], {}):
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            console.print(f"[dim]{name:>{width}}[/dim]  ", end="")
            console.print(text, markup=False, soft_wrap=True)


def reports_errors(command: Callable[_P, _R]) -> Callable[_P, _R]:
    """Turn an error of ours into one line on standard error and exit code 1; others keep their trace."""

    @wraps(command)
    def wrapped(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return command(*args, **kwargs)
        except RaftschedError as error:
            click.echo(f"raftsched: {error} [{error.code}]", err=True)
            raise SystemExit(1) from None

    return wrapped


def _text(cell: Any) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:,.2f}"
    return f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else str(cell)


def _is_number(text: str) -> bool:
    return text.replace(",", "").replace(".", "", 1).removeprefix("-").isdecimal() or not text
