"""Make the data directory of the first node of a new cluster, with a given state.

Theory of operation. The new cluster has one member, and its own name. The name is its identity: nodes of the old cluster
have another one in their directories and in their handshakes, so neither cluster accepts nodes of the other. The state is
changed by `raftsched.core.maintenance.new_cluster`, as by the first entries of its log. Its log begins behind all log
indexes of the old cluster: they are the revisions that clients remember. The journal holds one base entry, as after a
snapshot.

Everything is made in the directory `UNFINISHED` within the data directory, and checked there as `raftsched check` does it. A
node does not start beside it without `node.json`, which is moved to its place last.
"""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from typing import Final

import msgspec

from raftsched import limits
from raftsched.consensus.journal.journal import Journal
from raftsched.consensus.machine import ReplicatedState
from raftsched.consensus.net.address import Address
from raftsched.consensus.raft.membership.members import Member, Membership, encode_membership
from raftsched.core.maintenance.new_cluster import NewCluster, entries, first_fence
from raftsched.core.operations.codec import OLDEST_READ
from raftsched.core.records.ids import TimeMs
from raftsched.core.state.results import Context
from raftsched.core.state.writes import PutJob, PutSchedule, Write
from raftsched.disk import SystemDisk, make_directory, sync_directory
from raftsched.encryption.cipher import Cipher
from raftsched.errors import Invalid, InvariantBroken
from raftsched.node.check import check_directory
from raftsched.node.identity import PARTS, DirectoryClaim
from raftsched.wire.common import MEMBER_ID_PATTERN, MEMBER_ID_RULE

_NAME_CHARS_MAX: Final = 64
_MARK: Final = re.compile(r"-r[0-9a-f]{6}\Z")
"""The end of a name that `new_name` has made."""
_ENTRIES_PER_CHECKPOINT: Final = 200


class Founder(msgspec.Struct, frozen=True, kw_only=True):
    """Describe the new cluster, and its first node."""

    cluster: str
    node_id: str
    raft: str
    """host:port at which other nodes will reach it."""
    api: str
    """host:port of its API."""
    actor: str
    """The command, for the audit trail."""
    detail: str
    """The origin of the state, for the audit trail."""
    pauses_schedules: bool


class Founded(msgspec.Struct, frozen=True, kw_only=True):
    """Describe a data directory that is ready for its node."""

    cluster: str
    node_id: str
    applied_index: int
    """Index at which the log of the new cluster begins."""
    fencing_token: int
    """All tokens of the new cluster are higher."""
    jobs: int
    ended_leases: int
    paused_schedules: int


def new_name(old: str) -> str:
    """Return a name for the cluster that continues the cluster `old`: the same, with a random end."""
    end = f"-r{secrets.token_hex(3)}"
    return _MARK.sub("", old)[: _NAME_CHARS_MAX - len(end)] + end


def _require_other_name(new: str, old: str) -> None:
    """Raise `Invalid` if a new cluster would have the name, and so the identity, of the old one."""
    if new == old:
        raise Invalid(
            f"cluster: {new} is the name of the old cluster, whose nodes must not be taken for those of the new one: choose "
            "another name",
            field="cluster",
        )


def require_valid(founder: Founder, old_cluster: str) -> None:
    """Raise `Invalid` if the new cluster can't be as described; `old_cluster` is the name of the old one."""
    _require_other_name(founder.cluster, old_cluster)
    for field in ("cluster", "node_id"):
        if not re.match(MEMBER_ID_PATTERN, getattr(founder, field)):
            raise Invalid(f"{field}: expected {MEMBER_ID_RULE}", field=field)
    for field in ("raft", "api"):
        Address.parse(getattr(founder, field), field=field)


def found(claim: DirectoryClaim, directory: Path, founder: Founder, cipher: Cipher, now_ms: int) -> Founded:
    """Make the state in `directory` that of the first node of a new cluster, with its journal, and check all of it.

    `claim` is that of `directory`, which has no journal yet. Raises `Invalid` if the clock of this machine is wrong,
    `UnknownVersion`, and `InvariantBroken` if the result is not sound.
    """
    machine = ReplicatedState(directory / "state", map_bytes=limits.MAP_BYTES, cipher=cipher)
    try:
        result, position = _begin(machine, claim, founder, now_ms)
    finally:
        machine.state.close()
    journal = Journal(SystemDisk(directory / "journal"), register=claim, cipher=cipher)
    index, term = position
    journal.setCurrentTerm(term, None)
    journal.reset(index, term)
    journal._destroy()  # noqa: SLF001  # pysyncobj's name for close
    make_directory(directory / "snapshots")
    for part in (*PARTS, "."):
        sync_directory(directory / part)
    return result


def require_sound(directory: Path, cipher: Cipher) -> None:
    """Check a finished directory, whose claim was released, as `raftsched check` does; raises `InvariantBroken`."""
    if found := check_directory(directory, cipher).violations:
        raise InvariantBroken(f"the new data directory is not sound, and is not used: {found[0]}")


def _begin(
    machine: ReplicatedState, claim: DirectoryClaim, founder: Founder, now_ms: int
) -> tuple[Founded, tuple[int, int]]:
    """Execute the first entries of the new cluster; return the result, and the index and term at which its log begins."""
    state = machine.state
    fence = first_fence(state.fence, state.cluster_time_ms, now_ms)
    new = NewCluster(founder.cluster, founder.actor, founder.detail, fence, founder.pauses_schedules)
    term = state.applied_term + 1
    state.jump_to(state.applied_index + limits.NEW_CLUSTER_INDEX_STEP, term)
    first = Context(TimeMs(now_ms), state.applied_index + 1, max(state.operation_version, OLDEST_READ))
    lease_count = schedule_count = 0
    for context, writes in entries(state, new, first):
        lease_count += sum(map(_ends_lease, writes))
        schedule_count += sum(isinstance(write, PutSchedule) for write in writes)
        state.execute(writes)
        state.advance(index=context.index, term=term, now_ms=now_ms)
        if context.index % _ENTRIES_PER_CHECKPOINT == 0:
            state.checkpoint()
    only = Member(founder.node_id, founder.raft, founder.api, claim.incarnation)
    machine.configure(state.applied_index + 1, term, encode_membership(Membership.of([only])))
    state.checkpoint()
    result = Founded(
        cluster=founder.cluster,
        node_id=founder.node_id,
        applied_index=state.applied_index,
        fencing_token=state.fence,
        jobs=sum(state.counters().values()),
        ended_leases=lease_count,
        paused_schedules=schedule_count,
    )
    return result, (state.applied_index, term)


def _ends_lease(write: Write) -> bool:
    return isinstance(write, PutJob) and write.old is not None and write.old.lease is not None
