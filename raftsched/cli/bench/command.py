"""Define `raftsched bench`: measure throughput, CPU per job, lag and commit latency; or the time without a leader."""

from __future__ import annotations

import asyncio
import base64
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from raftsched.cli.bench import PAYLOAD, QUEUE
from raftsched.cli.bench.failover import Failover, measure
from raftsched.cli.bench.load import Load, Measurement
from raftsched.cli.local.children import UNTIL_STDIN_ENDS, lifeline, stops_its_children
from raftsched.cli.local.cluster import START_SECONDS_MAX, LocalCluster, LocalNode
from raftsched.cli.terminal.output import (
    json_option,
    print_json,
    print_table,
    progress_console,
    reports_errors,
)
from raftsched.client import Client
from raftsched.errors import Unavailable

TARGET_JOBS_PER_SECOND = 1_667
"""100,000 a minute."""


_ROWS: tuple[tuple[str, Callable[[Measurement], float]], ...] = (
    ("jobs", lambda m: m.jobs),
    ("jobs/s", lambda m: m.jobs_per_second),
    ("CPU ms per job, all processes", lambda m: m.cpu_ms_per_job),
    ("  nodes", lambda m: m.cpu_ms_per_job_by_role["nodes"]),
    ("  workers", lambda m: m.cpu_ms_per_job_by_role["workers"]),
    ("  client", lambda m: m.cpu_ms_per_job_by_role["client"]),
    ("commit p50 ms", lambda m: m.commit_ms_p50),
    ("commit p99 ms", lambda m: m.commit_ms_p99),
    ("lag p50 ms", lambda m: m.lag_ms_p50),
    ("lag p99 ms", lambda m: m.lag_ms_p99),
    ("errors", lambda m: m.errors),
)


@click.command("bench")
@click.option("--seconds", type=click.FloatRange(min=1), default=15.0, show_default=True, help="Length of each phase.")
@click.option(
    "--rate",
    type=click.FloatRange(min=1),
    default=TARGET_JOBS_PER_SECOND,
    show_default=True,
    help="Jobs a second of the phase at a fixed rate, which measures lag and commit latency.",
)
@click.option(
    "--window",
    type=click.IntRange(min=1),
    default=2_000,
    show_default=True,
    help="Unfinished jobs in the phase of the highest rate.",
)
@click.option("--nodes", "node_count", type=click.IntRange(1, 5), default=3, show_default=True, help="Number of nodes.")
@click.option(
    "--workers", "worker_count", type=click.IntRange(1, 16), default=2, show_default=True, help="Number of workers."
)
@click.option("--failover", "kills", type=click.IntRange(min=1), help="Kill the leader this number of times instead.")
@click.option(
    "--secured", is_flag=True, help="Ask for tokens, of one tenant each, and encrypt the disks: what safety costs."
)
@click.option(
    "--data-dir",
    type=click.Path(exists=True, file_okay=False, writable=True, path_type=Path),
    help="Existing directory, on the disk to measure.",
)
@json_option
@reports_errors
@stops_its_children
def bench_command(
    *,
    seconds: float,
    rate: float,
    window: int,
    node_count: int,
    worker_count: int,
    kills: int | None,
    secured: bool,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """Measure a cluster of real processes on this machine.

    fsync is on; the load comes from `Client` and `Worker`.
    """
    with tempfile.TemporaryDirectory(prefix="raftsched-bench-", dir=data_dir) as directory:
        settings: dict[str, Any] = {"log_level": "warning"}
        if secured:
            settings["encryption"] = {"keys_file": _keys_file(Path(directory))}
        cluster = LocalCluster(Path(directory), node_count=node_count, settings=settings, with_tokens=secured)
        with cluster:
            leader = cluster.wait_for_leader()
            client_token, worker_token = asyncio.run(_tokens(leader)) if secured else (None, None)
            if kills:
                _print_failover(_failover(cluster, kills, token=client_token), as_json=as_json)
                return
            with _workers(cluster, worker_count, token=worker_token) as workers:
                load = _load(cluster, workers, rate, window, seconds, token=client_token)
                steady, full = asyncio.run(load)
    _print_load(steady, full, as_json=as_json)


def _keys_file(directory: Path) -> str:
    """Write a new key for the disks of the nodes, and return its path."""
    path = directory / "keys"
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(f"bench {base64.b64encode(secrets.token_bytes(32)).decode()}\n")
    return str(path)


async def _tokens(leader: LocalNode) -> tuple[str, str]:
    """Return new tokens of one tenant, for the client and for the workers."""
    async with Client(leader.api, token=leader.token) as admin:
        client = await admin.tokens.create("submitter", tenant="bench", name="bench client")
        worker = await admin.tokens.create("worker", tenant="bench", name="bench worker")
    return str(client.token), str(worker.token)


@contextmanager
def _workers(cluster: LocalCluster, count: int, *, token: str | None) -> Iterator[list[int]]:
    app = ["--app", "raftsched.cli.bench.worker:worker", "--log-level", "warning", UNTIL_STDIN_ENDS]
    command = [sys.executable, "-m", "raftsched", "worker", *app]
    environment = os.environ | {"RAFTSCHED_URL": " ".join(cluster.urls)}
    environment |= {} if token is None else {"RAFTSCHED_TOKEN": token}
    with (cluster.directory / "worker.log").open("ab") as log:
        workers = [
            subprocess.Popen(command, env=environment, stdin=lifeline(), stdout=log, stderr=log)  # noqa: S603
            for _ in range(count)
        ]
    try:
        yield [worker.pid for worker in workers]
    finally:
        for worker in workers:
            worker.send_signal(signal.SIGKILL)
            worker.wait()


async def _load(
    cluster: LocalCluster, workers: list[int], rate: float, window: int, seconds: float, *, token: str | None
) -> tuple[Measurement, Measurement]:
    nodes = [node.process.pid for node in cluster.nodes if node.process]
    async with Client(*cluster.urls, token=token) as client:
        await _wait_for_workers(client)
        load = Load(client, {"nodes": nodes, "workers": workers, "client": [os.getpid()]})
        progress_console.print(f"{rate:,.0f} jobs/s for {seconds:.0f} s, then at full load for {seconds:.0f} s")
        return await load.at_rate(rate, seconds), await load.flat_out(window, seconds)


async def _wait_for_workers(client: Client) -> None:
    """Return once the workers work, so that their start is not measured."""
    job = await client.submit("noop", PAYLOAD, queue=QUEUE)
    try:
        await job.wait(START_SECONDS_MAX)
    except TimeoutError:
        raise Unavailable(f"no worker has done a job within {START_SECONDS_MAX:.0f} s") from None


def _failover(cluster: LocalCluster, kills: int, *, token: str | None) -> Failover:
    def say(number: int, gap: float) -> None:
        progress_console.print(f"kill {number} of {kills}: next accepted write after {gap:.2f} s")

    return asyncio.run(measure(cluster, kills, say, token=token))


def _print_failover(result: Failover, *, as_json: bool) -> None:
    if as_json:
        print_json(result.as_dict())
        return
    print_table(
        ("kills", "median s", "max s"),
        [(result.kills, result.median_seconds, result.max_seconds)],
        title="kill -9 of the leader to the next accepted write",
    )


def _print_load(steady: Measurement, full: Measurement, *, as_json: bool) -> None:
    if as_json:
        print_json(
            steady.as_dict()
            | {"jobs_per_second": full.jobs_per_second, "steady": steady.as_dict(), "flat_out": full.as_dict()}
        )
        return
    print_table(
        ("submit → lease → complete", "steady", "full load"),
        [(label, getter(steady), getter(full)) for label, getter in _ROWS],
    )
