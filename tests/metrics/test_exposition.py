from __future__ import annotations

from raftsched.histogram import Histogram
from raftsched.metrics import catalog
from raftsched.metrics.catalog import METRICS, Kind
from raftsched.metrics.exposition import exposition
from raftsched.metrics.reading import Reading

DESIGNED = """
    jobs{queue,status} queue_oldest_ready_seconds{queue} queue_paused{queue} jobs_submitted_total{queue}
    jobs_finished_total{queue,status} attempts_total{queue,end} start_lag_seconds{queue} run_seconds{queue}
    firings_total{outcome} schedule_delay_seconds dead_letters{reason} leases_expired_total workers commit_seconds
    fsync_seconds checkpoint_seconds event_loop_stall_seconds raft_term raft_commit_index raft_applied_index is_leader
    follower_lag_entries{node} leader_changes_total clock_offset_seconds state_bytes journal_bytes disk_free_bytes
    http_request_seconds{route,status} build_info{version}
"""
"""The promised names, written by hand: dashboards and alerts of users depend on them."""


def test_catalog_has_every_promised_name_and_keeps_the_conventions_of_prometheus() -> None:
    names = {f"{metric.name}{{{','.join(metric.labels)}}}".removesuffix("{}") for metric in METRICS}
    assert {f"raftsched_{name}" for name in DESIGNED.split()} - names == set()
    for metric in METRICS:
        assert (metric.kind is Kind.COUNTER) == metric.name.endswith("_total"), metric.name
        assert (metric.kind is Kind.HISTOGRAM) == bool(metric.buckets), metric.name
        assert metric.buckets == tuple(sorted(metric.buckets)), metric.name
        assert not {"id", "job", "job_id", "run", "tenant", "worker"} & set(metric.labels), metric.name


def test_text_has_the_cumulated_buckets_and_escaped_labels_of_what_has_a_reading() -> None:
    times = Histogram((0.05, 1.0))
    for seconds in (0.05, 0.04, 0.5, 7):
        times.observe(seconds)
    readings = [Reading(catalog.COMMIT_SECONDS, (), times), Reading(catalog.JOBS_SUBMITTED, ('a"\\b',), 3)]
    assert b"".join(exposition(readings)).decode() == (
        "# HELP raftsched_jobs_submitted_total Jobs stored.\n"
        "# TYPE raftsched_jobs_submitted_total counter\n"
        'raftsched_jobs_submitted_total{queue="a\\"\\\\b"} 3.0\n'
        f"# HELP raftsched_commit_seconds {catalog.COMMIT_SECONDS.help}\n"
        "# TYPE raftsched_commit_seconds histogram\n"
        'raftsched_commit_seconds_bucket{le="0.05"} 2.0\n'
        'raftsched_commit_seconds_bucket{le="1.0"} 3.0\n'
        'raftsched_commit_seconds_bucket{le="+Inf"} 4.0\n'
        "raftsched_commit_seconds_count 4.0\n"
        "raftsched_commit_seconds_sum 7.59\n"
    )
