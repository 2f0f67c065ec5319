"""Define `raftsched dev`: a local cluster to develop against, in the foreground until Ctrl-C or SIGTERM."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from raftsched.cli.local.children import stops_its_children
from raftsched.cli.local.cluster import LOOPBACK_TARGETS, LocalCluster
from raftsched.cli.terminal.output import console, reports_errors


@click.command("dev")
@click.option("--nodes", "node_count", type=click.IntRange(1, 5), default=3, show_default=True, help="Number of nodes.")
@click.option(
    "--data-dir", type=click.Path(file_okay=False, path_type=Path), help="Data directory; default: a temporary one."
)
@click.option(
    "--base-port", type=click.IntRange(1024, 65_000), default=8400, show_default=True, help="The first node's API port."
)
@click.option("--auth", is_flag=True, help="Ask callers for tokens. An admin token is made in the data directory.")
@reports_errors
@stops_its_children
def dev_command(*, node_count: int, data_dir: Path | None, base_port: int, auth: bool) -> None:
    """Run a local cluster on ports 8400, 8410 and 8420.

    It runs until Ctrl-C or SIGTERM. `cluster.json` in its data directory lists the addresses of its nodes.
    """
    with tempfile.TemporaryDirectory(prefix="raftsched-dev-") as temporary:
        directory = data_dir or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        cluster = LocalCluster(
            directory,
            node_count=node_count,
            base_port=base_port,
            settings={"executors": {"http": True}, "http_targets": LOOPBACK_TARGETS},
            with_tokens=auth,
        )
        try:
            with cluster:
                leader = cluster.wait_for_leader()
                for node in cluster.nodes:
                    role = "leader" if node is leader else "follower"
                    console.print(f"{node.id}  {node.api}  {role:9}  log {node.log_file}")
                if cluster.token_file is not None:
                    console.print(f"export RAFTSCHED_TOKEN_FILE={cluster.token_file}", soft_wrap=True)
                console.print(f"Dashboard: {cluster.urls[0]}/", soft_wrap=True)
                console.print("Ready. Ctrl-C stops the cluster.")
                _run_until_interrupted(cluster)
        except KeyboardInterrupt:
            console.print("stopped")


def _run_until_interrupted(cluster: LocalCluster) -> None:
    """Wait for the nodes; one that ends by itself is reported and left down, as in production."""
    for node in cluster.nodes:
        code = node.wait()
        console.print(f"[red]{node.id} ended with exit code {code}[/red]; see {node.log_file}")
