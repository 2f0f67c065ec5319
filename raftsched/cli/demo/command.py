"""Define `raftsched demo`."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

import click

from raftsched.cli.demo.report import Report
from raftsched.cli.demo.run import run_demo
from raftsched.cli.local.children import stops_its_children
from raftsched.cli.terminal.output import console, print_table, reports_errors
from raftsched.errors import RaftschedError

_FAULTS_SHOWN = 20


@click.command("demo")
@reports_errors
@stops_its_children
def demo_command() -> None:
    """Run jobs of every kind on three nodes, and kill the leader.

    Two workers, over 1,500 real jobs; the leader is killed half-way.

    Exits 0 only if every job ended as it must, nothing was lost or recorded twice, every fire time of a schedule was
    decided once, every job of the workflow ran once and after its parents, and every limit held.
    """
    directory = Path(tempfile.mkdtemp(prefix="raftsched-demo-"))
    with ExitStack() as afterwards:
        afterwards.callback(shutil.rmtree, directory, ignore_errors=True)
        try:
            report = asyncio.run(run_demo(directory))
        except Exception as error:
            afterwards.pop_all()  # so that the logs are kept
            first = first_of(error)
            if not isinstance(first, RaftschedError):
                error.add_note(f"logs and data of this run are kept in {directory}")
                raise
            click.echo(broke_off(first, directory), err=True)
            raise SystemExit(1) from None
        if not report.is_right:
            afterwards.pop_all()
            console.print(f"logs and data of this run are kept in {directory}", soft_wrap=True)
    conclude(report)


def first_of(error: Exception) -> Exception:
    """Return the first failure, out of the groups in which task groups raise it."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def broke_off(error: RaftschedError, directory: Path) -> str:
    """Return in one line which call failed, its code, the place of the logs, and the next step."""
    told = " ".join(str(error).split())
    advice = f"See n*/node.log and workers.log in {directory}, which is kept; then run the demo again."
    return f"raftsched: the demo broke off: {told} [{error.code}] {advice}"


def conclude(report: Report) -> None:
    """Print the verdict; ends the program with exit code 1 unless all is right."""
    _print(report)
    if not report.is_right:
        raise SystemExit(1)


def _print(report: Report) -> None:
    ended = ", ".join(f"{count:,} {status.replace('_', ' ')}" for status, count in report.statuses.most_common())
    changes = "1 leader change" if report.leader_changes == 1 else f"{report.leader_changes} leader changes"
    console.print(
        f"{report.statuses.total():,} jobs in {report.seconds:.1f} s: {ended}; "
        f"{report.retried:,} took several attempts; {changes}, {report.seconds_without_leader:.2f} s without a leader",
        soft_wrap=True,
    )
    print_table(
        ("verified", "looked at", "wrong"),
        [(check.wrong, check.looked_at, len(check.faults)) for check in report.checks],
    )
    for fault in _faults(report)[:_FAULTS_SHOWN]:
        console.print(fault, style="red", markup=False, soft_wrap=True)
    verdict = "[green]all is right[/green]" if report.is_right else "[red]something is wrong[/red]"
    console.print(verdict)


def _faults(report: Report) -> list[str]:
    """Describe the faults, the general ones first; a check that had nothing to check is one."""
    empty = [f"{check.wrong}: there was nothing to check" for check in report.checks if not check.looked_at]
    return [*report.faults, *empty, *(fault for check in report.checks for fault in check.faults)]
