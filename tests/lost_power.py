"""What a real directory may hold after a power loss: all that was synced, and of the names that changed since any part.

`Shadow` hears every `os.fsync` and `os.fdatasync` of this process below one directory, in place of the disk. A sync of a
file makes its bytes durable, a sync of a directory the names in it as they are then. Bytes that were not synced are gone.
Names that were created, removed or replaced without a sync are as before or as now: `survivors` takes none of these changes,
all, each one alone, and all but each one.

LMDB syncs its own file without Python's help, so the test says when that happened (`trust`).

A *site* is a line of production code that asks for a sync. `without` drops the syncs of some, as if somebody had deleted
those lines.
"""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import pytest

Tree = dict[str, "Tree | bytes"]
_PACKAGE = f"{os.sep}raftsched{os.sep}"
_WRAPPERS = frozenset({"sync_directory", "SystemDisk.sync_directory", "SystemFile.datasync", "_sync"})
"""They only do what their caller asks for."""


class Killed(BaseException):  # not an error: nothing of the process may go on
    """The process ends here."""


@dataclass(slots=True)
class Shadow:
    """Follows the durable contents of `root`; `before_sync` is called before each sync, with nothing made durable yet."""

    root: Path
    without: frozenset[str] = frozenset()
    kills_at: str = ""
    """A site at which the process is killed, once: the sync is not done, and what was written before is seen."""
    before_sync: Callable[[], None] = lambda: None
    sites: set[str] = field(default_factory=set)
    _names: dict[int, dict[str, int]] = field(default_factory=dict)
    """Inode of a directory -> the names in it that are durable, with their inodes."""
    _bytes: dict[int, bytes] = field(default_factory=dict)
    _directories: set[int] = field(default_factory=set)
    _held: list[int] = field(default_factory=list)
    """Descriptors of all that was synced, so that no inode is used again."""

    def listen(self, patch: pytest.MonkeyPatch) -> None:
        """Hear the syncs of this process until the test is over."""
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, self._hear)

    def close(self) -> None:
        for descriptor in self._held:
            os.close(descriptor)

    def trust(self, path: Path) -> None:
        """The file's bytes are durable: somebody synced it who doesn't ask Python."""
        self._keep(os.open(path, os.O_RDONLY))

    def survivors(self) -> list[Tree]:
        """Return what may be left of `root`."""
        changes = [(inode, name) for inode in sorted(self._now) for name in self._changed(inode)]
        alone = [{change} for change in changes]
        others = [set(changes) - {change} for change in changes]
        kept: list[set[tuple[int, str]]] = [set()]
        for each in (*alone, *others, set(changes)):
            if each not in kept:
                kept.append(each)
        return [self._tree(self.root.stat().st_ino, each) for each in kept]

    def _changed(self, directory: int) -> list[str]:
        now, durable = self._now[directory], self._names.get(directory, {})
        return sorted(name for name in {*now, *durable} if now.get(name) != durable.get(name))

    @property
    def _now(self) -> dict[int, dict[str, int]]:
        """The names in all directories as processes see them, with their inodes."""
        return {each.stat().st_ino: _names_in(each) for each in self._all_directories()}

    def _tree(self, directory: int, kept: set[tuple[int, str]]) -> Tree:
        now, names = self._now.get(directory, {}), dict(self._names.get(directory, {}))
        for inode, name in kept:
            if inode == directory and name in now:
                names[name] = now[name]
            elif inode == directory:
                names.pop(name, None)
        is_directory = {each.stat().st_ino for each in self._all_directories()} | self._directories
        return {
            name: self._tree(inode, kept) if inode in is_directory else self._bytes.get(inode, b"")
            for name, inode in names.items()
        }

    def _hear(self, descriptor: int) -> None:
        """Take the place of a sync."""
        if not self._is_ours(descriptor):
            return
        self.before_sync()
        site = _site(sys._getframe(1))  # who calls
        self.sites.add(site)
        if site == self.kills_at:
            self.kills_at = ""
            raise Killed
        if site not in self.without:
            self._keep(os.dup(descriptor))

    def _is_ours(self, descriptor: int) -> bool:
        inode = os.fstat(descriptor).st_ino
        return any(path.stat().st_ino == inode for path in (self.root, *self.root.rglob("*")))

    def _keep(self, descriptor: int) -> None:
        self._held.append(descriptor)
        inode = os.fstat(descriptor).st_ino
        directory = next((each for each in self._all_directories() if each.stat().st_ino == inode), None)
        if directory is None:
            self._bytes[inode] = _read(descriptor)
            return
        self._names[inode] = _names_in(directory)
        self._directories |= {path.stat().st_ino for path in directory.iterdir() if path.is_dir()}

    def _all_directories(self) -> list[Path]:
        return [self.root, *(path for path in self.root.rglob("*") if path.is_dir())]


def _read(descriptor: int) -> bytes:
    """All bytes of a file that may be open for writing only."""
    reader = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY)
    try:
        return os.pread(reader, os.fstat(reader).st_size, 0)
    finally:
        os.close(reader)


def _names_in(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_ino for path in directory.iterdir()}


def _site(frame: FrameType | None) -> str:
    """The innermost line of the package that is not a wrapper's; #2 is the second such line in its function."""
    while frame is not None:
        code = frame.f_code
        if _PACKAGE in code.co_filename and code.co_qualname not in _WRAPPERS:
            line = linecache.getline(code.co_filename, frame.f_lineno)
            before = range(code.co_firstlineno, frame.f_lineno)
            count = 1 + sum(linecache.getline(code.co_filename, number) == line for number in before)
            return f"{code.co_qualname}: {line.strip()}{f' #{count}' if count > 1 else ''}"
        frame = frame.f_back
    raise AssertionError("nobody of the package asked for this sync")


def write_tree(tree: Tree, directory: Path) -> None:
    """Make a directory that holds `tree`."""
    directory.mkdir()
    for name, content in tree.items():
        if isinstance(content, bytes):
            (directory / name).write_bytes(content)
        else:
            write_tree(content, directory / name)
