"""Show tenants: what each uses of its quotas, and its share of the workers; set and remove quotas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from raftsched.client.http.calls import part
from raftsched.client.records import TenantInfo
from raftsched.client.tenants import TenantChanges
from raftsched.dashboard import fields
from raftsched.dashboard.page import Answer, Page, Redirect, Rendered
from raftsched.dashboard.rendering import url
from raftsched.dashboard.view import View
from raftsched.errors import Invalid

_PAGE_TENANTS: Final = 100
_NEARLY_USED: Final = 0.8
_DEFAULT: Final = "default"
_HOME: Final = url("/tenants")


@dataclass(frozen=True, slots=True)
class Use:
    """Compare what a tenant has of something with its quota."""

    label: str
    used: int
    quota: int | None

    @property
    def share(self) -> float:
        """Return the used part of the quota, at most 1; 0 without a quota."""
        return min(1.0, self.used / self.quota) if self.quota else 0.0

    @property
    def kind(self) -> str:
        """Return how urgent it is: `bad` if it is used up, `warn` if nearly."""
        if not self.quota:
            return ""
        return "bad" if self.used >= self.quota else "warn" if self.share >= _NEARLY_USED else ""


def _uses(tenant: TenantInfo) -> tuple[Use, Use]:
    return (
        Use("Unfinished jobs", tenant.usage.unfinished_jobs, tenant.unfinished_jobs),
        Use("Schedules", tenant.usage.schedules, tenant.schedules),
    )


async def show(view: View) -> Answer:
    """Return all tenants, or to readers who may not see them, their own. A tenant that the URL names is opened."""
    if name := view.query.get("name"):
        return Redirect(url(f"/tenants/{part(name)}"))
    if view.may("cluster"):
        query = {"limit": _PAGE_TENANTS, "cursor": view.query.get("cursor")}
        tenants, cursor = await view.client.page(TenantInfo, "/tenants", "tenants", query)
    else:
        own = view.caller.tenant
        tenants, cursor = [await view.client.tenants.get(_DEFAULT if own == "*" else own)], None
    rows = [(tenant, _uses(tenant)) for tenant in tenants]
    variables = {
        "rows": sorted(rows, key=lambda row: (-max(use.share for use in row[1]), row[0].name)),
        "weights": sum(tenant.weight for tenant in tenants),
        "next_url": url("/tenants", cursor=cursor) if cursor else None,
        "is_first": "cursor" not in view.query,
    }
    return Rendered("tenants/list.html", variables)


async def show_one(view: View) -> Answer:
    """Return a tenant, with the form for its quotas."""
    tenant = await view.client.tenants.get(view.match["name"])
    values = view.form or {name: str(value) for name, value in _settings(tenant).items() if value is not None}
    variables = {"tenant": tenant, "uses": _uses(tenant), "values": values}
    return Rendered("tenants/tenant.html", variables)


def _settings(tenant: TenantInfo) -> TenantChanges:
    """Return the values of its form; a burst as long as a second is the default, and is left empty."""
    return {
        "unfinished_jobs": tenant.unfinished_jobs,
        "schedules": tenant.schedules,
        "submits_per_second": tenant.submits_per_second,
        "submit_burst": None if tenant.submit_burst == tenant.submits_per_second else tenant.submit_burst,
        "weight": tenant.weight,
    }


async def configure(view: View) -> Answer:
    """Set the quotas of a tenant to those of the form; an empty field removes one."""
    name = view.match["name"]
    changes: TenantChanges = {
        "unfinished_jobs": fields.whole(view.form, "unfinished_jobs"),
        "schedules": fields.whole(view.form, "schedules"),
        "submits_per_second": fields.whole(view.form, "submits_per_second"),
        "submit_burst": fields.whole(view.form, "submit_burst"),
        "weight": fields.whole(view.form, "weight"),
    }
    await view.client.tenants.configure(name, **changes)
    return Redirect(url(f"/tenants/{part(name)}"), "The quotas were set. They count from now on.")


async def show_remove(view: View) -> Answer:
    """Ask whether the settings of a tenant shall be removed."""
    tenant = await view.client.tenants.get(view.match["name"])
    return Rendered("tenants/remove.html", {"tenant": tenant, "uses": _uses(tenant)})


async def remove(view: View) -> Answer:
    """Remove the settings of a tenant."""
    name = view.match["name"]
    if view.form.get("confirm") != name:
        raise Invalid(f"confirm: type {name} to remove its settings", field="confirm")
    await view.client.tenants.remove(name)
    return Redirect(_HOME, f"{name} has no quotas any more.")


PAGES: Final = (
    Page(path="/tenants", nav="Tenants", show=show),
    Page(path="/tenants/{name}", show=show_one),
    Page(path="/tenants/{name}/quotas", access="cluster", show=show_one, act=configure),
    Page(path="/tenants/{name}/remove", access="cluster", show=show_remove, act=remove),
)
