"""Write imported schedules as YAML for `raftsched apply`, with the next fire times beside each as a comment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Final

import yaml

from raftsched.cli.converters.names import unique_names
from raftsched.cli.converters.report import Entry, Finding
from raftsched.cli.terminal.files import CORE_SCHEMA
from raftsched.cli.terminal.output import visible
from raftsched.core.cron.zones import zone
from raftsched.leader.schedules.fire_times import fire_times_of

_SHOWN_FIRE_TIMES: Final = 5
_EXAMINED_MAX: Final = 5_000
"""Fire times that are examined for a preview; a calendar may skip nearly all."""
_ORIGINAL_CHARS_MAX: Final = 200
_CLOCK: Final = "%a %Y-%m-%d %H:%M:%S %z"


class _Dumper(yaml.SafeDumper):
    """Quotes each text that YAML 1.1 or 1.2 would read as something else."""

    yaml_implicit_resolvers = {  # noqa: RUF012  # as PyYAML has it
        first: list(resolvers) for first, resolvers in yaml.SafeDumper.yaml_implicit_resolvers.items()
    }

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002  # PyYAML's
        """Indent lists within objects, too."""
        super().increase_indent(flow, False)


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if text.isprintable() else '"')


_Dumper.add_representer(str, _represent_text)
for _tag, _pattern, _first in CORE_SCHEMA:
    _Dumper.add_implicit_resolver(_tag, _pattern, _first)


def written(entries: Iterable[Entry], *, kind: str, now_ms: int) -> str:
    """Return the file; the same entries at the same time give the same text."""
    items = [_item(name, entry, now_ms) for name, entry in unique_names(entries)]
    head = f"# Made by `raftsched import {kind}`. Read it, then run `raftsched apply -f FILE --dry-run`."
    return f"{head}\nschedules:\n" + "\n".join(items) if items else f"{head}\nschedules: []\n"


def _item(name: str, entry: Entry, now_ms: int) -> str:
    document = yaml.dump(
        [entry.document(name)],
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=False,
        width=1 << 30,
    )
    comments = [_original(entry), *_remarks(entry.findings), *_preview(entry, now_ms)]
    lines = [*(f"# {comment}" for comment in comments), *document.rstrip("\n").split("\n")]
    return "".join(f"  {line}\n" for line in lines)


def _original(entry: Entry) -> str:
    place = entry.file if entry.line is None else f"{entry.file}:{entry.line}"
    return f"{_one_line(place)}: {_one_line(entry.original)}"


def _remarks(findings: Iterable[Finding]) -> Iterator[str]:
    for finding in findings:
        yield f"{finding.kind}: {_one_line(finding.text)}"


def _one_line(text: str) -> str:
    shown = visible(" ".join(text.split()))
    return shown if len(shown) <= _ORIGINAL_CHARS_MAX else f"{shown[: _ORIGINAL_CHARS_MAX - 1]}…"


def _preview(entry: Entry, now_ms: int) -> Iterator[str]:
    timing = entry.timing
    assert timing is not None
    has_anchor = not timing.every or timing.start_at_ms is not None
    yield (
        f"next times in {timing.timezone}:" if has_anchor else f"next times in {timing.timezone}, if it is applied now:"
    )
    clock = zone(timing.timezone).info
    found = list(islice(_fire_times(entry, now_ms), _SHOWN_FIRE_TIMES))
    for fire_time_ms in found:
        yield f"  {datetime.fromtimestamp(fire_time_ms // 1_000, UTC).astimezone(clock).strftime(_CLOCK)}"
    if not found:
        yield "  none"


def _fire_times(entry: Entry, now_ms: int) -> Iterator[int]:
    """Yield the next fire times that the calendar allows."""
    assert entry.timing is not None
    fire_times = fire_times_of(entry.timing, from_ms=now_ms)
    found = fire_times.next_after(now_ms - 1)
    for _ in range(_EXAMINED_MAX):
        if found is None:
            return
        if not fire_times.skipped_by_calendar(found):
            yield found
        found = fire_times.next_after(found)
