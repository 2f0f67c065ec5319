"""The two figures of a round, the choice of faults, and the report of a drill."""

from __future__ import annotations

import re
from typing import Literal

import pytest

from chaos.checkers.history.events import AnyEvent, Invoke, Reply, Setup
from chaos.drills.drill import Result
from chaos.drills.faults import FAULTS, chosen
from chaos.drills.load.sdk_client import PROCESS
from chaos.drills.readiness import Sight
from chaos.drills.report.table import closing_table
from chaos.drills.report.timeline import timeline
from chaos.drills.rounds import Round, sdk_wait_seconds, write_gap_seconds
from chaos.drills.verdict import judge

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
    events = [*call(1, 0.5, 1.0), *call(2, 1.5, 2.5), *call(3, 3.0, 4.0, kind="fail"), *call(4, 5.0, 5.5)]
    assert write_gap_seconds(events, 1 * S, 6 * S) == 3.0  # from 2.5 to 5.5
    assert write_gap_seconds(events, 1 * S, 9 * S) == 3.5  # from 5.5 to the end
    assert write_gap_seconds([], 1 * S, 9 * S) == 8.0


def test_the_wait_of_the_sdk_counts_calls_that_have_not_ended_and_none_that_ended_before() -> None:
    before, within = call(1, 0.0, 9.0, process=PROCESS), call(2, 10.0, 10.5, process=PROCESS)
    assert sdk_wait_seconds([*before, *within], 10 * S, 20 * S) == 0.5
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


def test_the_report_names_violations_beside_counts_and_the_picture_has_what_nodes_said() -> None:
    first, again = call(1, 0.5, 1.0), call(2, 1.5, 2.0)
    events = [Setup(nodes=("n1",)), *first, again[0], Reply(t=2 * S, process="user.2", op=2, type="ok", job="j1")]
    struck = Round("kill_leader", "n1", S, 2 * S, 3 * S, 4.0, 0.1, "", ("TOO SLOW: no write for 4.00 s",))
    sights = [Sight(0, "n1", 200, "ready"), Sight(S, "n1", 503, "no <leader>")]
    result = Result([struck], ["n1: rot"], judge(events), events, sights)
    table = closing_table([result])
    assert "VIOLATION TOO SLOW: no write for 4.00 s" in table
    assert "VIOLATION n1: rot" in table
    assert "2 violations" in table
    picture = timeline(result, ["n1"])
    assert "n1 503 no &lt;leader&gt;" in picture
    assert "kill_leader" in picture
