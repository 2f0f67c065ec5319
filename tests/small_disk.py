"""A node whose data are on a small file system of their own: a tmpfs that only it sees, and that ends with it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

from raftsched.cli.local.cluster import LocalNode

_MISSING: Final = (
    "a small file system can't be mounted here, so no disk can fill up: run the tests as root with CAP_SYS_ADMIN, "
    "or allow user namespaces (sysctl kernel.unprivileged_userns_clone=1, "
    "kernel.apparmor_restrict_unprivileged_userns=0); unshare and mount are in util-linux"
)
_MOUNT: Final = 'size=$1 directory=$2; shift 2; mount -t tmpfs -o "size=$size" tmpfs "$directory" && exec "$@"'


class SmallDiskNode(LocalNode):
    """A node on a disk of `DISK_BYTES`; its data are gone once it has ended."""

    DISK_BYTES: Final = 64 << 20

    def command(self, config: Path) -> list[str]:
        """Return the command line of a node in a mount namespace; fails the test if none can be made."""
        self.data_directory.mkdir(exist_ok=True)
        errors = []
        for kind in ("-m", "-Urm"):  # as root, and else in a user namespace
            shell = ["sh", "-c", _MOUNT, "sh", str(self.DISK_BYTES), str(self.data_directory)]
            mounted = ["unshare", kind, "--propagation", "private", *shell]
            # By env, which reports a program that is missing as mount reports what is not allowed.
            tried = subprocess.run(["env", *mounted, "true"], capture_output=True, text=True, check=False)
            if tried.returncode == 0:
                return [*mounted, *super().command(config)]
            errors.append(tried.stderr.strip())
        raise AssertionError(f"{_MISSING} ({'; '.join(errors)})")

    def fill(self, *, free: float) -> None:
        """Write a file that leaves the node's disk so much free space, as a part of its size."""
        assert self.process is not None
        seen = Path(f"/proc/{self.process.pid}/root") / self.data_directory.resolve().relative_to("/")
        usage = os.statvfs(seen)
        filler_bytes = usage.f_bavail * usage.f_frsize - int(free * usage.f_blocks * usage.f_frsize)
        with (seen / "filler").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, filler_bytes)
