"""Backends: what nodes of a drill run on, and which faults can be made there."""

from chaos.drills.backends.port import Backend, Disk, Launch, Need, NodeProcess, Unfit
from chaos.drills.backends.quality import Quality

__all__ = ["Backend", "Disk", "Launch", "Need", "NodeProcess", "Quality", "Unfit"]
