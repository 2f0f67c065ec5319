"""Hosts for drills: network namespaces on a bridge, in a mount namespace of our own, and what can be cut between them.

Linux only. As root, or where the system lets users make namespaces (`unshare -Ur`). `enter` starts the program again
inside; what is made there ends with its last process. Whatever the system does not allow is said by `Unfit`.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from chaos.drills.backends.port import Unfit

_INSIDE: Final = "DRILL_IS_INSIDE"
_NAMES: Final = Path("/run/netns")
_CLONE_NEWNET: Final = 0x40000000
_TABLE: Final = """
table inet drill {
 chain in { type filter hook input priority -10; }
 chain out { type filter hook output priority -10; }
}
"""


def can_enter() -> str:
    """Return "" if `enter` can work here, or what it lacks."""
    if _INSIDE in os.environ:
        return ""
    missing = [tool for tool in ("unshare", "nsenter", "ip", "nft") if shutil.which(tool) is None]
    if missing:
        return f"these programs are missing: {', '.join(missing)} (util-linux, iproute2, nftables)"
    if subprocess.run(_unshare("true"), check=False, capture_output=True).returncode:
        return "namespaces can't be made here: run it as root, or allow user namespaces"
    return ""


def enter(module: str, arguments: Sequence[str] | None = None) -> None:
    """Return inside the namespaces: the first time this starts `module` again there, with the same arguments."""
    if _INSIDE in os.environ:
        try:
            _NAMES.mkdir(parents=True, exist_ok=True)
        except PermissionError:  # without root
            _run("mount", "-t", "tmpfs", "tmpfs", str(_NAMES.parent))
            _NAMES.mkdir()
        _run("mount", "-t", "tmpfs", "tmpfs", str(_NAMES))
        return
    if lacking := can_enter():
        raise Unfit(lacking)
    os.environ[_INSIDE] = "1"
    given = sys.argv[1:] if arguments is None else arguments
    sys.stdout.flush()
    os.execvp("unshare", _unshare(sys.executable, "-m", module, *given))


def _unshare(*command: str) -> list[str]:
    kind = "-m" if os.geteuid() == 0 else "-Urnm"
    return ["unshare", kind, "--propagation", "private", *command]


class Network:
    """Hosts with an address each on one bridge, `subnet`.N for the host of number N; the caller stays on `HARNESS`."""

    HARNESS: Final = 100

    def __init__(self, subnet: str, numbers: Sequence[int]) -> None:
        self.subnet = subnet
        hub = self._name("hub")
        _run("ip", "netns", "add", hub)
        _run("ip", "-n", hub, "link", "add", "bridge", "type", "bridge")
        _run("ip", "-n", hub, "link", "set", "bridge", "up")
        for number in (*numbers, self.HARNESS):
            self._add(number)

    def address(self, number: int) -> str:
        return f"{self.subnet}.{number}"

    def join(self) -> None:
        """Move this thread, and what it starts, to the harness's host."""
        with (_NAMES / self._name(self.HARNESS)).open() as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
                raise Unfit(f"setns: {os.strerror(ctypes.get_errno())}")

    def command(self, number: int, *arguments: str) -> list[str]:
        """Return the command line that runs `arguments` on a host."""
        return ["nsenter", f"--net={_NAMES / self._name(number)}", *arguments]

    def add_address(self, number: int, address: str) -> None:
        """Give a host another address, in a network of 24 bits."""
        _run("ip", "-n", self._name(number), "addr", "add", f"{address}/24", "dev", "eth0")

    def drop(self, number: int, *, addresses: Sequence[str] = ()) -> None:
        """Drop what a host sends to and gets from `addresses`; all, if none are named."""
        rules = [f"add rule inet drill {chain} drop" for chain in ("in", "out")]
        if addresses:
            named = "{ " + ", ".join(addresses) + " }"
            rules = [
                f"add rule inet drill in ip saddr {named} drop",
                f"add rule inet drill out ip daddr {named} drop",
            ]
        self._nft(number, "\n".join(rules))

    def refuse(self, number: int, *, lost: Sequence[str], reset: Sequence[str] = ()) -> None:
        """Drop what a host gets from `lost`, answer what it gets from `reset` with RST, and let all else pass."""
        rules = ["flush chain inet drill in"]
        if lost:
            rules.append(f"add rule inet drill in ip saddr {{ {', '.join(lost)} }} drop")
        if reset:
            named = f"ip saddr {{ {', '.join(reset)} }}"
            rules.append(f"add rule inet drill in {named} meta l4proto tcp reject with tcp reset")
        self._nft(number, "\n".join(rules))

    def heal(self, number: int) -> None:
        """Drop nothing any more."""
        self._nft(number, "flush chain inet drill in\nflush chain inet drill out")

    def namespace(self, number: int) -> Path:
        return _NAMES / self._name(number)

    def route(self, number: int, device: str, receivers: Sequence[str]) -> None:
        """Let a host send what it sends to `receivers` by this device, and to nobody else."""
        own = self.address(number)
        lines = [f"route flush dev {device}", *(f"route add {each}/32 dev {device} src {own}" for each in receivers)]
        _run("ip", "-n", self._name(number), "-batch", "-", given="\n".join(lines))

    def _add(self, number: int) -> None:
        name, hub = self._name(number), self._name("hub")
        _run("ip", "netns", "add", name)
        _run("ip", "-n", hub, "link", "add", f"v{number}", "type", "veth", "peer", "name", "eth0", "netns", name)
        _run("ip", "-n", hub, "link", "set", f"v{number}", "master", "bridge", "up")
        self.add_address(number, self.address(number))
        for link in ("lo", "eth0"):
            _run("ip", "-n", name, "link", "set", link, "up")
        self._nft(number, _TABLE)

    def _nft(self, number: int, rules: str) -> None:
        _run(*self.command(number, "nft", "-f", "-"), given=rules)

    def _name(self, host: int | str) -> str:
        return f"d{os.getpid()}-{host}"


def _run(*command: str, given: str | None = None) -> None:
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unfit(f"{' '.join(command)}: {done.stderr.strip()}")
