"""The world of a drill in regions, and the figures that are read from its history."""

from __future__ import annotations

from chaos.checkers.history.events import AnyEvent, Change, Granted, Invoke, Reply
from chaos.drills.drill import Result
from chaos.drills.regions.faults import Notes
from chaos.drills.regions.table import found_faults, summary
from chaos.drills.regions.world import NODES, REGIONS, ROUND_TRIPS_MS, USERS, usual_links
from chaos.drills.rounds import Round

MS = 1000
S = 1_000_000


def call(op: int, process: str, f: str, begin: int, took_ms: int, *grants: Granted) -> list[AnyEvent]:
    worker = process.partition(".")[0]
    return [
        Invoke(t=begin, process=process, op=op, f=f, worker=worker),
        Reply(t=begin + took_ms * MS, process=process, op=op, type="ok", grants=grants),
    ]


def cut(fault: str, target: str, begin: int) -> Round:
    return a_round(fault, target, begin, begin + 15 * S, begin + 20 * S, gap=1.25)


def a_round(fault: str, target: str, begin: int, heal: int, end: int, *, gap: float) -> Round:
    faults = (fault,)
    return Round(
        asked=faults, faults=faults, target=target, begin=begin, heal=heal, end=end,
        write_gap_seconds=gap, sdk_wait_seconds=9.0,
    )  # fmt: skip


def test_round_trips_are_the_same_in_both_directions_and_every_pair_of_hosts_has_a_link() -> None:
    links = usual_links()
    assert len(links) == 10 * 9
    for one in NODES:
        for other in NODES:
            assert ROUND_TRIPS_MS[one - 1][other - 1] == ROUND_TRIPS_MS[other - 1][one - 1]
    assert links[1, 2] == links[2, 1] == links[USERS[0], 2]
    assert (links[1, USERS[0]].delay_ms, links[1, USERS[0]].lost) == (0.5, 0.0)


def test_the_table_has_times_by_region_of_the_user_and_cuts_leave_out_clients_that_were_cut_off() -> None:
    events = [
        *call(1, "user-n1.1", "submit", S, 200),
        *call(2, "user-n1.1", "submit", 2 * S, 300),
        *call(3, "sdk-client-5.3", "submit", 2 * S, 700),
        *call(4, "sdk-client-2.4", "submit", 101 * S, 8000),
        *call(5, "sdk-client-1.5", "submit", 102 * S, 1500),
        *call(6, "sdk-worker-4-abc.1.1", "lease", 103 * S, 50, Granted("j", 1, 1, 77), Granted("k", 1, 1, 78)),
        *call(7, "sdk-worker-4-abc.1.2", "outcome", 118 * S, 50),
        Change(t=-1, index=9, position=0, f="expire", job="j", status="queued", now_ms=0, token=77),
    ]
    calm = a_round("calm", "Virginia", 0, 60 * S, 62 * S, gap=0.5)
    rounds = [calm, cut("cut_leader_region", "Virginia", 100 * S)]
    result = Result(rounds, events=events)
    table = summary(result)
    assert "| Virginia | Frankfurt | 90 ms | 300 / 300 ms | 0 / 0 ms | 2 |" in table
    assert "| Virginia | Sydney | 200 ms | 0 / 0 ms | 700 / 700 ms | 1 |" in table
    assert "cut_leader_region, Virginia, 15 s: longest time without a write 1.25 s" in table
    assert "in the other regions 1.50 s" in table
    assert "1 of 2 leases" in table
    notes = Notes([("calm", 3, 3), ("flat_out", 3, 5)])
    faults = found_faults(result, notes)
    assert "flat_out: an election that nobody needed: term 3 to 5" in faults
    assert [text for text in faults if "worker-4" in text] == []
    assert len(faults) == len(REGIONS)
