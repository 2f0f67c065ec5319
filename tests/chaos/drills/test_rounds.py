"""The two figures of a round, the choice of faults, and the report of a drill."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import ClassVar, Literal, cast

import pytest

from chaos.checkers.history.events import AnyEvent, Invoke, Reply, Setup
from chaos.drills.backends import Backend
from chaos.drills.cluster import Cluster
from chaos.drills.command import main
from chaos.drills.drill import Plan, Result
from chaos.drills.faults import FAULTS, Scene, chosen
from chaos.drills.faults.registry import at_once
from chaos.drills.load.sdk_client import PROCESS
from chaos.drills.nodes import Node
from chaos.drills.programme import ROUNDS_MAX, again, as_asked, drawn
from chaos.drills.readiness import Sight
from chaos.drills.report.figures import Figures, figures_of, read_figures, write_figures
from chaos.drills.report.table import closing_lines
from chaos.drills.report.timeline import timeline
from chaos.drills.rounds import Round, sdk_wait_seconds, write_gap_seconds
from chaos.drills.verdict import judge
from raftsched.node.shutdown import EXIT_FAULT

S = 1_000_000


def call(
    op: int, begin: float, end: float, *, process: str = "user", kind: Literal["ok", "fail"] = "ok"
) -> list[AnyEvent]:
    """A submit at n1."""
    return [
        Invoke(t=round(begin * S), process=f"{process}.{op}", op=op, f="submit", node="n1", key=f"k{op}"),
        Reply(t=round(end * S), process=f"{process}.{op}", op=op, type=kind, job=f"j{op}" if kind == "ok" else ""),
    ]


def test_the_time_without_a_write_counts_accepted_ones_only_and_reaches_to_both_ends_of_the_round() -> None:
    events = [*call(2, 1.5, 2.5), *call(1, 0.5, 1.0), *call(3, 3.0, 4.0, kind="fail"), *call(4, 5.0, 5.5)]
    assert write_gap_seconds(events, 1 * S, 6 * S) == 3.0  # from 2.5 to 5.5
    assert write_gap_seconds(events, 1 * S, 9 * S) == 3.5  # from 5.5 to the end
    assert write_gap_seconds([], 1 * S, 9 * S) == 8.0


def test_the_wait_of_the_sdk_counts_calls_that_have_not_ended_and_nothing_from_before_the_round() -> None:
    before, within = call(1, 0.0, 9.0, process=PROCESS), call(2, 10.0, 10.5, process=PROCESS)
    assert sdk_wait_seconds([*before, *within], 10 * S, 20 * S) == 0.5
    assert sdk_wait_seconds(call(3, 1.0, 11.0, process=PROCESS), 10 * S, 20 * S) == 1.0, "of a fault healed before"
    assert sdk_wait_seconds([*before, *within[:1]], 10 * S, 20 * S) == 10.0
    assert sdk_wait_seconds([*within, *call(3, 11.0, 19.0, process="user")], 10 * S, 20 * S) == 0.5


def test_faults_are_chosen_by_name_and_rounds_and_others_are_refused_by_name() -> None:
    assert [fault.name for fault in chosen(["ring", "kill_all:2"])] == ["ring", "kill_all", "kill_all"]
    (pair,) = chosen(["kill_leader+ring"])
    assert (pair.needs, pair.nodes_min, pair.is_single) == (FAULTS["ring"].needs, 5, False)
    for wrong in ("rings", "ring+rings", "ring+", "ring+add_node", "ring:0", "ring:x", "ring:-1"):
        with pytest.raises(ValueError, match=f"^{re.escape(wrong)}: "):
            chosen([wrong])
    assert [fault.name for fault in FAULTS.values() if not fault.about] == []


def test_a_cluster_has_so_many_rounds_and_ends_with_the_fault_that_none_may_follow() -> None:
    names = [[fault.name for fault in group.rounds] for group in as_asked(chosen(["ring:22", "upgrade:2", "ring"]), 1)]
    assert names == [["ring"] * 20, ["ring", "ring", "upgrade"], ["upgrade"], ["ring"]]


def a_round(*faults: str, gap: float = 0.5, wait: float = 0.1, violations: tuple[str, ...] = ()) -> Round:
    return Round(
        asked=faults, faults=faults, target="n1", begin=S, heal=2 * S, end=3 * S,
        write_gap_seconds=gap, sdk_wait_seconds=wait, violations=violations,
    )  # fmt: skip


def figures(*rounds: Round, seed: int = 1) -> Figures:
    """Those of a drill in which one key had two jobs."""
    first, again = call(1, 0.5, 1.0), call(2, 1.5, 2.0)
    events = [Setup(nodes=("n1",)), *first, again[0], Reply(t=2 * S, process="user.2", op=2, type="ok", job="j1")]
    result = Result(list(rounds), ["n1: rot"], judge(events), (1, 2), events)
    return figures_of(result, Plan([], 3, seed, Path()), "proxies", {}, is_bound=True)


def test_the_report_names_violations_beside_counts_and_the_picture_has_what_nodes_said() -> None:
    struck = a_round("kill_leader", violations=("TOO SLOW: no write for 4.00 s",))
    lines = closing_lines([figures(struck)])
    assert "1 of 2 acknowledged jobs lost" in lines
    assert "VIOLATION TOO SLOW: no write for 4.00 s" in lines
    assert "VIOLATION n1: rot" in lines
    assert "2 violations" in lines
    sights = [Sight(0, "n1", 200, "ready"), Sight(S, "n1", 503, "no <leader>")]
    picture = timeline(Result([struck], sights=sights), ["n1"])
    assert "n1 503 no &lt;leader&gt;" in picture
    assert "kill_leader" in picture


def test_reports_are_added_up_by_kind_of_fault_and_a_fault_that_was_not_made_counts_nowhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unmade = replace(a_round("ring"), faults=(), not_made=("ring: no nft",))
    kills = [a_round("kill_leader", gap=gap) for gap in (0.5, 0.75, 1.25)]
    for number, rounds in enumerate(([*kills[:2], unmade], [kills[2], a_round("ring", "kill_leader", gap=9.0)])):
        (tmp_path / f"{number}").mkdir()
        write_figures(figures(*rounds), tmp_path / f"{number}")
    assert main(["sum", f"{tmp_path}/0", f"{tmp_path}/1"]) == 1
    printed = capsys.readouterr().out
    assert "| kill_leader | 3 | 0 | 0.75 / 1.25 / 1.25 | 0.10 / 0.10 / 0.10 |" in printed
    assert "| kill_leader + another | 1 | 0 | 9.00 / 9.00 / 9.00 |" in printed
    assert "| ring |" not in printed
    assert "2 of 4 acknowledged jobs lost" in printed
    assert main(["sum", f"{tmp_path}/2"]) == 2
    assert "2: there is no report.json in it" in capsys.readouterr().out


def test_a_report_is_repeated_with_its_rounds_seeds_and_times_and_refused_by_name_if_a_fault_is_gone(
    tmp_path: Path,
) -> None:
    write_figures(figures(a_round("kill_leader"), replace(a_round("bridge", "kill_all"), apart_seconds=1.5)), tmp_path)
    [group] = again(read_figures([tmp_path]))
    assert [(each.parts, each.apart_seconds) for each in group.rounds] == [
        (("kill_leader",), 0.0),
        (("bridge", "kill_all"), 1.5),
    ]
    assert (group.seed, group.begins) == (1, [1.0, 1.0])
    with pytest.raises(ValueError, match="not there any more: rings"):
        list(again([figures(a_round("rings"))]))


def test_rounds_are_drawn_by_the_seed_most_of_two_faults_and_none_of_these_needs_a_sound_cluster() -> None:
    faults = chosen(["kill_leader", "bridge", "rolling_restart"])
    first, second = (next(drawn(faults, 7, minutes=60)).rounds for _ in range(2))
    assert [(each.name, each.apart_seconds) for each in first] == [(each.name, each.apart_seconds) for each in second]
    assert len(first) == ROUNDS_MAX
    assert {frozenset(each.parts) for each in first} == {
        frozenset({"kill_leader", "bridge"}),
        frozenset({"kill_leader"}),
        frozenset({"bridge"}),
        frozenset({"rolling_restart"}),
    }


async def test_a_fault_that_cannot_be_made_beside_another_is_left_out_and_told() -> None:
    healed = []

    @asynccontextmanager
    async def strike(_scene: Scene) -> AsyncIterator[str]:
        yield "n1"
        healed.append("n1")

    @asynccontextmanager
    async def fail(_scene: Scene) -> AsyncIterator[str]:
        raise TimeoutError("no leader")
        yield ""

    works, fails = (
        replace(FAULTS["kill_leader"], name=name, strike=each) for name, each in (("a", strike), ("b", fail))
    )
    scene = Scene(cast("Cluster", None), cast("Backend", None), Random(1), ())
    async with at_once([works, fails]).strike(scene) as target:
        assert (target, healed) == ("n1", [])
    assert (scene.not_made, healed) == ({"b": "no leader"}, ["n1"])


async def test_a_herd_without_a_leader_is_no_herd_and_its_crowd_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Crowd:
        is_running = False

        def start(self) -> None:
            self.is_running = True

        def stop(self) -> None:
            self.is_running = False

    class Leaderless:
        crowds: ClassVar = [Crowd()]

        async def leader(self) -> Node:
            assert self.crowds[0].is_running
            raise TimeoutError("no leader")

    monkeypatch.setattr("chaos.drills.faults.processes._CROWDED_SECONDS", 0.0)
    scene = Leaderless()
    with pytest.raises(TimeoutError):
        async with FAULTS["herd"].strike(cast("Scene", scene)):
            pass
    assert not scene.crowds[0].is_running


async def test_no_leader_is_waited_for_while_another_fault_stops_a_majority(monkeypatch: pytest.MonkeyPatch) -> None:
    class Paused:
        id, is_running, is_paused = "n1", True, True

        def kill(self) -> None: ...

    monkeypatch.setattr("chaos.drills.cluster._WITHOUT_MAJORITY_SECONDS", 0.1)
    cluster = Cluster((1, 2, 3), lambda _number, _hosts: cast("Node", Paused()))
    async with asyncio.timeout(20.0):
        with pytest.raises(TimeoutError, match="no leader within 0 s, 0 of 3 nodes run"):
            await cluster.leader()
    await cluster.close()


async def test_the_node_with_the_whole_log_is_stopped_last() -> None:
    stopped = []

    class Running:
        def __init__(self, number: int) -> None:
            self.number = number

        async def stop(self) -> bool:
            stopped.append(self.number)
            return self.number != 2  # it hangs

        def kill(self) -> None: ...

    cluster = Cluster((1, 2, 3), lambda number, _hosts: cast("Node", Running(number)))
    assert ([node.number for node in await cluster.stop()], stopped) == ([2], [3, 2, 1])
    await cluster.close()


async def test_a_node_that_stops_late_because_its_disk_was_full_is_started_again_and_no_other_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Stopped:
        def __init__(self, *, was_full: bool) -> None:
            self.was_full = was_full
            self.exit_code: int | None = EXIT_FAULT

        def start(self) -> None:
            self.exit_code = None

        def kill(self) -> None: ...

    nodes = [Stopped(was_full=was_full) for was_full in (False, True)]
    cluster = Cluster((1, 2), lambda number, _hosts: cast("Node", nodes[number - 1]))

    async def missing(_self: Cluster) -> str:
        return " ".join(f"n{number}" for number, node in enumerate(nodes, start=1) if node.exit_code is not None)

    monkeypatch.setattr(Cluster, "_missing", missing)
    assert await cluster.healthy(seconds=0.2) == "n1"
    await cluster.close()
