"""Define `raftsched compact`: shrink the file of a stopped node's state to its content."""

from __future__ import annotations

from pathlib import Path

import click

from raftsched.cli.terminal.keys import cipher_of, keys_file_option
from raftsched.cli.terminal.output import console, json_option, print_json, reports_errors


@click.command("compact")
@click.option(
    "--data-dir",
    "directory",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The node's data directory.",
)
@keys_file_option
@json_option
@reports_errors
def compact_command(directory: Path, *, keys_file: Path | None, as_json: bool) -> None:
    """Release unused disk space of a stopped node's state.

    The state is copied without its free pages, the copy is verified, and then it takes the old file's place. That needs
    free space for the copy. Interrupted at any moment, the node still has its state.
    """
    from raftsched.node.compaction import compact_directory

    try:
        done = compact_directory(directory, cipher_of(keys_file))
    except OSError as error:
        raise click.ClickException(f"{directory} was not compacted: {error}; its state is as it was") from error
    if as_json:
        print_json(done._asdict())
    else:
        console.print(f"{directory}: {done.before_bytes:,} bytes before, {done.after_bytes:,} after", markup=False)
