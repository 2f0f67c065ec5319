"""A process that carries packets over bad links: `python -m chaos.drills.backends.switch SEED NAMESPACE=ADDRESS...`.

Linux's own netem is a module that many kernels lack. So each host gets a TUN device, `DEVICE`, which ends in this
process. A host that has a route by it to another one sends its packets here; they arrive there when `Link` says, by the
same device. Hosts without such a route don't notice it.

A line on stdin sets a link: `[sender's address, receiver's address, quality]`, as JSON. The process answers `ready` once
all devices are there, and ends with its stdin.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import json
import os
import select
import socket
import struct
import subprocess
import sys
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from random import Random
from typing import Final

from chaos.drills.backends.quality import BACKLOG_SECONDS_MAX, Link, Quality

DEVICE: Final = "bad"
READY: Final = "ready"
TUN: Final = Path("/dev/net/tun")
_CLONE_NEWNET: Final = 0x40000000
_TUNSETIFF: Final = 0x400454CA
_IFF_TUN_WITHOUT_HEADER: Final = 0x1001
_MTU_BYTES: Final = 1500
_SENDER, _RECEIVER = slice(12, 16), slice(16, 20)
"""Of an IPv4 header."""
_HEADER_BYTES: Final = 20
_PACKETS_MAX: Final = 100_000
"""On their way at a time; more are lost."""
_BURST_MAX: Final = 64
"""Packets that are read from one device before the others have their turn."""
_ORDERS_BYTES: Final = 64 * 1024
_Pair = tuple[bytes, bytes]


class Switch:
    """All devices, and the packets that are on their way between them."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._devices: dict[bytes, int] = {}
        """By address."""
        self._links: dict[_Pair, Link] = {}
        self._flying: list[tuple[float, int, int, bytes]] = []
        """A heap of (arrival, number, device, packet)."""
        self._numbers = count()

    def add(self, namespace: str, address: str) -> None:
        """Make the device of a host, and stay in its namespace."""
        _enter(namespace)
        device = os.open(TUN, os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH", DEVICE.encode(), _IFF_TUN_WITHOUT_HEADER))
        subprocess.run(["ip", "link", "set", "dev", DEVICE, "mtu", str(_MTU_BYTES), "up"], check=True)
        for interface in ("all", DEVICE, "eth0"):  # there and back again may differ
            Path(f"/proc/sys/net/ipv4/conf/{interface}/rp_filter").write_text("0")
        self._devices[socket.inet_aton(address)] = device

    def run(self) -> None:
        """Carry packets until stdin ends."""
        orders, poll, unread = sys.stdin.fileno(), select.poll(), b""
        for readable in (orders, *self._devices.values()):
            poll.register(readable, select.POLLIN)
        while True:
            for readable, _ in poll.poll(self._wait_ms()):
                if readable != orders:
                    self._receive(readable)
                    continue
                if not (read := os.read(orders, _ORDERS_BYTES)):
                    return
                *lines, unread = (unread + read).split(b"\n")
                for line in lines:
                    self._set(line)
            self._deliver()

    def _wait_ms(self) -> float | None:
        return max(0.0, (self._flying[0][0] - time.monotonic()) * 1000) if self._flying else None

    def _set(self, line: bytes) -> None:
        sender, receiver, quality = json.loads(line)
        link = Link(Quality(**quality), Random(f"{self._seed} {sender} {receiver}"))
        self._links[socket.inet_aton(sender), socket.inet_aton(receiver)] = link

    def _receive(self, device: int) -> None:
        for _ in range(_BURST_MAX):
            try:
                packet = os.read(device, 2 * _MTU_BYTES)
            except BlockingIOError:
                return
            self._send(packet, time.monotonic())

    def _send(self, packet: bytes, now: float) -> None:
        to = self._devices.get(packet[_RECEIVER])
        if to is None or len(packet) < _HEADER_BYTES or len(self._flying) >= _PACKETS_MAX:
            return  # the kernel's own, as those of IPv6
        link = self._links.get((packet[_SENDER], packet[_RECEIVER]))
        if link is None or link.backlog_seconds(now) > BACKLOG_SECONDS_MAX:
            return
        for at in link.arrivals(len(packet), now):
            heapq.heappush(self._flying, (at, next(self._numbers), to, packet))

    def _deliver(self) -> None:
        now = time.monotonic()
        while self._flying and self._flying[0][0] <= now:
            _, _, device, packet = heapq.heappop(self._flying)
            with suppress(BlockingIOError):  # its queue is full: lost, as anywhere
                os.write(device, packet)


def _enter(namespace: str) -> None:
    with Path(namespace).open() as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns", namespace)


def main(seed: str, *hosts: str) -> None:
    """Carry packets between hosts, each given as NAMESPACE=ADDRESS."""
    switch = Switch(int(seed))
    for host in hosts:
        switch.add(*host.split("="))
    print(READY, flush=True)
    switch.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
