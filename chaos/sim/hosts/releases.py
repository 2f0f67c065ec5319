"""The release of each host: today's, or a later one that reads log entries of one version more."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from chaos.sim.record.replay import NEWEST
from raftsched.core.operations.codec import CODEC_VERSION, decode_batch

_COMMAND: Final = b"\x00"
_FAULTS_MAX: Final = 3


class Releases:
    """The release of each host; all have today's unless the world has an upgrade. `fault` is called with violations."""

    def __init__(self, ids: Iterable[str], fault: Callable[[str], None]) -> None:
        self.is_on = False
        """Whether this world has an upgrade."""
        self.versions = dict.fromkeys(ids, CODEC_VERSION)
        """The version that each host's release reads."""
        self._fault = fault
        self._fault_count = 0

    def reads(self, node_id: str) -> int:
        """Return the version that a host's release reads; a host that joins comes with the later release."""
        return self.versions.setdefault(node_id, NEWEST) if self.is_on else CODEC_VERSION

    def check_durable(self, members: Iterable[str], command: bytes) -> None:
        """Check an entry that a host has made durable: whoever is a member by its log must be able to read it."""
        if not self.is_on or command[:1] != _COMMAND:
            return
        version = decode_batch(command[1:], reads=NEWEST).version
        for node_id in members:
            if self.reads(node_id) < version and self._fault_count < _FAULTS_MAX:
                self._fault_count += 1
                self._fault(f"an entry of version {version} is written, and member {node_id} can't read it")
