"""Faults of drills: each has a name, what it needs of a backend, and how it begins and heals."""

from chaos.drills.faults.registry import FAULTS, Fault, Scene, at_once, chosen

from chaos.drills.faults import (  # isort: skip  # they register
    bad_links,
    clocks,
    disks,
    links,
    membership,
    names,
    processes,
    rot,
    snapshots,
    syncs,
    upgrades,
)

__all__ = [
    "FAULTS",
    "Fault",
    "Scene",
    "at_once",
    "bad_links",
    "chosen",
    "clocks",
    "disks",
    "links",
    "membership",
    "names",
    "processes",
    "rot",
    "snapshots",
    "syncs",
    "upgrades",
]
