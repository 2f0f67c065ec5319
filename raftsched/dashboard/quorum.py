"""Count votes: how many nodes must be up, how many are, and what a change of members does to that."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from raftsched.wire.cluster import NodeStatus

_DOWN = ("down", "differs")


@dataclass(frozen=True, slots=True)
class Quorum:
    """The voters of a cluster."""

    voter_count: int
    up_count: int

    @property
    def needed_count(self) -> int:
        """Return how many voters must be up, so that work is accepted: a majority."""
        return self.voter_count // 2 + 1

    @property
    def spare_count(self) -> int:
        """Return how many more voters may be lost; negative if work is not accepted now."""
        return self.up_count - self.needed_count

    @property
    def text(self) -> str:
        """Return it in words."""
        voters = f"{self.voter_count} voter{'' if self.voter_count == 1 else 's'}"
        told = f"{voters}, {self.needed_count} must be up, {self.up_count} {'is' if self.up_count == 1 else 'are'}"
        if self.spare_count < 0:
            return f"{told}: no work is accepted"
        if self.spare_count == 0:
            return f"{told}: the loss of one more stops the cluster"
        return f"{told}: the cluster survives the loss of {self.spare_count} more"

    def with_voter(self, *, is_up: bool) -> Quorum:
        """Return the voters with one more."""
        return Quorum(self.voter_count + 1, self.up_count + is_up)

    def without(self, node: NodeStatus) -> Quorum:
        """Return the voters without a node."""
        return Quorum(self.voter_count - node.voter, self.up_count - (node.voter and is_up(node)))


def quorum_of(nodes: Iterable[NodeStatus]) -> Quorum:
    """Return the voters among nodes."""
    voters = [node for node in nodes if node.voter]
    return Quorum(len(voters), sum(map(is_up, voters)))


def is_up(node: NodeStatus) -> bool:
    """Return whether a node counts for a majority now."""
    return node.state not in _DOWN
