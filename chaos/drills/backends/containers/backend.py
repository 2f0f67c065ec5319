"""Hosts that are containers of the image, hardened and under its own user, on networks of their own.

Each container is on two internal networks: nodes meet on `peers`, users reach them on `users`. A node that is
disconnected from `peers` is cut off from all others, Raft and API alike, and users still reach it. Its disk is a directory
of this machine, or a tmpfs of limited size, so a container that replaces another finds nothing of it.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from chaos.drills.backends.containers.engine import HARDENED, IMAGE, USER_ID, Engine, NoEngine, engine, roomy_place
from chaos.drills.backends.port import Backend, Launch, Need, NodeProcess, Unfit
from chaos.drills.backends.quality import Quality

_PEERS: Final = "10.94.1"
_USERS: Final = "10.94.2"
_FIRST: Final = 10
"""Added to a host's number; the networks' own addresses are below."""
_API: Final = 8400
_RAFT: Final = 8401
_MODULE: Final = "raftsched"
_STOP_SECONDS: Final = 60
"""Longer than drills wait for the end of a node."""
_PAUSES_MAX: Final = 5
"""Attempts: on a busy machine the kernel may not freeze all threads in the time that the engine gives it."""


class Docker(Backend):
    name = "docker"
    about = "containers of the image; a node is cut off from all others by disconnecting it from their network"
    offers = frozenset({Need.PROCESSES, Need.ISOLATION}) | ({Need.SMALL_DISK} if os.geteuid() == 0 else frozenset())

    def __init__(self, numbers: Sequence[int]) -> None:  # noqa: ARG002  # a host is made when its node starts
        """Reach an engine, or start one, and build the image; raises `Unfit`."""
        self._ending = ExitStack()
        directory = self._ending.enter_context(
            tempfile.TemporaryDirectory(prefix="raftsched-drills-", dir=roomy_place())
        )
        try:
            self._docker = self._ending.enter_context(engine(Path(directory)))
            self._docker.build()
        except (NoEngine, RuntimeError, subprocess.TimeoutExpired) as error:
            self._ending.close()
            raise Unfit(str(error)) from error
        self._prefix = f"raftsched-drills-{secrets.token_hex(3)}"
        self._running: dict[int, str] = {}
        """Number of a host -> its container."""
        self._cut_off: set[int] = set()
        self._reconnecting = threading.Lock()
        """A change of networks that was begun is made to its end, also if its fault is cancelled."""
        self._small: list[Path] = []

    def end(self) -> None:
        self._ending.close()

    async def open(self) -> None:
        for network, subnet in (("peers", _PEERS), ("users", _USERS)):
            self._docker("network", "create", "--internal", "--subnet", f"{subnet}.0/24", f"{self._prefix}-{network}")

    async def close(self) -> None:
        for container in self._docker("ps", "--all", "--quiet", "--filter", f"name={self._prefix}").split():
            self._docker("rm", "--force", "--volumes", container)
        for network in ("peers", "users"):
            self._docker("network", "rm", f"{self._prefix}-{network}")
        self._running.clear()
        self._cut_off.clear()
        for directory in self._small:
            await asyncio.to_thread(subprocess.run, ["umount", str(directory)], check=True)
        self._small.clear()

    def config(self, number: int, hosts: Mapping[str, int]) -> str:  # noqa: ARG002  # all have the same
        head = f'insecure_peers = true\napi_listen = "0.0.0.0:{_API}"\n'
        return head + "".join(
            f'[[nodes]]\nid = "{node}"\nraft = "{raft}"\napi = "{api}"\n'
            for node, (raft, api) in ((node, self.addresses(host)) for node, host in hosts.items())
        )

    def addresses(self, number: int) -> tuple[str, str]:
        address = f"{_PEERS}.{_FIRST + number}"
        return f"{address}:{_RAFT}", f"{address}:{_API}"

    def api(self, number: int) -> str:
        return f"{_USERS}.{_FIRST + number}:{_API}"

    def start(self, number: int, launch: Launch) -> NodeProcess:
        name = f"{self._prefix}-{launch.config.stem}"
        if self._running.get(number) != name:
            self._create(number, name, launch)
        return _Container(self._docker, name, launch.log)

    async def isolate(self, number: int, others: Sequence[int]) -> None:  # noqa: ARG002  # there are no others
        await asyncio.to_thread(self._disconnect, number)

    async def cut(self, sender: int, receiver: int) -> None:
        raise Unfit(f"no link from {sender} to {receiver} can be cut: containers are cut off from all others")

    async def worsen(self, links: Mapping[tuple[int, int], Quality]) -> None:
        raise Unfit(f"{len(links)} links can't be made bad: containers have perfect ones, or none")

    async def reset(self, one: int, other: int) -> None:
        raise Unfit(f"the link of {one} and {other} can't be reset: containers are cut off from all others")

    async def heal(self) -> None:
        await asyncio.to_thread(self._reconnect_all)

    def mount_small(self, directory: Path, size_bytes: int) -> None:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(directory)]
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unfit(f"no small disk: {done.stderr.strip()}")
        self._small.append(directory)

    def _create(self, number: int, name: str, launch: Launch) -> None:
        """Make the container of a node, in place of the one that had its host before."""
        if launch.entry[0] != _MODULE:
            raise Unfit(f"the image has no {launch.entry[0]}")
        if (former := self._running.get(number)) is not None:
            self._docker("rm", "--force", former)
        user = _owner(launch.disk)
        self._docker(
            "create",
            *("--name", name, "--hostname", launch.config.stem, "--user", user, "--no-healthcheck", *HARDENED),
            *("--network", f"{self._prefix}-users", "--ip", self.api(number).partition(":")[0]),
            *(f"--env={key}={value}" for key, value in launch.settings.items()),
            *(f"--volume={launch.disk}:{launch.disk}", f"--volume={launch.config}:{launch.config}:ro"),
            *(IMAGE, *launch.arguments[1:]),
        )
        self._running[number] = name
        self._connect(number)

    def _disconnect(self, number: int) -> None:
        with self._reconnecting:
            if number not in self._cut_off:
                self._docker("network", "disconnect", f"{self._prefix}-peers", self._running[number])
                self._cut_off.add(number)

    def _reconnect_all(self) -> None:
        with self._reconnecting:
            for number in sorted(self._cut_off):
                self._connect(number)
                self._cut_off.discard(number)

    def _connect(self, number: int) -> None:
        address = self.addresses(number)[0].partition(":")[0]
        self._docker("network", "connect", "--ip", address, f"{self._prefix}-peers", self._running[number])


class _Container(NodeProcess):
    """A node in a container that was made before; whoever is attached to it ends with its exit code."""

    def __init__(self, docker: Engine, name: str, log: Path) -> None:
        self._docker = docker
        self._name = name
        self._is_paused = False
        with log.open("ab") as output:
            attach = ("start", "--attach", name)
            self._attached = docker.popen(
                *attach, stdin=subprocess.DEVNULL, stdout=output, stderr=output, process_group=0
            )

    def poll(self) -> int | None:
        return self._attached.poll()

    def kill(self) -> None:
        self.resume()
        if self.poll() is None:
            self._order("kill")
        self._attached.wait(_STOP_SECONDS)

    def pause(self) -> None:
        for attempt in range(_PAUSES_MAX):
            try:
                self._docker("pause", self._name)
                break
            except RuntimeError:
                if attempt == _PAUSES_MAX - 1:
                    raise
        self._is_paused = True

    def resume(self) -> None:
        if self._is_paused:
            self._order("unpause")
        self._is_paused = False

    def terminate(self) -> None:
        stop = ("stop", "--time", str(_STOP_SECONDS), self._name)
        self._docker.popen(*stop, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def dump_stack(self) -> None:
        """Write nothing: nothing of this machine looks into a container."""

    def _order(self, verb: str) -> None:
        try:
            self._docker(verb, self._name)
        except RuntimeError:
            if self.poll() is None and self._docker.inspect(self._name)["State"]["Running"]:
                raise


def _owner(disk: Path) -> str:
    """Return the user that owns a disk: that of the image, if we may give it to them."""
    if os.geteuid() != 0:
        return f"{os.getuid()}:{os.getgid()}"
    os.chown(disk, USER_ID, USER_ID)
    return f"{USER_ID}:{USER_ID}"
