"""Whose disks must hold an entry, while the members of the cluster change."""

from __future__ import annotations

import pytest

from chaos.checkers.history.events import AnyEvent, Applied, Configured, Durable, Members, Setup, Truncated
from chaos.checkers.history.views import History
from chaos.checkers.raft.disks import on_most_disks_when_applied

THREE = ("n1", "n2", "n3")
FOUR = (*THREE, "n4")


def violations(*events: AnyEvent) -> list[str]:
    return [violation.message for violation in on_most_disks_when_applied(History([Setup(nodes=THREE), *events]))]


def durable(index: int, *nodes: str) -> list[AnyEvent]:
    return [Durable(node=node, index=index, term=1, digest=f"e{index}") for node in nodes]


def goes_by(node: str, index: int, voters: tuple[str, ...]) -> Configured:
    return Configured(node=node, index=index, term=1, voters=voters)


def applied(index: int) -> Applied:
    return Applied(node="n1", index=index, term=1, digest=f"e{index}")


@pytest.mark.parametrize(("holders", "is_right"), [(("n1", "n2"), False), (("n1", "n2", "n4"), True)])
def test_a_configuration_needs_a_majority_of_its_own(holders: tuple[str, ...], is_right: bool) -> None:
    found = violations(goes_by("n1", 1, FOUR), *durable(1, *holders), applied(1))
    assert (
        not found
        if is_right
        else found == ["n1 applies entry 1 of term 1, on the disks of n1, n2 only, of n1, n2, n3, n4"]
    )


def test_an_entry_before_a_configuration_may_be_committed_by_it() -> None:
    """The leader of four goes by three at once, and commits what came before on two of them."""
    grown = [goes_by("n1", 1, FOUR), *durable(1, *FOUR), applied(1)]
    written = durable(2, "n1", "n2")
    assert violations(*grown, *written, applied(2))
    assert not violations(*grown, goes_by("n1", 3, THREE), *written, applied(2))


def test_an_entry_behind_a_configuration_is_never_committed_by_an_older_one() -> None:
    lags = goes_by("n2", 0, THREE)
    grown = [lags, goes_by("n1", 1, FOUR), *durable(1, *FOUR), applied(1)]
    assert violations(*grown, *durable(2, "n1", "n2"), applied(2))
    assert not violations(*grown, *durable(2, "n1", "n2", "n3"), applied(2))


def test_a_disk_counts_for_what_it_held_when_it_was_lost_and_for_nothing_else() -> None:
    lost = Truncated(node="n2", index=1, wiped=True)
    assert not violations(*durable(1, "n1", "n2"), lost, applied(1))
    assert violations(*durable(1, "n1", "n2"), lost, applied(1), *durable(2, "n1"), applied(2))


def test_members_named_by_a_harness_count_where_no_configuration_is_known() -> None:
    two = Members(nodes=("n1", "n2"))
    assert not violations(two, *durable(1, "n1", "n2"), applied(1))
    assert violations(two, *durable(1, "n1", "n3"), applied(1))
