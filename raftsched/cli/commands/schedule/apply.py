"""Define `raftsched apply -f schedules.yaml`: change the schedules of a tenant to those in files, and show the changes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import msgspec
from rich.text import Text

from raftsched.cli.terminal.files import Document, read_document
from raftsched.cli.terminal.options import FILE, dry_run_option, given, tenant_option
from raftsched.cli.terminal.output import json_option, print_json, print_table, progress_console, say
from raftsched.cli.terminal.session import Session, with_session
from raftsched.errors import Invalid, Malformed

_PLACE: Final = re.compile(r"schedules\[(\d+)\]\.?")
_SOURCE: Final = "source"
_NO_SOURCE: Final = (
    "--prune deletes schedules that the same source applied, and no file here names its source. Put "
    "`source: NAME` at the top of a file, or give --source NAME; apply once without --prune to move your schedules to it"
)
_VALUE_CHARS_MAX: Final = 60
_CHANGES: Final = {"+": "green", "~": "yellow", "-": "red"}


class Entry(NamedTuple):
    """A schedule of a file."""

    document: Document
    path: str
    """Its path in the file."""
    value: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.value.get("name") or self.path)


@click.command("apply")
@click.option(
    "-f",
    "--file",
    "paths",
    type=FILE,
    multiple=True,
    required=True,
    help="YAML, or JSON; - = standard input. Repeatable.",
)
@click.option("--source", help="Owner of the schedules, instead of `source` in the files.")
@click.option(
    "--prune",
    is_flag=True,
    help="Delete the schedules of the same source that are in none of the files. Needs a source.",
)
@dry_run_option
@tenant_option
@with_session
@json_option
def apply_command(
    session: Session,
    paths: Sequence[Path],
    tenant: str | None,
    *,
    source: str | None,
    prune: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Apply schedules from files, and show what changes.

    A file has the list `schedules`, each with the fields of POST /schedules, and may
    name their owner under `source`. With a mistake in one of them, nothing is changed.
    """
    documents = [read_document(path) for path in paths]
    entries = [entry for document in documents for entry in _entries(document)]
    _check_names(entries)
    source = source or _source_of(documents)
    if prune and not source:
        raise click.UsageError(_NO_SOURCE)
    asked = {
        "schedules": [entry.value for entry in entries],
        **given({"tenant": tenant, "source": source, "prune": prune, "dry_run": dry_run}),
    }
    try:
        with progress_console.status(f"applying {len(entries):,} schedules"):
            answer = session.send("PUT", "/schedules", asked)
    except Invalid as error:
        raise _located(error, entries) from None
    if as_json:
        print_json(answer)
    else:
        _print_diff(answer)


def _entries(document: Document) -> Iterator[Entry]:
    """Yield the schedules of a file; raises `Malformed` if it is no such file."""
    value, within = document.value, ""
    if isinstance(value, dict):
        within = "schedules"
        for name in value:
            if name not in (within, _SOURCE):
                told = f"{name}: a file of schedules has no such field; it has the list `schedules`, and `source`"
                raise document.fault(Malformed(""), name, told)
        value = value.get(within)
    if not isinstance(value, list):
        raise document.fault(Malformed(""), within, "a file of schedules has the list `schedules`")
    for number, each in enumerate(value):
        path = f"{within}[{number}]"
        if not isinstance(each, dict):
            raise document.fault(Malformed(""), path, f"{path}: a schedule has fields; this is something else")
        yield Entry(document, path, each)


def _source_of(documents: Sequence[Document]) -> str | None:
    """Return the source that the files name, None if none does; raises `Invalid` if they disagree."""
    found: str | None = None
    for document in documents:
        said = document.value.get(_SOURCE) if isinstance(document.value, dict) else None
        if said is None:
            continue
        if not isinstance(said, str):
            raise document.fault(Malformed(""), _SOURCE, f"{_SOURCE}: must be a text")
        if found not in (None, said):
            told = f"{_SOURCE}: {said} here and {found} in another file; apply them one by one, or give --source"
            raise document.fault(Invalid(""), _SOURCE, told)
        found = said
    return found


def _check_names(entries: Sequence[Entry]) -> None:
    known: dict[str, Entry] = {}
    for entry in entries:
        other = known.setdefault(entry.name, entry)
        if other is not entry:
            told = f"{entry.name}: the name is used before, in {other.document.name}"
            raise entry.document.fault(Invalid(""), f"{entry.path}.name", told)


def _located(error: Invalid, entries: Sequence[Entry]) -> Exception:
    """Return the error with the file, the line and the schedule to which it belongs."""
    place = _PLACE.match(error.field)
    if place is None or int(place[1]) >= len(entries):
        return error
    entry = entries[int(place[1])]
    inner = error.field[place.end() :]
    told = str(error).removeprefix(place[0]).removeprefix(":").strip()
    return entry.document.fault(error, f"{entry.path}.{inner}" if inner else entry.path, f"{entry.name}: {told}")


def _print_diff(answer: Mapping[str, Any]) -> None:
    rows = list(_rows(answer))
    if rows:
        print_table(("", "schedule", "field", "before", "after"), rows)
    counts = [
        (len(answer[kind]), word) for kind, word in (("created", "create"), ("changed", "change"), ("pruned", "delete"))
    ]
    unchanged = f"{len(answer['unchanged']):,} unchanged"
    if answer["dry_run"]:
        say(f"would {', '.join(f'{word} {count:,}' for count, word in counts)}; {unchanged}")
    else:
        say(f"{', '.join(f'{count:,} {word}d' for count, word in counts)}, {unchanged}")


def _rows(answer: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    for name in answer["created"]:
        yield _mark("+"), name, "", "", ""
    for schedule in answer["changed"]:
        for number, change in enumerate(schedule["changes"]):
            name = schedule["name"] if number == 0 else ""
            before, after = _value(change["before"]), _value(change["after"])
            yield _mark("~"), name, change["field"], Text(before, style="red"), Text(after, style="green")
        if not schedule["changes"]:
            yield _mark("~"), schedule["name"], "", "", ""
    for name in answer["pruned"]:
        yield _mark("-"), name, "", "", ""


def _mark(text: str) -> Text:
    return Text(text, style=_CHANGES[text])


def _value(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= _VALUE_CHARS_MAX else f"{text[: _VALUE_CHARS_MAX - 1]}…"
