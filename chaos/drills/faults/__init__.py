"""Faults of drills: each has a name, what it needs of a backend, and how it begins and heals."""

from chaos.drills.faults.registry import FAULTS, Fault, Scene, chosen

from chaos.drills.faults import links, machines, processes  # isort: skip  # they register themselves

__all__ = ["FAULTS", "Fault", "Scene", "chosen", "links", "machines", "processes"]
