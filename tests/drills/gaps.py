"""How long users stand still when the leader fails, for each way in which it can.

    python -m tests.drills.gaps --rounds 5

Three nodes, each on a network host of its own; a raw writer at each node, a process with `raftsched.Client` that submits,
and a `raftsched worker`. In each round the leader is killed, cut off from its peers while clients reach it, paused,
without power, or its disk hangs; then it comes back. The gap is the longest time without an accepted write at any node,
without an accepted submit of the client, and without a job that the worker began. A leader that is reached but can't
serve must refuse at once, in `/readyz` too. Exit code 1: a gap of a user was longer than `--bound`, the client raised an
error, or such a refusal was wrong; 2: nothing could be run.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp

from chaos.drills.backends import Unfit
from chaos.drills.backends.namespaces import enter
from raftsched.cli.local.children import UNTIL_STDIN_ENDS, lifeline
from tests.drills.hosts import Host, can_hang_disks, hosts
from tests.drills.users import PAUSE_SECONDS, QUEUE

_ROOT: Final = Path(__file__).parents[2]
_BEFORE_SECONDS: Final = 3.0
_AFTER_SECONDS: Final = 2.0
_HEALTHY_SECONDS: Final = 90.0
_REFUSAL_SECONDS: Final = 0.5
"""A node that can't serve says so at once; beside load that takes its time."""
_RAW_SECONDS: Final = 2.0
"""Timeouts of a raw writer."""


class Mode(NamedTuple):
    """A way to fail, and to come back."""

    title: str
    begin: Callable[[Host, Sequence[Host]], None]
    end: Callable[[Host], None]
    refusal: str = ""
    """What the node says to a write meanwhile, at once; "" where it says nothing."""


MODES: Final = {
    "kill": Mode("kill -9", lambda leader, _: leader.kill(), Host.start),
    "cut": Mode(
        "cut from its peers, clients reach it", lambda leader, others: leader.cut(others), Host.heal, "no_majority"
    ),
    "pause": Mode("SIGSTOP", lambda leader, _: leader.pause(), Host.go_on),
    "dark": Mode("dark: every packet dropped", lambda leader, _: leader.darken(), Host.heal),
    "disk": Mode("fdatasync hangs", lambda leader, _: leader.hang_disk(), Host.free_disk, "disk_stalled"),
}


class Gaps(NamedTuple):
    """Seconds without progress in one round."""

    writes: float
    client: float
    slowest: float
    """The longest time that a submit of the client took."""
    worker: float
    errors: Sequence[str]


class Drill:
    """The load, and what it sees."""

    def __init__(self, nodes: Sequence[Host], directory: Path, session: aiohttp.ClientSession) -> None:
        self._nodes = nodes
        self._session = session
        self._client_file = directory / "client.txt"
        self._worker_file = directory / "worker.txt"
        self._written: list[float] = []
        self._number = 0

    async def write_for_ever(self, host: Host) -> None:
        """Submit at one node, one after the other, as a program without the SDK does."""
        while True:
            self._number += 1
            document = {"name": "note", "queue": QUEUE, "payload": f"raw-{self._number}"}
            with suppress(aiohttp.ClientError, TimeoutError):
                async with self._session.post(f"{host.api}/api/v1/jobs", json=document) as reply:
                    if reply.status == 201:
                        self._written.append(time.monotonic())
            await asyncio.sleep(PAUSE_SECONDS)

    async def round(self, mode: Mode, hold_seconds: float) -> Gaps:
        """Let the leader fail once, and return how long users stood still."""
        leader = await settled_leader(self._nodes)
        await asyncio.sleep(_BEFORE_SECONDS)
        began = time.monotonic()
        mode.begin(leader, [host for host in self._nodes if host is not leader])
        wrong: list[str] = []
        try:
            await asyncio.sleep(hold_seconds / 2)
            if mode.refusal:
                wrong = await self._wrong_refusals(leader, mode.refusal)
            await asyncio.sleep(began + hold_seconds - time.monotonic())
        finally:
            mode.end(leader)
        await settled_leader(self._nodes)
        await asyncio.sleep(_AFTER_SECONDS)
        until = began + hold_seconds
        accepted = _lines(self._client_file, "accepted")
        errors = [text for at, text in _lines(self._client_file, "error") if at > began]
        return Gaps(
            _longest(self._written, began, until),
            _longest([at for at, _ in accepted], began, until),
            max((float(took) for at, took in accepted if at > began), default=hold_seconds),
            _longest([at for at, _ in _lines(self._worker_file, "began")], began, until),
            [*errors, *wrong],
        )

    async def _wrong_refusals(self, leader: Host, code: str) -> list[str]:
        """Return what is wrong with the way in which a node that can't serve says so, for a write and in `/readyz`."""
        began = time.monotonic()
        document = {"name": "note", "queue": QUEUE, "payload": "refused"}
        async with self._session.post(f"{leader.api}/api/v1/jobs", json=document) as reply:
            said = (reply.status, (await reply.json()).get("code"))
        seconds = time.monotonic() - began
        async with self._session.get(f"{leader.api}/readyz") as reply:
            ready = reply.status
        wrong = [] if said == (503, code) else [f"a write got {said}, not 503 {code}"]
        wrong += [f"the refusal took {seconds:.1f} s"] if seconds > _REFUSAL_SECONDS else []
        return wrong + ([f"/readyz says {ready}"] if ready != 503 else [])

    @contextmanager
    def users(self) -> Iterator[None]:
        """A process with a client and one with a worker, both of which know all nodes."""
        environment = os.environ | {
            "RAFTSCHED_URL": " ".join(host.api for host in self._nodes),
            "DRILL_FILE": str(self._worker_file),
        }
        client = [sys.executable, "-m", "tests.drills.users", "client", str(self._client_file)]
        worker = [sys.executable, "-m", "raftsched", "worker", "--app", "tests.drills.users:worker", UNTIL_STDIN_ENDS]
        with (self._client_file.with_suffix(".log")).open("ab") as log:
            processes = [
                subprocess.Popen(command, env=environment, cwd=_ROOT, stdin=lifeline(), stdout=log, stderr=log)
                for command in (client, worker)
            ]
        try:
            yield
        finally:
            for process in processes:
                process.kill()
                process.wait()

    async def begun(self) -> None:
        """Wait until both users make progress."""
        async with asyncio.timeout(_HEALTHY_SECONDS):
            while not (self._client_file.exists() and self._worker_file.exists()):
                await asyncio.sleep(PAUSE_SECONDS)


async def settled_leader(nodes: Sequence[Host]) -> Host:
    """Wait until all nodes are ready, and return the one that leads."""
    timeouts = aiohttp.ClientTimeout(total=_RAW_SECONDS)
    async with asyncio.timeout(_HEALTHY_SECONDS), aiohttp.ClientSession(timeout=timeouts) as session:
        while True:
            with suppress(aiohttp.ClientError, TimeoutError):
                leaders = {await _leader_seen_by(host, session) for host in nodes}
                if len(leaders) == 1 and "" not in leaders:
                    return next(host for host in nodes if host.node_id in leaders)
            await asyncio.sleep(PAUSE_SECONDS)


async def _leader_seen_by(host: Host, session: aiohttp.ClientSession) -> str:
    """Who leads in the eyes of `host`; "" while it is not ready."""
    async with session.get(f"{host.api}/readyz") as reply:
        if reply.status != 200:
            return ""
    async with session.get(f"{host.api}/api/v1/cluster") as reply:
        document: dict[str, Any] = await reply.json()
        return str(document.get("leader", ""))


def _lines(path: Path, kind: str) -> list[tuple[float, str]]:
    split = [line.split(" ", 2) for line in path.read_text().splitlines()]
    return [(float(at), text) for found, at, text in split if found == kind]


def _longest(times: Sequence[float], since: float, until: float) -> float:
    """Return the longest span without any of `times` that touches the span from `since` to `until`."""
    marks = sorted(times)
    spans = [(end - begin) for begin, end in pairwise(marks) if end > since and begin < until]
    return max(spans, default=until - since)


async def _run(modes: Sequence[str], rounds: int, hold_seconds: float) -> dict[str, list[Gaps]]:
    found: dict[str, list[Gaps]] = {mode: [] for mode in modes}
    timeouts = aiohttp.ClientTimeout(total=_RAW_SECONDS)
    with hosts(3, subnet="10.93.9") as (nodes, _, directory):
        async with aiohttp.ClientSession(timeout=timeouts) as session:
            drill = Drill(nodes, directory, session)
            await settled_leader(nodes)
            writers = [asyncio.create_task(drill.write_for_ever(host)) for host in nodes]
            with drill.users():
                await drill.begun()
                for number in range(rounds):
                    for mode in modes:
                        gaps = await drill.round(MODES[mode], hold_seconds)
                        found[mode].append(gaps)
                        print(
                            f"{mode} {number + 1}: writes {gaps.writes:.1f} s, client {gaps.client:.1f} s,"
                            f" its slowest submit {gaps.slowest:.1f} s, worker {gaps.worker:.1f} s, load {os.getloadavg()[0]:.1f}",
                            *gaps.errors,
                            flush=True,
                        )
            for writer in writers:
                writer.cancel()
            await asyncio.wait(writers)
    return found


def _table(found: dict[str, list[Gaps]], load: Sequence[float]) -> str:
    """Return the results as a table: for each kind the least and the largest gap of all rounds, in seconds."""
    lines = [
        "| the leader | rounds | writes at any node | Client | its slowest submit | Worker |",
        "|---|---|---|---|---|---|",
    ]
    for mode, gaps in found.items():
        cells = [_span([each[column] for each in gaps]) for column in range(4)]  # type: ignore[misc]
        lines.append(f"| {MODES[mode].title} | {len(gaps)} | {' | '.join(cells)} |")
    return (
        "\n".join(lines)
        + f"\n\nLoad of the machine meanwhile: {min(load):.0f} to {max(load):.0f} on {os.cpu_count()} cores."
    )


def _span(gaps: Sequence[float]) -> str:
    return f"{min(gaps):.1f} to {max(gaps):.1f} s"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--modes", nargs="+", choices=list(MODES), default=list(MODES))
    parser.add_argument("--hold", type=float, default=10.0, help="Seconds that a fault lasts.")
    parser.add_argument("--bound", type=float, default=3.0, help="Seconds that users may stand still.")
    arguments = parser.parse_args()
    try:
        enter("tests.drills.gaps")
        modes = [mode for mode in arguments.modes if mode != "disk" or can_hang_disks()]
        for mode in set(arguments.modes) - set(modes):
            print(f"{mode}: not run, there is no C compiler here")
        load = [os.getloadavg()[0]]
        found = asyncio.run(_run(modes, arguments.rounds, arguments.hold))
        load.append(os.getloadavg()[0])
    except Unfit as error:
        print(f"nothing was run: {error}")
        return 2
    print(_table(found, load))
    rounds = [gaps for each in found.values() for gaps in each]
    slow = [gaps for gaps in rounds if max(gaps.client, gaps.slowest, gaps.worker) > arguments.bound]
    print(f"{len(slow)} of {len(rounds)} rounds over {arguments.bound} s; errors: "
          f"{sum(len(gaps.errors) for gaps in rounds)}")  # fmt: skip
    return 1 if slow or any(gaps.errors for gaps in rounds) else 0


if __name__ == "__main__":
    sys.exit(main())
