"""`raftsched demo`."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path

import click

from raftsched.cli.demo.report import Report
from raftsched.cli.demo.run import run_demo
from raftsched.cli.output import console, print_table, reports_errors

_FAULTS_SHOWN = 20


@click.command("demo")
@reports_errors
def demo_command() -> None:
    """Three nodes, two workers, over 1,500 real jobs of every kind, and the leader killed half-way.

    Exits 0 only if every job ended as it must, nothing was lost or recorded twice, every instant of a schedule was
    decided once, every job of the workflow ran once and after its parents, and every limit held.
    """
    with tempfile.TemporaryDirectory(prefix="raftsched-demo-", ignore_cleanup_errors=True) as directory:
        report = asyncio.run(run_demo(Path(directory)))
        if not report.is_right:
            kept = shutil.copytree(directory, f"{directory}-failed")
            console.print(f"logs and data of this run are kept in {kept}", soft_wrap=True)
    conclude(report)


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
    """In words, the general ones first; a check that had nothing to look at is one."""
    empty = [f"{check.wrong}: there was nothing to look at" for check in report.checks if not check.looked_at]
    return [*report.faults, *empty, *(fault for check in report.checks for fault in check.faults)]
