"""A service that workers write to; it checks their fencing tokens."""

from __future__ import annotations

from chaos.sim.world.world import World


class Receiver:
    """A resource on which jobs act: it keeps the highest token of each resource, and refuses lower ones (G6)."""

    def __init__(self, world: World) -> None:
        self._recorder = world.recorder
        self._highest: dict[str, int] = {}

    def take(self, resource: str, token: int) -> None:
        accepted = token >= self._highest.get(resource, 0)
        if accepted:
            self._highest[resource] = token
        self._recorder.downstream(resource, token, accepted=accepted)
