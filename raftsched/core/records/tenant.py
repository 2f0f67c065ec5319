"""Define a tenant's settings: its quotas and its share. Every tenant exists; one without settings has no record."""

from __future__ import annotations

from typing import Final

import msgspec

from raftsched.core.records.ids import TimeMs

WEIGHT_MAX: Final = 1_000
"""Largest weight of a tenant, here and in the settings of a queue."""


class Tenant(msgspec.Struct, frozen=True, array_like=True):
    """Record a tenant's settings; a quota of 0 means that there is none."""

    name: str
    unfinished_jobs_max: int = 0
    schedules_max: int = 0
    submits_per_second: int = 0
    submit_burst: int = 0
    """Submits that are accepted at once after an idle time; 0 = those of one second."""
    weight: int = 1
    """Its share of workers in queues whose settings do not name it: 1 to `WEIGHT_MAX`."""
    created_at_ms: TimeMs = TimeMs(0)
    updated_at_ms: TimeMs = TimeMs(0)
    revision: int = 0

    @property
    def burst(self) -> int:
        """Return the most submits that are accepted at once; 0 = no limit."""
        return self.submit_burst or self.submits_per_second


_decoder = msgspec.msgpack.Decoder(Tenant)
_encode = msgspec.msgpack.Encoder().encode


def encode_tenant(tenant: Tenant) -> bytes:
    return _encode(tenant)


def decode_tenant(data: bytes | memoryview) -> Tenant:
    return _decoder.decode(data)
