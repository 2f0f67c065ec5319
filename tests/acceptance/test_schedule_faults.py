"""Leaders die and whole clusters stop while schedules are due: every instant is decided once (D01, D02, D10, D12)."""

from __future__ import annotations

import time

from raftsched.cli.local.cluster import LocalCluster
from tests.acceptance.http import ask
from tests.drills import due_kills, outage
from tests.drills.ledger import Line, decided_up_to, first_fire_time, ledger, ms

DOWN_SECONDS = 5
WINDOW_SECONDS = 2.5


def test_every_fire_time_is_decided_once_when_leaders_die_around_it(cluster: LocalCluster) -> None:
    """Case D01; `tests.drills.due_kills` does it often."""
    gaps, found = due_kills.run(cluster, kill_count=2, schedule_count=30)
    assert found == []
    assert max(gaps) < 8.0


def test_misfire_policies_decide_about_what_a_pause_and_an_outage_missed(cluster: LocalCluster) -> None:
    """Cases D10 and D12, with the cluster down during the pause; `tests.drills.outage` is a real outage without one."""
    base = cluster.nodes[0].api
    start_s = first_fire_time(outage.PERIOD_SECONDS)
    outage.save_policies(base, start_s, window_seconds=WINDOW_SECONDS)
    decided_up_to(cluster, base, outage.POLICIES, start_s * 1000, seconds=30)
    for name in outage.POLICIES:
        ask(base, "POST", f"/schedules/{name}/pause", {"reason": "outage"})
        ask(base, "POST", f"/schedules/{name}/pause", {"reason": "outage"})  # twice is once
    paused_s = time.time()
    cluster.kill()
    cluster.start()
    cluster.wait_until_ready(cluster.nodes[0])  # a leader may be there before it
    before = {name: ledger(base, name, outage.PERIOD_SECONDS) for name in outage.POLICIES}
    assert all(line.fire_time_ms <= paused_s * 1000 for lines in before.values() for line in lines)
    cluster.wait_until(lambda: time.time() > paused_s + DOWN_SECONDS, what="instants to be missed")
    resumed: dict[str, int] = {}
    for name in outage.POLICIES:
        resumed[name] = ms(ask(base, "POST", f"/schedules/{name}/resume")["updated_at"])
        ask(base, "POST", f"/schedules/{name}/resume")
    decided_up_to(cluster, base, outage.POLICIES, int(time.time() + 1) * 1000, seconds=30)
    for name in outage.POLICIES:
        ask(base, "POST", f"/schedules/{name}/pause")
    first_ms, last_ms = min(resumed.values()), max(resumed.values())

    def is_missed(line: Line) -> bool | None:
        if first_ms <= line.fire_time_ms <= last_ms:
            return None
        return line.fire_time_ms < first_ms <= line.fire_time_ms + line.lateness_ms

    found = outage.policy_faults(
        base,
        start_s,
        is_missed=is_missed,
        reason="paused",
        window_seconds=WINDOW_SECONDS,
        missed_min=DOWN_SECONDS - 1,
    )
    assert list(found) == []
