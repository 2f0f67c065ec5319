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
    LINKS = "links between nodes that can be cut in one direction"
    SLOW_LINKS = "links between nodes with a delay, a limited bandwidth, and connections that can be reset"
    LOSSY_LINKS = "links that lose, repeat and reorder packets: network namespaces, and /dev/net/tun"
    SMALL_DISK = "a disk of limited size for each node (a user namespace, or root)"
    SHIMS = "a C compiler, and LD_PRELOAD: Linux"


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

    async def open(self) -> None:
        """Make the hosts and links; raises `Unfit`."""

    async def close(self) -> None:
        """End all that `open` made."""

    def config(self, number: int, hosts: Mapping[str, int]) -> str:
        """Return the configuration of the node at a host; `hosts` are the numbers of all nodes' hosts, by id."""

    def raft(self, number: int) -> str:
        """Return host:port at which nodes that don't have it in their configuration reach Raft of the node at a host."""

    def api(self, number: int) -> str:
        """Return host:port at which users reach the API of a node."""

    def start(self, number: int, launch: Launch) -> NodeProcess:
        """Start a node at a host; it is not ready yet when this returns."""

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
