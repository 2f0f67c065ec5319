"""Bad links between hosts of a `Network`: starts the switch, and routes over it what a bad link is to carry."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from chaos.drills.backends.namespaces import Network
from chaos.drills.backends.port import Unfit
from chaos.drills.backends.quality import Quality
from chaos.drills.backends.switch import DEVICE, READY, TUN

Qualities = Mapping[tuple[int, int], Quality]
_ROOT: Final = Path(__file__).parents[3]
_STOP_SECONDS: Final = 5.0


def can_be_bad() -> bool:
    """Return whether this system has the devices that bad links need."""
    return TUN.exists()


class BadLinks:
    """The switch of a network; it runs from the first bad link on, until `close`. `usual` links are never better."""

    def __init__(self, network: Network, numbers: Sequence[int], seed: int, usual: Qualities) -> None:
        self._network = network
        self._numbers = numbers
        self._seed = seed
        self._usual = usual
        self._qualities: dict[tuple[int, int], Quality] = {}
        self._process: subprocess.Popen[bytes] | None = None

    def worsen(self, qualities: Qualities) -> None:
        """Let these links, by (sender, receiver), be as bad as said; others stay as they are."""
        process = self._process or self._start()
        changed = {link: quality for link, quality in qualities.items() if self._qualities.get(link) != quality}
        self._qualities |= changed
        for (sender, receiver), quality in changed.items():
            self._order(process, sender, receiver, asdict(quality))
        self._route({sender for sender, _ in changed})

    def heal(self) -> None:
        """Let all links be as usual; what is on its way arrives when it would have."""
        better = self._qualities.keys() - self._usual.keys()
        for link in better:
            del self._qualities[link]
        self._route({sender for sender, _ in better})
        if self._usual:
            self.worsen(self._usual)

    def close(self) -> None:
        process, self._process = self._process, None
        self._qualities.clear()
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        process.wait(_STOP_SECONDS)

    def _start(self) -> subprocess.Popen[bytes]:
        hosts = [f"{self._network.namespace(each)}={self._network.address(each)}" for each in self._numbers]
        process = subprocess.Popen(
            [sys.executable, "-m", "chaos.drills.backends.switch", str(self._seed), *hosts],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,  # only we get Ctrl-C
        )
        assert process.stdout is not None
        if process.stdout.readline().decode().strip() != READY:
            process.wait()
            raise Unfit(f"bad links can't be made here: the switch ended with {process.returncode}")
        self._process = process
        return process

    def _order(self, process: subprocess.Popen[bytes], sender: int, receiver: int, quality: object) -> None:
        assert process.stdin is not None
        order = [self._network.address(sender), self._network.address(receiver), quality]
        process.stdin.write(json.dumps(order).encode() + b"\n")
        process.stdin.flush()

    def _route(self, senders: set[int]) -> None:
        for sender in senders:
            receivers = [self._network.address(to) for by, to in self._qualities if by == sender]
            self._network.route(sender, DEVICE, receivers)
