"""A cluster of nodes on hosts of their own (`namespaces`), and the faults that a host can have."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from chaos.drills.backends.namespaces import Network
from raftsched.cli.local.children import UNTIL_STDIN_ENDS, lifeline

_ROOT: Final = Path(__file__).parents[2]
_API: Final = 8400
_RAFT: Final = 8401
_SHIM: Final = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>
static int held(const char *name, int file) {
    while (access(getenv("DRILL_DISK_HANGS"), F_OK) == 0) usleep(20000);
    return ((int (*)(int))dlsym(RTLD_NEXT, name))(file);
}
int fdatasync(int file) { return held("fdatasync", file); }
int fsync(int file) { return held("fsync", file); }
"""
"""Lets every sync wait while a file is there; preloaded into the node."""


class Host:
    """One node on a host of its own."""

    def __init__(self, number: int, network: Network, directory: Path, *, advertised: str, shim: Path | None) -> None:
        self.number: Final = number
        self.node_id: Final = f"n{number}"
        self.api: Final = f"http://{network.address(number)}:{_API}"
        self.advertised: Final = f"http://{advertised}:{_API}"
        self._network: Final = network
        self._directory: Final = directory
        self._shim: Final = shim
        self._hangs: Final = directory / f"{self.node_id}.disk-hangs"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        environment = os.environ | {
            "RAFTSCHED_NODE_ID": self.node_id,
            "RAFTSCHED_DATA_DIR": str(self._directory / self.node_id),
            "DRILL_DISK_HANGS": str(self._hangs),
        }
        if self._shim is not None:
            environment["LD_PRELOAD"] = str(self._shim)
        config = str(self._directory / "cluster.toml")
        node = [sys.executable, "-m", "raftsched", "node", "--config", config, UNTIL_STDIN_ENDS]
        with (self._directory / f"{self.node_id}.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._network.command(self.number, *node),
                env=environment,
                cwd=_ROOT,
                stdin=lifeline(),
                stdout=log,
                stderr=log,
            )

    # -- faults -------------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def cut(self, others: Sequence[Host]) -> None:
        """Cut it off from `others`; clients reach it."""
        self._network.drop(self.number, addresses=[self._network.address(other.number) for other in others])

    def darken(self) -> None:
        """Drop every packet, as where the power failed."""
        self._network.drop(self.number)

    def heal(self) -> None:
        self._network.heal(self.number)

    def hang_disk(self) -> None:
        self._hangs.touch()

    def free_disk(self) -> None:
        self._hangs.unlink(missing_ok=True)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)


@contextmanager
def hosts(count: int, *, subnet: str, advertised: str = "") -> Iterator[tuple[list[Host], Network, Path]]:
    """Running nodes, each on its host; the caller is on the harness's. `advertised` is the subnet that nodes name."""
    network = Network(subnet, range(1, count + 1))
    network.join()
    with tempfile.TemporaryDirectory(prefix="raftsched-drill-") as name:
        directory = Path(name)
        shim = _shim(directory)
        made = [
            Host(
                number,
                network,
                directory,
                advertised=f"{advertised or subnet}.{number}",
                shim=shim,
            )
            for number in range(1, count + 1)
        ]
        members = "".join(
            f'[[nodes]]\nid = "{host.node_id}"\nraft = "{network.address(host.number)}:{_RAFT}"\n'
            f'api = "{host.advertised.removeprefix("http://")}"\n'
            for host in made
        )
        head = f'auth = "none"\ninsecure_peers = true\ncluster = "drill"\napi_listen = "0.0.0.0:{_API}"\n'
        (directory / "cluster.toml").write_text(head + members)
        try:
            for host in made:
                if advertised:
                    network.add_address(host.number, f"{advertised}.{host.number}")
                host.start()
            yield made, network, directory
        finally:
            for host in made:
                host.free_disk()
                host.kill()


def can_hang_disks() -> bool:
    """Whether there is a C compiler, for what holds syncs up."""
    return shutil.which("cc") is not None or shutil.which("gcc") is not None


def _shim(directory: Path) -> Path | None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    source, library = directory / "shim.c", directory / "shim.so"
    source.write_text(_SHIM)
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
    return library
