"""Ports of a host to its world, and of a node to its host: so neither imports the layer above it."""

from __future__ import annotations

from random import Random
from typing import Any, Protocol

from chaos.sim.hosts.releases import Releases
from chaos.sim.hosts.storage import Machine
from chaos.sim.machine.clock import Timeline
from chaos.sim.machine.loop import ProcessLoop
from chaos.sim.network.links import Network
from chaos.sim.network.sockets import Sockets
from chaos.sim.rates import Rates
from chaos.sim.record.recorder import Recorder
from chaos.sim.record.trace import Trace
from raftsched.consensus.raft.membership.members import Membership
from raftsched.node.node import Node


class Surroundings(Protocol):
    """The world, as its hosts see it; a host names itself by its id."""

    random: Random
    rates: Rates
    timeline: Timeline
    ids: list[str]
    is_healed: bool
    trace: Trace
    recorder: Recorder
    network: Network
    sockets: Sockets
    releases: Releases
    graveyard: list[tuple[Node, ProcessLoop]]

    def count(self, what: str) -> None:
        """Count something that happened."""

    def restart_later(self, host_id: str) -> None:
        """Start the host after a pause."""

    def on_membership(self, index: int, membership: Membership) -> None:
        """Note that a node has applied a configuration."""

    def on_exit(self, host_id: str, error: BaseException | None) -> None:
        """Note that a process ends by itself."""

    def on_unhandled(self, host_id: str, context: dict[str, Any]) -> None:
        """Note an exception that nobody handles."""


class Home(Protocol):
    """A host, as its node sees it; it is also called with what becomes durable in the node's journal."""

    id: str
    machine: Machine
    is_nearly_full: bool

    @property
    def world(self) -> Surroundings: ...

    @property
    def api_address(self) -> tuple[str, int]: ...

    @property
    def incarnation(self) -> str: ...

    def durable(self, index: int, term: int, command: bytes) -> None: ...

    def truncated(self, index: int) -> None: ...
