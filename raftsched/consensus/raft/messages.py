"""Define the messages between engines, as pysyncobj's plain maps; `framing.MESSAGE_SHAPES` checks them on the wire.

    append_entries   term commit_index prevLogIdx prevLogTerm entries sent_us wall_ms     leader -> follower
        Entries that follow (prevLogIdx, prevLogTerm); none of them: a heartbeat or a probe.
    next_node_idx    term success reset next_node_idx rejected sent_us wall_ms            its answer
        success: this log equals the leader's below next_node_idx. reset: prevLogIdx (`rejected`) did not match; it
        surely does below next_node_idx. Neither: the sender of append_entries is of an older term than `term`.
    snapshot_chunk   term transfer index index_term size crc offset data sent_us wall_ms   leader -> follower
        A piece of a copy of the state as of (index, index_term), of `size` bytes with CRC-32 `crc`.
    snapshot_ack     term transfer offset sent_us wall_ms                                  its answer
        `offset` bytes of that transfer are here, without a gap.
    pre_vote         term last_log_index last_log_term     would you vote for me in `term`? Changes nothing.
    pre_vote_ok      term                                  yes
    pre_vote_no      term                                  no; my term is `term`
    request_vote     term last_log_index last_log_term force     pysyncobj's; `force`: the leader itself asked for it
    response_vote    term                                  pysyncobj's: the vote is given, durably
    peer_identity    incarnation term blank asks members members_index operations_read operations_in_force
                                                                         both ways, first on a connection
        Who the sender is (`peer_identity.py`): its data directory, whether that holds nothing yet, and the latest members
        that it knows, encoded, with their index in the log. `asks` for the receiver's greeting. The versions of log
        entries (`entry_versions.py`): the latest that it reads, and the latest that it knows to be in force.
    state_digest     index digest                          both ways: the digest of the sender's state as of a log index
    read_round       term round                            leader -> follower: do you still follow me? (`quorum_reads.py`)
    read_round_ok    term round                            its answer: yes, if `term` is the leader's
    timeout_now      term                                  leader -> follower: start an election at once
    lead_ended       term                                  leader -> follower: I gave up, and lead `term` no more
    disk_space       free_bytes reserve_bytes low          follower -> leader: how full its disk is (`disk_space.py`)

`sent_us` is the leader's monotonic clock, in microseconds, when it made the message; answers repeat it, so that the
leader counts contact from when it asked and not from when it looked (`quorum_lease.py`). Answers that vouch for no contact
carry 0. `wall_ms` is a follower's wall clock in its answers, by which the leader judges all clocks, and cluster time in
what a leader sends, 0 while it is sure of none (`cluster_clock.py`). append_entries may carry `round_trip_ms`, the
leader's longest to any voter: so old what it tells of clocks may be. A pre_vote and its answers carry `sent_us` as well,
because a network that is too slow for elections has no leader that could measure it (`round_trips.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pysyncobj.node import Node

Message = dict[str, Any]
Handler = Callable[[Node, Message], None]
"""Takes a message and its sender."""

APPEND: Final = "append_entries"
APPEND_ACK: Final = "next_node_idx"
CHUNK: Final = "snapshot_chunk"
CHUNK_ACK: Final = "snapshot_ack"
PRE_VOTE: Final = "pre_vote"
PRE_VOTE_OK: Final = "pre_vote_ok"
PRE_VOTE_NO: Final = "pre_vote_no"
VOTE_REQUEST: Final = "request_vote"
VOTE: Final = "response_vote"
TIMEOUT_NOW: Final = "timeout_now"
LEAD_ENDED: Final = "lead_ended"
READ_ROUND: Final = "read_round"
READ_ROUND_OK: Final = "read_round_ok"
DIGEST: Final = "state_digest"
PEER_IDENTITY: Final = "peer_identity"
DISK_SPACE: Final = "disk_space"
