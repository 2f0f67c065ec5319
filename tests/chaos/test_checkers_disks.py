"""What counts as held on a disk while a snapshot takes the place of the log."""

from __future__ import annotations

from chaos.checkers.history.events import AnyEvent, Applied, Durable, Installed, Setup, Truncated
from chaos.checkers.history.views import History
from chaos.checkers.raft.disks import committed_stays_on_disk

NODES = ("n1", "n2", "n3")


def violations(*events: AnyEvent) -> list[str]:
    history = History([Setup(nodes=NODES), *events])
    return [violation.message for violation in committed_stays_on_disk(history)]


def durable(index: int, *nodes: str) -> list[AnyEvent]:
    return [Durable(node=node, index=index, term=1, digest=f"e{index}") for node in nodes]


def committed(*indexes: int) -> list[AnyEvent]:
    return [
        event
        for index in indexes
        for event in (*durable(index, "n2", "n3"), Applied(node="n2", index=index, term=1, digest=f"e{index}"))
    ]


INSTALLED = Installed(node="n1", index=5, term=1, state="s")


def test_entries_of_the_old_log_that_were_under_way_at_an_installation_are_of_no_account() -> None:
    """Seeds 420265 and 422981: they were written behind the snapshot that covers them, and went with the old log."""
    assert violations(*committed(2, 3, 4, 5), *durable(2, "n1"), INSTALLED, *durable(3, "n1"), *durable(4, "n1")) == []


def test_what_lies_behind_a_snapshot_may_still_not_be_given_up() -> None:
    later = [*committed(2, 3, 4, 5, 6), *durable(2, "n1"), INSTALLED, *durable(6, "n1")]
    assert violations(*later) == []
    assert violations(*later, Truncated(node="n1", index=6)) != []
