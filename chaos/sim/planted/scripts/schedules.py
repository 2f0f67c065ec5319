"""Directed schedules to what random faults meet too rarely; each says which step would go wrong."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from chaos.sim.hosts.node import SimulatedNode
from chaos.sim.planted.scripts.stage import NotReached, Play, Schedule, Stage, calm, frames_of
from chaos.sim.rates import Rates
from raftsched.consensus.raft.messages import READ_ROUND_OK, TIMEOUT_NOW, VOTE, VOTE_REQUEST, Message

_SUSPENDED_SECONDS = 4.0
"""Longer than any election."""


def _long_promises(rates: Rates) -> Rates:
    """An election takes long enough that a node can restart, and link to others again, within a leader's lease."""
    return replace(calm(rates), election=(2.0, 2.4))


def _rare_checkpoints(rates: Rates) -> Rates:
    """Elections are over long before the next checkpoint, and a log is cut right behind it."""
    altered = calm(rates)
    sizes = replace(altered.sizes, tail_bytes=1, chunk_bytes=1_000_000)
    return replace(altered, sizes=sizes, checkpoint=6.0, election=(0.8, 1.2))


def _small_pieces(rates: Rates) -> Rates:
    """A log is cut soon, right behind a checkpoint; a snapshot is more than one message."""
    altered = calm(rates)
    return replace(altered, sizes=replace(altered.sizes, tail_bytes=1, chunk_bytes=700), checkpoint=0.1)


# -- the leader lease -------------------------------------------------------------------------------------------------


def a_voter_restarts(stage: Stage) -> Play:
    """A follower that has just promised the leader its loyalty restarts, and is asked for its vote by another one."""
    yield from _deserted(stage, restarts=True)


def a_voter_is_asked(stage: Stage) -> Play:
    """A follower is asked for its vote right after it answered the leader for the last time."""
    yield from _deserted(stage, restarts=False)


def _deserted(stage: Stage, *, restarts: bool) -> Play:
    leader = yield from stage.settled()
    candidate, voter = stage.others(leader)
    stage.part([candidate], [leader])
    lead_seconds = 0.45 if restarts else 0.05
    yield from stage.until(lambda: stage.stands_in(candidate) < lead_seconds)
    stage.part([voter], [leader])
    if restarts:
        stage.restart(voter)
    yield from stage.until(lambda: stage.serves(candidate) or stage.serves(voter))
    yield from stage.submits(stage.leader_among((candidate, voter)), 20)
    yield 0.2


def a_leader_transfers_in_silence(stage: Stage) -> Play:
    """A leader asks a follower to take over, and receives nothing any more."""
    leader = yield from stage.settled()
    others = stage.others(leader)
    told: list[str] = []
    stage.on_frame = frames_of(TIMEOUT_NOW, lambda _sender, receiver, _message: told.append(receiver))
    stage.transfer_leadership(leader)
    yield from stage.until(lambda: told)
    stage.cut(others, [leader])
    yield from stage.until(lambda: stage.leader_among(others))
    yield from stage.submits(stage.leader_among(others), 20)


# -- a suspended machine ----------------------------------------------------------------------------------------------


def a_leaders_machine_is_suspended(stage: Stage) -> Play:
    """A leader's machine is suspended, and its clock with it. When it runs again, others have led, and it does not know.

    By its clock no time has passed, so it would answer reads of the default kind. Those that ask a majority it may not.
    """
    leader = yield from stage.settled()
    yield from _suspend(stage, leader)
    yield from _read_there(stage, leader)


def answers_to_an_earlier_round_come_late(stage: Stage) -> Play:
    """The same, but the leader had just asked a majority, and those answers reach it when it runs again."""
    leader = yield from stage.settled()
    stage.cut(stage.others(leader), [leader])
    stage.world.ask_majority(stage.host(leader))
    yield 0.02
    yield from _suspend(stage, leader)
    stage.network.loses = lambda _sender, receiver, message: receiver == leader and message["type"] != READ_ROUND_OK
    stage.world.ask_majority(stage.host(leader))
    yield 0.005
    stage.heal(stage.others(leader), [leader])
    yield from _read_there(stage, leader)


def _suspend(stage: Stage, leader: str) -> Play:
    """Suspend a leader's machine, cut off from the others, until they have acknowledged more in a later term."""
    others = stage.others(leader)
    stage.part([leader], others)
    stage.host(leader).suspend(_SUSPENDED_SECONDS)
    goes_on_at = stage.world.timeline.now + _SUSPENDED_SECONDS
    yield from stage.until(lambda: stage.leader_among(others))
    acknowledged = stage.world.recorder.acknowledged_index
    yield from stage.submits(stage.leader_among(others), 5)
    yield from stage.until(lambda: stage.world.recorder.acknowledged_index > acknowledged)
    yield max(0.0, goes_on_at - stage.world.timeline.now)


def _read_there(stage: Stage, leader: str) -> Play:
    for _ in range(10):
        stage.world.ask_majority(stage.host(leader))
        yield 0.02


# -- answers of another time ------------------------------------------------------------------------------------------


def an_acknowledgement_comes_two_terms_late(stage: Stage) -> Play:
    """n2's acknowledgements in term T arrive when n1, whose entries were replaced since, leads again (5 nodes).

    n1's no-op of its second term lies at the very index up to which n2 had acknowledged other entries. It reaches one
    more node; with the old answer that would be three of five. The others elect one of their own.
    """
    leader, late = "n1", "n2"
    yield from stage.settled(leader)
    rest = stage.others(leader, late)
    stage.part([leader, late], rest)
    stage.cut([late], [leader])
    yield from stage.submits(leader, 12)
    yield 0.05
    stage.cut([leader], [late])
    acknowledged = stage.last_index(late)
    yield from stage.until(lambda: stage.leader_among(rest))
    stage.join([leader], rest)
    between = stage.leader_among(rest)
    yield from stage.until(lambda: stage.last_index(leader) == stage.last_index(between))
    while stage.last_index(between) < acknowledged - 1:
        stage.submit(between)
        yield 0.05
    if stage.last_index(between) != acknowledged - 1:
        raise NotReached("more was written than meant")
    yield from _elect_with_one_follower(stage, leader, rest, between)
    holder = rest[0]
    yield from stage.until(lambda: stage.last_index(holder) == acknowledged)
    yield 0.02
    stage.heal([late], [leader])
    yield 0.05
    stage.part([leader, holder], [late, *rest[1:]])
    stage.join([late], rest[1:])
    yield from stage.until(lambda: stage.leader_among([late, *rest[1:]]))
    yield from stage.submits(stage.leader_among([late, *rest[1:]]), 3)
    yield 0.3


def _elect_with_one_follower(stage: Stage, leader: str, rest: list[str], between: str) -> Play:
    """`between` transfers to `leader`, whose entries then reach the first of `rest` only."""

    def asked(sender: str, receiver: str, _message: Message) -> None:
        if sender == leader and receiver in rest[1:]:
            stage.cut([leader], [receiver])

    stage.on_frame = frames_of(VOTE_REQUEST, asked)
    stage.transfer_leadership(between)
    yield from stage.until(lambda: stage.engine(leader).leads, seconds=2.0)


def a_snapshot_says_what_the_log_holds(stage: Stage) -> Play:
    """n1 restarts behind its own log, of which a snapshot vouches for a part, and the rest is nobody else's.

    It is refused by the logs' ends and its checkpoint is older than the leader's log, so it is sent the leader's last
    checkpoint, which its log holds. It may acknowledge that, and not what it has beyond: what the leader has there is on
    no other disk.
    """
    old = yield from stage.settled("n1")
    followers = stage.others(old)
    yield from _let_followers_be_ahead(stage, old, followers)
    stage.part([old], followers)
    shared = stage.last_index(old)
    yield from stage.submits(old, 6)
    yield from stage.until(
        lambda: shared < stage.engine(old).commit.durable_index == stage.last_index(old), seconds=0.3
    )
    stage.restart(old)
    stage.join([old], followers)
    yield from stage.until(lambda: all(map(stage.engine(old).is_connected, followers)), seconds=0.6)
    stage.part([old], followers)
    yield from stage.until(lambda: stage.leader_among(followers), seconds=3.0)
    first = stage.leader_among(followers)
    [second] = stage.others(old, first)
    stage.transfer_leadership(first)
    yield from stage.until(lambda: stage.serves(second), seconds=1.0)
    stage.part([second], [first])
    yield from stage.submits(second, 12)
    stage.join([old], [second])
    yield 0.5


def _let_followers_be_ahead(stage: Stage, leader: str, followers: list[str]) -> Play:
    """Wait until both followers have made a checkpoint that is later than the leader's, and cut their logs behind it."""
    yield from stage.submits(leader, 5)
    for follower in followers:
        yield 0.7
        stage.restart(follower)  # its next checkpoint comes so much later than the leader's
        yield from stage.settled(leader)
    yield from stage.until(lambda: _checkpoint(stage, leader) > 1)
    yield from stage.submits(leader, 20)
    yield from stage.until(
        lambda: _checkpoint(stage, leader) < min(stage.engine(node).log.first_index for node in followers)
    )
    yield from stage.until(lambda: len({stage.last_index(node) for node in stage.ids}) == 1, seconds=0.5)


def _checkpoint(stage: Stage, node: str) -> int:
    return stage.node(node).state.durable_index


def a_snapshot_comes_to_other_entries(stage: Stage) -> Play:
    """A deposed leader has entries of its own where the others' log is cut off already: it is sent a snapshot, in pieces."""
    old = yield from stage.settled()
    followers = stage.others(old)
    stage.part([old], followers)
    shared = stage.last_index(old)
    yield from stage.submits(old, 6)
    yield from stage.until(
        lambda: shared < stage.engine(old).commit.durable_index == stage.last_index(old), seconds=0.3
    )
    yield from stage.until(lambda: stage.leader_among(followers))
    leader = stage.leader_among(followers)
    yield from stage.submits(leader, 30)
    yield from stage.until(lambda: stage.engine(leader).log.first_index > stage.last_index(old))
    stage.join([old], followers)
    yield from stage.until(lambda: stage.node(old).state.applied_index >= stage.engine(leader).commit_index)


# -- elections --------------------------------------------------------------------------------------------------------


def a_voter_restarts_after_its_vote(stage: Stage) -> Play:
    """n2 is elected by n1 alone, which then restarts, and is there for n3: nobody is elected twice in a term."""
    voter, candidate, other = stage.ids
    yield from stage.settled(voter)
    stage.part([other], [candidate])

    def voted(sender: str, receiver: str, _message: Message) -> None:
        if (sender, receiver) == (voter, candidate):
            stage.cut([candidate], [voter])

    stage.on_frame = frames_of(VOTE, voted)
    stage.transfer_leadership(voter)
    yield from stage.until(lambda: stage.engine(candidate).leads, seconds=2.0)
    stage.restart(voter)
    yield from stage.until(lambda: stage.leader_among((voter, other)))


# -- members ----------------------------------------------------------------------------------------------------------


async def _remove(node_id: str, asked: SimulatedNode) -> None:
    await asked.backend.remove_member(node_id)


def two_members_leave_at_once(stage: Stage) -> Play:
    """A leader with one follower is asked to remove two of the others, who elect a leader of their own (5 nodes)."""
    leader = yield from stage.settled("n1")
    engine = stage.engine(leader)
    yield from stage.until(lambda: engine.configuration.index <= engine.commit_index)
    follower, *others = stage.others(leader)
    stage.part([leader, follower], others)
    for removed in others[-2:]:
        stage.request(leader, partial(_remove, removed))
    yield 0.05
    yield from stage.submits(leader, 5)
    yield from stage.until(lambda: stage.leader_among(others))
    yield from stage.submits(stage.leader_among(others), 5)
    yield 0.1


A_VOTER_RESTARTS = Schedule(a_voter_restarts, alter=_long_promises)
A_VOTER_IS_ASKED = Schedule(a_voter_is_asked, alter=_long_promises)
A_LEADER_TRANSFERS_IN_SILENCE = Schedule(a_leader_transfers_in_silence)
A_LEADERS_MACHINE_IS_SUSPENDED = Schedule(a_leaders_machine_is_suspended)
ANSWERS_TO_AN_EARLIER_ROUND_COME_LATE = Schedule(answers_to_an_earlier_round_come_late)
AN_ACKNOWLEDGEMENT_COMES_TWO_TERMS_LATE = Schedule(an_acknowledgement_comes_two_terms_late, node_count=5)
A_SNAPSHOT_SAYS_WHAT_THE_LOG_HOLDS = Schedule(a_snapshot_says_what_the_log_holds, alter=_rare_checkpoints)
A_SNAPSHOT_COMES_TO_OTHER_ENTRIES = Schedule(a_snapshot_comes_to_other_entries, alter=_small_pieces)
A_VOTER_RESTARTS_AFTER_ITS_VOTE = Schedule(a_voter_restarts_after_its_vote)
TWO_MEMBERS_LEAVE_AT_ONCE = Schedule(two_members_leave_at_once, node_count=5)
