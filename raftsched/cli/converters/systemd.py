"""Convert timers of systemd, each with the service that it starts.

Calendar events become expressions, one schedule each. A timer that starts its service again some time after the last start
becomes a fixed interval. Timers that count from the boot of a machine, or from the end of the last run, have no counterpart.
What changes the command is never dropped: such a timer is left out.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import Any, Final

from raftsched.cli.converters.calendar_spec import calendar_timing
from raftsched.cli.converters.exec_line import read_exec_line, split_words
from raftsched.cli.converters.report import Entry, Report, given
from raftsched.cli.converters.schedule_fields import WINDOW_SECONDS_MAX
from raftsched.cli.converters.unit_file import Setting, UnitFile, read_flag, read_unit, span_seconds
from raftsched.core.cron.interval import period_text
from raftsched.errors import Invalid

_SPECIFIER: Final = re.compile(r"%(.?)", re.DOTALL)
FindUnit = Callable[[str], UnitFile | None]
"""Returns the unit of a name, None if there is none."""

_TIMER: Final = "Timer"
_SERVICE: Final = "Service"
_AT_START: Final = ("OnBootSec", "OnStartupSec", "OnActiveSec")
"""They run the service once, some time after a start of the machine, of the manager, or of the timer."""
_MONOTONIC: Final = (*_AT_START, "OnUnitActiveSec", "OnUnitInactiveSec")
_TIMER_KNOWN: Final = (
    *("OnCalendar", *_MONOTONIC, "Persistent", "RandomizedDelaySec", "Unit"),
    *("AccuracySec", "RemainAfterElapse"),
)
_SERVICE_KNOWN: Final = (
    *("Type", "ExecStart", "Environment", "WorkingDirectory", "User", "Nice", "SuccessExitStatus"),
    *("TimeoutStartSec", "RuntimeMaxSec", "SyslogIdentifier"),
)
_BLOCKING: Final = (
    "ExecCondition",
    "ExecStartPre",
    "ExecStartPost",
    "ExecStop",
    "ExecStopPost",
    "RootDirectory",
    "RootImage",
)
"""Settings without which the service would not do what it does."""
_OTHER_VARIABLES: Final = ("EnvironmentFile", "PassEnvironment", "UnsetEnvironment")
"""Settings that can change each variable, so that none in a command is known."""
_UNIT_KNOWN: Final = ("Description", "Documentation")
_TYPES: Final = ("simple", "exec", "oneshot", "idle")
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def read_timer(text: str, *, file: str, timezone: str | None, find_unit: FindUnit) -> Report:
    """Return the schedules of a timer; `find_unit` gives the service that it starts."""
    report = Report(file, timezone)
    name = PurePath(file).stem
    if name.endswith("@"):
        report.left_out(f"{name} is a template; name a file for each instance, such as backup@shop.timer")
        return report
    try:
        timer = read_unit(text, file=file)
        starts = list(_starts(timer, report))
    except Invalid as error:
        report.left_out(f"{name}: {error}")
        return report
    for start, timing in starts:
        with report.entry(f"{start.name}={start.value}", start.line) as entry:
            entry.name = name
            if isinstance(timing, Invalid):
                raise timing
            entry.fields = timing | _policies(timer, entry)
            entry.job = _job(timer, name, find_unit, entry)
            if "queue" not in entry.job:
                report.note("services without User= run as root in systemd, here as the user of their shell worker")
            if sum(isinstance(each, dict) for _, each in starts) > 1:
                entry.job["concurrency_key"] = name
                entry.note("one of several times: two of them never run at once, but one waits for the other")
    return report


# -- the timer --------------------------------------------------------------------------------------------------------


def _starts(timer: UnitFile, report: Report) -> Iterator[tuple[Setting, dict[str, Any] | Invalid]]:
    """Yield each setting that starts the service, with the timing or the reason for which there is none."""
    for event in timer.all(_TIMER, "OnCalendar"):
        try:
            yield event, calendar_timing(event.value, local_zone=report.local_zone)
        except Invalid as error:
            yield event, error
    for setting in timer.all(_TIMER, "OnUnitInactiveSec"):
        yield setting, Invalid("it counts from the end of a run; a fixed interval counts from the start")
    intervals = timer.all(_TIMER, "OnUnitActiveSec")
    for setting in intervals:
        yield setting, _interval(setting)
    for name in _AT_START:
        for setting in timer.all(_TIMER, name):
            if intervals:
                report.note(f"{name}={setting.value}: the first run is when the file is applied", setting.line)
            else:
                yield setting, Invalid("it runs once after a start, and a cluster has none")
    if not any(timer.all(_TIMER, name) for name in ("OnCalendar", *_MONOTONIC)):
        raise Invalid("it has neither OnCalendar nor another time")


def _interval(setting: Setting) -> dict[str, Any] | Invalid:
    try:
        seconds = span_seconds(setting)
    except Invalid as error:
        return error
    return Invalid("infinity is no interval") if seconds is None else {"every": period_text(int(seconds * 1_000))}


def _policies(timer: UnitFile, entry: Entry) -> dict[str, Any]:
    persistent = timer.last(_TIMER, "Persistent")
    fields: dict[str, Any] = {"overlap": "skip", "misfire": "skip"}
    if persistent is not None and read_flag(persistent):
        fields |= {"misfire": "run_once", "catchup_window_seconds": WINDOW_SECONDS_MAX}
    delay = timer.last(_TIMER, "RandomizedDelaySec")
    if delay is not None and (seconds := span_seconds(delay)):
        fields["jitter_seconds"] = seconds
    if description := timer.value("Unit", "Description"):
        fields["description"] = description
    for setting in timer.others((_TIMER,), _TIMER_KNOWN):
        entry.not_kept(f"{setting.name}={setting.value}", setting.line)
    for setting in timer.others(("Unit",), _UNIT_KNOWN):
        entry.not_kept(f"{setting.name}={setting.value}", setting.line)
    return fields


# -- the service ------------------------------------------------------------------------------------------------------


def _job(timer: UnitFile, name: str, find_unit: FindUnit, entry: Entry) -> dict[str, Any]:
    unit = timer.value(_TIMER, "Unit", f"{name}.service")
    if not unit.endswith(".service"):
        raise Invalid(f"it starts {unit}, which is not a service")
    service = find_unit(unit)
    if service is None:
        raise Invalid(f"{unit} is not beside it")
    for setting in service.settings:
        if setting.section == _SERVICE and setting.name in _BLOCKING:
            raise Invalid(f"{service.file}:{setting.line}: {setting.name} has no counterpart; put it into a script")
    _report_others(service, entry)
    environment = _environment(service, unit)
    shell = {
        "argv": _argv(service, unit, environment, entry),
        "env": environment,
        "cwd": _directory(service),
        "nice": _nice(service),
        "success_exit_codes": _success_codes(service),
    }
    job: dict[str, Any] = {"shell": given(shell), "max_attempts": 1, "start": "at_most_once"}
    if user := service.value(_SERVICE, "User"):
        job["queue"] = f"shell-{user}"
        entry.note(f"runs as {user}: start a shell worker for the queue shell-{user} as that user")
    if timeout := _timeout(service):
        job["timeout_seconds"] = timeout
    return job


def _report_others(service: UnitFile, entry: Entry) -> None:
    for setting in service.others((_SERVICE,), _SERVICE_KNOWN):
        if (setting.name, setting.value) != ("Restart", "no"):
            entry.not_kept(f"{setting.name}={setting.value}", setting.line, service.file)
    for setting in service.others(("Unit",), _UNIT_KNOWN):
        entry.not_kept(f"{setting.name}={setting.value}", setting.line, service.file)


def _argv(service: UnitFile, unit: str, environment: dict[str, str], entry: Entry) -> list[str]:
    kind = service.value(_SERVICE, "Type", "simple")
    if kind not in _TYPES:
        raise Invalid(f"Type={kind}: its command does not last as long as the service")
    has_other_variables = any(service.all(_SERVICE, name) for name in _OTHER_VARIABLES)
    known = {} if has_other_variables else environment
    commands = []
    for setting in service.all(_SERVICE, "ExecStart"):
        try:
            line = read_exec_line(_specified(setting.value, unit), known)
        except Invalid as error:
            raise Invalid(f"{service.file}:{setting.line}: {error}") from None
        for prefix in line.prefixes:
            if prefix != ":":
                why = "its failure counts" if prefix == "-" else "it has the rights of its shell worker"
                entry.not_kept(f"`{prefix}`: {why}", setting.line, service.file)
        commands.append(line.words)
    if not commands:
        raise Invalid(f"{unit} has no ExecStart")
    if len(commands) == 1:
        return commands[0]
    if kind != "oneshot":
        raise Invalid(f"{unit} has several ExecStart, which only Type=oneshot may have")
    return ["/bin/sh", "-c", " && ".join(shlex.join(words) for words in commands)]


def _environment(service: UnitFile, unit: str) -> dict[str, str]:
    found = {"PATH": _PATH}
    for setting in service.all(_SERVICE, "Environment"):
        for word in split_words(_specified(setting.value, unit)):
            name, sign, value = word.partition("=")
            if not sign:
                raise Invalid(f"{service.file}:{setting.line}: Environment: {word!a} is not NAME=value")
            found[name] = value
    return found


def _specified(text: str, unit: str) -> str:
    """Replace specifiers; raises `Invalid` for those that depend on the machine."""
    stem = unit.removesuffix(".service")
    prefix, _, instance = stem.partition("@")
    values = {"%": "%", "n": unit, "N": stem, "p": prefix, "i": instance}

    def value(match: re.Match[str]) -> str:
        if match[1] not in values:
            raise Invalid(f"{match[0]} depends on the machine; write its value")
        return values[match[1]]

    return _SPECIFIER.sub(value, text)


def _directory(service: UnitFile) -> str | None:
    text = service.value(_SERVICE, "WorkingDirectory").removeprefix("-")
    if text == "~":
        raise Invalid("WorkingDirectory=~ depends on the machine; write the path")
    return text or "/"


def _nice(service: UnitFile) -> int | None:
    text = service.value(_SERVICE, "Nice", "0")
    if not text.isdecimal():
        raise Invalid(f"Nice={text}: a shell worker can only lower the priority of a command")
    return int(text) or None


def _success_codes(service: UnitFile) -> list[int] | None:
    words = [word for setting in service.all(_SERVICE, "SuccessExitStatus") for word in setting.value.split()]
    wrong = next((word for word in words if not word.isdecimal()), None)
    if wrong is not None:
        raise Invalid(f"SuccessExitStatus: {wrong} is not a number; signals and names have no counterpart")
    return sorted({0, *map(int, words)}) if words else None


def _timeout(service: UnitFile) -> float | None:
    name = "TimeoutStartSec" if service.value(_SERVICE, "Type") == "oneshot" else "RuntimeMaxSec"
    setting = service.last(_SERVICE, name)
    return None if setting is None else span_seconds(setting)
