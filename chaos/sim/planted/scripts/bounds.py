"""Directed schedules that set a bound of their own: no promise to clients is broken, but traffic or peace is.

What they find is a violation in the words of the script, beside those of the checkers.
"""

from __future__ import annotations

import pickle
import struct
from collections import Counter
from dataclasses import replace

import msgpack

from chaos.sim.network.links import LinkRates
from chaos.sim.planted.scripts.stage import NotReached, Play, Schedule, Stage, calm, frames_of
from chaos.sim.rates import Rates
from chaos.sim.users.clients import Submission
from raftsched.consensus.raft.messages import APPEND, CHUNK, Message
from raftsched.core.operations.codec import encode_batch
from raftsched.core.records.ids import TimeMs
from raftsched.core.records.job import Job

_LEASE_TERMS_MAX = 3
_AHEAD_MS = 20_000
"""So far that a reading goes back at once, and every delay of a job is over."""
_HEARTBEATS = 60
"""Of two seconds of a transfer, with what is sent beside them."""


def _slow_links(rates: Rates) -> Rates:
    """Many entries are on their way before the first is answered."""
    return replace(calm(rates), links=LinkRates(delay_seconds=(0.03, 0.04)))


def _short_logs(rates: Rates) -> Rates:
    altered = calm(rates)
    return replace(altered, sizes=replace(altered.sizes, tail_bytes=600, chunk_bytes=5_000), checkpoint=0.1)


def _long_leases(rates: Rates) -> Rates:
    """Two leaders, one after the other, within one lease."""
    return replace(calm(rates), lease=3.0)


def each_entry_leaves_once(stage: Stage) -> Play:
    """Nothing is lost on these links, so nothing is sent twice."""
    leader = yield from stage.settled()
    sent: Counter[tuple[str, int]] = Counter()

    def seen(_sender: str, receiver: str, message: Message) -> None:
        sent.update((receiver, index) for _, index, _ in message["entries"])

    stage.on_frame = frames_of(APPEND, seen)
    yield from stage.submits(leader, 60)
    yield 0.3
    (receiver, index), count = sent.most_common(1)[0]
    if count > 1:
        stage.fault(f"entry {index} was sent to {receiver} {count} times, over a link that loses nothing")


def a_follower_that_was_cut_off_disturbs_nobody(stage: Stage) -> Play:
    """A follower that heard nothing for many election timeouts comes back: the leader leads on, in its term."""
    leader = yield from stage.settled()
    lonely = stage.others(leader)[0]
    term = stage.engine(leader).term
    stage.part([lonely], stage.others(lonely))
    yield 6.0
    stage.join([lonely], stage.others(lonely))
    yield 2.0
    now = stage.engine(leader).term
    if now != term or not stage.serves(leader):
        stage.fault(f"{leader} led term {term}, and {lonely}, which had been cut off, made it term {now}")


def a_copy_takes_its_time(stage: Stage) -> Play:
    """While a copy is made for a follower that needs one, the leader sends it heartbeats and no more."""
    leader = yield from stage.settled()
    absent, *_ = stage.others(leader)
    stage.host(absent).crash(power_loss=False)
    yield from stage.submits(leader, 60)
    yield from stage.until(lambda: stage.engine(leader).log.first_index > 40)
    sent: Counter[str] = Counter()

    def seen(_sender: str, receiver: str, message: Message) -> None:
        if receiver == absent:
            sent[message["type"]] += 1

    stage.on_frame = seen
    stage.host(absent).start()
    yield from stage.until(lambda: sent[CHUNK])
    yield 1.0
    if sent[APPEND] > _HEARTBEATS:
        stage.fault(f"{leader} sent {absent} {sent[APPEND]} messages without a piece of the snapshot that it waits for")


def the_lead_changes_within_each_term(stage: Stage) -> Play:
    """Workers lease jobs and are never heard again; no leader leads for a whole term of their leases."""
    leader = yield from stage.settled()
    yield from stage.submits(leader, 30)
    for _ in range(10):
        stage.lease_and_die()
    yield from stage.until(lambda: len(_untimed(stage)) >= 3)
    yield 0.5
    leased_at, term_seconds = stage.world.timeline.now, stage.world.rates.lease
    while _untimed(stage):
        yield 0.6 * term_seconds
        silent_seconds = stage.world.timeline.now - leased_at
        if silent_seconds > (_LEASE_TERMS_MAX + 1) * term_seconds:
            stage.fault(f"leases that nobody renews are current after {silent_seconds:.1f} s of silence")
            return
        stage.transfer_leadership((yield from stage.settled()))
        yield 0.1


def the_cluster_is_out_for_longer_than_a_lease(stage: Stage) -> Play:
    """Workers lease jobs, all nodes are gone, and the leader that ends this transfers before the leases end."""
    leader = yield from stage.settled()
    yield from stage.submits(leader, 30)
    for _ in range(10):
        stage.lease_and_die()
    yield from stage.until(lambda: len(_untimed(stage)) >= 3)
    yield 0.5
    term_seconds = stage.world.rates.lease
    for node_id in stage.ids:
        stage.host(node_id).crash(power_loss=False)
    yield 1.5 * term_seconds
    for node_id in stage.ids:
        stage.host(node_id).start()
    leader = yield from stage.settled()
    yield 0.5 * term_seconds
    stage.transfer_leadership(leader)
    yield from stage.until(lambda: not stage.serves(leader))
    yield from stage.until(lambda: not _untimed(stage), seconds=5 * term_seconds)


def _untimed(stage: Stage) -> list[Job]:
    """The running jobs that no timeout of their own ends, as the node sees them that has applied most."""
    state = max((stage.node(node_id).state for node_id in stage.ids), key=lambda state: state.applied_index)
    return [job for job in state.leased_jobs() if not job.spec.timeout_ms]


def time_goes_back_before_anybody_asks(stage: Stage) -> Play:
    """All clocks are some seconds ahead for a moment in which nothing is written; a worker asks once they are right.

    Jobs that came due meanwhile are not due any more then.
    """
    leader = yield from stage.settled()
    for number in range(20):
        stage.submit_later(leader, 2_000 + number)
    yield 0.3
    leader = yield from stage.settled()
    node, world = stage.node(leader), stage.world
    stamped_ms = node.state.cluster_time_ms
    for node_id in stage.ids:
        stage.host(node_id).set_wall_error(_AHEAD_MS)
    yield from stage.until(lambda: node.backend.now_ms() - world.wall_ms > _AHEAD_MS // 2)
    yield 1.1  # a leader looks at its timers once a second
    for node_id in stage.ids:
        stage.host(node_id).set_wall_error(0)
    yield from stage.until(lambda: node.backend.now_ms() - world.wall_ms < _AHEAD_MS // 2)
    if node.state.cluster_time_ms > stamped_ms:
        raise NotReached("a stamp keeps time from going back")
    stage.lease_and_die()


def a_stranger_sends_a_command(stage: Stage) -> Play:
    """A frame that this protocol doesn't have, with a pickle in it, as stock pysyncobj takes from anybody."""
    leader = yield from stage.settled()
    node = stage.node(leader)
    operation = Submission(stage.world, stage.world.recorder.new_op(), "").operation(node)
    command = pickle.dumps(encode_batch(TimeMs(node.backend.now_ms()), (operation,)))
    body = msgpack.packb({"type": "apply_command", "command": command}, use_bin_type=True)
    stage.receive(leader, stage.others(leader)[0], struct.pack(">I", len(body)) + body)
    yield 0.5


EACH_ENTRY_LEAVES_ONCE = Schedule(each_entry_leaves_once, alter=_slow_links)
A_FOLLOWER_THAT_WAS_CUT_OFF_DISTURBS_NOBODY = Schedule(a_follower_that_was_cut_off_disturbs_nobody)
A_COPY_TAKES_ITS_TIME = Schedule(a_copy_takes_its_time, alter=_short_logs)
THE_CLUSTER_IS_OUT_FOR_LONGER_THAN_A_LEASE = Schedule(the_cluster_is_out_for_longer_than_a_lease, alter=_long_leases)
THE_LEAD_CHANGES_WITHIN_EACH_TERM = Schedule(the_lead_changes_within_each_term)
TIME_GOES_BACK_BEFORE_ANYBODY_ASKS = Schedule(time_goes_back_before_anybody_asks)
A_STRANGER_SENDS_A_COMMAND = Schedule(a_stranger_sends_a_command)
