"""The namespaces backend with a disk for each node that can lose its power, fail, or be frozen: as root only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from chaos.drills.backends.loop_disk import LoopDisk, filesystem
from chaos.drills.backends.namespaces_backend import Namespaces
from chaos.drills.backends.port import Disk, Need
from chaos.drills.backends.quality import Quality


class Root(Namespaces):
    """Disks have ext4 if that can be made here, else xfs."""

    name = "root"
    filesystem: ClassVar[str] = filesystem() or "ext4"
    about = f"{Namespaces.about}; a loop device with {filesystem} for each node"
    offers = Namespaces.offers | {Need.DISKS} | ({Need.READ_ONLY} if filesystem == "ext4" else set())

    def __init__(
        self,
        numbers: Sequence[int],
        users: Sequence[int] = (),
        usual: Mapping[tuple[int, int], Quality] | None = None,
    ) -> None:
        super().__init__(numbers, users, usual)
        self._disks: dict[Path, LoopDisk] = {}

    def mount_small(self, directory: Path, size_bytes: int) -> None:
        self._disks[directory] = LoopDisk(directory, size_bytes, self.filesystem)

    def disk_at(self, directory: Path) -> Disk:
        return self._disks[directory]

    async def close(self) -> None:
        while self._disks:
            self._disks.popitem()[1].close()
        await super().close()


class RootXfs(Root):
    """Disks have xfs."""

    name = "root-xfs"
    filesystem = "xfs"
    about = f"{Namespaces.about}; a loop device with xfs for each node"
    offers = Namespaces.offers | {Need.DISKS}
