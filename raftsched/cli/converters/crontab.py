"""Convert crontabs, by the rules that Vixie's cron and its descendants share: Debian's, cronie, those of the BSDs.

Environment lines hold for the entries below them. The command is run by `SHELL`, its part behind the first `%` is its
standard input. Cron runs a command once, does not wait for an earlier run, and makes up for nothing: so do the schedules.
"""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Any, Final, NamedTuple

from raftsched.cli.converters.names import program_name
from raftsched.cli.converters.report import Entry, Report, given
from raftsched.cli.converters.schedule_fields import literal
from raftsched.cli.converters.wall_times import has_changes
from raftsched.cli.terminal.files import STDIN_NAME
from raftsched.core.cron.fields import DAY, HOUR, MINUTE, MONTH, WEEKDAY, Field
from raftsched.errors import Invalid

_SHELL: Final = "/bin/sh"
_PATH: Final = "/usr/bin:/bin"
_ALIASES: Final = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
_MAIL: Final = ("MAILTO", "MAILFROM", "CONTENT_TYPE", "CONTENT_TRANSFER_ENCODING")
_FIELDS: Final = (MINUTE, HOUR, DAY, MONTH, WEEKDAY)
_BLANKS: Final = " \t"
_QUOTES: Final = ("'", '"')
_NAME_END: Final = re.compile(r"[= \t]")
_VALUE_END: Final = re.compile(r"[ \t]*$")
_ENTRY: Final = re.compile(r"(?P<silent>-?)(?P<when>@\S+|\S+(?:[ \t]+\S+){4})[ \t]+(?P<rest>\S.*)", re.DOTALL)
_USER: Final = re.compile(r"(?P<user>[A-Za-z_][A-Za-z0-9_.-]*\$?)[ \t]+(?P<command>\S.*)", re.ASCII | re.DOTALL)
_ITEM: Final = re.compile(r"(?:\*|(?P<low>\w+)(?:-(?P<high>\w+))?)(?:/(?P<step>\d+))?", re.ASCII)
_SYSTEM_FILES: Final = re.compile(r"(?:.*/)?etc/(?:crontab|cron\.d/[^/]+)")


class _Line(NamedTuple):
    """An entry of a crontab: the time, the user of a system crontab, and the command with its input."""

    when: str
    user: str
    command: str
    is_silent: bool
    """A `-` in front: cron does not log its runs."""


def read_crontab(text: str, *, file: str, timezone: str | None, system: bool) -> Report:
    """Return the schedules of a crontab; `system` says that a user's name follows each time."""
    report = Report(file, timezone)
    variables: dict[str, str] = {}
    is_system_file = bool(_SYSTEM_FILES.fullmatch(file))
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.lstrip(_BLANKS).rstrip("\r")
        if not line or line.startswith("#"):
            continue
        if variable := _variable(line):
            name, value = variable
            variables[name] = value
            if name in _MAIL and value:
                report.not_kept(f"{name}={value}: output is in the log of each run; for mail, use hooks", number)
            continue
        with report.entry(line, number) as entry:
            if is_system_file and not system:
                raise Invalid("this is a system crontab: give --system")
            _fill(entry, _split(line, system=system), variables, report)
    if any("cwd" not in entry.job["shell"] for entry in report.entries):
        report.note("cron runs commands in the HOME of their user; if one depends on it, set HOME=… in the crontab")
    return report


def _variable(line: str) -> tuple[str, str] | None:
    """Return the name and the value of an environment line; None if it is none."""
    name, rest = _word(line, _NAME_END)
    rest = rest.lstrip(_BLANKS)
    if not name or not rest.startswith("="):
        return None
    value, rest = _word(rest[1:].lstrip(_BLANKS), _VALUE_END)
    return None if value is None or rest.strip(_BLANKS) else (name, value)


def _word(text: str, end: re.Pattern[str]) -> tuple[str | None, str]:
    """Return a text in quotes, or up to what `end` matches, and the rest; None if a quote is not closed."""
    if text[:1] in _QUOTES:
        closing = text.find(text[0], 1)
        return (None, "") if closing < 0 else (text[1:closing], text[closing + 1 :])
    found = end.search(text)
    at = found.start() if found else len(text)
    return text[:at], text[at:]


def _split(line: str, *, system: bool) -> _Line:
    match = _ENTRY.fullmatch(line)
    if match is None:
        raise Invalid("not an entry: cron needs five fields or one of @daily…, and a command")
    user, command = "", match["rest"]
    if system:
        owned = _USER.fullmatch(command)
        if owned is None:
            raise Invalid("no name of a user and command behind the time; is it a crontab without users?")
        user, command = owned["user"], owned["command"]
    elif command.split(maxsplit=1)[0] == "root":
        raise Invalid("its command would be `root`: if this is a system crontab, give --system")
    return _Line(" ".join(match["when"].split()), user, command, bool(match["silent"]))


def _fill(entry: Entry, line: _Line, variables: dict[str, str], report: Report) -> None:
    command, stdin = _command_and_input(line.command)
    entry.name = f"{_stem(entry.file)}-{program_name(command)}"
    if not command:
        raise Invalid("there is no command")
    entry.fields = _timing(line.when, variables.get("CRON_TZ") or report.local_zone()) | {
        "overlap": "allow",
        "misfire": "skip",
    }
    if delay := variables.get("RANDOM_DELAY", ""):
        entry.fields["jitter_seconds"] = _minutes(delay) * 60
        entry.note(f"RANDOM_DELAY={delay}: the delay is drawn for each run, not once for all")
    if line.is_silent:
        entry.not_kept("`-` in front: runs are logged as all others")
    environment = {"PATH": _PATH} | {
        name: value for name, value in variables.items() if name not in (*_MAIL, "RANDOM_DELAY")
    }
    if line.user:
        environment |= {"LOGNAME": line.user}
    shell = given(
        {
            "argv": [variables.get("SHELL") or _SHELL, "-c", command],
            "env": environment,
            "cwd": variables.get("HOME"),
            "stdin": literal(stdin or ""),
        }
    )
    entry.job = {"shell": shell, "max_attempts": 1, "start": "at_most_once"}
    if line.user:
        entry.job["queue"] = f"shell-{line.user}"
        entry.note(f"runs as {line.user}: start a shell worker for the queue shell-{line.user} as that user")


def _stem(file: str) -> str:
    return "crontab" if file == STDIN_NAME else PurePath(file).stem


def _minutes(text: str) -> int:
    if not text.isdecimal():
        raise Invalid(f"RANDOM_DELAY={text!a} is not a number of minutes")
    return int(text)


# -- the command ------------------------------------------------------------------------------------------------------


def _command_and_input(text: str) -> tuple[str, str | None]:
    r"""Return the command and its standard input: what follows the first `%`, further ones being line ends.

    `\%` is a plain `%` in both. An input that does not end with a line end gets one.
    """
    command = re.match(r"(?:\\.|[^\\%]|\\$)*", text, re.DOTALL)
    assert command is not None
    rest = text[command.end() :]
    if not rest:
        return _unescaped(command[0]), None
    stdin = re.sub(r"(\\?)%", lambda found: "%" if found[1] else "\n", rest[1:])
    return _unescaped(command[0]), stdin if not stdin or stdin.endswith("\n") else f"{stdin}\n"


def _unescaped(command: str) -> str:
    return re.sub(r"\\(.)", lambda found: "%" if found[1] == "%" else found[0], command, flags=re.DOTALL)


# -- the time ---------------------------------------------------------------------------------------------------------


def _timing(when: str, timezone: str) -> dict[str, Any]:
    fields: dict[str, Any] = {"cron": when, "timezone": timezone}
    if when == "@reboot":
        raise Invalid("@reboot runs at the start of a machine, and a cluster has none; let that machine's init run it")
    if when == "@every_minute":
        return fields | {"cron": "* * * * *"}
    if when.startswith("@"):
        if when not in _ALIASES:
            raise Invalid(f"{when} is not known to cron; write five fields")
        return fields
    texts = when.split(" ")
    for field, text in zip(_FIELDS, texts, strict=True):
        _check(field, text)
    if texts[0].startswith("*") and not texts[1].startswith("*") and has_changes(timezone):
        # Cron lets such an entry follow the clock; ours do so only if the hour begins with `*`.
        return fields | {"dst_gap": "skip", "dst_overlap": "both"}
    return fields


def _check(field: Field, text: str) -> None:
    """Raise `Invalid` for what crons reject, or read differently."""
    for item in text.split(","):
        match = _ITEM.fullmatch(item)
        if match is None:
            hint = "; each cron draws other values for `~`" if "~" in item else ""
            raise Invalid(f"{field.name} {item!a} is not known to cron{hint}")
        low, high, step = match["low"], match["high"], match["step"]
        values = [_value(field, each, item) for each in (low, high) if each is not None]
        if step is not None and (low is not None and high is None):
            raise Invalid(
                f"{field.name} {item!a}: some crons take only the first value; write {low}-{field.high}/{step}"
            )
        if values != sorted(values):
            raise Invalid(f"{field.name} {item!a}: cron rejects a range that runs over the end; write a list")


def _value(field: Field, written: str, item: str) -> int:
    high = 7 if field is WEEKDAY else field.high
    value = field.names.get(written.upper(), int(written) if written.isdecimal() else -1)
    if not field.low <= value <= high:
        raise Invalid(f"{field.name} {item!a} is out of range")
    return value
