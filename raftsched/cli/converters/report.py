"""Collect the schedules of a file, and what could not be kept of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

import msgspec

from raftsched.api.json.decode import StructDecoder
from raftsched.api.schedules.documents import template_of
from raftsched.api.schedules.timing import timing_of
from raftsched.core.records.schedule import Timing
from raftsched.errors import Invalid
from raftsched.wire.schedules import ScheduleRequest

Kind = Literal["error", "left out", "not kept", "note"]

_REQUEST: Final = StructDecoder(ScheduleRequest)


class Finding(NamedTuple):
    """Something that the user must know about an import."""

    file: str
    line: int | None
    kind: Kind
    text: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.kind}: {self.text}"


@dataclass(slots=True)
class Entry:
    """A schedule that is being read, with its findings."""

    file: str
    line: int | None
    original: str
    """The schedule as its own program has it, to be shown beside the result."""
    name: str = ""
    fields: dict[str, Any] = field(default_factory=dict)
    """Fields of the schedule, besides `name` and `job`."""
    job: dict[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    timing: Timing | None = None
    """The timing as the cluster will store it; set when the entry is complete."""

    def not_kept(self, text: str, line: int | None = None, file: str = "") -> None:
        """Record a setting that the schedule loses; its place is the entry's by default."""
        self.findings.append(Finding(file or self.file, line or self.line, "not kept", text))

    def note(self, text: str, line: int | None = None) -> None:
        """Record what the schedule depends on and the file does not say."""
        self.findings.append(Finding(self.file, line or self.line, "note", text))

    def document(self, name: str) -> dict[str, Any]:
        """Return the schedule as `raftsched apply` takes it."""
        return {"name": name, **self.fields, "job": self.job}


class Report:
    """The schedules of a file, and all findings about it."""

    def __init__(self, file: str, timezone: str | None) -> None:
        self.file: Final = file
        self._timezone: Final = timezone
        self.entries: Final[list[Entry]] = []
        self.findings: Final[list[Finding]] = []

    def left_out(self, text: str, line: int | None = None) -> None:
        """Record a schedule that is not imported."""
        self.findings.append(Finding(self.file, line, "left out", text))

    def error(self, text: str, line: int | None = None) -> None:
        """Record that the file is not readable."""
        self.findings.append(Finding(self.file, line, "error", text))

    def not_kept(self, text: str, line: int | None = None) -> None:
        """Record a setting of the whole file that is lost."""
        self.findings.append(Finding(self.file, line, "not kept", text))

    def note(self, text: str, line: int | None = None) -> None:
        """Record, once, what the whole file depends on and does not say."""
        finding = Finding(self.file, line, "note", text)
        if finding not in self.findings:
            self.findings.append(finding)

    def local_zone(self) -> str:
        """Return the zone of times that name none: the one that the user gave, else UTC with a note."""
        if self._timezone is None:
            self.note("times that name no zone are read in UTC; --timezone gives the zone in which they were meant")
        return self._timezone or "UTC"

    @contextmanager
    def entry(self, original: str, line: int | None = None) -> Iterator[Entry]:
        """Add the entry that the block fills in, or record the reason if the block raises `Invalid`.

        The entry is checked as the cluster would check it, so that `raftsched apply` does not reject the file.
        """
        entry = Entry(self.file, line, original)
        try:
            yield entry
            entry.timing = _checked(entry)
        except Invalid as error:
            self.left_out(f"{entry.original}: {error}", entry.line)
            return
        self.entries.append(entry)
        self.findings.extend(entry.findings)


def _checked(entry: Entry) -> Timing:
    """Return the timing of the schedule; raises `Invalid` if the cluster would reject the schedule."""
    wanted, _ = _REQUEST.read(msgspec.json.encode(entry.document("imported")))
    template_of(wanted.job, "job.")
    return timing_of(wanted)


def given(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that have a value."""
    return {name: value for name, value in fields.items() if value not in (None, {}, [], "")}
