"""Networks between continents: a cluster with the documented timing serves, one with the default says what is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from chaos.sim.network.links import LinkRates
from chaos.sim.planted.scripts.stage import NOT_REACHED, Play, Schedule, Stage, calm, run_schedule
from chaos.sim.rates import Rates

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"
_ROW = re.compile(r"\| up to (\d+) ms[^|]*\| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|")


def _documented() -> list[tuple[int, float, tuple[float, float]]]:
    """(round trip in ms, heartbeat, election) of each row of the table in docs/operations.md."""
    rows = _ROW.findall(OPERATIONS.read_text(encoding="utf-8"))
    return [(int(trip), float(beat), (float(low), float(high))) for trip, beat, low, high in rows]


def _network(one_way_seconds: float, heartbeat: float, election: tuple[float, float]) -> Callable[[Rates], Rates]:
    def alter(rates: Rates) -> Rates:
        links = LinkRates(delay_seconds=(one_way_seconds, one_way_seconds + 0.005))
        return replace(calm(rates), links=links, heartbeat=heartbeat, election=election, lease=10.0)

    return alter


def _serves(stage: Stage) -> Play:
    """It elects a leader, which serves reads all the time and commits writes, and nobody complains."""
    yield from stage.until(lambda: stage.leader_among(stage.ids), seconds=30.0)
    leader = stage.leader_among(stage.ids)
    committed = stage.engine(leader).commit_index
    stage.submit(leader)
    for _ in range(100):
        yield 0.1
        if not stage.serves(leader):
            stage.fault(f"{leader} does not serve")
    if stage.engine(leader).commit_index <= committed:
        stage.fault("nothing was written")
    for node_id in stage.ids:
        is_ready, text = stage.node(node_id).backend.readiness()
        if not is_ready or text:
            stage.fault(f"{node_id} complains: {is_ready} {text}")


def _says_why(stage: Stage) -> Play:
    """Whoever leads, or led, blames the round trip in readiness; nobody blames a clock."""
    told: set[str] = set()
    for _ in range(300):
        yield 0.1
        told |= {stage.node(node_id).backend.readiness()[1] for node_id in stage.ids}
    if not any("round trip" in text and "election_seconds_min" in text for text in told):
        stage.fault(f"nobody names the round trip: {sorted(told)}")
    if any("clock" in text for text in told):
        stage.fault(f"a clock is blamed: {sorted(told)}")


@pytest.mark.parametrize("one_way_seconds", [0.15, 0.3])
def test_a_cluster_with_the_documented_timing_serves(one_way_seconds: float) -> None:
    _, heartbeat, election = next(row for row in _documented() if row[0] >= 2000 * one_way_seconds)
    _play(_serves, _network(one_way_seconds, heartbeat, election))


@pytest.mark.parametrize("one_way_seconds", [0.15, 0.3, 0.6])
def test_a_cluster_with_the_default_timing_says_that_the_round_trip_is_too_long(one_way_seconds: float) -> None:
    _play(_says_why, _network(one_way_seconds, 0.1, (0.5, 1.0)))


def _play(script: Callable[[Stage], Play], alter: Callable[[Rates], Rates]) -> None:
    """Play the script alone: the clients that come after a schedule have bounds for fast networks."""
    faults: list[str] = []

    def play(stage: Stage) -> Play:
        yield from script(stage)
        faults.extend(stage.world.faults)
        stage.fault("the end")  # which ends the run

    outcome = run_schedule(Schedule(play, alter=alter), 1)
    assert outcome.violations[-1] == "the end"
    assert not faults
    assert not outcome.counts[NOT_REACHED]
