"""The table of a drill in regions, and the faults that it shows."""

from __future__ import annotations

from chaos.drills.drill import Result
from chaos.drills.regions.faults import Notes
from chaos.drills.regions.measured import (
    calls,
    client_of,
    leases_lost_by_workers,
    longest_call_seconds,
    times_of,
    user_of,
    workers_that_stopped,
    writes_per_second,
)
from chaos.drills.regions.world import NODES, REGIONS, ROUND_TRIPS_MS


def found_faults(result: Result, notes: Notes) -> list[str]:
    """Return what went wrong beside the rounds and the history."""
    elections = [
        f"{name}: an election that nobody needed: term {one} to {two}" for name, one, two in notes.terms if one != two
    ]
    stopped = [
        f"{cut.fault} {cut.target}: {worker} completed nothing after the heal"
        for cut in result.rounds
        if cut.fault.startswith("cut")
        for worker in workers_that_stopped(result.events, cut)
    ]
    return elections + stopped + [f"a problem in calm: {text}" for text in sorted(notes.problems)]


def summary(result: Result) -> str:
    """Return the tables: writes by the region of their users, throughput, and times of cuts."""
    submits = calls(result.events, "submit")
    lines = [
        "| leader | users in | round trip to the leader | any node, p50 / p99 | SDK, p50 / p99 | writes |",
        "|---|---|---|---|---|---|",
    ]
    for calm in [each for each in result.rounds if each.fault == "calm"]:
        leader = REGIONS.index(calm.target)
        for number in NODES:
            users = times_of(submits, user_of(number), calm.begin, calm.heal)
            client = times_of(submits, client_of(number), calm.begin, calm.heal)
            lines.append(
                f"| {calm.target} | {REGIONS[number - 1]} | {ROUND_TRIPS_MS[leader][number - 1]} ms "
                f"| {users.p50:.0f} / {users.p99:.0f} ms | {client.p50:.0f} / {client.p99:.0f} ms "
                f"| {users.calls + client.calls:,} |"
            )
    lines.append("")
    for each in result.rounds:
        seconds = (each.heal - each.begin) / 1e6
        if each.fault == "flat_out":
            rate = writes_per_second(submits, each.heal - 10_000_000, each.heal)
            lines.append(f"- all users as fast as they are answered, from all regions: {rate:.0f} writes/s")
        elif each.fault == "calm":
            lines.append(
                f"- calm, {seconds:.0f} s, leader in {each.target}: longest time without a write {each.write_gap_seconds:.2f} s"
            )
        else:
            lines.append(
                f"- {each.fault}, {each.target}, {seconds:.0f} s: longest time without a write "
                f"{each.write_gap_seconds:.2f} s, longest call of the SDK in the other regions "
                f"{longest_call_seconds(submits, each):.2f} s"
            )
    expired, given = leases_lost_by_workers(result.events)
    lines.append(f"- {expired} of {given:,} leases of workers that were never silent expired")
    return "\n".join(lines)
