"""Define `raftsched restore` and `raftsched cluster recover`: begin a new cluster from a backup, or from one node's data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from raftsched import logs
from raftsched.cli.terminal.keys import cipher_of
from raftsched.cli.terminal.output import json_option, print_json, reports_errors
from raftsched.errors import Invalid

if TYPE_CHECKING:
    from raftsched.node.new_cluster.founder import Founded
    from raftsched.node.new_cluster.recover import Survivor

_F = TypeVar("_F", bound=Callable[..., Any])


class _Place(msgspec.Struct, frozen=True, kw_only=True):
    """The options that say which node begins the new cluster; "" and None = not said."""

    directory: Path
    node_id: str
    raft: str
    api: str
    cluster: str
    keys_file: Path | None
    settings_cluster: str = ""
    """The name in the node's settings, which may be that of the old cluster yet."""

    def name(self, old: str) -> str:
        """Return the name of the new cluster that continues the cluster `old`."""
        from raftsched.node.new_cluster.founder import new_name

        return self.cluster or (self.settings_cluster if self.settings_cluster not in ("", old) else new_name(old))


def _place_options(command: _F) -> _F:
    """Add the options that say which node begins the new cluster."""
    options = (
        click.option(
            "--config",
            "config",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="The node's settings, which have all that the options below name.",
        ),
        click.option("--data-dir", type=click.Path(file_okay=False, path_type=Path), help="The node's data directory."),
        click.option("--node-id", default="", metavar="ID", help="Id of the node."),
        click.option("--raft", default="", metavar="HOST:PORT", help="Its Raft address for the other nodes."),
        click.option("--api", default="", metavar="HOST:PORT", help="Address of its API."),
        click.option(
            "--cluster",
            default="",
            metavar="NAME",
            help="Name of the new cluster, never used before. Default: that of the settings if it is new, or the old one with a random end.",
        ),
        click.option(
            "--keys-file",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            envvar="RAFTSCHED_KEYS_FILE",
            help="Keys file of the nodes, if the data is encrypted. [env: RAFTSCHED_KEYS_FILE]",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def _place(config: Path | None, data_dir: Path | None, given: dict[str, Any]) -> _Place:
    """Return the node, by the options and then by the settings; raises `Invalid` if nothing names its directory."""
    settings_cluster = ""
    if config is not None:
        from raftsched import config as settings

        loaded = settings.load(config)
        keys_file = loaded.encryption.keys_file
        known = {
            "node_id": loaded.node_id,
            "raft": loaded.member.raft,
            "api": loaded.member.api,
            "cluster": "",
            "keys_file": Path(keys_file) if keys_file else None,
        }
        settings_cluster = loaded.cluster
        data_dir = data_dir or loaded.directory
        given = {name: value or known[name] for name, value in given.items()}
    if data_dir is None:
        raise Invalid("data_dir: say with --data-dir or --config where the node's data is", field="data_dir")
    return _Place(directory=data_dir, settings_cluster=settings_cluster, **given)


@click.command("restore")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE")
@_place_options
@click.option("--resume-schedules", is_flag=True, help="Let schedules fire at once; default: all are paused.")
@json_option
@reports_errors
def restore_command(
    file: Path, *, config: Path | None, data_dir: Path | None, resume_schedules: bool, as_json: bool, **given: Any
) -> None:
    """Begin a new cluster from a backup.

    FILE is a backup of `raftsched cluster backup`. The data directory must be empty. Its node is the only one of the new
    cluster; add the others with `raftsched cluster add`. All attempts that were running end as lost. Run it on one machine
    only, and make sure that no node of the old cluster is used any more.
    """
    from raftsched.node.new_cluster.founder import Founder
    from raftsched.node.new_cluster.restore import detail_of, restore
    from raftsched.storage.backup import read_manifest
    from raftsched.system import SystemClock

    logs.configure(level="warning", form="console")
    place = _place(config, data_dir, given)
    for name in ("node_id", "raft", "api"):
        if not getattr(place, name):
            raise Invalid(f"{name}: say with --{name.replace('_', '-')} or --config", field=name)
    manifest = read_manifest(file)
    founder = Founder(
        cluster=place.name(manifest.cluster),
        node_id=place.node_id,
        raft=place.raft,
        api=place.api,
        actor="restore",
        detail=detail_of(manifest),
        pauses_schedules=not resume_schedules,
    )
    try:
        founded = restore(file, place.directory, founder, cipher_of(place.keys_file), SystemClock().wall_ms())
    except OSError as error:
        raise click.ClickException(f"{file} was not restored: {error}; {place.directory} is as it was") from error
    _report(founded, place.directory, f"{founder.detail}: ready in {place.directory}", as_json=as_json)


@click.command("recover")
@_place_options
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@reports_errors
def recover_command(*, config: Path | None, data_dir: Path | None, yes: bool, as_json: bool, **given: Any) -> None:
    """Make a new cluster of a stopped node.

    For a cluster that has lost its majority for good: the node becomes the only one of a new cluster, with all that it
    holds. What only the lost nodes held is lost. The other nodes can't come back: give them empty directories, and add
    them with `raftsched cluster add`. The old data stays in the directory before-recovery beside the new data.
    """
    from raftsched.node.new_cluster import recover as steps
    from raftsched.node.new_cluster.founder import Founder
    from raftsched.system import SystemClock

    logs.configure(level="warning", form="console")
    place = _place(config, data_dir, given)
    if steps.is_interrupted(place.directory):
        steps.finish(place.directory)
        click.echo(f"the recovery of {place.directory} had been interrupted, and is finished now", err=True)
        return
    cipher = cipher_of(place.keys_file)
    survivor = steps.survey(place.directory, cipher)
    if place.node_id not in ("", survivor.node_id):
        raise Invalid(f"node_id: {place.directory} is of node {survivor.node_id}", field="node_id")
    click.echo(_warning(survivor), err=True)
    if not yes:
        click.confirm(f"Make a new cluster of {survivor.node_id}?", abort=True, err=True)
    founder = Founder(
        cluster=place.name(survivor.cluster),
        node_id=survivor.node_id,
        raft=place.raft or survivor.raft,
        api=place.api or survivor.api,
        actor="recover",
        detail=f"recovered from {survivor.node_id} of {survivor.cluster}, at index {survivor.last_index}",
        pauses_schedules=False,
    )
    try:
        founded = steps.recover(place.directory, founder, cipher, SystemClock().wall_ms())
    except OSError as error:
        raise click.ClickException(f"{place.directory} was not recovered: {error}") from error
    _report(founded, place.directory, f"{founder.detail}: ready in {place.directory}", as_json=as_json)


def _warning(survivor: Survivor) -> str:
    others = ", ".join(survivor.others) or "none that it knows"
    if not survivor.is_voter:
        others += "\nTHIS NODE HAS NO VOTE: it was removed, or had not joined yet. Another node has more."
    return (
        f"{survivor.node_id} of cluster {survivor.cluster} holds the log up to index {survivor.last_index:,}, term "
        f"{survivor.last_term}; its state is of {survivor.cluster_time or 'no time'}.\n"
        f"Other members: {others}.\n"
        f"MAY BE MISSING: whatever the cluster acknowledged behind index {survivor.last_index:,}, if this node had not received "
        "it. If other disks can be read, run this on each of them and answer n: recover the node with the highest term, and "
        "among those the highest index.\n"
        "MAY BE THERE: changes whose callers were not answered, or answered by 'outcome unknown'.\n"
        "Attempts that are running end as lost. No node of the old cluster may run any more."
    )


def _report(founded: Founded, directory: Path, what: str, *, as_json: bool) -> None:
    if as_json:
        print_json(founded)
        return
    click.echo(
        f"{what}\n"
        f"{founded.jobs:,} jobs; {founded.ended_leases:,} running attempts ended as lost; {founded.paused_schedules:,} "
        f"schedules paused; fencing tokens are above {founded.fencing_token:,}\n"
        f"Next:\n"
        f'  1. Set cluster = "{founded.cluster}" in the settings of every node.\n'
        f"  2. Start {founded.node_id}, with data_dir {directory.resolve()}.\n"
        "  3. For each other node: start it with an empty data directory, and run `raftsched cluster add`.",
    )
