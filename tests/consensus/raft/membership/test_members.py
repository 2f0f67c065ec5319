"""What a membership is, and the rules by which one follows from another."""

from __future__ import annotations

import msgspec
import pytest

from raftsched import limits
from raftsched.consensus.raft.membership.members import (
    Member,
    Membership,
    decode_membership,
    encode_membership,
    recorded_membership,
)
from raftsched.errors import Invalid, InvariantBroken, NotFound, Rejected


def member(node_id: str, incarnation: str = "") -> Member:
    return Member(node_id, f"{node_id}:8401", f"{node_id}:8400", incarnation)


THREE = Membership.of(map(member, "cab"))


def test_a_node_that_joins_does_not_vote_until_it_is_made_a_voter() -> None:
    joined = THREE.with_joining(member("d", "made up"))
    assert "".join(joined.ids) == "abcd"
    assert joined.voters == {"a", "b", "c"}
    assert [(each.id, each.incarnation) for each in joined.joining] == [("d", "")]
    voting = joined.with_voter("d", "disk")
    assert voting.voters == {"a", "b", "c", "d"}
    assert not voting.joining
    assert voting.member("d") == member("d", "disk")


@pytest.mark.parametrize(
    ("before", "added", "code"),
    [
        (THREE, member("a"), "already_member"),
        (THREE.without("a"), member("a"), "id_used"),
        (THREE.with_joining(member("d")), member("e"), "node_joining"),
        (THREE, Member("d", "a:8401", "d:8400"), "address_used"),
        (THREE, Member("d", "d:8401", "b:8400"), "address_used"),
        (Membership.of(map(member, "abcdefghi")), member("j"), "too_many_members"),
    ],
)
def test_a_node_that_may_not_join_is_refused_by_the_rule_in_the_way(
    before: Membership, added: Member, code: str
) -> None:
    with pytest.raises(Rejected) as refusal:
        before.with_joining(added)
    assert refusal.value.code == code


def test_a_removed_node_is_remembered_and_not_found_again() -> None:
    left = THREE.without("b")
    assert (left.ids, left.former) == (("a", "c"), ("b",))
    with pytest.raises(NotFound, match="removed before"):
        left.without("b")
    with pytest.raises(NotFound, match="'x' is not a member"):
        left.without("x")


def test_the_last_voter_stays_whoever_joins() -> None:
    alone = Membership.of([member("a")]).with_joining(member("b"))
    with pytest.raises(Rejected) as refusal:
        alone.without("a")
    assert refusal.value.code == "last_member"
    assert alone.without("b").ids == ("a",)


def test_ids_that_were_used_are_forgotten_only_after_very_many() -> None:
    membership = THREE
    for number in range(limits.FORMER_MEMBERS_MAX + 1):
        membership = membership.with_joining(member(f"x{number}")).without(f"x{number}")
    assert len(membership.former) == limits.FORMER_MEMBERS_MAX
    assert membership.former[-1] == f"x{limits.FORMER_MEMBERS_MAX}"


def test_what_is_recorded_of_a_disk_never_changes() -> None:
    recorded = THREE.with_incarnations({"a": "one", "x": "stranger"})
    assert recorded.member("a") == member("a", "one")
    assert recorded.with_incarnations({"a": "two", "b": "three"}).members == (
        member("a", "one"),
        member("b", "three"),
        member("c"),
    )
    joining = THREE.with_joining(member("d"))
    assert joining.with_incarnations({"d": "disk"}) == joining


@pytest.mark.parametrize(
    ("voters", "enough", "too_few"),
    [("a", "a", ""), ("ab", "ab", "a"), ("abc", "ac", "bx"), ("abcd", "abd", "ab"), ("abcde", "ace", "de")],
)
def test_a_majority_is_more_than_half_of_the_voters_and_of_nobody_else(voters: str, enough: str, too_few: str) -> None:
    membership = Membership.of(map(member, voters))
    assert membership.is_majority(set(enough))
    assert not membership.is_majority({*too_few, "x", "y", "z"})


def test_a_membership_survives_its_encoding() -> None:
    membership = THREE.with_joining(member("d")).without("a").with_incarnations({"b": "disk"})
    assert decode_membership(encode_membership(membership)) == membership


@pytest.mark.parametrize(
    "data",
    [b"", b"\xc1", b"nonsense", msgspec.msgpack.encode([[["b"], ["a"]], []]), msgspec.msgpack.encode([[["a"]] * 2])],
)
def test_what_is_no_membership_is_refused(data: bytes) -> None:
    with pytest.raises(Invalid, match="not a list of members"):
        decode_membership(data)
    with pytest.raises(InvariantBroken, match="can't be read"):
        recorded_membership(data)
