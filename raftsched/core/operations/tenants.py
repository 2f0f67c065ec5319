"""Define operations on the settings of tenants. Rules of the codec: see `codec`."""

from __future__ import annotations

from raftsched.core.operations.base import Operation


class SaveTenant(Operation, frozen=True, tag=34):
    """Change a tenant's settings; -1 = unchanged, 0 = no quota.

    Result: `TenantSaved`. Rejected: `limit_reached` (too many tenants have settings).
    """

    name: str
    unfinished_jobs_max: int = -1
    schedules_max: int = -1
    submits_per_second: int = -1
    submit_burst: int = -1
    weight: int = -1
    """0 = the default, 1."""
    actor: str = ""


class RemoveTenant(Operation, frozen=True, tag=35):
    """Remove a tenant's settings, not its data: it has no quotas then.

    Result: `TenantSaved`, with its last settings. Rejected: `not_found`.
    """

    name: str
    actor: str = ""
