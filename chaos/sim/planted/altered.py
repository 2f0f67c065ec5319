"""Worlds in which certain bugs show sooner than in those that a seed draws for itself."""

from __future__ import annotations

from dataclasses import replace

from chaos.sim.features import NO_FEATURES, TENANT, Features
from chaos.sim.network.links import LinkRates
from chaos.sim.rates import Rates


def many_elections(rates: Rates) -> Rates:
    """Leaders come and go, and links repeat and reorder, so that answers of one term arrive in another."""
    return replace(
        rates,
        links=LinkRates(delay_seconds=(0.001, 0.06), reorder=0.3, repeat=0.5),
        election=(0.3, 0.36),
        heartbeat=0.09,
        fault_weights={
            "crash_all": 1.0,
            "part": 2.0,
            "reset_link": 1.0,
            "transfer": 2.0,
            "pause_deaf": 2.0,
            "crash": 1.0,
        },
        fault_pause=0.25,
        wall_error_ms=20,
        is_harsh=True,
    )


def forgetful_members(rates: Rates) -> Rates:
    """Members lose a part of their data and come back."""
    return replace(rates, fault_weights={"forget_member": 1.0, "crash": 1.0}, fault_pause=1.0, uses_lmdb=False)


def changing_members(rates: Rates) -> Rates:
    """Members come and go, leaders too, and disks are lost, while leaders crash, transfer and are cut off."""
    weights = {"add_member": 3.0, "remove_member": 4.0, "replace_member": 1.0, "wipe_member": 2.0}
    faults = {"crash": 2.0, "power_loss": 1.0, "crash_all": 1.0, "part": 2.0, "cut_pair": 1.0, "transfer": 2.0}
    return replace(
        rates,
        links=LinkRates(delay_seconds=(0.001, 0.02)),
        fault_weights=weights | faults,
        fault_pause=0.3,
        election=(0.3, 0.6),
        heartbeat=0.075,
        snapshot_work=0.0,
        wall_error_ms=20,
        uses_lmdb=False,
        features=NO_FEATURES,
        has_twins=False,
        sdk_count=0,
    )


def reads_under_partitions(rates: Rates) -> Rates:
    """Leaders are deserted, stopped and cut off while others write: who continues to serve, and for how long?"""
    return replace(
        rates,
        links=LinkRates(),
        fault_weights={"desert_leader": 3.0, "pause_deaf": 3.0, "transfer": 2.0, "cut_pair": 1.0, "part": 1.0},
        fault_pause=0.6,
        election=(0.3, 0.9),
        heartbeat=0.075,
        probe=0.05,
        sync=0.001,
        wall_error_ms=20,
    )


def many_snapshots(rates: Rates) -> Rates:
    """Short logs and long absences, so that many followers need a snapshot, over links that reorder."""
    sizes = replace(rates.sizes, tail_bytes=600, hold_bytes=60_000, chunk_bytes=700)
    weights = {"crash_point": 3.0, "part": 3.0, "power_loss": 2.0, "pause_deaf": 1.0, "slow_link": 1.0, "transfer": 1.0}
    links = LinkRates(reorder=0.1, repeat=0.1)
    return replace(
        rates,
        sizes=sizes,
        checkpoint=0.05,
        fault_weights=weights,
        links=links,
        wall_error_ms=20,
        uses_lmdb=False,
        is_harsh=True,
    )


def whole_snapshots(rates: Rates) -> Rates:
    """Snapshots that fit into one message, which links repeat and deliver late."""
    rates = many_snapshots(rates)
    return replace(rates, sizes=replace(rates.sizes, chunk_bytes=1_000_000), links=LinkRates(reorder=0.3, repeat=0.3))


def failing_disks(rates: Rates) -> Rates:
    """A call of the disk fails every other moment, and the power soon after."""
    weights = {"disk_error": 3.0, "disk_full": 3.0, "power_loss": 3.0, "crash_all": 0.5}
    return replace(rates, fault_weights=weights, fault_pause=0.3, uses_lmdb=False)


def power_losses(rates: Rates) -> Rates:
    """Whole clusters lose their power again and again, right after they were elected or wrote."""
    weights = {"power_loss": 3.0, "crash_point": 3.0, "crash_all": 2.0, "part": 1.0}
    return replace(rates, fault_weights=weights, fault_pause=0.25, election=(0.3, 0.6), heartbeat=0.075)


def small_appends(rates: Rates) -> Rates:
    """An entry with a few operations is more than one message is meant to hold."""
    return replace(rates, sizes=replace(rates.sizes, append_bytes=500))


def rotting_disks(rates: Rates) -> Rates:
    """A journal of many segments rots, and much of it is read again: by nodes that restart, for followers that lag."""
    weights = {"bit_flip": 3.0, "crash": 3.0, "part": 2.0, "power_loss": 1.0}
    sizes = replace(rates.sizes, tail_bytes=30_000, hold_bytes=120_000)
    return replace(
        rates, fault_weights=weights, fault_pause=0.3, sizes=sizes, segment_bytes=1_500, cache_bytes=500, checkpoint=1.0
    )


def slow_commits(rates: Rates) -> Rates:
    """A leader's decisions take long to be committed, and workers that were paused come back meanwhile."""
    return replace(
        rates,
        links=LinkRates(delay_seconds=(0.02, 0.08)),
        fault_weights={"disk_slow": 3.0, "slow_link": 3.0, "cut_pair": 2.0},
        fault_pause=0.4,
        election=(0.8, 1.6),
        heartbeat=0.2,
        sync=0.03,
        lease=0.8,
        worker_count=4,
        worker_stall=0.4,
    )


def many_schedules(rates: Rates) -> Rates:
    """Schedules that fire every second or two, and leaders that come and go."""
    features = Features(schedule_count=4, controllers=1, think=0.4)
    weights = rates.fault_weights | {"crash": 2.0, "transfer": 2.0}
    return replace(rates, features=features, fault_weights=weights, fault_pause=0.5, uses_lmdb=False)


def watched_schedules(rates: Rates) -> Rates:
    """Schedules whose runs start late or never, because workers are few, and leaders that hardly stay."""
    features = Features(schedule_count=4, think=0.6)
    weights = {"crash": 1.0, "transfer": 4.0, "stop_gracefully": 1.0}
    return replace(
        rates,
        features=features,
        fault_weights=weights,
        fault_pause=0.7,
        election=(0.3, 0.6),
        heartbeat=0.075,
        worker_count=1,
        worker_stall=0.5,
        worker_death=0.3,
        uses_lmdb=False,
    )


def many_callbacks(rates: Rates) -> Rates:
    """Requests whose targets report the outcome, while leaders come and go and workers die."""
    features = Features(targets=3, controllers=1, think=0.1)
    weights = {"crash": 1.0, "transfer": 2.0, "pause": 1.0, "cut_pair": 1.0}
    return replace(rates, features=features, fault_weights=weights, fault_pause=0.8, worker_death=0.1, uses_lmdb=False)


def many_workflows(rates: Rates) -> Rates:
    features = Features(workflow_users=2, controllers=1, think=0.2)
    return replace(rates, features=features, uses_lmdb=False)


def much_control(rates: Rates) -> Rates:
    """Limits that change, and jobs with options that are meddled with."""
    features = Features(schedule_count=1, workflow_users=1, tuners=1, controllers=3, think=0.1, job_options=0.9)
    return replace(rates, features=features, worker_stall=0.2, worker_death=0.1, uses_lmdb=False)


def several_names(rates: Rates) -> Rates:
    """Jobs of several names, and workers that know a part of them."""
    return replace(rates, features=Features(controllers=2, think=0.1, has_handlers=True), worker_count=3)


def two_regions(rates: Rates) -> Rates:
    """Jobs for workers of two regions, more than those can do, and one of the two has none at first."""
    features = Features(controllers=3, think=0.1, job_options=0.9, regions=("north", "south"), late_region="south")
    return replace(rates, features=features, worker_count=2, uses_lmdb=False)


def several_tenants(rates: Rates) -> Rates:
    """Plain jobs of three tenants, more than the workers can do, and workers of one of them beside workers of all."""
    features = Features(controllers=1, think=0.1, tenants=(TENANT, "acme", "globex"))
    return replace(rates, features=features, worker_count=3, uses_lmdb=False)


def breaking_connections(rates: Rates) -> Rates:
    """Users with production's client do much, over connections that break."""
    weights = {"reset_link": 3.0, "transfer": 2.0, "cut_pair": 1.0, "crash": 1.0}
    return replace(
        rates, fault_weights=weights, fault_pause=0.5, sdk_count=4, client_count=2, think=0.1, lost_reply=0.15
    )


def with_twins(rates: Rates) -> Rates:
    return replace(rates, has_twins=True)
