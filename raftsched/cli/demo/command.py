"""`raftsched demo`."""

from __future__ import annotations

import asyncio
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
    """Three nodes, two workers, over 1,500 real jobs, and the leader killed half-way.

    Exits 0 only if every job ended as it must, every digest is hashlib's, nothing was lost, and nothing was recorded
    twice.
    """
    with tempfile.TemporaryDirectory(prefix="raftsched-demo-", ignore_cleanup_errors=True) as directory:
        report = asyncio.run(run_demo(Path(directory)))
        _print(report)
        if not report.is_right:
            console.print(f"logs are gone with {directory}; run again with TMPDIR set to keep what you need")
    if not report.is_right:
        raise SystemExit(1)


def _print(report: Report) -> None:
    rows = [
        ("jobs submitted", report.submitted),
        ("completed", report.completed),
        ("took several attempts", report.retried),
        ("dead letters", report.dead),
        ("cancelled", report.cancelled),
        ("leader changes", report.leader_changes),
        ("seconds without a leader", report.seconds_without_leader),
        ("digests compared with hashlib's", report.digests_compared),
        ("lost", report.lost),
        ("recorded twice", report.recorded_twice),
    ]
    print_table(("what", "count"), rows)
    for fault in report.faults[:_FAULTS_SHOWN]:
        console.print(f"[red]{fault}[/red]", soft_wrap=True)
    verdict = "[green]all is right[/green]" if report.is_right else "[red]something is wrong[/red]"
    console.print(verdict)
