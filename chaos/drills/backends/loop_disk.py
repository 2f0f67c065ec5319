"""A disk that is a file behind a loop device, with ext4 or xfs on it. Linux, as root, in a mount namespace of our own.

Power is cut by FS_IOC_SHUTDOWN: the file system drops all that it has not written to its device. What it has written
counts as kept, whether the device was asked to flush or not: a disk with a volatile cache is not shown.

Nothing is left behind, however this process ends. The file has no name. The device is detached by the kernel with its
last user: this object and the mount. Mounts end with the namespace. A frozen file system would outlive all that, so a
process of its own thaws it as soon as ours is gone.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import struct
import subprocess
import time
from collections.abc import Collection
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final

from chaos.drills.backends.port import Unfit

FILESYSTEMS: Final = {"ext4": ("mkfs.ext4", "-q", "-F"), "xfs": ("mkfs.xfs", "-q", "-f")}
_MOUNT_OPTIONS: Final = {"ext4": ("-o", "errors=remount-ro"), "xfs": ()}
_CONTROL: Final = Path("/dev/loop-control")
_LOOP_CTL_GET_FREE: Final = 0x4C82
_LOOP_CONFIGURE: Final = 0x4C0A
_CONFIG_BYTES: Final = 304
"""Of `struct loop_config`: the file's descriptor is its first field, and flags are at `_FLAGS_AT`."""
_FLAGS_AT: Final = 60
_AUTOCLEAR: Final = 4
_SHUTDOWN: Final = 0x8004587D
"""FS_IOC_SHUTDOWN, which is XFS_IOC_GOINGDOWN as well."""
_FLUSH_JOURNAL, _FLUSH_NOTHING = 1, 2
_REPAIRED: Final = 1
"""Exit code of fsck if it has corrected errors."""
_BUSY_SECONDS_MAX: Final = 10.0
_POLL_SECONDS: Final = 0.05
_PROBE_BYTES: Final = 1 << 20


def lacking() -> str:
    """Return "" if disks can be made here, or what is missing."""
    if os.geteuid():
        return "root is needed for disks that lose power"
    if filesystem() is None:
        return f"none of these programs is there: {', '.join(make[0] for make in FILESYSTEMS.values())}"
    try:
        with TemporaryFile() as file:
            file.truncate(_PROBE_BYTES)
            os.close(_attach(file.fileno())[1])
    except OSError as error:
        return f"no loop device can be used: {error}"
    return ""


def filesystem() -> str | None:
    """Return the first file system that can be made here."""
    return next((name for name, make in FILESYSTEMS.items() if shutil.which(make[0])), None)


class LoopDisk:
    """As `chaos.drills.backends.port.Disk`, mounted at `directory`; its file is beside that. Raises `Unfit`."""

    def __init__(self, directory: Path, size_bytes: int, kind: str) -> None:
        self._directory = directory
        self._kind = kind
        self._thawing: subprocess.Popen[bytes] | None = None
        self._has_error = False
        self._is_mounted = False
        try:
            with TemporaryFile(dir=directory.parent) as file:
                file.truncate(size_bytes)
                self._device, self._descriptor = _attach(file.fileno())
            _run(*FILESYSTEMS[kind], str(self._device))
            self.mount()
        except OSError as error:
            raise Unfit(f"no {kind} on a loop device: {error}") from error

    def mount(self) -> None:
        self._unmount()
        if self._has_error:
            _run("fsck.ext4", "-p", str(self._device), successes=(0, _REPAIRED))
            self._has_error = False
        _run("mount", "-t", self._kind, *_MOUNT_OPTIONS[self._kind], str(self._device), str(self._directory))
        self._is_mounted = True

    def cut_power(self, *, is_journal_flushed: bool) -> None:
        flags = _FLUSH_JOURNAL if is_journal_flushed else _FLUSH_NOTHING
        descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, struct.pack("I", flags))
        finally:
            os.close(descriptor)

    def become_read_only(self) -> None:
        self._has_error = True
        Path(f"/sys/fs/ext4/{self._device.name}/trigger_fs_error").write_text("a drill\n")

    def freeze(self) -> None:
        script = 'fsfreeze --freeze "$0" && echo frozen && read _; fsfreeze --unfreeze "$0"'
        self._thawing = subprocess.Popen(
            ["sh", "-c", script, str(self._directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,  # Ctrl-C is for us
        )
        assert self._thawing.stdout is not None
        if not self._thawing.stdout.readline():
            self.thaw()
            raise OSError(errno.EBUSY, f"{self._directory} can't be frozen")

    def thaw(self) -> None:
        thawing, self._thawing = self._thawing, None
        if thawing is not None:
            thawing.communicate()  # its input ends

    def close(self) -> None:
        """Unmount it, and forget its content."""
        self.thaw()
        self._unmount()
        os.close(self._descriptor)

    def _unmount(self) -> None:
        """Unmount it if it is mounted; whoever has just been killed may still hold it for a moment."""
        deadline = time.monotonic() + _BUSY_SECONDS_MAX
        while self._is_mounted:
            try:
                _run("umount", str(self._directory))
                self._is_mounted = False
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_SECONDS)


def _attach(file: int) -> tuple[Path, int]:
    """Attach a file to a free loop device; return the device, and the descriptor that keeps it attached."""
    config = bytearray(_CONFIG_BYTES)
    struct.pack_into("I", config, 0, file)
    struct.pack_into("I", config, _FLAGS_AT, _AUTOCLEAR)
    control = os.open(_CONTROL, os.O_RDWR)
    try:
        while True:
            device = Path(f"/dev/loop{fcntl.ioctl(control, _LOOP_CTL_GET_FREE)}")
            descriptor = os.open(device, os.O_RDWR)
            try:
                fcntl.ioctl(descriptor, _LOOP_CONFIGURE, config)
            except OSError as error:
                os.close(descriptor)
                if error.errno != errno.EBUSY:  # another process was faster
                    raise
            else:
                return device, descriptor
    finally:
        os.close(control)


def _run(*command: str, successes: Collection[int] = (0,)) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in successes:
        raise OSError(errno.EIO, f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
