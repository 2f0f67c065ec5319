"""Faults of drills: each has a name, what it needs of a backend, and how it begins and heals."""

from chaos.drills.faults.registry import FAULTS, Fault, Scene, chosen, drawn

from chaos.drills.faults import bad_links, links, machines, membership, processes  # isort: skip  # they register themselves

__all__ = ["FAULTS", "Fault", "Scene", "bad_links", "chosen", "drawn", "links", "machines", "membership", "processes"]
