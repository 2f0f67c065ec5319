"""Change the settings of queues: limits, shares, retention, and pauses. They apply from the next lease on."""

from __future__ import annotations

from aiohttp import web
from msgspec import UNSET, UnsetType

from raftsched import limits
from raftsched.api.access.principal import Principal, principal_of
from raftsched.api.access.requests import require_queues
from raftsched.api.access.rules import Access
from raftsched.api.backend import Backend
from raftsched.api.http.actor import actor_of
from raftsched.api.http.bodies import Bodies
from raftsched.api.http.json_reply import json_response
from raftsched.api.http.proposals import propose
from raftsched.api.http.routes import Route, verb_route
from raftsched.api.jobs.convert import hook_of
from raftsched.api.json.decode import StructDecoder
from raftsched.api.json.times import pause_end_ms, span_ms
from raftsched.api.queues.reply import named_queue, settings_reply
from raftsched.core.operations.queues import ConfigureQueue, PauseQueue
from raftsched.core.records.queue import TenantWeight
from raftsched.core.records.spec import Hook
from raftsched.core.state.results import QueueSaved
from raftsched.errors import Invalid, Rejected
from raftsched.wire.control import PauseRequest
from raftsched.wire.jobs import HookBody
from raftsched.wire.queues import QueuePatch
from raftsched.wire.verbs import QUEUE


class QueueSettings:
    """The routes by which operators change queues."""

    def __init__(self, backend: Backend, bodies: Bodies) -> None:
        self._backend = backend
        self._bodies = bodies
        self._patch = StructDecoder(QueuePatch)
        self._pause = StructDecoder(PauseRequest)

    def routes(self) -> tuple[Route, ...]:
        return (
            verb_route(Access.OPERATE, QUEUE["configure"], self.configure_queue),
            verb_route(Access.OPERATE, QUEUE["pause"], self.pause_queue),
            verb_route(Access.OPERATE, QUEUE["resume"], self.resume_queue),
        )

    async def configure_queue(self, request: web.Request) -> web.Response:
        wanted, _ = self._patch.read(await self._bodies.read_json(request))
        operation = _configuration(named_queue(request), wanted, actor_of(request))
        hooks = (*(operation.on_failure or ()), *(operation.on_success or ()))
        require_queues(principal_of(request), (hook.spec for hook in hooks))
        return await self._save(operation, principal_of(request))

    async def pause_queue(self, request: web.Request) -> web.Response:
        wanted = self._pause.read_optional(await self._bodies.read_optional_json(request))
        until_ms = pause_end_ms(wanted.until, wanted.for_seconds, self._backend.now_ms())
        return await self._save(
            PauseQueue(
                named_queue(request), True, until_ms=until_ms, reason=wanted.reason or "", actor=actor_of(request)
            ),
            principal_of(request),
        )

    async def resume_queue(self, request: web.Request) -> web.Response:
        return await self._save(PauseQueue(named_queue(request), False, actor=actor_of(request)), principal_of(request))

    async def _save(self, operation: ConfigureQueue | PauseQueue, caller: Principal) -> web.Response:
        caller.require_settings_of(operation.name)
        state = self._backend.fresh_state()
        if state.queue(operation.name) is None and len(state.queues()) >= limits.QUEUES_CONFIGURED_MAX:
            raise Rejected("limit_reached", f"{limits.QUEUES_CONFIGURED_MAX} queues have settings; no more can")
        if caller.is_bound and state.queue(operation.name) is None:
            own_count = sum(caller.owns_queue(queue.name) for queue in state.queues())
            if own_count >= limits.TENANT_QUEUES_CONFIGURED_MAX:
                raise Rejected("limit_reached", f"{own_count} queues of the tenant have settings; no more can")
        saved = await propose(self._backend, operation, QueueSaved)
        return json_response(settings_reply(saved.queue, caller))


def _configuration(name: str, wanted: QueuePatch, actor: str) -> ConfigureQueue:
    rate = wanted.rate
    return ConfigureQueue(
        name=name,
        rate_count=-1 if rate is UNSET else 0 if rate is None else rate.count,
        rate_period_ms=-1 if rate is UNSET else 0 if rate is None else span_ms(rate.per_seconds),
        rate_burst=-1 if rate is UNSET else 0 if rate is None else rate.burst or 0,
        concurrency_max=_number(wanted.concurrency),
        key_concurrency_max=_number(wanted.key_concurrency),
        ageing_ms=_span(wanted.ageing_seconds),
        retention_ms=_span(wanted.retention_seconds),
        lost_workers_max=_number(wanted.max_lost_workers),
        weights=_weights(wanted.weights),
        on_failure=_hook(wanted.on_failure, "on_failure"),
        on_success=_hook(wanted.on_success, "on_success"),
        actor=actor,
    )


def _hook(wanted: HookBody | UnsetType | None, field: str) -> tuple[Hook, ...] | None:
    """Return the hook for the operation; None = unchanged, () = none."""
    if wanted is UNSET:
        return None
    hook = hook_of(wanted, f"{field}.")
    return () if hook is None else (hook,)


def _number(value: int | UnsetType | None) -> int:
    """Return the number for the operation; -1 = unchanged, 0 = none."""
    return -1 if value is UNSET else value or 0


def _span(seconds: float | UnsetType | None) -> int:
    return -1 if seconds is UNSET else span_ms(seconds)


def _weights(weights: dict[str, int] | UnsetType | None) -> tuple[TenantWeight, ...] | None:
    if weights is UNSET:
        return None
    if weights is not None and len(weights) > limits.QUEUE_WEIGHTS_MAX:
        raise Invalid(f"weights: must name at most {limits.QUEUE_WEIGHTS_MAX} tenants", field="weights")
    return tuple(TenantWeight(tenant, weight) for tenant, weight in sorted((weights or {}).items()))
