"""Directed schedules about votes and the commit rule: requests that arrive late, and entries of an earlier term.

A candidate asks for pre-votes first, and nobody grants one that would not grant the vote. So the checks that a voter makes
when it is asked for the vote itself matter only when something happened between the two questions: here the request is
held while the voter has its leader again, or gets entries that the candidate lacks.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

from chaos.sim.planted.scripts.stage import NotReached, Play, Schedule, Stage, calm, frames_of
from chaos.sim.rates import Rates
from raftsched.consensus.raft.messages import PRE_VOTE, PRE_VOTE_OK, VOTE, Message

_PAUSE_SECONDS = 30.0
"""Longer than any script pauses a node; it resumes the node itself."""


def _one_entry_at_a_time(rates: Rates) -> Rates:
    """Each entry travels in a message of its own, and the next one leaves once it is acknowledged."""
    altered = calm(rates)
    return replace(altered, sizes=replace(altered.sizes, append_bytes=100, appends_in_flight=1))


# -- the commit rule (Raft paper §5.4.2, figure 8) --------------------------------------------------------------------


def an_earlier_terms_entry_reaches_a_majority(stage: Stage) -> Play:
    """Figure 8 of the Raft paper: n1's entry of an earlier term is on two of three disks, and is overwritten all the same.

    n1 writes X alone and stops. Another node, elected by the third, writes its no-op alone at the same index and stops.
    n1 is elected again and copies X to the third node: a majority holds it, in a term that is not its own. n1 stops, the
    second leader comes back with the later term and overwrites X.
    """
    first = yield from stage.settled("n1")
    others = stage.others(first)
    stage.part([first], others)
    index, term = stage.last_index(first) + 1, stage.engine(first).term
    for _ in range(3):
        stage.submit(first)
        yield 0.02
    yield from stage.until(lambda: stage.engine(first).commit.durable_index > index, seconds=0.4)
    stage.host(first).crash(power_loss=False)
    second, third = yield from _elected_in_silence(stage, after_term=term)
    yield from stage.until(lambda: stage.engine(second).leads and stage.engine(second).commit.durable_index >= index)
    stage.host(second).crash(power_loss=False)
    stage.join(others, stage.ids)
    stage.join([first], others)
    stage.host(first).start()
    yield from stage.until(lambda: stage.engine(first).leads)
    yield from stage.until(lambda: stage.engine(first).replication.progress[third].match >= index)
    yield 0.0
    stage.host(first).crash(power_loss=False)
    stage.host(second).start()
    yield from stage.until(lambda: stage.leader_among(stage.others(first)))
    stage.host(first).start()
    yield 0.5


def _elected_in_silence(stage: Stage, *, after_term: int) -> Generator[float, None, tuple[str, str]]:
    """Wait until one of the two nodes that run votes for the other, which is cut off with that vote; return (elected,
    voter).
    """
    voted: list[tuple[str, str]] = []

    def heard(voter: str, elected: str, _message: Message) -> None:
        if not voted:
            voted.append((elected, voter))
            stage.part([elected], [voter])

    stage.on_frame = frames_of(VOTE, heard)
    yield from stage.until(lambda: voted)
    [(elected, voter)] = voted
    if stage.engine(voter).term == after_term:
        raise NotReached("the vote was not for a later term")
    return elected, voter


# -- requests for votes that arrive late ------------------------------------------------------------------------------


def a_late_request_meets_a_live_leader(stage: Stage) -> Play:
    """A request for a vote reaches its voter when that has its leader again, to whom it owes its promise."""
    leader = yield from stage.settled()
    yield from _late_request(stage, leader)


def a_late_request_of_a_node_that_was_once_handed_the_lead(stage: Stage) -> Play:
    """The same, of a candidate to which a leader had transferred before, and which has no such right now."""
    yield from stage.settled("n2")
    yield from stage.settled("n1")
    yield from stage.settled("n2")
    stage.part(["n1"], ["n2"])
    stage.submit("n2")
    yield from stage.until(lambda: stage.last_index("n3") == stage.last_index("n2") > stage.last_index("n1"))
    stage.transfer_leadership("n2")
    yield from stage.until(lambda: stage.serves("n3"))
    stage.join(["n1"], ["n2"])
    yield from stage.settled("n3")
    yield from _late_request(stage, "n3")


def _late_request(stage: Stage, leader: str) -> Play:
    """Have a follower of `leader` ask for votes while that is paused; its request arrives when the leader is back."""
    candidate, voter = yield from _stands_unheard(stage, leader)
    stage.host(leader).resume()
    yield from stage.until(lambda: stage.serves(leader))
    stage.cut([voter], [leader])
    stage.heal([candidate], [voter])
    yield 0.1
    if stage.serves(candidate):
        yield from stage.submits(candidate, 10)
    yield 0.2


def _stands_unheard(stage: Stage, leader: str) -> Generator[float, None, tuple[str, str]]:
    """Pause the leader until a follower is a candidate by the other's word, and hold its frames; (candidate, voter)."""
    stood: list[tuple[str, str]] = []

    def granted(voter: str, candidate: str, _message: Message) -> None:
        if not stood:
            stood.append((candidate, voter))
            stage.cut([candidate], stage.others(candidate))

    stage.host(leader).pause(_PAUSE_SECONDS)
    term = stage.engine(leader).term
    stage.on_frame = frames_of(PRE_VOTE_OK, granted)
    yield from stage.until(lambda: stood)
    [(candidate, voter)] = stood
    yield from stage.until(lambda: stage.engine(candidate).term > term, seconds=0.2)
    yield 0.02
    if stage.engine(voter).term > term:
        raise NotReached(f"{voter} is a candidate as well")
    return candidate, voter


def a_late_request_of_a_shorter_log(stage: Stage) -> Play:
    """A request for a vote reaches its voter when that holds a committed entry which the candidate lacks."""
    leader = yield from stage.settled()
    candidate, voter = yield from _stands_unheard(stage, leader)
    stage.cut([leader], [candidate])
    stage.host(leader).resume()
    yield from stage.until(lambda: stage.serves(leader))
    before = stage.engine(voter).commit_index
    yield from stage.submits(leader, 3)
    yield from stage.until(lambda: stage.engine(voter).commit_index > before, seconds=0.5)
    stage.host(leader).crash(power_loss=False)
    yield 0.65  # the voter's promise to its leader is over
    stage.heal([candidate], [voter])
    yield 0.1
    stage.host(leader).start()
    yield 0.3


def a_late_request_of_an_older_log(stage: Stage) -> Play:
    """A request for a vote comes from a log that is longer than the voter's, but ends in an earlier term.

    n1 led, and has a long end of its log for itself; it restarts, and asks for votes twice by the word of n2 or n3,
    which hold less as yet, and don't learn of its term. Its requests are held. The others elect one of them, which
    commits an entry of a term between. Then that leader stops, and the second request arrives.
    """
    candidate = yield from stage.settled("n1")
    others = stage.others(candidate)
    stage.cut([candidate], others)
    start = stage.last_index(candidate)
    yield from stage.submits(candidate, 10)
    yield from stage.until(lambda: stage.engine(candidate).commit.durable_index >= start + 4, seconds=0.4)
    term = stage.engine(candidate).term
    stage.drop_links([candidate], others)
    stage.restart(candidate)
    paused, _ = others
    stage.host(paused).pause(_PAUSE_SECONDS)
    stage.network.loses = lambda _sender, receiver, message: (receiver, message["type"]) == (candidate, PRE_VOTE)
    stage.join([candidate], others)
    for standing in (1, 2):
        stage.on_frame = frames_of(PRE_VOTE_OK, lambda _voter, _candidate, _message: stage.cut([candidate], others))
        yield from stage.until(lambda: stage.engine(candidate).term == term + standing)  # noqa: B023
        stage.on_frame = lambda _sender, _receiver, _message: None
        yield 0.02
        if standing == 1:
            stage.drop_links([candidate], others)
            stage.join([candidate], others)
    stage.host(paused).resume()
    yield from stage.until(lambda: stage.leader_among(others))
    leader = stage.leader_among(others)
    [voter] = [node_id for node_id in others if node_id != leader]
    yield from stage.until(lambda: stage.engine(voter).commit_index > start)
    if stage.engine(voter).term != term + 1:
        raise NotReached("the others took another term")
    stage.host(leader).crash(power_loss=False)
    yield 0.65  # the voter's promise to its leader is over
    stage.heal([candidate], [voter])
    yield 0.1
    stage.host(leader).start()
    yield 0.3


AN_EARLIER_TERMS_ENTRY_REACHES_A_MAJORITY = Schedule(
    an_earlier_terms_entry_reaches_a_majority, alter=_one_entry_at_a_time
)
A_LATE_REQUEST_MEETS_A_LIVE_LEADER = Schedule(a_late_request_meets_a_live_leader)
A_LATE_REQUEST_OF_A_NODE_THAT_WAS_ONCE_HANDED_THE_LEAD = Schedule(
    a_late_request_of_a_node_that_was_once_handed_the_lead
)
A_LATE_REQUEST_OF_A_SHORTER_LOG = Schedule(a_late_request_of_a_shorter_log)
A_LATE_REQUEST_OF_AN_OLDER_LOG = Schedule(a_late_request_of_an_older_log)
