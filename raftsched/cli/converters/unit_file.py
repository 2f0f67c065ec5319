"""Read unit files of systemd: sections with settings, and the spans of time in them. See systemd.syntax(7)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, NamedTuple

from raftsched.errors import Invalid

_UNITS: Final = {
    "us": ("usec", "us", "µs", "μs"),  # systemd takes both signs for micro
    "ms": ("msec", "ms"),
    "s": ("seconds", "second", "sec", "s", ""),
    "m": ("minutes", "minute", "min", "m"),
    "h": ("hours", "hour", "hr", "h"),
    "d": ("days", "day", "d"),
    "w": ("weeks", "week", "w"),
    "M": ("months", "month", "M"),
    "y": ("years", "year", "y"),
}
_SECONDS: Final = {
    "us": Decimal("1e-6"),
    "ms": Decimal("1e-3"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3_600),
    "d": Decimal(86_400),
    "w": Decimal(604_800),
    "M": Decimal(2_629_800),
    "y": Decimal(31_557_600),
}
_UNIT_OF: Final = {name: unit for unit, names in _UNITS.items() for name in names}
_SPAN_PART: Final = re.compile(r"[ \t]*(\d+(?:\.\d+)?|\.\d+)[ \t]*([A-Za-zµμ]*)[ \t]*")
_SECTION: Final = re.compile(r"\[([^\[\]]+)\]")
_TRUE: Final = ("1", "yes", "y", "true", "t", "on")
_FALSE: Final = ("0", "no", "n", "false", "f", "off", "")


class Setting(NamedTuple):
    """One assignment."""

    section: str
    name: str
    value: str
    line: int


@dataclass(frozen=True, slots=True)
class UnitFile:
    """The settings of a unit file, in their order."""

    file: str
    settings: tuple[Setting, ...]

    def all(self, section: str, name: str) -> list[Setting]:
        """Return the assignments that count: an empty one withdraws those before it."""
        found: list[Setting] = []
        for setting in self.settings:
            if (setting.section, setting.name) == (section, name):
                found = [*found, setting] if setting.value else []
        return found

    def last(self, section: str, name: str) -> Setting | None:
        """Return the assignment of a setting that has one value."""
        found = self.all(section, name)
        return found[-1] if found else None

    def value(self, section: str, name: str, default: str = "") -> str:
        found = self.last(section, name)
        return default if found is None else found.value

    def others(self, sections: Collection[str], known: Collection[str]) -> Iterator[Setting]:
        """Yield the assignments in these sections whose names are not known."""
        for setting in self.settings:
            if setting.section in sections and setting.name not in known and setting.value:
                yield setting


def read_unit(text: str, *, file: str) -> UnitFile:
    """Return the settings of a unit file; raises `Invalid` for a line that systemd ignores with a warning."""
    settings = []
    section = ""
    for line, written in _lines(text):
        if header := _SECTION.fullmatch(written):
            section = header[1]
            continue
        name, sign, value = written.partition("=")
        if not sign or not section:
            raise Invalid(f"line {line}: neither [Section] nor Name=value")
        settings.append(Setting(section, name.strip(), value.strip(), line))
    return UnitFile(file, tuple(settings))


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with their numbers; one that ends with a backslash continues, past comments."""
    begun, start = "", 0
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.strip()
        if line.startswith(("#", ";")):
            continue
        if not begun and not line:
            continue
        start = start if begun else number
        if line.endswith("\\"):
            begun += f"{line[:-1]} "
            continue
        yield start, f"{begun}{line}".strip()
        begun = ""
    if begun:
        yield start, begun.strip()


def read_flag(setting: Setting) -> bool:
    """Return a boolean of systemd; raises `Invalid` for others."""
    text = setting.value.lower()
    if text not in (*_TRUE, *_FALSE):
        raise Invalid(f"{setting.name}={setting.value} is neither true nor false")
    return text in _TRUE


def span_seconds(setting: Setting) -> float | None:
    """Return the seconds of a span of time such as `1h 30min`, None for `infinity`; raises `Invalid` for others."""
    text = setting.value.strip()
    if text == "infinity":
        return None
    total, at = Decimal(0), 0
    while match := _SPAN_PART.match(text, at):
        unit = _UNIT_OF.get(match[2])
        if unit is None:
            break
        total += Decimal(match[1]) * _SECONDS[unit]
        at = match.end()
    if not at or at < len(text):
        raise Invalid(f"{setting.name}={setting.value} is not a span of time; write one like 1h 30min")
    return int(total) if total == int(total) else float(total)
