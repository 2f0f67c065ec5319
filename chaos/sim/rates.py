"""Draw what a seed decides before anything happens: which faults, how often, how the clocks run, what clients do.

Swarm testing (Groce et al. 2012): each seed leaves out some kinds of faults and exaggerates others, which reaches states
that an even mix never does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from chaos.sim.features import NO_FEATURES, Features, draw_features
from chaos.sim.network.links import LinkRates
from raftsched.consensus.ports import Sizes

MEMBER_FAULTS = ("add_member", "remove_member", "replace_member", "wipe_member", "forget_member")
"""Changes of the members, which are no faults but what faults must not disturb; in a third of the seeds."""
_OTHER_FAULTS = (
    "crash",
    "power_loss",
    "crash_all",
    "crash_point",
    "pause",
    "pause_deaf",
    "cut_pair",
    "cut_one_way",
    "part",
    "slow_link",
    "reset_link",
    "transfer",
    "stop_gracefully",
    "desert_leader",
    "clock_jump",
    "disk_error",
    "disk_full",
    "disk_slow",
    "commit_error",
    "storage_full",
    "bit_flip",
)
_SUSPENSION = "suspend"
FAULTS = (*_OTHER_FAULTS, *MEMBER_FAULTS, _SUSPENSION)
_WEIGHTS = {
    "crash_all": 0.3,
    "bit_flip": 0.15,
    "crash_point": 3.0,
    "pause": 1.5,
    "power_loss": 1.5,
    "desert_leader": 2.0,
    "add_member": 3.0,
    "remove_member": 4.0,
}
LMDB_EVERY = 50
_CHANGING_SEEDS = 1 / 3
_TWIN_SEEDS = 1 / 4
_ASKING_SEEDS = 1 / 3
_SUSPENDING_SEEDS = 1 / 4
_ENCRYPTED_SEEDS = 1 / 4
_MORE_JOBS = 4
_HOLD_BYTES_MIN = 240_000
"""More than clients write while a whole state is sent: with less, a transfer never ends before the log has outlived it
(1120147 on 5 nodes: 700 bytes at a time over slow links)."""


@dataclass(frozen=True, slots=True)
class Rates:
    """All of it; times in seconds unless the name says otherwise."""

    fault_weights: dict[str, float]
    fault_pause: float
    """Mean time between two faults."""
    links: LinkRates
    election: tuple[float, float]
    heartbeat: float
    sync: float
    """Longest time of a sync."""
    snapshot_work: float
    """Longest time in which a thread makes a copy of the state, or checks one that came in."""
    clock_rate_error: float
    wall_error_ms: int
    sizes: Sizes
    segment_bytes: int
    cache_bytes: int
    checkpoint: float
    lease: float
    cancel_grace: float
    retention: float
    client_count: int
    sdk_count: int
    """Users with production's client."""
    worker_count: int
    think: float
    """Mean time between two operations of a client."""
    probe: float
    """Time between two submits at each node."""
    worker_stall: float
    """Part of the jobs on which a worker stalls past its lease."""
    worker_death: float
    lost_reply: float
    """Part of the requests whose answer never reaches the client."""
    uses_lmdb: bool
    is_harsh: bool
    features: Features = NO_FEATURES
    asks_majorities: bool = False
    """Whether whoever believes to lead is also asked for reads that a majority confirms."""
    is_encrypted: bool = False
    """Whether the nodes have keys, each node another first one."""
    has_twins: bool = False
    """Whether its log is applied again under other hash seeds."""


def _member_weights(seed: int) -> dict[str, float]:
    """Drawn apart, so that a seed's other rates don't depend on them."""
    random = Random(f"members of {seed}")
    if random.random() >= _CHANGING_SEEDS:
        return {}
    return {
        fault: _WEIGHTS.get(fault, 1.0) * random.choice((0.5, 1.0, 3.0))
        for fault in MEMBER_FAULTS
        if random.random() < 0.8
    }


def _suspension_weights(seed: int) -> dict[str, float]:
    """Drawn apart, as those of members."""
    return {_SUSPENSION: 1.0} if Random(f"suspensions of {seed}").random() < _SUSPENDING_SEEDS else {}


def _snapshot_work(seed: int, election_seconds_max: float) -> float:
    """From nothing to several election timeouts: much happens to a log meanwhile. Drawn apart, as members are."""
    return Random(f"snapshot work of {seed}").choice((0.0, 0.1, election_seconds_max, 4 * election_seconds_max))


def draw(random: Random, seed: int) -> Rates:
    """The rates of a seed."""
    share = random.choice((0.25, 0.5, 0.8))
    weights = {
        fault: _WEIGHTS.get(fault, 1.0) * random.choice((0.5, 1.0, 3.0))
        for fault in _OTHER_FAULTS
        if random.random() < share
    }
    is_harsh = random.random() < 0.2
    election = random.choice((0.3, 0.5, 0.8))
    tail_bytes = random.choice((800, 800, 3_000, 30_000))
    drawn = Rates(
        fault_weights=(weights or {"crash": 1.0}) | _member_weights(seed) | _suspension_weights(seed),
        fault_pause=random.choice((0.25, 0.5, 1.2)),
        links=LinkRates(
            delay_seconds=(0.0003, random.choice((0.002, 0.005, 0.03))),
            reorder=random.choice((0.02, 0.2)) if is_harsh else 0.0,
            repeat=random.choice((0.02, 0.2)) if is_harsh else 0.0,
            lose=random.choice((0.0, 0.02, 0.1)) if is_harsh else 0.0,
        ),
        election=(election, election * 2),
        heartbeat=election / 4,
        sync=random.choice((0.001, 0.006, 0.03)),
        snapshot_work=_snapshot_work(seed, election * 2),
        clock_rate_error=random.choice((0.0, 0.0005, 0.01)),
        wall_error_ms=random.choice((0, 20, 200, 3_600_000)),
        sizes=Sizes(
            tail_bytes=tail_bytes,
            hold_bytes=max(4 * tail_bytes, _HOLD_BYTES_MIN),
            append_bytes=random.choice((500, 4_000)),
            appends_in_flight=random.choice((2, 4, 16)),
            chunk_bytes=random.choice((700, 5_000)),
            window_chunks=random.choice((4, 8)),
        ),
        segment_bytes=random.choice((1_500, 6_000, 50_000)),
        cache_bytes=random.choice((500, 5_000, 1_000_000)),
        checkpoint=random.choice((0.05, 0.25, 1.0)),
        lease=random.choice((0.8, 1.5, 3.0)),
        cancel_grace=random.choice((0.5, 2.0)),
        retention=random.choice((2.0, 6.0, 86_400.0)),
        client_count=random.choice((2, 4)),
        sdk_count=2,
        worker_count=random.choice((2, 4)),
        think=random.choice((0.1, 0.25)),
        probe=random.choice((0.08, 0.3)),
        worker_stall=random.choice((0.0, 0.05, 0.2)),
        worker_death=random.choice((0.0, 0.02, 0.1)),
        lost_reply=random.choice((0.0, 0.02, 0.1)),
        uses_lmdb=seed % LMDB_EVERY == LMDB_EVERY - 1,
        is_harsh=is_harsh,
        features=draw_features(seed),
        asks_majorities=Random(f"majorities of {seed}").random() < _ASKING_SEEDS,
        is_encrypted=Random(f"encryption of {seed}").random() < _ENCRYPTED_SEEDS,
        has_twins=Random(f"twins of {seed}").random() < _TWIN_SEEDS,
    )
    return _for_more_jobs(drawn) if drawn.features.is_on else drawn


def _for_more_jobs(rates: Rates) -> Rates:
    """States and logs grow several times as fast: copies are sent in larger pieces, and the log is held for longer."""
    sizes = rates.sizes
    factor = _MORE_JOBS
    return replace(
        rates,
        sizes=replace(sizes, chunk_bytes=factor * sizes.chunk_bytes, hold_bytes=factor * sizes.hold_bytes),
    )
