"""All nodes are down for longer than an instant may be late; each misfire policy says what becomes of what was missed.

    python -m tests.drills.outage --seconds 45

The ledger must hold every instant once. Those decided in time fire whatever the policy; of those that were missed none
fires (skip), the latest does (run_once), all do (run_all), or all within the catch-up window.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from raftsched import limits
from raftsched.cli.local.cluster import LocalCluster
from tests.acceptance.http import ask
from tests.drills.ledger import Line, decided_up_to, faults, first_fire_time, ledger, save_grid
from tests.drills.processes import drill_cluster

PERIOD_SECONDS: Final = 1
WINDOW_SECONDS: Final = 3
"""Beyond what an instant may be late, or a pause lasts: only the latest of the missed instants lie in it."""
POLICIES: Final = ("skip", "run_once", "run_all", "run_all_within")

_JUDGED_MS_MAX: Final = 1_000
"""A decision is written down at most so long after it was made."""

IsMissed = Callable[[Line], bool | None]
"""Whether an instant was missed; None = it can't be told from the ledger."""


def save_policies(base: str, start_s: int, *, window_seconds: float) -> None:
    """Save a schedule for each policy, called like it."""
    for name in POLICIES:
        fields: dict[str, Any] = {"misfire": name.removesuffix("_within")}
        if name.endswith("_within"):
            fields["catchup_window_seconds"] = window_seconds
        save_grid(base, name, period_seconds=PERIOD_SECONDS, start_s=start_s, **fields)


def policy_faults(
    base: str, start_s: int, *, is_missed: IsMissed, reason: str, window_seconds: float, missed_min: int
) -> Iterator[str]:
    """Yield what is otherwise in the ledgers than it must be; `reason` is why missed instants are skipped."""
    for name in POLICIES:
        lines = ledger(base, name, PERIOD_SECONDS)
        yield from faults(base, name, lines, start_s=start_s, period_seconds=PERIOD_SECONDS)
        verdicts = [is_missed(line) for line in lines]
        if verdicts.count(True) < missed_min:
            yield f"{name}: {verdicts.count(True)} instants were missed, not {missed_min} or more"
        missed = [line for line, verdict in zip(lines, verdicts, strict=True) if verdict is True]
        in_time = [line for line, verdict in zip(lines, verdicts, strict=True) if verdict is False]
        wrong = [line for line in in_time if line.reason]
        wrong += _skipped_wrongly(name, lines, reason, window_seconds * 1000)
        wrong += _fired_wrongly(name, lines, missed, in_time, window_seconds * 1000)
        for line in wrong:
            yield f"{name}: {line.fire_time_ms}, decided {line.lateness_ms} ms late, is {line.reason or 'fired'}"


def _skipped_wrongly(name: str, lines: Sequence[Line], reason: str, window_ms: float) -> list[Line]:
    """Return the lines that are skipped although, or for another reason than, the policy says."""
    skipped = [line for line in lines if line.reason]
    if name in ("skip", "run_once"):
        return [line for line in skipped if line.reason != reason]
    if name == "run_all":
        return skipped
    return [line for line in skipped if line.reason != "catchup_expired" or line.lateness_ms <= window_ms]


def _fired_wrongly(
    name: str, lines: Sequence[Line], missed: Sequence[Line], in_time: Sequence[Line], window_ms: float
) -> list[Line]:
    """Return the missed lines that fired although the policy says otherwise."""
    fired = [line for line in missed if not line.reason]
    if name == "skip":
        return fired
    if name == "run_once":
        # One was made up: that behind the last which was skipped. It may be too near to the limit to be in `missed`.
        last = max((position for position, line in enumerate(lines) if line.reason), default=-1)
        made_up = lines[last + 1] if last >= 0 else None
        return [line for line in fired if line != made_up] + [line for line in in_time if line == made_up]
    if name == "run_all":
        return []
    return [line for line in fired if line.lateness_ms > window_ms + _JUDGED_MS_MAX]


def outage_misses(line: Line) -> bool | None:
    """Whether an instant was decided too late to be in time."""
    if limits.MISFIRE_GRACE_MS < line.lateness_ms <= limits.MISFIRE_GRACE_MS + _JUDGED_MS_MAX:
        return None
    return line.lateness_ms > limits.MISFIRE_GRACE_MS


def run(cluster: LocalCluster, seconds: float) -> list[str]:
    """Take all nodes down for so long; return what is wrong in the ledgers."""
    base = cluster.nodes[0].api
    start_s = first_fire_time(PERIOD_SECONDS)
    window_seconds = limits.MISFIRE_GRACE_MS / 1000 + WINDOW_SECONDS
    save_policies(base, start_s, window_seconds=window_seconds)
    decided_up_to(cluster, base, POLICIES, (start_s + 2) * 1000, seconds=30)
    cluster.stop()
    time.sleep(seconds)
    cluster.start()
    cluster.wait_for_leader()
    decided_up_to(cluster, base, POLICIES, int(time.time() - 1) * 1000, seconds=60)
    for name in POLICIES:
        ask(base, "POST", f"/schedules/{name}/pause")
    return list(
        policy_faults(
            base,
            start_s,
            is_missed=outage_misses,
            reason="misfire",
            window_seconds=window_seconds,
            missed_min=int(seconds - limits.MISFIRE_GRACE_MS / 1000),
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=45.0)
    asked = parser.parse_args()
    with drill_cluster() as cluster:
        found = run(cluster, asked.seconds)
    print("\n".join(found[:50]) or "every instant was decided once, as its policy says")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
