"""CPU of one synchronous submit, over all processes: the leader, its followers and the client, by thread.

    .venv/bin/python -P tests/bench/single_submit.py [--submits N] [--nodes K] [--rounds R] [CHECKOUT …]

Each CHECKOUT is a directory that holds a `raftsched` package; the default is this one. With several, their rounds take
turns, so that the ratios hold on a machine that is shared. Each version runs as a user would run it: `raftsched dev` with
fsync, and one process with the blocking client that submits one job after the other.

Times are nanoseconds on the CPU, from `/proc/PID/task/TID/schedstat` (Linux). What the same processes use while nobody
submits is measured first, and subtracted. Rounds are short and many, and the cost of a version is the lower quartile of its
rounds, because whatever else runs on the machine only adds. Give this session's scheduling group priority, as root, with
`echo -10 > /proc/self/autogroup`.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_HERE = Path(__file__).resolve()
_ROOT = _HERE.parents[2]
_PAYLOAD = {"id": 1, "due": 0.0, "kind": "bench", "data": "x" * 140}
_WARM_UP = 100
_IDLE_SECONDS = 5.0
_START_SECONDS_MAX = 60.0


# -- the client's process ----------------------------------------------------------------------------------------------


def submit_on_demand(urls: list[str]) -> None:
    """Submit as many jobs as each line of stdin says, and answer with their latencies in seconds."""
    import raftsched  # of the version that is measured

    client = raftsched.Client.blocking(*urls) if hasattr(raftsched.Client, "blocking") else None
    with client or raftsched.BlockingClient(*urls) as blocking:
        for line in sys.stdin:
            seconds = []
            for _ in range(int(line)):
                begun = time.perf_counter()
                blocking.submit("noop", _PAYLOAD)
                seconds.append(time.perf_counter() - begun)
            sys.stdout.write(json.dumps(seconds) + "\n")
            sys.stdout.flush()


# -- what a process has used -------------------------------------------------------------------------------------------

Part = tuple[str, str]
"""A role, and "loop" for its main thread or "threads" for all others."""
Used = dict[Part, float]
"""Seconds on the CPU."""


def used_by(pids: dict[str, int]) -> Used:
    """Return what the living threads of each process have used so far."""
    used: Used = {}
    for role, pid in pids.items():
        for directory in Path(f"/proc/{pid}/task").iterdir():
            part = (role, "loop" if directory.name == str(pid) else "threads")
            used[part] = used.get(part, 0.0) + int((directory / "schedstat").read_text().split()[0]) / 1e9
    return used


@dataclass
class Cost:
    """What one submit of a round cost, in milliseconds of CPU beyond what idling costs."""

    seconds: list[float]
    """Latencies."""
    ms_by_part: dict[Part, float]

    @property
    def ms(self) -> float:
        return sum(self.ms_by_part.values())


# -- one version -------------------------------------------------------------------------------------------------------


class Version:
    """A cluster and a client of one checkout, as processes."""

    def __init__(self, checkout: Path, urls: list[str], pids: dict[str, int], client: subprocess.Popen[str]) -> None:
        self.checkout = checkout
        self._urls = urls
        self._pids = pids
        self._client = client
        self._roles: dict[str, int] = {}
        self.idle: Used = {}
        """Seconds on the CPU a second."""
        self.costs: list[Cost] = []

    @property
    def ms(self) -> float:
        """The cost of a submit on all parts."""
        return lower_quartile([cost.ms for cost in self.costs])

    def ms_of(self, part: Part) -> float:
        return lower_quartile([cost.ms_by_part[part] for cost in self.costs])

    @property
    def latencies(self) -> list[float]:
        return sorted(each for cost in self.costs for each in cost.seconds)

    def submit(self, count: int) -> list[float]:
        """Have the client submit `count` jobs; return their latencies."""
        assert self._client.stdin is not None
        assert self._client.stdout is not None
        self._client.stdin.write(f"{count}\n")
        self._client.stdin.flush()
        return [float(each) for each in json.loads(self._client.stdout.readline())]

    def measure_idle(self) -> None:
        """Measure what the processes use while nobody submits."""
        self.submit(_WARM_UP)
        self._roles = self._present_roles()
        before, began = used_by(self._roles), time.monotonic()
        time.sleep(_IDLE_SECONDS)
        after, seconds = used_by(self._roles), time.monotonic() - began
        self.idle = {part: (used - before[part]) / seconds for part, used in after.items()}

    def measure(self, count: int) -> None:
        """Measure one round of `count` submits."""
        before, began = used_by(self._roles), time.monotonic()
        latencies = self.submit(count)
        after, seconds = used_by(self._roles), time.monotonic() - began
        spent = {part: after[part] - before[part] - self.idle[part] * seconds for part in after}
        self.costs.append(Cost(latencies, {part: 1000 * each / count for part, each in spent.items()}))

    def _present_roles(self) -> dict[str, int]:
        leader = next(node for url in self._urls if (node := _get(f"{url}/api/v1/cluster")["leader"]))
        nodes = {"leader" if node == leader else f"follower {node}": pid for node, pid in self._pids.items()}
        return {**dict(sorted(nodes.items(), reverse=True)), "client": self._client.pid}


@contextmanager
def running(checkout: Path, node_count: int, directory: Path) -> Iterator[Version]:
    """A cluster and a client of the version in `checkout`."""
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    data = directory / "data"
    command = ["-m", "raftsched", "dev", "--nodes", str(node_count), "--data-dir", str(data), "--base-port", _port()]
    with (directory / "dev.log").open("w") as log, _process(command, environment, directory, log) as dev:
        nodes = _wait_for_nodes(data / "cluster.json", dev, directory)
        urls = [str(node["api"]) for node in nodes]
        arguments = ["-P", str(_HERE), "--client", *urls]
        with _process(arguments, environment, directory, None) as client:
            yield Version(checkout, urls, {str(node["id"]): int(node["pid"]) for node in nodes}, client)  # type: ignore[call-overload]


@contextmanager
def _process(
    arguments: list[str], environment: dict[str, str], directory: Path, log: IO[str] | None
) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, *arguments],
        env=environment,
        cwd=directory,
        stdin=subprocess.PIPE,
        stdout=log or subprocess.PIPE,
        stderr=log,
        text=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def _port() -> str:
    """Return a port behind which as many nodes as there may be find theirs free, most likely."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(15_000 + probe.getsockname()[1] % 16_000)


def _wait_for_nodes(description: Path, dev: subprocess.Popen[str], directory: Path) -> list[dict[str, object]]:
    """Return the nodes once there is a leader that serves."""
    deadline = time.monotonic() + _START_SECONDS_MAX
    while time.monotonic() < deadline and dev.poll() is None:
        try:
            nodes: list[dict[str, object]] = json.loads(description.read_text())["nodes"]
            for node in nodes:
                _get(f"{node['api']}/api/v1/queues")
        except (OSError, ValueError):
            time.sleep(0.05)
        else:
            return nodes
    raise SystemExit(f"no leader: {(directory / 'dev.log').read_text()}")


def _get(url: str) -> dict[str, object]:
    with urllib.request.urlopen(url, timeout=5) as reply:
        document: dict[str, object] = json.load(reply)
    return document


# -- the comparison ----------------------------------------------------------------------------------------------------


def report(version: Version) -> str:
    """Return what a submit costs in a version, part by part."""
    p50, p99 = (1000 * version.latencies[len(version.latencies) * share // 100] for share in (50, 99))
    lines = [f"{version.checkout}: {version.ms:.3f} ms CPU a submit; latency p50 {p50:.2f} ms, p99 {p99:.2f} ms"]
    for part, idle in version.idle.items():
        lines.append(f"    {part[0]:12} {part[1]:8} {version.ms_of(part):.3f} ms; idle {100 * idle:.2f} % of a core")
    return "\n".join(lines)


def ratio(version: Version, other: Version) -> str:
    """Return how the costs of two versions relate, over all rounds and from round to round."""
    pairs = [cost.ms / before.ms for cost, before in zip(version.costs, other.costs, strict=True)]
    paired = statistics.median(pairs)
    return f"{version.checkout} / {other.checkout}: {version.ms / other.ms:.3f}, median of pairs {paired:.3f}"


def lower_quartile(values: list[float]) -> float:
    return sorted(values)[len(values) // 4]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs="*", type=Path, metavar="CHECKOUT")
    parser.add_argument("--submits", type=int, default=20, help="of a round")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=80)
    options = parser.parse_args()
    checkouts = [each.resolve() for each in options.checkouts] or [_ROOT]
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="raftsched-bench-")))
        versions = []
        for number, checkout in enumerate(checkouts):
            directory = scratch / str(number)
            directory.mkdir()
            versions.append(stack.enter_context(running(checkout, options.nodes, directory)))
        for version in versions:
            version.measure_idle()
        for _ in range(options.rounds):
            for version in versions:
                version.measure(options.submits)
        for version in versions:
            sys.stdout.write(report(version) + "\n")
        first, *others = versions
        for version in others:
            sys.stdout.write(ratio(version, first) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--client"]:
        submit_on_demand(sys.argv[2:])
    else:
        main()
