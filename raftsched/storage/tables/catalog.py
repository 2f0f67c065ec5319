"""Read records other than jobs: queues, schedules, ledgers, workflows, background work, deadlines, the audit trail.

Queues, tenants and tokens are few, and every request reads some: they are kept decoded in memory, and written through. A
write replaces the whole mapping, so that a fork and its state can share one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cached_property

import msgspec
from sortedcontainers import SortedDict

from raftsched.core.operations.control import BackgroundKind, DeadlineKind
from raftsched.core.records.api_token import ApiToken, decode_api_token
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.queue import Queue, decode_queue
from raftsched.core.records.schedule import (
    Firing,
    FiringKind,
    Schedule,
    ScheduleId,
    decode_firing,
    decode_schedule,
)
from raftsched.core.records.tenant import Tenant, decode_tenant
from raftsched.core.records.workflow import Workflow, WorkflowId, decode_workflow
from raftsched.core.state.entries import AuditEntry, DeadlineEntry
from raftsched.storage.store.port import Rows, Table, all_rows
from raftsched.storage.tables import keys
from raftsched.storage.tables.pages import Page, page_of_range

_decode_audit = msgspec.msgpack.Decoder(AuditEntry).decode


class Catalog:
    """Implement a part of `StateReader`. Each read is bounded by `limit`; impossible cursors raise `Invalid`."""

    _store: Rows

    # -- queues -------------------------------------------------------------------------------------------------------

    @cached_property
    def _queues(self) -> SortedDict[str, Queue]:
        queues = (decode_queue(record) for _, record in all_rows(self._store, Table.QUEUES))
        return SortedDict((queue.name, queue) for queue in queues)

    def queue(self, name: str) -> Queue | None:
        """Return the queue's settings; None if it has none."""
        found: Queue | None = self._queues.get(name)
        return found

    def queue_count(self) -> int:
        return len(self._queues)

    def queues(self) -> list[Queue]:
        """Return every queue that has settings, by name; at most `limits.QUEUES_CONFIGURED_MAX`."""
        return list(self._queues.values())

    def configured_queues(self, *, after: str = "") -> Iterator[str]:
        """Yield the queues that have settings, by name, behind `after`; reads no table."""
        return iter(self._queues.irange(after, inclusive=(False, True)))

    def list_queues(self, *, after: bytes = b"", limit: int, descending: bool = False) -> Page[Queue]:
        """Return the next queues that have settings, by name."""
        return page_of_range(
            self._store,
            Table.QUEUES,
            lambda _, record: decode_queue(record),
            after=after,
            limit=limit,
            descending=descending,
        )

    # -- tenants ------------------------------------------------------------------------------------------------------

    @cached_property
    def _tenants(self) -> SortedDict[str, Tenant]:
        tenants = (decode_tenant(record) for _, record in all_rows(self._store, Table.TENANTS))
        return SortedDict((tenant.name, tenant) for tenant in tenants)

    def tenant(self, name: str) -> Tenant | None:
        """Return the tenant's settings; None if it has none."""
        found: Tenant | None = self._tenants.get(name)
        return found

    def tenant_count(self) -> int:
        return len(self._tenants)

    def configured_tenants(self, *, after: str = "") -> Iterator[str]:
        """Yield the tenants that have settings, by name, behind `after`; reads no table."""
        return iter(self._tenants.irange(after, inclusive=(False, True)))

    # -- tokens -------------------------------------------------------------------------------------------------------

    @cached_property
    def _tokens(self) -> dict[str, ApiToken]:
        tokens = (decode_api_token(record) for _, record in all_rows(self._store, Table.TOKENS))
        return {token.id: token for token in tokens}

    def api_token(self, token_id: str) -> ApiToken | None:
        return self._tokens.get(token_id)

    def api_token_count(self) -> int:
        return len(self._tokens)

    def list_api_tokens(self, *, after: bytes = b"", limit: int) -> Page[ApiToken]:
        """Return the next tokens, by id."""
        return page_of_range(
            self._store, Table.TOKENS, lambda _, record: decode_api_token(record), after=after, limit=limit
        )

    # -- schedules ----------------------------------------------------------------------------------------------------

    def schedule(self, schedule_id: ScheduleId) -> Schedule | None:
        record = self._store.get(Table.SCHEDULES, schedule_id)
        return None if record is None else decode_schedule(record)

    @cached_property
    def _schedule_counts(self) -> Counter[str]:
        return Counter(keys.read_dedup_key(name)[0] for name, _ in all_rows(self._store, Table.SCHEDULE_NAMES))

    def schedule_count(self, tenant: str | None = None) -> int:
        """Return the count of schedules, of one tenant or of all; counted once at opening, and updated by each write."""
        return self._schedule_counts.total() if tenant is None else self._schedule_counts[tenant]

    def schedule_id_for_name(self, tenant: str, name: str) -> ScheduleId | None:
        found = self._store.get(Table.SCHEDULE_NAMES, keys.dedup_key(tenant, name))
        return None if found is None else ScheduleId(found)

    def list_schedules(self, *, after: bytes = b"", limit: int, descending: bool = False) -> Page[Schedule]:
        """Return the next schedules by id, that is by age."""
        return page_of_range(
            self._store,
            Table.SCHEDULES,
            lambda _, record: decode_schedule(record),
            after=after,
            limit=limit,
            descending=descending,
        )

    def list_schedule_names(
        self, tenant: str, *, after: bytes = b"", limit: int, descending: bool = False
    ) -> Page[ScheduleId]:
        """Return the next schedules of a tenant by name."""
        start = keys.text(tenant)
        return page_of_range(
            self._store,
            Table.SCHEDULE_NAMES,
            lambda _, schedule_id: ScheduleId(schedule_id),
            start=start,
            stop=keys.after_texts(start),
            after=after,
            limit=limit,
            descending=descending,
        )

    # -- ledgers ------------------------------------------------------------------------------------------------------

    def firing(self, schedule_id: ScheduleId, fire_time_ms: TimeMs, kind: FiringKind) -> Firing | None:
        line = self._store.get(Table.FIRINGS, keys.firing_key(schedule_id, fire_time_ms, kind))
        return None if line is None else decode_firing(line)

    def firings(
        self, schedule_id: ScheduleId, *, after: Firing | None, until_ms: int | None, limit: int
    ) -> list[Firing]:
        """Return lines of the ledger by fire time and kind, behind `after`, with fire time < `until_ms`."""
        start = keys.firings_until(schedule_id, 0)
        if after is not None:
            start = keys.after(keys.firing_key(schedule_id, after.fire_time_ms, after.kind))
        stop = keys.after_id(schedule_id) if until_ms is None else keys.firings_until(schedule_id, max(until_ms, 0))
        return [decode_firing(line) for _, line in self._store.scan(Table.FIRINGS, start, stop, limit=limit)]

    def newest_firings(self, schedule_id: ScheduleId, *, limit: int) -> list[Firing]:
        """Return the last lines of the ledger by fire time and kind, newest first."""
        rows = self._store.scan(Table.FIRINGS, schedule_id, keys.after_id(schedule_id), limit=limit, reverse=True)
        return [decode_firing(line) for _, line in rows]

    def list_firings(
        self, schedule_id: ScheduleId, *, after: bytes = b"", limit: int, descending: bool = False
    ) -> Page[Firing]:
        """Return the next lines of the ledger by fire time and kind."""
        return page_of_range(
            self._store,
            Table.FIRINGS,
            lambda _, line: decode_firing(line),
            start=schedule_id,
            stop=keys.after_id(schedule_id),
            after=after,
            limit=limit,
            descending=descending,
        )

    # -- workflows ----------------------------------------------------------------------------------------------------

    def workflow(self, workflow_id: WorkflowId) -> Workflow | None:
        record = self._store.get(Table.WORKFLOWS, workflow_id)
        return None if record is None else decode_workflow(record)

    def workflow_id_for_key(self, tenant: str, idempotency_key: str) -> WorkflowId | None:
        found = self._store.get(Table.WORKFLOW_KEYS, keys.dedup_key(tenant, idempotency_key))
        return None if found is None else WorkflowId(found)

    def workflow_jobs(self, workflow_id: WorkflowId, *, after: JobId | None, limit: int) -> list[JobId]:
        """Return jobs of the workflow by id, behind `after`."""
        start = workflow_id if after is None else keys.after(keys.pair_key(workflow_id, after))
        rows = self._store.scan(Table.WORKFLOW_JOBS, start, keys.after_id(workflow_id), limit=limit)
        return [keys.job_id_at_end(key) for key, _ in rows]

    def list_workflows(self, *, after: bytes = b"", limit: int, descending: bool = False) -> Page[Workflow]:
        """Return the next workflows by id, that is by age."""
        return page_of_range(
            self._store,
            Table.WORKFLOWS,
            lambda _, record: decode_workflow(record),
            after=after,
            limit=limit,
            descending=descending,
        )

    # -- deadlines and background work --------------------------------------------------------------------------------

    def deadlines_due(self, kind: DeadlineKind, now_ms: int, *, limit: int, after_ms: int = 0) -> list[DeadlineEntry]:
        """Return the deadlines of a kind with `after_ms` < time <= `now_ms`, earliest first."""
        start, stop = keys.deadlines_until(kind, after_ms + 1), keys.deadlines_until(kind, now_ms + 1)
        rows = self._store.scan(Table.DEADLINES, start, stop, limit=limit)
        return [keys.read_deadline_key(key) for key, _ in rows]

    def next_deadline(self, kind: DeadlineKind) -> TimeMs | None:
        """Return the earliest deadline of a kind, passed or not; None if there is none."""
        rows = self._store.scan(Table.DEADLINES, bytes([kind]), bytes([kind + 1]), limit=1)
        return keys.read_deadline_key(rows[0][0]).at_ms if rows else None

    def background_cursor(self, kind: BackgroundKind, subject: bytes) -> bytes | None:
        """Return the cursor of the next background step (b"" = the first step); None if there is no such work."""
        return self._store.get(Table.BACKGROUND_WORK, keys.background_key(kind, subject))

    def background_work(
        self, *, limit: int, after: tuple[BackgroundKind, bytes] | None = None
    ) -> list[tuple[BackgroundKind, bytes]]:
        """Return unfinished background work by kind and subject, behind `after`."""
        start = b"" if after is None else keys.after(keys.background_key(*after))
        return [
            keys.read_background_key(key)
            for key, _ in self._store.scan(Table.BACKGROUND_WORK, start, None, limit=limit)
        ]

    # -- the audit trail ----------------------------------------------------------------------------------------------

    def oldest_audit(self, *, limit: int) -> list[AuditEntry]:
        """Return the first lines of the audit trail, oldest first."""
        return [_decode_audit(line) for _, line in self._store.scan(Table.AUDIT, b"", None, limit=limit)]

    def list_audit(self, *, after: bytes = b"", limit: int, descending: bool = False) -> Page[AuditEntry]:
        """Return the next lines of the audit trail, oldest first unless `descending`."""
        return page_of_range(
            self._store,
            Table.AUDIT,
            lambda _, line: _decode_audit(line),
            after=after,
            limit=limit,
            descending=descending,
        )
