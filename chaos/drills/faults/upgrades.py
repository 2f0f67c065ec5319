"""Faults of releases: nodes are replaced by those of a later release, one by one, under load, and go back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from chaos.drills.backends import Need
from chaos.drills.faults.registry import Scene, fault
from chaos.drills.releases import LATER_VERSION, Release, later_release

_HOLD_SECONDS: Final = 1.0


@fault(Need.RELEASES, hold_seconds=_HOLD_SECONDS, is_alone=True)
async def downgrade(scene: Scene) -> AsyncIterator[str]:
    """Upgrade all nodes but one to a later release, one by one, and take them back before it is in force."""
    upgraded = scene.random.sample(scene.nodes, len(scene.nodes) - 1)
    later = _later(scene)
    for node in upgraded:
        node.release = later.directory
        await scene.restart(node)
    yield " ".join(node.id for node in upgraded)
    for node in upgraded:
        node.release = None
        await scene.restart(node)


@fault(Need.RELEASES, hold_seconds=_HOLD_SECONDS, is_alone=True, is_last=True)
async def upgrade(scene: Scene) -> AsyncIterator[str]:
    """Upgrade all nodes to a later release, one by one, until it is in force."""
    later = _later(scene)
    for node in scene.nodes:
        node.release = later.directory
        await scene.restart(node)
    await scene.cluster.until(lambda: _version_missing(scene), f"version {LATER_VERSION} of log entries")
    yield "each"


def _later(scene: Scene) -> Release:
    directory = scene.cluster.directory / "later-release"
    return Release("later", directory) if directory.exists() else later_release(directory, "9.9.9")


async def _version_missing(scene: Scene) -> str:
    _, document = await scene.cluster.get(await scene.leader(), "/api/v1/cluster")
    version = document.get("operation_version")
    return "" if version == LATER_VERSION else f"version {version} is in force"
