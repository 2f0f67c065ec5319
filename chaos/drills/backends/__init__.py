"""Backends: what nodes of a drill run on, and which faults can be made there."""

from chaos.drills.backends.port import Backend, Need, Unfit

__all__ = ["Backend", "Need", "Unfit"]
