"""Nodes of two releases live together: what the leader writes, who is refused, and what a node refuses to read."""

from __future__ import annotations

from math import inf
from pathlib import Path

import pytest

from raftsched.consensus.machine import ReplicatedState
from raftsched.consensus.raft.log.entry_versions import PeerVersion, agreed_version
from raftsched.consensus.raft.membership.members import Member, Membership, encode_membership
from raftsched.core.operations.codec import (
    CODEC_VERSION,
    OLDEST_READ,
    CancelJob,
    UnknownVersion,
    encode_batch,
)
from raftsched.core.records.ids import JobId, TimeMs
from tests.consensus.subjects import MendedSubject

OLD, NEW = CODEC_VERSION, CODEC_VERSION + 1

# -- the rule ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("others", "version"),
    [
        ([], 3),
        ([PeerVersion(3, 10.0, 10.1)], 3),
        ([PeerVersion(2, 10.0, 12.0), PeerVersion(3, 11.0, 11.1)], 2),
        ([PeerVersion(4, 10.0, 10.1)], 3),
        ([PeerVersion(3, 10.0, -inf)], 1),
        ([PeerVersion(3, 10.0, 11.0), PeerVersion(3, 11.0, 11.1)], 1),
        ([PeerVersion(3, inf, 11.0), PeerVersion(3, 10.0, 11.0)], 1),
        ([PeerVersion(3, 10.0, 10.1), None], 1),
        ([None], 1),
    ],
    ids=[
        "alone",
        "all read it",
        "one reads less",
        "all others read more",
        "no answer yet",
        "no answer since the last report",
        "not connected now",
        "one never reported",
        "nobody reported",
    ],
)
def test_the_version_rises_to_what_all_were_seen_to_read_at_one_moment(
    others: list[PeerVersion | None], version: int
) -> None:
    assert agreed_version(1, 3, others) == version


def test_the_version_never_falls() -> None:
    assert agreed_version(3, 3, [PeerVersion(1, 10.0, 10.1)]) == 3


# -- the leader --------------------------------------------------------------------------------------------------------


class Leader(MendedSubject):
    """Node "a" of a new cluster with `others`, of the new release; `lead` makes it the leader."""

    def __init__(self, others: str, directory: Path, *, reads: int = NEW) -> None:
        super().__init__(others, directory, incarnation="mine")
        self.machine.operations_read = reads

    def identify(self, peer: str, *, reads: int, in_force: int = OLD) -> None:
        self.transport._onMessageReceived(
            self.engine.configuration.nodes[peer],
            {
                "type": "peer_identity",
                "incarnation": f"{peer}'s",
                "term": 0,
                "blank": True,
                "asks": False,
                "members": encode_membership(Membership.of([])),
                "members_index": 0,
                "operations_read": reads,
                "operations_in_force": in_force,
            },
        )

    def reconnect(self, peer: str, *, reads: int) -> None:
        """The peer has restarted."""
        self.part(peer)
        self.transport._onNodeConnected(self.engine.configuration.nodes[peer])
        self.identify(peer, reads=reads)

    def part(self, peer: str) -> None:
        self.transport._onNodeDisconnected(self.engine.configuration.nodes[peer])

    def lead(self) -> None:
        self.tick()
        self.stand()
        for peer in self.others:
            self.give(peer, type="response_vote", term=self.term)
        self.tick()
        assert self.leads

    def ask(self, *peers: str, success: bool = True) -> None:
        """Heartbeats to all, a moment later, and the answers of `peers`; without success, they lack the entries."""
        self.clock.now += 0.1
        self.transport.sent.clear()
        self.tick()
        for peer in peers:
            asked = self.take("append_entries", peer)[-1]
            matched = asked["entries"][-1][1] if asked["entries"] else asked["prevLogIdx"]
            self.give(
                peer,
                type="next_node_idx",
                term=self.term,
                success=success,
                reset=False,
                next_node_idx=matched + 1,
                rejected=0,
                sent_us=asked["sent_us"],
            )
        self.tick()

    @property
    def version(self) -> int:
        return self.engine.versions.in_force


@pytest.fixture
def node(tmp_path: Path) -> Leader:
    """A leader of three that was answered by both others: b reads the new version, c the old one."""
    node = Leader("bc", tmp_path)
    node.identify("b", reads=NEW)
    node.identify("c", reads=OLD)
    node.lead()
    node.ask("b", "c")
    return node


def test_the_leader_writes_the_old_version_until_every_member_reads_the_new(node: Leader) -> None:
    assert node.version == OLD
    node.reconnect("c", reads=NEW)
    node.ask("b", "c")
    assert node.version == NEW
    assert [message["operations_in_force"] for message in node.take("peer_identity", "b")] == [NEW], (
        "they are told at once"
    )


def test_a_member_that_never_reported_holds_the_others_back(tmp_path: Path) -> None:
    node = Leader("bcd", tmp_path)
    node.engine.identity._is_formed = True
    for peer in "bc":
        node.identify(peer, reads=NEW)
    node.lead()
    node.ask("b", "c")
    assert node.version == OLD


def test_a_member_that_went_away_counts_as_old_until_it_is_back(node: Leader) -> None:
    """It may come back with the release before: that is legal until all were upgraded."""
    node.part("b")
    node.reconnect("c", reads=NEW)
    node.ask("c")
    assert node.version == OLD
    node.transport._onNodeConnected(node.engine.configuration.nodes["b"])
    node.identify("b", reads=OLD)
    node.ask("b", "c")
    assert node.version == OLD
    assert node.engine.is_connected("b"), "a node of the release before is no worse than it was"
    node.reconnect("b", reads=NEW)
    node.ask("b", "c")
    assert node.version == NEW


def test_an_answer_from_before_the_last_report_proves_nothing(node: Leader) -> None:
    """The process that gave it may be gone, and the release before be back, though nobody has heard of that yet."""
    node.reconnect("c", reads=NEW)
    node.ask("c")
    assert node.version == OLD
    node.ask("b")
    assert node.version == NEW


def test_members_that_were_upgraded_one_after_the_other_but_never_together_do_not_count(node: Leader) -> None:
    """Each goes back while the other is upgraded; the leader hears only of the later release each time."""
    node.part("b")
    node.reconnect("c", reads=NEW)
    node.ask("c")
    node.part("c")
    node.reconnect("b", reads=NEW)
    node.ask("b")
    assert node.version == OLD
    node.reconnect("c", reads=NEW)
    node.ask("b")
    assert node.version == OLD
    node.ask("c")
    assert node.version == NEW


def test_a_node_that_joins_counts_too(tmp_path: Path) -> None:
    node = Leader("b", tmp_path)
    node.identify("b", reads=OLD)
    node.lead()
    node.ask("b")
    node.ask("b")
    added = Member("d", raft="d:1", api="d:2")
    node.engine.request_change(lambda members: members.with_joining(added), lambda _result, _reason: None)
    node.tick()
    assert node.engine.configuration.membership.member("d") is not None
    node.reconnect("b", reads=NEW)
    node.ask("b")
    assert node.version == OLD
    node.transport._onNodeConnected(node.engine.configuration.nodes["d"])
    node.identify("d", reads=NEW)
    node.ask("b", "d")
    assert node.version == NEW


def test_a_member_counts_until_its_removal_is_committed(tmp_path: Path) -> None:
    """The removal may be lost with this leader, and the member be one again, that entries of the new version would stop."""
    node = Leader("bc", tmp_path)
    node.identify("b", reads=NEW)
    node.identify("c", reads=OLD)
    node.lead()
    for _ in range(2):
        node.ask("b", "c")
    node.part("c")
    node.engine.request_change(lambda members: members.without("c"), lambda _result, _reason: None)
    node.tick()
    node.ask("b", success=False)
    assert node.engine.configuration.membership.member("c") is None
    assert node.version == OLD
    for _ in range(2):
        node.ask("b")
    assert node.version == NEW


def test_a_cluster_of_one_goes_on_to_the_new_version_by_itself(tmp_path: Path) -> None:
    node = Leader("", tmp_path)
    node.tick()
    node.tick()
    assert node.leads
    assert node.version == NEW


# -- nodes that read too little ----------------------------------------------------------------------------------------


def test_a_node_that_reads_less_than_what_is_in_force_is_refused(tmp_path: Path) -> None:
    node = Leader("bc", tmp_path)
    node.identify("b", reads=NEW)
    node.identify("c", reads=NEW)
    node.lead()
    node.ask("b", "c")
    assert node.version == NEW
    node.reconnect("c", reads=OLD)
    assert node.take("peer_identity", "c")[-1]["operations_in_force"] == NEW, "it is told why"
    node.ask("b")
    assert not node.engine.is_connected("c")
    assert not node.take("append_entries", "c")
    assert node.engine.identity.other_disks == ()
    node.give("c", type="request_vote", term=node.term + 1, last_log_index=9, last_log_term=9, force=True)
    assert node.leads, "nothing of it counts"
    node.reconnect("c", reads=NEW)
    assert node.engine.is_connected("c")


def test_a_node_that_hears_of_a_version_that_it_cannot_read_stops_and_takes_nothing(tmp_path: Path) -> None:
    node = Leader("bc", tmp_path, reads=OLD)
    with pytest.raises(UnknownVersion, match=f"of version {NEW}, and this node reads {OLD}: upgrade"):
        node.identify("b", reads=NEW, in_force=NEW)
    assert not node.engine.is_connected("b")
    assert (node.last_index, node.term) == (1, 0)


# -- the state ---------------------------------------------------------------------------------------------------------


def opened(directory: Path, *, reads: int = NEW) -> ReplicatedState:
    return ReplicatedState(directory, map_bytes=1 << 20, operations_read=reads)


def entry(version: int) -> bytes:
    return encode_batch(TimeMs(1), (CancelJob(JobId(b"j" * 16), "t"),), version=version)


def test_the_version_in_force_is_that_of_the_entries_applied_and_outlives_a_restart(tmp_path: Path) -> None:
    machine = opened(tmp_path)
    assert machine.operation_version == OLDEST_READ
    machine.apply(1, 1, None)
    machine.apply(2, 1, entry(OLD))
    assert machine.operation_version == OLD
    machine.apply(3, 1, entry(NEW))
    machine.apply(4, 1, None)
    assert machine.operation_version == NEW
    machine.close()
    machine = opened(tmp_path)
    assert machine.operation_version == NEW
    machine.close()


def test_an_entry_that_a_node_cannot_read_changes_nothing(tmp_path: Path) -> None:
    machine = opened(tmp_path, reads=OLD)
    machine.apply(1, 1, None)
    with pytest.raises(UnknownVersion):
        machine.apply(2, 1, entry(NEW))
    assert (machine.applied_index, machine.operation_version) == (1, OLDEST_READ)
    machine.close()


def test_a_state_of_a_later_version_is_refused_at_the_start_and_left_as_it_is(tmp_path: Path) -> None:
    machine = opened(tmp_path)
    machine.apply(1, 1, entry(NEW))
    machine.close()
    with pytest.raises(UnknownVersion, match="upgrade this node"):
        opened(tmp_path, reads=OLD)
    machine = opened(tmp_path)
    assert (machine.applied_index, machine.operation_version) == (1, NEW)
    machine.close()


def test_a_copy_of_the_state_carries_the_version(tmp_path: Path) -> None:
    source = opened(tmp_path / "source")
    source.apply(1, 1, entry(NEW))
    source.checkpoint()
    for reads in (OLD, NEW):
        source.copy_to(tmp_path / "copy")
        target = opened(tmp_path / f"target {reads}", reads=reads)
        if reads == OLD:
            with pytest.raises(UnknownVersion, match="upgrade this node"):
                target.install(tmp_path / "copy")
        else:
            target.install(tmp_path / "copy")
            assert target.operation_version == NEW
            target.close()
    source.close()
