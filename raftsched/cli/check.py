"""`raftsched check`: the invariants over the data directory of a stopped node."""

from __future__ import annotations

from pathlib import Path

import click

from raftsched.cli.output import console, json_option, print_json, reports_errors


@click.command("check")
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@json_option
@reports_errors
def check_command(directory: Path, *, as_json: bool) -> None:
    """Check the journal and the state of a stopped node; exit code 1 where something is not as it must be.

    DIRECTORY is the node's data directory. Nothing is changed.
    """
    from raftsched.check import check_directory

    report = check_directory(directory)
    if as_json:
        print_json(report)
    else:
        console.print(
            f"{directory}: {report.job_count:,} jobs at index {report.applied_index:,}, "
            f"journal {report.journal_first:,} to {report.journal_last:,}, term {report.term}",
            markup=False,
        )
        for violation in report.violations:  # texts from the state, brackets and all
            console.print(str(violation), style="red", markup=False)
        console.print("[green]all invariants hold[/green]" if not report.violations else "[red]not sound[/red]")
    if report.violations:
        raise SystemExit(1)
