"""Print for commands: tables for people, or JSON for machines; errors in one line with the next step.

Colours and indentation are for terminals only. Results go to standard output; progress and errors to standard error, so
that a pipe gets nothing else. Texts that come from the cluster are never read as markup, and cannot control a terminal:
their control characters are shown, not sent.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

import click
import msgspec
from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from raftsched.api.http.advice import ADVICE
from raftsched.cli.terminal.statuses import STATUSES
from raftsched.cli.terminal.times import read_time, with_distance
from raftsched.client.http.client_tls import CA_FILE_VARIABLE
from raftsched.client.http.token import TENANT_VARIABLE, TOKEN_FILE_VARIABLE, TOKEN_VARIABLE
from raftsched.errors import RaftschedError

_PIPE_WIDTH = 1_000
"""Columns without a terminal: wide enough that nothing is cut off."""

_DIRECTIONS: Final = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Embeddings, overrides and isolates: with these a text could show lines in a wrong order."""
_CONTROLS: Final = [code for code in (*range(0x20), 0x7F, *range(0x80, 0xA0), *_DIRECTIONS) if chr(code) not in "\n\t"]
"""C0, DEL and C1 too: with these a text could recolour, retitle or rewrite the reader's terminal."""
_VISIBLE: Final = {code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" for code in _CONTROLS}
_VISIBLE_IN_JSON: Final = {code: f"\\u{code:04x}" for code in _CONTROLS}


def visible(text: str) -> str:
    r"""Return `text` with its control characters, other than line ends and tabs, as escapes like `\x1b`."""
    return text if text.isprintable() else text.translate(_VISIBLE)


@contextmanager
def writing() -> Iterator[None]:
    """End the program if standard output can't be written: with one line, or quietly if its reader has gone.

    The exit code is 1 for both: Python's documentation asks for it on EPIPE (signal, "Note on SIGPIPE"), and click and
    rich do so too. The rest of the buffer is dropped, since the interpreter would fail to write it once more.
    """
    try:
        yield
    except OSError as error:
        with suppress(OSError):  # a stream that is no file
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            click.echo(f"raftsched: can't write to standard output: {error.strerror}", err=True)
        raise SystemExit(1) from None


class TextConsole(Console):
    """Console that shows the control characters of texts; its own styles and cursor moves are no part of them."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))


class _OutputConsole(TextConsole):
    """Standard output."""

    def print(self, *objects: Any, **settings: Any) -> None:
        with writing():
            super().print(*objects, **settings)


console = _OutputConsole(highlight=False, width=None if sys.stdout.isatty() else _PIPE_WIDTH)
progress_console = TextConsole(stderr=True, highlight=False)
_MIN_WIDTHS = {"id": 36, "status": 9}
_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ID_CELL_CHARS_MAX: Final = 64
"""A longer cell is a text that contains an id."""
_FOLDED_WIDTH_MIN: Final = 16
_COLUMN_GAP: Final = 3
_STYLES: Final = {
    **{status: shown.style for status, shown in STATUSES.items() if shown.style},
    "failed": "red",
    "fired": "green",
    "active": "green",
    "ended": "dim",
}
"""Styles of statuses: those of jobs, and others of workflows and schedules."""
_NEXT_STEPS: Final = {
    **ADVICE,
    "unavailable": "See `raftsched cluster status`, or say with --url or RAFTSCHED_URL where the cluster is.",
    "not_leader": "The cluster has no leader just now: try again in a moment.",
    "outcome_unknown": "It may have happened: look before you do it again, or repeat it with --idempotency-key.",
    "not_found": "See the list for what is there; what was finished long ago is no longer kept.",
    "malformed": "",
    "invalid": "",
}
"""Next step for the user, by code. Errors about a field say themselves how to fix it."""
_SERVER_ERROR: Final = 500
_P = ParamSpec("_P")
_R = TypeVar("_R")
_F = TypeVar("_F", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")


def _in_environment(variable: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    """Return the callback that passes an option on to every connection of this process, and to its children."""

    def keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        del context, parameter
        if value is not None:
            os.environ[variable] = str(value)
        if value is not None and variable == TOKEN_FILE_VARIABLE:
            os.environ.pop(TOKEN_VARIABLE, None)  # an option wins

    return keep


def caller_options(command: _F) -> _F:
    """Add the options that tell who uses the cluster, and how it is verified.

    There is none for the token itself: `ps` would show it.
    """
    token_file = click.option(
        "--token-file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        expose_value=False,
        callback=_in_environment(TOKEN_FILE_VARIABLE),
        help="File that holds your token. Also from RAFTSCHED_TOKEN_FILE, or the token itself from RAFTSCHED_TOKEN.",
    )
    tenant = click.option(
        "--as-tenant",
        expose_value=False,
        callback=_in_environment(TENANT_VARIABLE),
        help="Tenant to act for, with a token of all tenants. Also from RAFTSCHED_TENANT.",
    )
    ca_file = click.option(
        "--ca-file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        expose_value=False,
        callback=_in_environment(CA_FILE_VARIABLE),
        help="Authorities in PEM that certify https addresses; default: those of the system. Also from RAFTSCHED_CA_FILE."
        " RAFTSCHED_CLIENT_CERT and RAFTSCHED_CLIENT_KEY name a certificate of yours and its key.",
    )
    return token_file(tenant(ca_file(command)))


def url_option(command: _F) -> _F:
    """Add the options that tell where the cluster is, and who uses it."""
    url = click.option(
        "--url",
        "urls",
        multiple=True,
        envvar="RAFTSCHED_URL",
        default=("http://127.0.0.1:8400",),
        show_default=True,
        help="API of a node; may be given several times. Any node will do. Also from RAFTSCHED_URL (spaces between).",
    )
    return url(caller_options(command))


def print_json(value: Any) -> None:
    """Print one JSON document, indented on a terminal, compact in a pipe."""
    data = msgspec.json.encode(value)
    if sys.stdout.isatty():
        data = msgspec.json.format(data, indent=2)
    write(_escaped(data) + "\n")


def print_json_line(value: Any) -> None:
    """Print one line of a stream of JSON lines, at once."""
    write(_escaped(msgspec.json.encode(value)) + "\n")


def write(text: str) -> None:
    """Write a text as it is, at once."""
    with writing():
        sys.stdout.write(text)
        sys.stdout.flush()


def write_text(text: str) -> None:
    """Write a job's output: on a terminal with its control characters shown, into a pipe or a file as it is."""
    write(visible(text) if sys.stdout.isatty() else text)


def _escaped(document: bytes) -> str:
    """JSON whose texts hold no control characters: those above 0x7E are allowed in JSON, and control some terminals."""
    return document.decode().translate(_VISIBLE_IN_JSON)


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    title: str | None = None,
    optional: Sequence[str] = (),
    folded: Sequence[str] = (),
    if_none: str = "",
) -> None:
    """Print rows under their column names; numbers align right. If there are none, say so, and `if_none`.

    On a terminal that is too narrow, `optional` columns are left out, the first ones first, and named below the table;
    `folded` columns continue in the next line; others are cut off, but for ids, which never are, since they are copied.
    """
    cells = [[_cell(cell) for cell in row] for row in rows]
    if not cells:
        _print_none(title, if_none)
        return
    left_out = _not_fitting(columns, cells, optional, folded) if console.is_terminal else []
    heading = None if title is None else Text(visible(title), style="bold")
    table = Table(title=heading, box=box.SIMPLE_HEAD, title_justify="left")
    shown = [number for number, column in enumerate(columns) if column not in left_out]
    widths = _widths([(columns[number], [row[number] for row in cells]) for number in shown])
    for number, width in zip(shown, widths, strict=True):
        is_numeric = bool(cells) and all(_is_number(row[number].plain) for row in cells)
        table.add_column(
            Text(columns[number]),
            justify="right" if is_numeric else "left",
            no_wrap=columns[number] not in folded,
            overflow="fold" if columns[number] in folded else "ellipsis",
            width=width,
        )
    for row in cells:
        table.add_row(*(row[number] for number in shown))
    console.print(table)
    if left_out:
        console.print(Text(f"  no room for {', '.join(left_out)}; --json has all", style="dim"))


def _print_none(title: str | None, if_none: str) -> None:
    if title:
        console.print(Text(visible(title), style="bold"), soft_wrap=True)
    console.print(Text(f"none: {if_none}" if if_none else "none", style="dim"), soft_wrap=True)


def _min_width(column: str, cells: Sequence[Text]) -> int:
    """Return the width that a column needs so that no id in it is cut off."""
    ids = [cell.cell_len for cell in cells if cell.cell_len <= _ID_CELL_CHARS_MAX and _ID.search(cell.plain)]
    return max([_MIN_WIDTHS.get(column, 0), *ids])


def _widths(columns: Sequence[tuple[str, Sequence[Text]]]) -> list[int]:
    """Return the width of each column: if all are too wide, the widest ones are cut, but for ids."""
    widths = [
        max([len(column), _min_width(column, cells), *(cell.cell_len for cell in cells)]) for column, cells in columns
    ]
    floors = [max(1, _min_width(column, cells)) for column, cells in columns]
    excess = sum(width + _COLUMN_GAP for width in widths) + 1 - console.width
    for _ in range(excess):
        wide = [number for number, width in enumerate(widths) if width > floors[number]]
        if not wide:
            break
        widths[max(wide, key=lambda number: widths[number])] -= 1
    return widths


def _not_fitting(
    columns: Sequence[str], cells: Sequence[Sequence[Text]], optional: Sequence[str], folded: Sequence[str]
) -> list[str]:
    """Return the columns to leave out, so that the others fit as far as possible."""
    widths = {}
    for number, column in enumerate(columns):
        column_cells = [row[number] for row in cells]
        width = max([len(column), _min_width(column, column_cells), *(cell.cell_len for cell in column_cells)])
        widths[column] = min(width, _FOLDED_WIDTH_MIN) if column in folded else width
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
    console.print(text if isinstance(text, Text) else visible(text), markup=False, soft_wrap=True)


def tell(text: str) -> None:
    """Print one message on standard error."""
    progress_console.print(Text(f"raftsched: {visible(text)}", style="dim"), soft_wrap=True)


def status_text(status: str) -> Text:
    """Return a status in its colour."""
    return Text(visible(status), style=_STYLES.get(status, ""))


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
    """Return the error, its code, and the next step, in one line."""
    told = visible(" ".join(str(error).split()))
    next_step = _NEXT_STEPS.get(error.code, "")
    request = f" (request {error.request_id})" if error.http_status >= _SERVER_ERROR and error.request_id else ""
    return f"raftsched: {told} [{error.code}]{request}" + (f" {next_step}" if next_step else "")


def _field(name: str, value: Any) -> Text:
    if not isinstance(value, str):
        return Text(msgspec.json.encode(value).decode())
    if name == "status":
        return status_text(value)
    return with_distance(value) if read_time(value) else Text(visible(value))


def _cell(cell: Any) -> Text:
    if isinstance(cell, Text):
        return cell
    if cell is None:
        return Text()
    if isinstance(cell, float):
        return Text(f"{cell:,.2f}")
    return Text(f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else visible(str(cell)))


def _is_number(text: str) -> bool:
    return text.replace(",", "").replace(".", "", 1).removeprefix("-").isdecimal() or not text
