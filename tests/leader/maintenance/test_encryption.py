from __future__ import annotations

import random

from raftsched.core.operations.encryption import AdoptKey
from raftsched.encryption.keys import KeyCheck
from raftsched.leader.maintenance.encryption import KeyAdoption
from raftsched.leader.now import NEVER_MS
from raftsched.leader.settings import LeaderSettings
from tests.leader.scene import World

ONE, TWO = KeyCheck("k1", "c1"), KeyCheck("k2", "c2")


def lead(world: World, key: KeyCheck | None) -> list[str]:
    """Let a leader with this key do its work; return the keys that it proposed."""
    return proposed_by(KeyAdoption(world.state, LeaderSettings(key=key), random.Random(1).randbytes), world)


def proposed_by(service: KeyAdoption, world: World) -> list[str]:
    """Let the service do its work, whose first result is lost; return the keys that it proposed."""
    proposed: list[str] = []
    while service.next_call_ms(world.now) < NEVER_MS:
        for operation in service.step(world.now):
            assert isinstance(operation, AdoptKey)
            proposed.append(operation.key_id)
            is_lost = len(proposed) == 1
            service.on_result(operation, None if is_lost else world.apply(operation)[0], world.now)
    return proposed


def test_each_leader_makes_its_key_known_once_and_again_if_that_failed(world: World) -> None:
    assert lead(world, None) == []
    assert lead(world, ONE) == ["k1", "k1"]
    assert lead(world, ONE) == []
    assert lead(world, TWO) == ["k2", "k2"]
    assert world.state.cluster_key is not None
    assert world.state.cluster_key.key_id == "k2"


def test_leader_that_encrypts_by_another_key_makes_it_known(world: World) -> None:
    settings = LeaderSettings(key=ONE)
    service = KeyAdoption(world.state, settings, random.Random(1).randbytes)
    assert proposed_by(service, world) == ["k1", "k1"]
    settings.key = TWO
    service.restart()
    assert proposed_by(service, world) == ["k2", "k2"]
