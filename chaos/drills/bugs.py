"""Bugs that a node of a drill can be started with (`observed_node`), to see that the drill finds them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from chaos.sim.planted.bug import Patch
from chaos.sim.planted.patches.leader import expires_early_after_an_election
from raftsched.consensus.replica import Replica


def reads_without_a_majority(patch: Patch) -> None:
    """Answer reads from the own state of whichever node is asked, whoever leads."""
    patch.setattr(Replica, "check_fresh", lambda _self: None)


BUGS: Final[dict[str, Callable[[Patch], None]]] = {
    bug.__name__: bug for bug in (reads_without_a_majority, expires_early_after_an_election)
}


def plant(name: str) -> None:
    """Plant a bug into this process, for good."""
    BUGS[name](Patch())
