"""Readings at the edges of what clusters show."""

from __future__ import annotations

from raftsched import limits
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.schedule import Firing, ScheduleId
from raftsched.core.state.writes import PutFiring
from raftsched.metrics.job_events import JobEvents
from raftsched.node.facts import Expiry
from raftsched.node.metrics import certificate_readings
from tests.metrics.scene import above_zero, values

FIRE_TIME_MS = 1_900_000_000_000


def test_fire_time_is_late_from_a_minute_on() -> None:
    events = JobEvents()
    for delay_ms in (limits.LATE_FIRING_MS - 1, limits.LATE_FIRING_MS, limits.LATE_FIRING_MS + 1):
        decided_at_ms = TimeMs(FIRE_TIME_MS + delay_ms)
        firing = Firing(TimeMs(FIRE_TIME_MS), job_id=JobId(bytes(16)), decided_at_ms=decided_at_ms)
        events.on_records([PutFiring(ScheduleId(bytes(16)), firing)])
    assert above_zero(values(events.readings())["firings_total"]) == {("fired",): 1, ("late",): 2}


def test_certificate_whose_end_is_not_known_has_no_reading() -> None:
    readings = values(certificate_readings([Expiry("api_tls", 7.0), Expiry("peer_tls", 0.0)]))
    assert readings == {"certificate_expires_timestamp_seconds": {("api_tls",): 7.0}}
