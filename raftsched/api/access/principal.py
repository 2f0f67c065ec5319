"""Define the principal: who makes a request, and what it may see and do.

Whatever belongs to another tenant is treated as if it did not exist: the same error, by the same code path.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from aiohttp import web

from raftsched.api.access.rules import OF_ALL_TENANTS, ROLES, Access
from raftsched.core.records.api_token import EVERY_TENANT, Role
from raftsched.core.records.bounds import ANONYMOUS, is_name
from raftsched.core.records.ids import TENANT_DEFAULT
from raftsched.core.records.queue_patterns import accepts
from raftsched.errors import Forbidden, Invalid

OWNER_END: Final = ":"
"""A queue `acme:reports` belongs to the tenant `acme`; queues without an owner are shared by all tenants."""
_KEY: Final = web.RequestKey("principal", object)
_RECHECK: Final = web.RequestKey("recheck", object)


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller of a request."""

    name: str
    """Its name in histories and in the audit trail."""
    role: Role
    scope: str | None
    """The one tenant that it sees; None = all."""
    is_bound: bool = False
    """Whether `scope` is all that its token allows; else it only chose it for this request."""
    queues: tuple[str, ...] = ()
    """The queues to which it is limited; () = all."""
    token_id: str = ""

    def may(self, access: Access) -> bool:
        return self.role in ROLES[access] and not (access in OF_ALL_TENANTS and self.is_bound)

    def require(self, access: Access) -> None:
        """Raise `Forbidden` if the caller may not use a route of this access."""
        if not self.may(access):
            whose = " of all tenants" if access in OF_ALL_TENANTS else ""
            roles = ", ".join(role.label for role in sorted(ROLES[access]))
            raise Forbidden(f"this needs a token{whose} with the role {roles}; this one is {self.role.label}")

    # -- tenants ------------------------------------------------------------------------------------------------------

    def sees(self, tenant: str) -> bool:
        """Return whether records of `tenant` exist for the caller."""
        return self.scope is None or self.scope == tenant

    def tenant_for(self, wanted: str | None, field: str = "tenant") -> str:
        """Return the tenant of what the caller makes, if it asks for `wanted`.

        Raises `Forbidden` for a tenant that is not its own, and `Invalid` for one that no tenant is called.
        """
        tenant = self.seen_tenant(wanted, field)
        return TENANT_DEFAULT if tenant is None else tenant

    def seen_tenant(self, wanted: str | None, field: str = "tenant") -> str | None:
        """Return the tenant to which a list is limited, if the caller asks for `wanted`; None = all tenants.

        Raises as `tenant_for` does.
        """
        if wanted == EVERY_TENANT:
            raise Invalid(f"{field}: {EVERY_TENANT} is not a tenant", field=field)
        if wanted is None:
            return self.scope
        if not self.sees(wanted):
            raise Forbidden(f"{field}: this token is for the tenant {self.scope} only", field=field)
        return wanted

    # -- queues -------------------------------------------------------------------------------------------------------

    def require_queue(self, queue: str, field: str = "queue") -> None:
        """Raise `Forbidden` unless the caller may submit to `queue`, or lease from it; it may be a pattern."""
        if not self.sees_queue(queue):
            raise Forbidden(f"{field}: the queue belongs to another tenant", field=field)
        self.require_within_queues(queue, field)

    def require_within_queues(self, queue: str, field: str = "") -> None:
        """Raise `Forbidden` unless the caller's token may change what is in `queue`."""
        if not self.is_within_queues(queue):
            prefix = f"{field}: " if field else ""
            raise Forbidden(f"{prefix}this token is limited to the queues {', '.join(self.queues)}", field=field)

    def is_within_queues(self, queue: str) -> bool:
        """Return whether `queue` is one of those to which the caller's token is limited."""
        return not self.queues or accepts(self.queues, queue)

    def require_settings_of(self, queue: str) -> None:
        """Raise `Forbidden` unless the caller may change the settings of `queue`."""
        self.require_queue(queue)
        if self.is_bound and not self.owns_queue(queue):
            raise Forbidden(
                f"all tenants share the queue {queue}; only an operator of all tenants may change it."
                f" The queue {self.scope}{OWNER_END}{queue} is your own"
            )

    def owns_queue(self, queue: str) -> bool:
        """Return whether `queue` belongs to the caller's tenant alone."""
        owner, end, _ = queue.partition(OWNER_END)
        return self.is_bound and bool(end) and owner == self.scope

    def sees_queue(self, queue: str) -> bool:
        """Return whether `queue` exists for the caller: its own, and those that all tenants share."""
        return not self.is_bound or OWNER_END not in queue or self.owns_queue(queue)

    def own_name(self, name: str) -> str:
        """Return the name of a worker of the caller, which no other tenant's worker can have."""
        if not self.is_bound or self.owns_queue(name):
            return name
        own = f"{self.scope}{OWNER_END}{name}"
        if not is_name(own):
            raise Invalid(f"worker: with its tenant, {own[:200]}, it is too long for a name", field="worker")
        return own

    def sees_worker(self, name: str, tenant: str) -> bool:
        """Return whether a worker serves the caller: its own ones, and those of all tenants.

        `tenant` is "" for these, and for a worker that did not ask for jobs yet: so its name counts, too.
        """
        return self.scope is None or (tenant in ("", self.scope) and self.sees_queue(name))

    def narrowed_to(self, tenant: str) -> Principal:
        """Return the caller, who chose one tenant for this request."""
        return replace(self, scope=tenant)


ANYBODY: Final = Principal(ANONYMOUS, Role.ADMIN, None)
"""The caller if there are no tokens: it may do everything, and names itself."""


def principal_of(request: web.Request) -> Principal:
    """Return the caller; a request that no door has let in has none, and raises `KeyError`."""
    principal = request[_KEY]
    assert isinstance(principal, Principal)
    return principal


def admit(request: web.Request, principal: Principal, recheck: Callable[[], object]) -> None:
    """Note the caller of the request, and how it is checked again."""
    request[_KEY] = principal
    request[_RECHECK] = recheck


def check_again(request: web.Request) -> None:
    """Raise `Unauthorized` if the caller's token has been revoked or has expired since; for requests that last long."""
    recheck = request[_RECHECK]
    assert callable(recheck)
    recheck()
