"""Seeds with keys: each node encrypts under another first key, and all hold the same."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

from chaos.sim.rates import Rates
from chaos.sim.run.seed import run_world
from chaos.sim.world.world import World

SEED = 9
"""A quarter of all seeds have keys, and this one."""
IN_EACH_SUBMIT = b"default"


@pytest.mark.parametrize("has_keys", [True, False])
def test_nodes_hold_the_same_and_write_in_the_clear_only_without_keys(has_keys: bool) -> None:
    def altered(rates: Rates) -> Rates:
        assert rates.is_encrypted
        return replace(rates, uses_lmdb=False, is_encrypted=has_keys)

    with closing(World(SEED, 3, alter=altered)) as world:
        outcome = run_world(world, fault_seconds=3.0)
        assert not outcome.violations
        machines = [host.machine for host in world.hosts.values()]
        for machine in machines:
            rows = machine.store.rows_by_key()
            assert (rows.pop(""), bool(rows)) == (0, True) if has_keys else not rows.keys() - {""}
        assert len({machine.cipher.key_id for machine in machines}) == (2 if has_keys else 1)
        journals = b"".join(machine.disk.read(name) for machine in machines for name in machine.disk.names())
        assert (IN_EACH_SUBMIT in journals) != has_keys
