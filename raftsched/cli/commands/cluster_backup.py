"""Define `raftsched cluster backup`: receive a backup of one node, verify it, store it, and record it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import click
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from raftsched.cli.terminal.output import json_option, print_json, progress_console
from raftsched.cli.terminal.session import Session, with_session
from raftsched.errors import RaftschedError

if TYPE_CHECKING:
    from raftsched.storage.backup import BackupCheck, Manifest

_SILENCE_SECONDS: Final = 3600.0
"""Time in which the node copies and verifies its state: some minutes with 10 million jobs."""
_STDOUT: Final = "-"

Write = Callable[[bytes], object]


@click.command("backup")
@click.argument("file", metavar="FILE")
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@click.option("--verify", "only_verify", is_flag=True, help="Only check FILE, an earlier backup; no node is asked.")
@with_session
@json_option
def backup_command(session: Session, file: str, *, force: bool, only_verify: bool, as_json: bool) -> None:
    """Store a backup of the cluster in FILE.

    It is the state of the node that --url names, as of one log index; any node will do, and the cluster continues
    meanwhile. FILE appears once it is whole, verified and on the disk; `-` is standard output. The cluster then remembers
    the time of its last backup. The keys of encrypted data are not in it: keep them elsewhere.
    """
    from raftsched.storage.backup import verify

    if only_verify:
        try:
            manifest = verify(Path(file))
        except OSError as error:
            _refuse(f"{file} can't be read: {error.strerror}")
        _report(manifest, f"{file} is whole", as_json=as_json)
        return
    if file == _STDOUT:
        manifest = _received(session, sys.stdout.buffer.write)
        sys.stdout.buffer.flush()
    else:
        manifest = _stored(session, Path(file), force=force)
    _record(session, manifest)
    if file != _STDOUT:
        _report(manifest, f"stored in {file}", as_json=as_json)


def _stored(session: Session, target: Path, *, force: bool) -> Manifest:
    """Store a backup at `target`; whatever happens, `target` is as before or a whole backup."""
    from raftsched.disk import sync_directory
    from raftsched.storage.backup import verify

    if target.exists() and not force:
        _refuse(f"{target} exists: name another file, or replace it with --force")
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            _received(session, file.write)
            file.flush()
            os.fsync(file.fileno())
        manifest = verify(partial)
        partial.replace(target)
        sync_directory(target.parent)
    except OSError as error:
        _refuse(f"{target} was not written: {error.strerror}")
    finally:
        partial.unlink(missing_ok=True)
    return manifest


def _received(session: Session, write: Write) -> Manifest:
    """Give a backup of the first node that makes one to `write`, and return its manifest once it was whole."""
    from raftsched.storage.backup import BackupCheck

    for position, url in enumerate(session.urls, 1):
        check = BackupCheck(f"the backup from {url}")
        try:
            with session.at(url) as node, _progress(url) as show:

                def take(
                    part: bytes, check: BackupCheck = check, show: Callable[[BackupCheck, int], None] = show
                ) -> None:
                    check.feed(part)
                    write(part)
                    show(check, len(part))

                node.download("/cluster/backup", take, silence_seconds=_SILENCE_SECONDS)
                return check.finish()
        except RaftschedError as error:
            if position == len(session.urls) or check.manifest is not None or not error.retryable:
                raise
            click.echo(f"raftsched: {error}; asking another node", err=True)
    raise AssertionError("there is at least one address")


@contextmanager
def _progress(url: str) -> Iterator[Callable[[BackupCheck, int], None]]:
    """Show on a terminal how much has arrived."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=progress_console, disable=not progress_console.is_terminal) as progress:
        bar = progress.add_task(f"{url} copies its state", total=None)

        def show(check: BackupCheck, size: int) -> None:
            progress.update(bar, description=url, total=check.total_bytes or None, advance=size)

        yield show


def _record(session: Session, manifest: Manifest) -> None:
    """Have the cluster remember the backup; if it can't just now, the backup is as good without."""
    record = {
        "node": manifest.node,
        "applied_index": manifest.applied_index,
        "taken_at": manifest.taken_at,
        "content_bytes": manifest.content_bytes,
        "content_sha256": manifest.content_sha256,
    }
    try:
        session.post("/cluster/backups", record)
    except RaftschedError as error:
        click.echo(f"raftsched: the backup is whole, but the cluster does not know of it: {error}", err=True)


def _report(manifest: Manifest, what: str, *, as_json: bool) -> None:
    if as_json:
        print_json(manifest)
        return
    keys = ", ".join(key.id for key in manifest.keys)
    needed = f"; a restore needs the keys {keys}, which are not in it" if keys else ""
    click.echo(
        f"{what}: cluster {manifest.cluster} at index {manifest.applied_index:,}, from {manifest.node}, taken at "
        f"{manifest.taken_at}, {manifest.content_bytes:,} bytes{needed}",
        err=True,
    )


def _refuse(message: str) -> NoReturn:
    raise click.ClickException(message)
