"""Execute all writes except those of jobs, as a part of `State`.

Deadlines, names and keys are derived from the records by pure functions of `indexes`, as for jobs.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec
from sortedcontainers import SortedDict

from raftsched.core.records.api_token import ApiToken, encode_api_token
from raftsched.core.records.job import encode_worker
from raftsched.core.records.queue import Queue, encode_queue
from raftsched.core.records.schedule import encode_firing, encode_schedule
from raftsched.core.records.tenant import Tenant, encode_tenant
from raftsched.core.records.workflow import encode_workflow
from raftsched.core.state.writes import (
    PutAudit,
    PutBackgroundWork,
    PutDependant,
    PutDependencies,
    PutFiring,
    PutLog,
    PutQueue,
    PutSchedule,
    PutTenant,
    PutToken,
    PutWorker,
    PutWorkflow,
    RemoveAudit,
    RemoveBackgroundWork,
    RemoveFirings,
    RemoveSchedule,
    RemoveTenantRecord,
    RemoveToken,
    RemoveWorker,
    RemoveWorkflow,
    Write,
)
from raftsched.errors import InvariantBroken
from raftsched.storage.store.port import Rows, Table
from raftsched.storage.tables import edges, keys, logs
from raftsched.storage.tables.indexes import Entries, queue_entries, schedule_entries, workflow_entries

_encode = msgspec.msgpack.Encoder().encode


class OtherWrites:
    """Implement a part of `State`, and use its helpers."""

    if TYPE_CHECKING:
        _store: Rows
        _queues: SortedDict[str, Queue]
        _tenants: SortedDict[str, Tenant]
        _tokens: dict[str, ApiToken]
        _schedule_counts: Counter[str]
        applied_index: int

        def _move_entries(self, before: Entries, after: Entries) -> None: ...
        def _put_text(self, table: Table, record_id: bytes, text: bytes) -> None: ...

    _audit_count = 0
    """Lines of the audit trail written by the open entry."""

    def _execute_other(self, write: Write) -> None:
        match write:
            case PutDependencies():
                edges.put(self._store, write)
            case PutDependant():
                edges.judge(self._store, write)
            case PutLog():
                logs.append(self._store, write)
            case PutAudit():
                key = keys.audit_key(self.applied_index + 1, self._audit_count)
                self._audit_count += 1
                self._put_record(Table.AUDIT, key, _encode(write.entry))
            case RemoveAudit(before_index, limit):
                for key, _ in self._store.scan(Table.AUDIT, b"", keys.audit_key(before_index), limit=limit):
                    self._store.remove(Table.AUDIT, key)
            case PutWorker() | RemoveWorker() | PutToken() | RemoveToken() | PutTenant() | RemoveTenantRecord():
                self._execute_access(write)
            case _:
                self._execute_definition(write)

    def _execute_access(
        self, write: PutWorker | RemoveWorker | PutToken | RemoveToken | PutTenant | RemoveTenantRecord
    ) -> None:
        """Execute a write of who uses the cluster."""
        match write:
            case PutWorker(worker):
                self._put_record(Table.WORKERS, keys.name_key(worker.name), encode_worker(worker))
            case RemoveWorker(name):
                self._store.delete(Table.WORKERS, keys.name_key(name))
            case PutToken(token):
                self._put_record(Table.TOKENS, keys.name_key(token.id), encode_api_token(token))
                self._tokens = self._tokens | {token.id: token}
            case RemoveToken(token_id):
                self._store.remove(Table.TOKENS, keys.name_key(token_id))
                self._tokens = {each: token for each, token in self._tokens.items() if each != token_id}
            case PutTenant(tenant):
                self._put_record(Table.TENANTS, keys.name_key(tenant.name), encode_tenant(tenant))
                self._tenants = self._tenants | {tenant.name: tenant}
            case RemoveTenantRecord(name):
                self._store.remove(Table.TENANTS, keys.name_key(name))
                self._tenants = self._tenants.copy()
                del self._tenants[name]

    def _execute_definition(self, write: Write) -> None:
        """Execute a write of something that users define, or of background work."""
        match write:
            case PutQueue(old_queue, queue):
                self._put_record(Table.QUEUES, keys.name_key(queue.name), encode_queue(queue))
                self._queues = self._queues | {queue.name: queue}
                self._move_entries(queue_entries(old_queue), queue_entries(queue))
            case PutWorkflow(old_workflow, workflow):
                self._put_record(Table.WORKFLOWS, workflow.id, encode_workflow(workflow))
                self._move_entries(workflow_entries(old_workflow), workflow_entries(workflow))
            case RemoveWorkflow(old_workflow):
                self._store.remove(Table.WORKFLOWS, old_workflow.id)
                self._move_entries(workflow_entries(old_workflow), ())
            case PutBackgroundWork(kind, subject, cursor):
                self._put_record(Table.BACKGROUND_WORK, keys.background_key(kind, subject), cursor)
            case RemoveBackgroundWork(kind, subject):
                self._store.remove(Table.BACKGROUND_WORK, keys.background_key(kind, subject))
            case _:
                self._execute_schedule(write)

    def _execute_schedule(self, write: Write) -> None:
        match write:
            case PutSchedule(old, schedule, payload):
                if old is None:
                    self._count_schedule(schedule.tenant, 1)
                self._put_record(Table.SCHEDULES, schedule.id, encode_schedule(schedule))
                if payload is not None:
                    self._put_text(Table.PAYLOADS, schedule.id, payload)
                self._move_entries(schedule_entries(old), schedule_entries(schedule))
            case RemoveSchedule(old):
                self._count_schedule(old.tenant, -1)
                self._store.remove(Table.SCHEDULES, old.id)
                self._store.delete(Table.PAYLOADS, old.id)
                self._move_entries(schedule_entries(old), ())
            case PutFiring(schedule_id, firing):
                key = keys.firing_key(schedule_id, firing.fire_time_ms, firing.kind)
                self._put_record(Table.FIRINGS, key, encode_firing(firing))
            case RemoveFirings(schedule_id, firings):
                for firing in firings:
                    self._store.remove(Table.FIRINGS, keys.firing_key(schedule_id, firing.fire_time_ms, firing.kind))
            case _:
                raise InvariantBroken(f"a write that the state does not know: {write!r}")

    def _count_schedule(self, tenant: str, change: int) -> None:
        counts = self._schedule_counts.copy()  # a fork has those of its base
        counts[tenant] += change
        self._schedule_counts = +counts

    def _put_record(self, table: Table, key: bytes, record: bytes) -> None:
        self._store.put(table, key, record)
