"""Define `raftsched check`: check the data directories of stopped nodes, and compare them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from raftsched.cli.terminal.keys import cipher_of, keys_file_option
from raftsched.cli.terminal.output import console, json_option, print_json, reports_errors

if TYPE_CHECKING:
    from raftsched.node.check import Report


@click.command("check")
@click.argument(
    "directories",
    metavar="DIRECTORY...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@keys_file_option
@json_option
@reports_errors
def check_command(directories: tuple[Path, ...], *, keys_file: Path | None, as_json: bool) -> None:
    """Verify the journal and the state of stopped nodes.

    Exit code 1 if something is wrong. Each DIRECTORY is the data directory of a node. All that a start checks is
    checked, and more. Several directories of one cluster are compared: the same log index must mean the same state, and
    logs must agree. Nothing is changed.
    """
    from raftsched.node.check import check_directories

    found = check_directories(directories, cipher_of(keys_file))
    if as_json:
        print_json(found.reports[0] if len(found.reports) == 1 else found)
    else:
        for directory, report in zip(directories, found.reports, strict=True):
            _print(directory, report)
        for note in found.notes:
            console.print(note, markup=False)
        for violation in found.violations:
            console.print(violation, style="red", markup=False)
        if len(found.reports) > 1 and not found.violations:
            console.print("[green]they agree[/green]")
    if found.violations or any(report.violations for report in found.reports):
        raise SystemExit(1)


def _print(directory: Path, report: Report) -> None:
    console.print(
        f"{directory}: {report.job_count:,} jobs at index {report.applied_index:,}, "
        f"journal {report.journal_first:,} to {report.journal_last:,}, term {report.term}, digest {report.digest or 'unknown'}",
        markup=False,
    )
    for violation in report.violations:  # texts from the state, brackets and all
        console.print(violation, style="red", markup=False)
    console.print("[green]all invariants hold[/green]" if not report.violations else "[red]not sound[/red]")
