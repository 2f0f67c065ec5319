"""Define a workflow's record: the counts of jobs that were submitted together."""

from __future__ import annotations

from typing import NewType

import msgspec

from raftsched.core.records.ids import TimeMs

WorkflowId = NewType("WorkflowId", bytes)
"""16 bytes, UUIDv7."""


class Workflow(msgspec.Struct, frozen=True, array_like=True):
    """Count the jobs of a workflow by outcome. None of them runs until the last part is applied."""

    id: WorkflowId
    tenant: str
    name: str
    job_count: int
    """All its jobs, those of later parts included."""
    stored_count: int = 0
    """Jobs whose part was applied; less than `job_count` while parts are missing."""
    unfinished_count: int = 0
    failed_count: int = 0
    """Dead-lettered jobs."""
    cancelled_count: int = 0
    skipped_count: int = 0
    idempotency_key: str = ""
    fingerprint: bytes = b""
    created_at_ms: TimeMs = TimeMs(0)
    updated_at_ms: TimeMs = TimeMs(0)
    finished_at_ms: TimeMs = TimeMs(0)
    cancel_requested_at_ms: TimeMs = TimeMs(0)
    revision: int = 0

    @property
    def is_whole(self) -> bool:
        return self.stored_count == self.job_count

    @property
    def label(self) -> str:
        """Return the status that users see."""
        if not self.is_whole:
            return "submitting"
        if self.unfinished_count:
            return "cancelling" if self.cancel_requested_at_ms else "running"
        if self.failed_count:
            return "failed"
        return "cancelled" if self.cancelled_count else "completed"

    @property
    def next_deadline_ms(self) -> int:
        """Return the time at which an unfinished submission is dropped; 0 = never."""
        return 0 if self.is_whole else self.updated_at_ms + STAGING_MS_MAX


STAGING_MS_MAX = 60_000
"""Longest time between two parts of one workflow; then the parts of a lost client are dropped."""

_decoder = msgspec.msgpack.Decoder(Workflow)
_encode = msgspec.msgpack.Encoder().encode


def encode_workflow(workflow: Workflow) -> bytes:
    return _encode(workflow)


def decode_workflow(data: bytes | memoryview) -> Workflow:
    return _decoder.decode(data)
