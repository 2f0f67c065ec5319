"""Choose the faults of each round: as asked for, drawn by a seed, or as in an earlier report.

Rounds come in groups, each with a cluster of its own, since the log must be whole when it is read back.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from chaos.drills.faults import FAULTS, Fault
from chaos.drills.faults.registry import at_once
from chaos.drills.report.figures import Figures

SHORT: Final = (
    "kill_leader", "kill_all", "pause_leader", "isolate_leader", "leader_deaf", "leader_mute", "bridge", "lossy_links",
    "clock_leader", "full_leader", "power_leader", "fsync_eio_leader", "rot_state", "replace_node_with_kill",
    "rolling_restart", "kill_worker",
)  # fmt: skip
"""Faults of each kind, in about four minutes: what is run if nothing is named."""
ROUNDS_MAX: Final = 20
_ROUND_SECONDS: Final = 15.0
_SINGLE_SHARE: Final = 0.25
"""Of the faults that can strike beside another one: those that strike alone, to learn their times."""
_APART_SECONDS_MAX: Final = 3.0


@dataclass(frozen=True, slots=True)
class Group:
    """The rounds of one cluster."""

    rounds: Sequence[Fault]
    seed: int
    begins: Sequence[float] = ()
    """For each round, the seconds since the start of the drill before which it does not begin; () = at once."""


def as_asked(faults: Sequence[Fault], seed: int) -> list[Group]:
    """Let the faults strike in the order given; those that need another configuration have clusters of their own."""
    parts: list[list[Fault]] = []
    for are_short in (False, True):
        parts.append([])
        for fault in faults:
            if fault.short_logs == are_short:
                if parts[-1] and (parts[-1][-1].is_last or len(parts[-1]) == ROUNDS_MAX):
                    parts.append([])
                parts[-1].append(fault)
    return [Group(part, seed + number) for number, part in enumerate(filter(None, parts))]


def drawn(faults: Sequence[Fault], seed: int, minutes: float) -> Iterator[Group]:
    """Draw rounds of one or two faults, by the seed, for as long as the time lasts by the clock."""
    random = Random(f"pairs {seed}")
    deadline = time.monotonic() + minutes * 60
    number = 0
    while not number or time.monotonic() < deadline:
        fitting = round((deadline - time.monotonic()) / _ROUND_SECONDS)
        count = min(ROUNDS_MAX, max(1, fitting))
        for group in as_asked([_drawn_round(faults, random) for _ in range(count)], seed + number):
            yield group
            number += 1


def _drawn_round(faults: Sequence[Fault], random: Random) -> Fault:
    first = random.choice(faults)
    others = [fault for fault in faults if fault is not first and not fault.is_alone]
    if first.is_alone or not others or random.random() < _SINGLE_SHARE:
        return first
    return at_once([first, random.choice(others)], round(random.uniform(0.0, _APART_SECONDS_MAX), 3))


def again(drills: Sequence[Figures]) -> Iterator[Group]:
    """Repeat the rounds of a report; raises `ValueError` naming a fault that is not there any more."""
    for drill in drills:
        for each in drill.rounds:
            if missing := [name for name in each.asked if name not in FAULTS]:
                raise ValueError(f"the report has a fault that is not there any more: {missing[0]}")
        rounds = [at_once([FAULTS[name] for name in each.asked], each.apart_seconds) for each in drill.rounds]
        yield Group(rounds, drill.seed, [each.begin / 1e6 for each in drill.rounds])


def unbound(group: Group) -> Group:
    """Return the same rounds without bounds for times."""
    return replace(group, rounds=[replace(each, is_single=False) for each in group.rounds])
