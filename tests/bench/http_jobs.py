"""CPU and rate of HTTP jobs, over all processes of a cluster, its executor and the submitting client.

    python -m tests.bench.http_jobs [--seconds 10] [--rate 500]

The target is a process of its own, which answers every request at once; it is not counted. Then as many jobs as the
executor runs at the same time go to a second target, which never answers, and the same is measured again: the ratio says
what a target that hangs costs the others.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from raftsched.cli.bench import PAYLOAD
from raftsched.cli.bench.load import Load, Measurement
from raftsched.cli.local.children import UNTIL_STDIN_ENDS, lifeline
from raftsched.cli.local.cluster import HOST, LocalCluster, free_ports
from raftsched.client import Client
from raftsched.client.kinds import http_job

CONCURRENCY = 200
_REPLY = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


class _Answering(asyncio.Protocol):
    """Answer each request at once; a request ends where the next begins, since each has a body of known length."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._received = b""

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            head = self._received[:end].lower()
            length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
            if len(self._received) < end + 4 + length:
                return
            self._received = self._received[end + 4 + length :]
            self._transport.write(_REPLY)


async def _serve(answering: int, hanging: int) -> None:
    loop = asyncio.get_running_loop()
    await loop.create_server(_Answering, HOST, answering)
    await loop.create_server(asyncio.Protocol, HOST, hanging)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


@contextmanager
def _started(*command: str, directory: Path) -> Iterator[int]:
    """Start a Python process until the context ends; yields its id."""
    with (directory / "processes.log").open("ab") as log:
        process = subprocess.Popen([sys.executable, *command], stdin=lifeline(), stdout=log, stderr=log)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


async def _measure(cluster: LocalCluster, executor: int, ports: tuple[int, int], rate: float, seconds: float) -> None:
    answering, hanging = (f"http://{HOST}:{port}/" for port in ports)
    nodes = [node.process.pid for node in cluster.nodes if node.process]
    pids = {"nodes": nodes, "executor": [executor], "client": [os.getpid()]}
    async with Client(*cluster.urls) as client:
        await (await client.http(answering)).wait(60)
        spec = http_job(answering, body=PAYLOAD, queue="http")
        load = Load(client, pids, spec)
        _print(f"{rate:.0f} a second", await load.at_rate(rate, seconds))
        alone = _print("full load", await load.flat_out(4 * CONCURRENCY, seconds))
        jobs = [http_job(hanging, timeout_seconds=600, queue="http") for _ in range(CONCURRENCY)]
        hung = await client.submit_many(jobs)
        beside = _print(f"full load beside {len(hung)} that hang", await load.flat_out(4 * CONCURRENCY, seconds))
        print(f"rate beside those that hang / alone: {beside.jobs_per_second / alone.jobs_per_second:.2f}")


def _print(what: str, found: Measurement) -> Measurement:
    roles = ", ".join(f"{role} {ms}" for role, ms in found.cpu_ms_per_job_by_role.items())
    print(f"{what}: {found.jobs_per_second} jobs/s, {found.cpu_ms_per_job} ms CPU a job ({roles}), "
          f"lag p50 {found.lag_ms_p50} ms, p99 {found.lag_ms_p99} ms")  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=500.0)
    parser.add_argument("--serve", type=int, nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve:
        asyncio.run(_serve(*asked.serve))
        return
    with tempfile.TemporaryDirectory(prefix="raftsched-bench-") as name:
        directory = Path(name)
        ports = free_ports(2)
        cluster = LocalCluster(directory / "nodes", settings={"log_level": "warning"})
        worker = ["-m", "raftsched", "worker", "--http", UNTIL_STDIN_ENDS, "--log-level", "warning"]
        worker += ["--allow-target", "127.0.0.0/8", "--concurrency", str(CONCURRENCY)]
        worker += [part for url in cluster.urls for part in ("--url", url)]
        with (
            cluster,
            _started("-m", "tests.bench.http_jobs", "--serve", *map(str, ports), directory=directory),
            _started(*worker, directory=directory) as executor,
        ):
            cluster.wait_for_leader()
            asyncio.run(_measure(cluster, executor, (ports[0], ports[1]), asked.rate, asked.seconds))


if __name__ == "__main__":
    main()
