"""Define the members of the cluster: one list, replicated as a log entry, and the rules by which it may change.

A member is a voter, or it joins: it gets the log and counts for nothing until it has nearly all of it, and then the
leader makes it a voter by itself. So adding an empty node never costs availability. Two configurations that follow one
another differ by one voter at most; any majority of the one then overlaps any majority of the other, which is all that
a change needs to be safe (Raft thesis, §4.1).

A member's *incarnation* is drawn when its data directory is made and recorded here when it joins. A node whose disk was
emptied has another one: it may have forgotten votes and acknowledgements, so it is not that member any more. Ids of
members that were removed are kept, and never used again: a wiped node comes back under a new id only.

Pure: when a change may be proposed, and what follows from it, is `configuration.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from raftsched import limits
from raftsched.consensus.ports import NodeId
from raftsched.errors import Invalid, InvariantBroken, NotFound, Rejected


class Member(msgspec.Struct, frozen=True, array_like=True):
    """One node of the cluster."""

    id: NodeId
    raft: str = ""
    """host:port at which the other nodes reach it."""
    api: str = ""
    """host:port of its API."""
    incarnation: str = ""
    """Identity of its data directory; "" before its first message."""
    is_voter: bool = True


class Membership(msgspec.Struct, frozen=True, array_like=True):
    """The members by id, and the ids that are used up; unchanged by everything: each change returns a new one."""

    members: tuple[Member, ...]
    former: tuple[NodeId, ...] = ()
    """Ids of removed members, the latest last."""

    @classmethod
    def of(cls, members: Iterable[Member]) -> Membership:
        return cls(tuple(sorted(members, key=lambda member: member.id)))

    @property
    def ids(self) -> tuple[NodeId, ...]:
        return tuple(member.id for member in self.members)

    @property
    def voters(self) -> frozenset[NodeId]:
        return frozenset(member.id for member in self.members if member.is_voter)

    @property
    def joining(self) -> tuple[Member, ...]:
        """Members that are no voters yet."""
        return tuple(member for member in self.members if not member.is_voter)

    def member(self, node_id: NodeId) -> Member | None:
        return next((member for member in self.members if member.id == node_id), None)

    def is_majority(self, ids: Collection[NodeId]) -> bool:
        """Whether more than half of the voters are among `ids`."""
        voters = self.voters
        return 2 * len(voters.intersection(ids)) > len(voters)

    # -- changes ------------------------------------------------------------------------------------------------------

    def with_joining(self, member: Member) -> Membership:
        """Add a node that joins; raises `Rejected`, saying which rule is in the way."""
        if self.member(member.id) is not None:
            raise Rejected("already_member", f"{member.id} is a member already")
        if member.id in self.former:
            raise Rejected("id_used", f"{member.id} was a member once, and ids are never used again: choose a new one")
        if joining := self.joining:
            raise Rejected("node_joining", f"{joining[0].id} is still joining: wait for it, or remove it first")
        if len(self.members) >= limits.MEMBERS_MAX:
            raise Rejected("too_many_members", f"the cluster has {limits.MEMBERS_MAX} members, and can't have more")
        for other in self.members:
            if member.raft == other.raft or member.api == other.api:
                raise Rejected("address_used", f"{other.id} listens on {other.raft} and {other.api}")
        joined = msgspec.structs.replace(member, incarnation="", is_voter=False)
        return Membership(Membership.of((*self.members, joined)).members, self.former)

    def with_voter(self, node_id: NodeId, incarnation: str) -> Membership:
        """Make a node that joins a voter; it is known by `incarnation` from now on."""
        return self._replaced({node_id: {"incarnation": incarnation, "is_voter": True}})

    def with_incarnations(self, incarnations: Mapping[NodeId, str]) -> Membership:
        """Record which data directories voters have that were not known yet; what is recorded never changes."""
        unknown = {member.id for member in self.members if member.is_voter and not member.incarnation}
        return self._replaced({key: {"incarnation": value} for key, value in incarnations.items() if key in unknown})

    def without(self, node_id: NodeId) -> Membership:
        """Remove a member for good; raises `NotFound`, or `Rejected` where it is the last voter."""
        member = self.member(node_id)
        if member is None:
            was = ": it was removed before" if node_id in self.former else ""
            raise NotFound(f"{node_id!a:.80} is not a member of the cluster{was}")
        if self.voters == {node_id}:
            raise Rejected("last_member", f"{node_id} is the last member: stop it instead, and remove its data")
        left = tuple(other for other in self.members if other is not member)
        return Membership(left, (*self.former, node_id)[-limits.FORMER_MEMBERS_MAX :])

    def _replaced(self, values: Mapping[NodeId, Mapping[str, object]]) -> Membership:
        replace = msgspec.structs.replace
        return Membership(tuple(replace(each, **values.get(each.id, {})) for each in self.members), self.former)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Membership)


def encode_membership(membership: Membership) -> bytes:
    return _encoder.encode(membership)


def decode_membership(data: bytes) -> Membership:
    """Read a membership from the log, the state or a member; raises `Invalid` for anything else."""
    try:
        membership = _decoder.decode(data)
    except msgspec.DecodeError as error:
        raise Invalid(f"not a list of members: {error}") from None
    if list(membership.ids) != sorted(set(membership.ids)):
        raise Invalid("not a list of members: ids must rise")
    return membership


def recorded_membership(data: bytes) -> Membership:
    """Read a membership that is in the log or the state; raises `InvariantBroken` where it can't be one."""
    try:
        return decode_membership(data)
    except Invalid as error:
        raise InvariantBroken(f"a configuration of the cluster can't be read: {error}") from error
