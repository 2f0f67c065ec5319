"""Define `raftsched import`: convert schedules of other schedulers to a file for `raftsched apply`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import click

from raftsched.cli.converters.celery_beat import read_beat
from raftsched.cli.converters.crontab import read_crontab
from raftsched.cli.converters.dkron import read_dkron_jobs
from raftsched.cli.converters.kubernetes import read_cronjobs
from raftsched.cli.converters.output import written
from raftsched.cli.converters.report import Report
from raftsched.cli.converters.systemd import read_timer
from raftsched.cli.converters.unit_file import UnitFile, read_unit
from raftsched.cli.terminal.files import read_text
from raftsched.cli.terminal.output import reports_errors, visible, write
from raftsched.cli.terminal.times import utc_now
from raftsched.core.cron.zones import zone
from raftsched.errors import Invalid

_APP_SECONDS_MAX: Final = 120
"""Time to import an application of Celery."""


def _crontab(source: str, timezone: str | None, *, system: bool) -> Report:
    file, text = read_text(Path(source))
    return read_crontab(text, file=file, timezone=timezone, system=system)


def _kubernetes(source: str, timezone: str | None, *, system: bool) -> Report:  # noqa: ARG001  # all converters have one
    file, text = read_text(Path(source))
    return read_cronjobs(text, file=file, timezone=timezone)


def _dkron(source: str, timezone: str | None, *, system: bool) -> Report:  # noqa: ARG001
    file, text = read_text(Path(source))
    return read_dkron_jobs(text, file=file, timezone=timezone)


def _systemd(source: str, timezone: str | None, *, system: bool) -> Report:  # noqa: ARG001
    path = Path(source)
    if path.suffix == ".timer":
        report = read_timer(read_text(path)[1], file=source, timezone=timezone, find_unit=partial(_unit, path))
        for drop_in in (path.with_name(f"{path.name}.d"), path.with_suffix(".service.d")):
            if drop_in.is_dir():
                report.not_kept(f"the drop-ins in {drop_in} are not read; `systemctl cat` shows units with them")
        return report
    report = Report(source, timezone)
    if path.suffix == ".service":
        report.note("a service is read with the timer that starts it")
    else:
        report.left_out("name files of timers; their services are read beside them")
    return report


def _unit(timer: Path, name: str) -> UnitFile | None:
    """Return the unit beside a timer; that of a template if there is none for the instance."""
    template = re.sub(r"@.*(?=\.)", "@", name)
    for path in (timer.with_name(name), timer.with_name(template)):
        if path.is_file():
            return read_unit(read_text(path)[1], file=str(path))
    return None


def _celery_beat(source: str, timezone: str | None, *, system: bool) -> Report:  # noqa: ARG001
    """Read the schedule of an application, in a process of its own: its modules may do anything when imported."""
    command = [sys.executable, "-m", "raftsched.cli.converters.celery_app", source]
    try:
        ran = subprocess.run(command, stdout=subprocess.PIPE, timeout=_APP_SECONDS_MAX, check=False)  # noqa: S603  # ours
    except subprocess.TimeoutExpired:
        raise Invalid(f"{source}: the application was not imported within {_APP_SECONDS_MAX} s", field="FILE") from None
    if ran.returncode:
        raise Invalid(f"{source}: the application can't be imported; see the error above", field="FILE")
    return read_beat(json.loads(ran.stdout), timezone=timezone)


_CONVERTERS: Final[dict[str, Callable[..., Report]]] = {
    "crontab": _crontab,
    "systemd": _systemd,
    "k8s-cronjob": _kubernetes,
    "dkron": _dkron,
    "celery-beat": _celery_beat,
}


def _report(kind: str, source: str, timezone: str | None, *, system: bool) -> Report:
    """Return the report of one file; of a file that is not readable it says so, and the others are imported."""
    try:
        return _CONVERTERS[kind](source, timezone, system=system)
    except Invalid as error:
        report = Report(source, timezone)
        place = re.match(rf"{re.escape(source)}:(\d+): ", str(error))
        text = str(error).removeprefix(place[0] if place else f"{source}: ")
        report.error(text, int(place[1]) if place else None)
        return report


@click.command("import")
@click.argument("kind", type=click.Choice(list(_CONVERTERS)))
@click.argument("sources", metavar="FILE…", nargs=-1, required=True)
@click.option("--timezone", metavar="ZONE", help="Zone of times that name none, such as Europe/Berlin; default: UTC.")
@click.option("--system", is_flag=True, help="The crontabs have a user's name behind each time, as /etc/crontab.")
@click.option("--partial", is_flag=True, help="Exit with 0 although something was left out or not kept.")
@reports_errors
def import_command(kind: str, sources: Sequence[str], timezone: str | None, *, system: bool, partial: bool) -> None:
    """Convert schedules of other schedulers to a file.

    \b
    crontab      crontabs, as from: crontab -l
    systemd      timers; the service of each is read beside it
    k8s-cronjob  manifests, as from: kubectl get cronjobs -o yaml
    dkron        jobs, as from: curl http://dkron:8080/v1/jobs
    celery-beat  an application, as module:app or FILE.py; it is imported

    FILE may be - for standard input. The file for `raftsched apply` goes to
    standard output, with the next five times beside each schedule. What could not
    be imported goes to standard error, with file and line. Exit code: 0 everything
    was imported, 1 something was left out or not kept (see --partial).
    """  # noqa: D301  # click takes `\b` as: keep these lines
    if timezone is not None:
        zone(timezone, field="--timezone")
    if system and kind != "crontab":
        raise click.UsageError("--system is for crontabs only")
    reports = [_report(kind, source, timezone, system=system) for source in sources]
    entries = [entry for report in reports for entry in report.entries]
    write(written(entries, kind=kind, now_ms=int(utc_now().timestamp() * 1_000)))
    findings = list(dict.fromkeys(finding for report in reports for finding in report.findings))
    for finding in findings:
        click.echo(visible(" ".join(str(finding).split())), err=True)
    counts = {each: sum(finding.kind == each for finding in findings) for each in ("left out", "not kept")}
    click.echo(
        f"raftsched: {len(entries):,} schedules, {counts['left out']:,} left out, {counts['not kept']:,} settings not kept",
        err=True,
    )
    if any(finding.kind == "error" for finding in findings) or (any(counts.values()) and not partial):
        raise SystemExit(1)
