"""The port between drills and what their nodes run on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol

from chaos.drills.backends.quality import Quality


class Unfit(Exception):
    """The system lacks something that the drill needs."""


class Need(Enum):
    """Something that a fault needs; the value tells a user what that is."""

    PROCESSES = "signals to processes"
    RELEASES = "nodes of another release"
    ISOLATION = "a node that can be cut off from all others"
    LINKS = "links between nodes that can be cut in one direction"
    SLOW_LINKS = "links between nodes with a delay, a limited bandwidth, and connections that can be reset"
    LOSSY_LINKS = "links that lose, repeat and reorder packets: network namespaces, and /dev/net/tun"
    NAMES = "nodes that keep the names of files at each sync of their directory: not those of an image"
    SMALL_DISK = "a disk of limited size for each node (a user namespace, or root)"
    SHIMS = "a C compiler, and LD_PRELOAD: Linux"
    DISKS = "a block device for each node, whose power can be cut (root on Linux, loop devices, mkfs.ext4 or mkfs.xfs)"
    READ_ONLY = "a file system that becomes read-only after an error (root on Linux, loop devices, mkfs.ext4)"


class Disk(Protocol):
    """A disk of one node, with a file system that is mounted at first. All methods block; each raises OSError."""

    def cut_power(self, *, is_journal_flushed: bool) -> None:
        """Lose what was not synced, and fail all that the node asks of the disk from now on.

        With `is_journal_flushed` the file system's own journal gets as far as the disk at the last moment.
        """

    def become_read_only(self) -> None:
        """Fail all that would change something, as after an error of the device; `Need.READ_ONLY`."""

    def mount(self) -> None:
        """Mount the disk as it is now, also after a cut of its power; nobody may use it."""

    def freeze(self) -> None:
        """Let all that would change something wait until `thaw`; this process's end does that, too."""

    def thaw(self) -> None:
        """Do nothing if it is not frozen."""


@dataclass(frozen=True, slots=True)
class Launch:
    """The way to start a node."""

    entry: Sequence[str]
    """The module that runs, and its first arguments."""
    config: Path
    disk: Path
    """The directory that holds its data directory."""
    log: Path
    settings: Mapping[str, str]
    """Environment variables."""
    release: Path | None = None
    """The directory that holds the package; None = this source."""

    @property
    def arguments(self) -> Sequence[str]:
        return (*self.entry, "--config", str(self.config))


class NodeProcess(Protocol):
    """A node that was started, and may have ended."""

    def poll(self) -> int | None:
        """Return its exit code, None while it runs."""

    def kill(self) -> None:
        """Kill it with SIGKILL, and wait until it is gone."""

    def pause(self) -> None:
        """Give it no time any more until `resume`."""

    def resume(self) -> None:
        """Give it time again."""

    def terminate(self) -> None:
        """Ask it to stop."""

    def dump_stack(self) -> None:
        """Write what it does to its log, if this machine can tell."""


class Backend(Protocol):
    """Hosts for nodes, numbered from 1 on, and the links between them.

    Whatever a host tells of itself is known once `open` has returned, and until `close`.
    """

    name: str
    """One word."""
    about: str
    """Its description, in one line."""
    offers: frozenset[Need]

    def end(self) -> None:
        """End all that was made with the object."""

    async def open(self) -> None:
        """Make the hosts and links; raises `Unfit`."""

    async def close(self) -> None:
        """End all that `open` and `mount_small` made; no node runs any more."""

    def config(self, number: int, hosts: Mapping[str, int]) -> str:
        """Return the configuration of the node at a host; `hosts` are the numbers of all nodes' hosts, by id."""

    def addresses(self, number: int) -> tuple[str, str]:
        """Return host:port of Raft and of the API for nodes that don't have the node at this host in their configuration."""

    def api(self, number: int) -> str:
        """Return host:port at which users reach the API of a node."""

    def start(self, number: int, launch: Launch) -> NodeProcess:
        """Start a node at a host; it is not ready yet when this returns."""

    async def isolate(self, number: int, others: Sequence[int]) -> None:
        """Cut a node off from all others from now on."""
        for other in others:
            await self.cut(number, other)
            await self.cut(other, number)

    async def cut(self, sender: int, receiver: int) -> None:
        """Lose all that one node sends to another from now on."""

    async def worsen(self, links: Mapping[tuple[int, int], Quality]) -> None:
        """Let links, by (sender, receiver), be as bad as said from now on; others stay as they are."""

    async def reset(self, one: int, other: int) -> None:
        """Break all connections between two nodes: each end gets RST, at the latest when it sends."""

    async def heal(self) -> None:
        """Cut nothing any more, and let all links be perfect."""

    def mount_small(self, directory: Path, size_bytes: int) -> None:
        """Put a disk of this size at `directory`; raises `Unfit`."""

    def disk_at(self, directory: Path) -> Disk:
        """Return the disk that `mount_small` has put there; raises `Unfit` without `Need.DISKS`."""
        raise Unfit(f"{directory} has no device of its own: this backend has none")
